//! The interface of a vendor backend, and the types of its readings.
//!
//! A backend knows devices and pids; it knows nothing of people, rules or the store. Each backend
//! runs on a thread of its own, behind a [`reader::BackendReader`].

pub(crate) mod apple;
pub(crate) mod configured;
pub(crate) mod driver_files;
pub(crate) mod drm;
mod lost_devices;
pub(crate) mod nvidia;
mod quarantine;
pub(crate) mod reader;
mod response_time;
pub(crate) mod validation;

use crate::fault::FaultCause;
use crate::fd_scan::DeviceNumber;
use drm::clients::PersonLookup;
use gpukill_policy::memory::Sharing;
use gpukill_proto::holders::FirstHolder;
use gpukill_proto::model::{
    BackendState, DeviceId, FaultCode, GpuEvent, GpuUse, InstanceId, LossKind, ProcessKey, Vendor,
    Vitals,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Millijoules, Percent, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A source of readings. A call may block for as long as the driver does, so only the backend's own
/// thread makes it.
pub(crate) trait Backend: Send + 'static {
    /// The name used in the configuration, such as `nvidia`.
    fn name(&self) -> &'static str;

    /// Reads all devices once.
    ///
    /// # Errors
    /// When nothing could be read. A single value that failed is part of the readings.
    fn read(&mut self) -> Result<BackendReadings, BackendError>;

    /// Returns the device events since the last call, oldest first; also after a failed read.
    fn take_events(&mut self) -> Vec<GpuEvent> {
        Vec::new()
    }
}

/// The roots of the file system trees that backends read: `/sys`, `/proc` and `/`, except in tests.
#[derive(Clone)]
pub(crate) struct Roots {
    pub(crate) sysfs: PathBuf,
    pub(crate) procfs: PathBuf,
    pub(crate) host: PathBuf,
    pub(crate) people: Arc<dyn PersonLookup>,
}

/// Why a backend read nothing. The readings of the last success are kept and become stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendError {
    /// The backend does not work; holds the reason.
    Failed(FaultCode, String),
    /// A quiesce keeps the backend off the driver until this time.
    Quiesced(Timestamp),
}

/// The result of one backend in one poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackendReadings {
    /// Whether the vendor's library or driver answers.
    pub(crate) state: BackendState,
    /// The version of the kernel driver.
    pub(crate) driver: Reading<String>,
    /// The newest CUDA version that the driver supports.
    pub(crate) cuda: Reading<String>,
    /// The devices that have a name.
    pub(crate) devices: Vec<DeviceReadings>,
    /// The devices that the driver counts but cannot read, not even their names.
    pub(crate) lost: Vec<LostDevice>,
    /// Faults beyond a single value, such as a device without a name.
    pub(crate) faults: Vec<FaultCause>,
    /// How long the read took, in microseconds.
    pub(crate) cost_us: u64,
}

impl BackendReadings {
    /// Readings without any device, in this backend state.
    pub(crate) fn without_devices(state: BackendState) -> Self {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossCause {
    pub(crate) kind: LossKind,
    /// The driver's message.
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceReadings {
    pub(crate) id: DeviceId,
    pub(crate) index: u32,
    pub(crate) vendor: Vendor,
    pub(crate) name: Reading<String>,
    pub(crate) pci: Reading<String>,
    pub(crate) memory: MemoryReadings,
    pub(crate) vitals: Vitals,
    /// The energy drawn since the driver was loaded, where the driver counts it.
    pub(crate) energy: Option<Millijoules>,
    pub(crate) instances: Vec<InstanceReadings>,
    /// Why the device cannot be read, where the driver reports the reason.
    pub(crate) lost: Option<LossCause>,
    pub(crate) processes: Reading<Vec<ProcessReadings>>,
    /// Why not all instances could be listed (NVIDIA).
    pub(crate) instances_fault: Option<String>,
    /// Why the process list may be incomplete; `None` when it is complete.
    pub(crate) incomplete_reason: Option<String>,
    /// Processes that have a client open, with its memory counted for another process (DRM).
    pub(crate) shared_clients: Vec<SharedClient>,
    /// The processes that hold clients of unknown owner (DRM).
    pub(crate) passed_clients: Vec<PassedClient>,
    /// How much of each process's memory other processes may hold too (DRM). Processes that share
    /// nothing have no entry. The sensor never sends this.
    #[serde(skip)]
    pub(crate) sharing: BTreeMap<ProcessKey, Sharing>,
    /// The device files. A process that has one open holds the device.
    pub(crate) nodes: Vec<DeviceNode>,
    /// When these readings were taken, if the driver of this device has stopped answering while
    /// those of other devices still answer (DRM). The sensor never sends this: a stuck sensor
    /// answers for no device.
    #[serde(skip)]
    pub(crate) stale_since: Option<Timestamp>,
}

/// The fault of a device with stale or missing readings.
pub(crate) const DRIVER_NOT_ANSWERING: &str = "its driver does not answer";

/// A process that shares a client with another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedClient {
    pub(crate) key: ProcessKey,
    /// The pid of the process for which the client is counted.
    pub(crate) owner_pid: u32,
}

/// A process that holds a client that processes of several persons have held: its descriptor was
/// passed between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassedClient {
    pub(crate) key: ProcessKey,
    /// The first known holder.
    pub(crate) first: FirstHolder,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DeviceNode {
    /// The name below `/dev`, such as `renderD128`.
    pub(crate) name: String,
    pub(crate) number: DeviceNumber,
    /// The file belongs to several devices (`kfd`, `nvidiactl`): a process that has it open may not
    /// use this device.
    pub(crate) shared: bool,
}

impl DeviceReadings {
    /// A device of which only the identity is known, for this reason.
    pub(crate) fn unknown(id: DeviceId, index: u32, vendor: Vendor, why: &Reading<()>) -> Self {
        Self {
            id,
            index,
            vendor,
            name: why.as_unknown(),
            pci: why.as_unknown(),
            memory: MemoryReadings::unknown(why),
            vitals: Vitals::unknown(why),
            energy: None,
            instances: Vec::new(),
            lost: None,
            processes: why.as_unknown(),
            instances_fault: None,
            incomplete_reason: None,
            shared_clients: Vec::new(),
            passed_clients: Vec::new(),
            sharing: BTreeMap::new(),
            nodes: Vec::new(),
            stale_since: None,
        }
    }

    /// The reasons of all failed readings: of the device, its instances and its processes.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        let parts = self.instances.iter();
        let memories = parts.clone().map(|it| &it.memory).chain([&self.memory]);
        let memories = memories.flat_map(|it| [&it.total, &it.used, &it.reserved]);
        let processes = self.processes.known().into_iter().flatten();
        let held = processes.clone().map(|it| &it.memory);
        let shares = processes.flat_map(|process| {
            let used = &process.utilization;
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

    /// The memory that each of these processes holds, and how much of it other processes may hold
    /// too.
    pub(crate) fn held_memory<'a>(
        &'a self,
        listed: &'a [ProcessReadings],
    ) -> impl Iterator<Item = (&'a Reading<Bytes>, Sharing)> {
        listed.iter().map(|process| {
            let start_ticks = process.start_ticks;
            let key = start_ticks.map(|start_ticks| ProcessKey::new(process.pid, start_ticks));
            let sharing = key.and_then(|key| self.sharing.get(&key).copied());
            (&process.memory, sharing.unwrap_or(Sharing::NONE))
        })
    }
}

/// One instance of a divided device (MIG).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceReadings {
    pub(crate) id: InstanceId,
    pub(crate) uuid: DeviceId,
    pub(crate) profile: Reading<String>,
    /// The memory of its GPU instance.
    pub(crate) memory: MemoryReadings,
}

/// The memory of a device. `used` excludes `reserved` where that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryReadings {
    pub(crate) total: Reading<Bytes>,
    pub(crate) used: Reading<Bytes>,
    pub(crate) reserved: Reading<Bytes>,
    /// GPU and host share one memory. Most drivers then report neither its size nor its use.
    pub(crate) unified: bool,
}

impl MemoryReadings {
    /// All values unknown for the same reason.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            total: why.as_unknown(),
            used: why.as_unknown(),
            reserved: why.as_unknown(),
            unified: false,
        }
    }

    /// The memory of a GPU without memory of its own.
    pub(crate) fn shared_with_host() -> Self {
        Self {
            unified: true,
            ..Self::unknown(&Reading::Unsupported)
        }
    }
}

/// One process on a device as the driver reports it, not yet checked against the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessReadings {
    pub(crate) pid: u32,
    /// The start time of the process, where the backend knows it. Together with `pid` it identifies
    /// the process: a later process may reuse the pid.
    pub(crate) start_ticks: Option<u64>,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) used_for: GpuUse,
    pub(crate) memory: Reading<Bytes>,
    pub(crate) utilization: Utilization,
}

/// The share of a device that a process used recently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Utilization {
    pub(crate) sm: Reading<Percent>,
    pub(crate) memory: Reading<Percent>,
    pub(crate) encoder: Reading<Percent>,
    pub(crate) decoder: Reading<Percent>,
    /// When the driver took the sample; `None` when it had no sample of this process.
    pub(crate) sampled_at: Option<Timestamp>,
}

impl Utilization {
    /// All values unknown for the same reason.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            sm: why.as_unknown(),
            memory: why.as_unknown(),
            encoder: why.as_unknown(),
            decoder: why.as_unknown(),
            sampled_at: None,
        }
    }
}
