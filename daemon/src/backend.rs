//! What a vendor's backend is, and what it reads.
//!
//! A backend knows devices and pids; it knows nothing of people, rules or the
//! store. Each runs on a thread of its own, behind a [`reader::Reader`].

mod checked;

mod lost;

pub(crate) mod nvidia;

pub(crate) mod reader;

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, Use, Vendor};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent};
use serde::{Deserialize, Serialize};

/// A source of readings. May block for as long as a driver does: only its own
/// thread calls it.
pub(crate) trait Backend: Send + 'static {
    /// As in the configuration: `nvidia`.
    fn name(&self) -> &'static str;

    /// Reads everything once.
    ///
    /// # Errors
    /// Why nothing could be read; a single value that failed is part of the
    /// readings.
    fn read(&mut self) -> Result<Readings, String>;
}

/// What one backend read in one poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Readings {
    /// Whether the vendor's library or driver answers.
    pub(crate) state: BackendState,
    /// The version of the kernel driver.
    pub(crate) driver: Reading<String>,
    /// The newest CUDA version the driver supports.
    pub(crate) cuda: Reading<String>,
    /// The devices that have a name.
    pub(crate) devices: Vec<DeviceReadings>,
    /// The devices that are counted and cannot be reached, not even for a name.
    pub(crate) lost: Vec<LostDevice>,
    /// What went wrong beyond a single value, such as a device without a name.
    pub(crate) faults: Vec<String>,
    /// How long it took, in microseconds.
    pub(crate) cost_us: u64,
}

/// A device that the driver counts and cannot reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostDevice {
    pub(crate) index: u32,
    /// What the driver says.
    pub(crate) why: String,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceReadings {
    pub(crate) id: DeviceId,
    pub(crate) index: u32,
    pub(crate) vendor: Vendor,
    pub(crate) name: Reading<String>,
    pub(crate) pci: Reading<String>,
    pub(crate) memory: MemoryReadings,
    pub(crate) utilization: Reading<Percent>,
    pub(crate) temperature: Reading<Celsius>,
    pub(crate) power: Reading<Milliwatts>,
    pub(crate) power_limit: Reading<Milliwatts>,
    pub(crate) ecc_volatile: Reading<u64>,
    /// What the driver says when it cannot reach the device any more.
    pub(crate) lost: Option<String>,
    pub(crate) processes: Reading<Vec<ProcessReadings>>,
}

/// A device's memory. `used` is without `reserved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryReadings {
    pub(crate) total: Reading<Bytes>,
    pub(crate) used: Reading<Bytes>,
    pub(crate) reserved: Reading<Bytes>,
    /// GPU and host share one memory.
    pub(crate) unified: bool,
}

impl MemoryReadings {
    /// All of it for the same reason not known.
    pub(crate) fn unknown(why: &Reading<Bytes>) -> Self {
        Self {
            total: why.clone(),
            used: why.clone(),
            reserved: why.clone(),
            unified: false,
        }
    }
}

/// One process on a device, as the driver reports it: nothing here is checked
/// against the system yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessReadings {
    pub(crate) pid: u32,
    pub(crate) used_for: Use,
    pub(crate) memory: Reading<Bytes>,
    pub(crate) utilization: Reading<Percent>,
}
