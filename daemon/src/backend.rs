//! What a vendor's backend is, and what it reads.
//!
//! A backend knows devices and pids; it knows nothing of people, rules or the
//! store. Each runs on a thread of its own, behind a [`reader::Reader`].

pub(crate) mod apple;

pub(crate) mod checked;

pub(crate) mod driver_files;

pub(crate) mod drm;

mod lost;

pub(crate) mod nvidia;

mod pace;

mod quarantine;

pub(crate) mod reader;

pub(crate) mod wanted;

use crate::faults::FaultCause;
use crate::holders::DeviceNumber;
use drm::clients::People;
use gpukill_policy::memory::Sharing;
use gpukill_proto::holders::FirstHolder;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{
    BackendState, DeviceId, FaultCode, GpuEvent, InstanceId, LossKind, ProcessKey, Use, Vendor,
    Vitals,
};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

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
    fn read(&mut self) -> Result<Readings, Failure>;

    /// What happened to devices since this was last called, the oldest first;
    /// also when reading failed.
    fn take_events(&mut self) -> Vec<GpuEvent>;
}

/// Where things are read: `/sys`, `/proc` and `/`, but in tests.
#[derive(Clone)]
pub(crate) struct Roots {
    pub(crate) sysfs: PathBuf,
    pub(crate) procfs: PathBuf,
    pub(crate) host: PathBuf,
    pub(crate) people: Arc<dyn People>,
}

/// Why a backend read nothing; what it read before stays, and grows old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It does not work; says why.
    Failed(FaultCode, String),
    /// Somebody asked it to let go of the driver until then.
    Quiesced(Timestamp),
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
    /// The devices that are counted and cannot be read, not even for a name.
    pub(crate) lost: Vec<LostDevice>,
    /// What went wrong beyond a single value, such as a device without a name.
    pub(crate) faults: Vec<FaultCause>,
    /// How long it took, in microseconds.
    pub(crate) cost_us: u64,
}

impl Readings {
    /// No device, and this for a reason.
    pub(crate) fn nothing(state: BackendState) -> Self {
        Self {
            state,
            driver: Reading::Unsupported,
            cuda: Reading::Unsupported,
            devices: Vec::new(),
            lost: Vec::new(),
            faults: Vec::new(),
            cost_us: 0,
        }
    }
}

/// A device that the driver counts and cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostDevice {
    pub(crate) index: u32,
    pub(crate) cause: LossCause,
}

/// Why a device cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossCause {
    pub(crate) kind: LossKind,
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
    pub(crate) vitals: Vitals,
    pub(crate) instances: Vec<InstanceReadings>,
    /// Why it cannot be read, where the driver says so.
    pub(crate) lost: Option<LossCause>,
    pub(crate) processes: Reading<Vec<ProcessReadings>>,
    /// Why not all of its instances could be listed (NVIDIA).
    pub(crate) instances_fault: Option<String>,
    /// Why there may be processes that are not in the list; `None` when it is
    /// whole.
    pub(crate) unseen: Option<String>,
    /// Whoever has the same client open as a process of the list, for which its
    /// memory is counted (DRM).
    pub(crate) sharers: Vec<Sharer>,
    /// The processes that hold clients of which the owner is not known (DRM).
    pub(crate) passed: Vec<PassedClient>,
    /// How much of what a process holds others may hold too (DRM); who shares
    /// nothing is not in it. No sensor tells of it.
    #[serde(skip)]
    pub(crate) sharing: BTreeMap<ProcessKey, Sharing>,
    /// Its device files: whoever has one open holds the device.
    pub(crate) nodes: Vec<Node>,
    /// When all of this was read, where its driver has not answered since, and
    /// those of other devices have (DRM). No sensor tells of it: one that is stuck
    /// answers for no device.
    #[serde(skip)]
    pub(crate) silent_since: Option<Timestamp>,
}

/// What is wrong with a device whose readings are old, or are none.
pub(crate) const SILENT: &str = "its driver does not answer";

/// A process that shares a client with another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sharer {
    pub(crate) key: ProcessKey,
    /// The one for which it is counted.
    pub(crate) with: u32,
}

/// A process that holds a client that processes of several persons held: the
/// descriptor was passed from one to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassedClient {
    pub(crate) key: ProcessKey,
    /// The first holder that is known of.
    pub(crate) first: FirstHolder,
}

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Node {
    /// As below `/dev`: `renderD128`.
    pub(crate) name: String,
    pub(crate) number: DeviceNumber,
    /// Other devices have it too (`kfd`, `nvidiactl`): whoever has it open need
    /// not use this one.
    pub(crate) shared: bool,
}

impl DeviceReadings {
    /// A device of which nothing is known but its identity, for this reason.
    pub(crate) fn unknown(id: DeviceId, index: u32, vendor: Vendor, why: &Reading<()>) -> Self {
        Self {
            id,
            index,
            vendor,
            name: why.because(),
            pci: why.because(),
            memory: MemoryReadings::unknown(why),
            vitals: Vitals::unknown(why),
            instances: Vec::new(),
            lost: None,
            processes: why.because(),
            instances_fault: None,
            unseen: None,
            sharers: Vec::new(),
            passed: Vec::new(),
            sharing: BTreeMap::new(),
            nodes: Vec::new(),
            silent_since: None,
        }
    }

    /// Why readings of it failed: of itself, its instances and its processes.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        let parts = self.instances.iter();
        let memories = parts.clone().map(|it| &it.memory).chain([&self.memory]);
        let memories = memories.flat_map(|it| [&it.total, &it.used, &it.reserved]);
        let processes = self.processes.known().into_iter().flatten();
        let held = processes.clone().map(|it| &it.memory);
        let shares = processes.flat_map(|it| {
            let used = &it.utilization;
            [&used.sm, &used.memory, &used.encoder, &used.decoder]
        });
        let texts = [&self.name, &self.pci].into_iter();
        let texts = texts.chain(parts.map(|it| &it.profile));
        let of_vitals = self.vitals.failures().map(|(_, why)| why);
        of_vitals
            .chain(texts.filter_map(Reading::failure))
            .chain(memories.chain(held).filter_map(Reading::failure))
            .chain(shares.filter_map(Reading::failure))
            .chain(self.processes.failure())
            .chain(self.instances_fault.as_deref())
    }

    /// What each of these processes holds, and how much of it others may hold too.
    pub(crate) fn held<'a>(
        &'a self,
        listed: &'a [ProcessReadings],
    ) -> impl Iterator<Item = (&'a Reading<Bytes>, Sharing)> {
        listed.iter().map(|process| {
            let start_ticks = process.start_ticks;
            let key = start_ticks.map(|start_ticks| ProcessKey {
                pid: process.pid,
                start_ticks,
            });
            let sharing = key.and_then(|key| self.sharing.get(&key).copied());
            (&process.memory, sharing.unwrap_or(Sharing::NONE))
        })
    }
}

/// One part of a device that is divided (MIG).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceReadings {
    pub(crate) id: InstanceId,
    pub(crate) uuid: DeviceId,
    pub(crate) profile: Reading<String>,
    /// Of its GPU instance.
    pub(crate) memory: MemoryReadings,
}

/// A device's memory. `used` is without `reserved`, where that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryReadings {
    pub(crate) total: Reading<Bytes>,
    pub(crate) used: Reading<Bytes>,
    pub(crate) reserved: Reading<Bytes>,
    /// GPU and host share one memory. Most drivers tell neither its size nor its
    /// use then.
    pub(crate) unified: bool,
}

impl MemoryReadings {
    /// All of it for the same reason not known.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            total: why.because(),
            used: why.because(),
            reserved: why.because(),
            unified: false,
        }
    }

    /// A GPU that has no memory of its own.
    pub(crate) fn shared_with_host() -> Self {
        Self {
            unified: true,
            ..Self::unknown(&Reading::Unsupported)
        }
    }
}

/// One process on a device, as the driver reports it: nothing here is checked
/// against the system yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessReadings {
    pub(crate) pid: u32,
    /// With `pid` it names the process, where the backend has seen it: whoever
    /// has the pid later is another one.
    pub(crate) start_ticks: Option<u64>,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) used_for: Use,
    pub(crate) memory: Reading<Bytes>,
    pub(crate) utilization: Utilization,
}

/// What share of a device a process used lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Utilization {
    pub(crate) sm: Reading<Percent>,
    pub(crate) memory: Reading<Percent>,
    pub(crate) encoder: Reading<Percent>,
    pub(crate) decoder: Reading<Percent>,
    /// When the driver took the sample; `None` when it had none of this process.
    pub(crate) at: Option<Timestamp>,
}

impl Utilization {
    /// All of it for the same reason not known.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            sm: why.because(),
            memory: why.because(),
            encoder: why.because(),
            decoder: why.because(),
            at: None,
        }
    }
}
