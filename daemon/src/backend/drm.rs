//! Reads every GPU with a driver of the kernel: AMD, Intel, and any other DRM driver. Reads only
//! files: sysfs, hwmon, KFD, and the kernel's report on each open descriptor (fdinfo).

pub(crate) mod amd;
pub(crate) mod card;
mod card_reader;
pub(crate) mod clients;
mod common_devices;
mod contradiction;
pub(crate) mod engines;
pub(crate) mod family;
pub(crate) mod fdinfo;
pub(crate) mod hwmon;
pub(crate) mod intel;
mod link;
pub(crate) mod missing_attributes;
pub(crate) mod names;
pub(crate) mod other;
mod runtime_pm;
pub(crate) mod sysfs;

use super::{DeviceNode, InstanceReadings, MemoryReadings};
use crate::fault::FaultCause;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};

/// The values from a card's own files, as opposed to those from its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardReadings {
    pub(crate) memory: MemoryReadings,
    pub(crate) vitals: Vitals,
    pub(crate) instances: Vec<InstanceReadings>,
    /// Device files beyond the card's own: the KFD file and the files of its partitions.
    pub(crate) nodes: Vec<DeviceNode>,
    /// The processes in the driver's own list.
    pub(crate) kfd_processes: Vec<KfdProcess>,
    /// Faults beyond a single value.
    pub(crate) faults: Vec<FaultCause>,
}

impl CardReadings {
    /// No values, for this reason.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            memory: MemoryReadings::unknown(why),
            vitals: Vitals::unknown(why),
            instances: Vec::new(),
            nodes: Vec::new(),
            kfd_processes: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// A process in a driver's own list (KFD), by its pid in the host's PID namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KfdProcess {
    pub(crate) pid: u32,
    /// The device memory that the list reports for it.
    pub(crate) memory: Reading<Bytes>,
    /// The share of the compute units that it occupies now.
    pub(crate) occupancy: Reading<Percent>,
}

/// The sum of sizes in bytes: unknown where one is, and unsupported where there is nothing.
fn sum_sizes(sizes: Vec<Reading<u64>>) -> Reading<Bytes> {
    let mut sum: u64 = 0;
    for size in sizes {
        match size {
            Reading::Value(size) => sum = sum.saturating_add(size),
            unknown => return unknown.as_unknown(),
        }
    }
    match sum {
        0 => Reading::Unsupported,
        sum => Reading::Value(Bytes(sum)),
    }
}
