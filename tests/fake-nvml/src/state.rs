//! The state file: the machine to simulate. This module is the reference of its format.
//!
//! The format is JSON. Every key has a default, so `{"gpus": [{}]}` is one idle H100; an unknown
//! key is an error. `null` for an `Option` means that this GPU does not have the value
//! (NOT_SUPPORTED). Functions are named by their exact symbol, with the suffix:
//! `nvmlDeviceGetMemoryInfo_v2`.

mod checks;
mod defaults;
mod derived;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use serde::Deserialize;

pub(crate) use self::checks::MAX_INSTANCES;
use crate::pci::PciAddress;

/// The whole machine.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) driver: String,
    /// The CUDA version as NVML counts: 13000 is 13.0.
    pub(crate) cuda: i32,
    pub(crate) nvml: String,
    /// The result of `nvmlInit`; 0 lets it succeed.
    pub(crate) init_error: u32,
    /// The number of the driver load. The load at the first successful `nvmlInit` is remembered
    /// while the library is mapped; while the file has another, every call and every init returns
    /// `load_error`. Only a fresh mapping (a new process) can use the new load.
    pub(crate) load: u64,
    pub(crate) load_error: u32,
    /// The delay of every call before it answers.
    pub(crate) delay_ms: u64,
    /// Function → the code it returns, for every GPU.
    pub(crate) errors: BTreeMap<String, u32>,
    /// Functions that never return.
    pub(crate) hang: BTreeSet<String>,
    /// Functions that abort the process.
    pub(crate) crash: BTreeSet<String>,
    /// Files to which each call appends a byte and which it opens to everyone (mode 0777), while it
    /// sends SIGTERM to its parent: this simulates an overwritten library.
    pub(crate) tamper: BTreeSet<PathBuf>,
    /// An existing file to which the first call writes which forbidden actions of a sensor were
    /// allowed, and the pid of the process that it left running. See `trespass`.
    pub(crate) trespass: Option<PathBuf>,
    /// The record size of the process lists named `_v3`: 24 bytes, or 32 as in some builds of R535,
    /// whatever room the caller left for each.
    pub(crate) process_record: ProcessRecord,
    /// Events, by growing id. See [`Event`].
    pub(crate) events: Vec<Event>,
    /// The error of `nvmlEventSetWait` and `_v2`, also in the middle of a wait; 0 lets them wait.
    pub(crate) event_wait_error: u32,
    /// In the order in which NVML enumerates them. GPUs may be reordered, added and removed at any
    /// time: a handle belongs to a UUID, and the handle of a missing UUID returns GPU_IS_LOST.
    pub(crate) gpus: Vec<Gpu>,
}

/// One GPU.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Gpu {
    /// Its position in `gpus`.
    #[serde(skip)]
    pub(crate) index: u32,
    /// By default derived from the position.
    uuid: Option<String>,
    /// By default derived from the position.
    pci: Option<PciAddress>,
    /// The N of `/dev/nvidiaN`; by default the position.
    minor: Option<u32>,
    pub(crate) name: String,
    pub(crate) serial: Option<String>,
    /// Device and vendor, as NVML combines them.
    pub(crate) pci_device_id: u32,
    pub(crate) compute_capability: [i32; 2],
    pub(crate) memory: Option<Memory>,
    pub(crate) utilization: Option<Utilization>,
    /// Percent.
    pub(crate) encoder: Option<u32>,
    /// Percent.
    pub(crate) decoder: Option<u32>,
    /// °C.
    pub(crate) temperature: Option<u32>,
    /// °C; field 82.
    pub(crate) memory_temperature: Option<u32>,
    /// Also the fields 185 (average) and 186 (instant).
    pub(crate) power_mw: Option<u32>,
    /// Both the configured and the enforced limit.
    pub(crate) power_limit_mw: Option<u32>,
    /// Since the driver was loaded; also field 83.
    pub(crate) energy_mj: Option<u64>,
    /// Percent of the speed of its only fan.
    pub(crate) fan: Option<u32>,
    pub(crate) clocks: Clocks,
    pub(crate) max_clocks: Clocks,
    /// The throttle reasons as NVML's bits: 1 idle, 4 power cap, 8 hardware slowdown, 0x20 and 0x40
    /// heat, 0x80 power brake. Any bit is allowed, known or not.
    pub(crate) throttle: Option<u64>,
    pub(crate) pcie: Option<Pcie>,
    /// 0 (fastest) to 15.
    pub(crate) performance_state: Option<u32>,
    /// 0 default, 2 prohibited, 3 exclusive process.
    pub(crate) compute_mode: Option<u32>,
    pub(crate) persistence: Option<bool>,
    /// Whether a display is attached and used.
    pub(crate) display: bool,
    pub(crate) ecc: Option<Ecc>,
    /// Memory rows replaced by spare rows (Ampere and newer); also the fields 142 to 145.
    pub(crate) remapped_rows: Option<RemappedRows>,
    /// Pages of memory taken out of use (before Ampere).
    pub(crate) retired_pages: Option<RetiredPages>,
    /// Field 230: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain and reset; any number is allowed.
    pub(crate) recovery_action: Option<u32>,
    /// Field → its code within an answer that succeeds: `{"230": 999}`.
    pub(crate) field_errors: BTreeMap<u32, u32>,
    /// MIG mode. While it is on, utilization, encoder, decoder, remapped rows and the utilization
    /// by process are NOT_SUPPORTED, whatever their keys.
    pub(crate) mig: Option<bool>,
    /// The answer of `nvmlDeviceGetMigMode` instead of `mig`, such as an unknown mode (7).
    pub(crate) mig_mode_raw: Option<u32>,
    /// The MIG devices of a GPU with `mig` true.
    pub(crate) instances: Vec<Instance>,
    /// The error of the process lists of a GPU with `mig` true, such as 4 (NO_PERMISSION); the
    /// lists of its instances do not fail. With 0 they work, and contain the processes of all
    /// instances.
    pub(crate) mig_parent_lists: u32,
    /// The error of the process lists of its instances; the lists of the whole GPU do not fail.
    pub(crate) mig_instance_lists: u32,
    /// The supported events; registering for another is NOT_SUPPORTED.
    pub(crate) supported_events: Option<u64>,
    /// Function → the code it returns for this GPU and its instances.
    pub(crate) errors: BTreeMap<String, u32>,
    /// Functions that never return for this GPU and its instances.
    pub(crate) hang: BTreeSet<String>,
    /// Function → its delay in milliseconds for this GPU and its instances.
    pub(crate) slow: BTreeMap<String, u64>,
    /// Fallen off the bus: every function returns GPU_IS_LOST.
    pub(crate) lost: bool,
    /// Whether `nvmlDeviceGetProcessUtilization` is supported.
    pub(crate) process_utilization: bool,
    pub(crate) processes: Vec<Process>,
    /// Utilization samples that follow those of the processes, for missing pids and impossible
    /// values. See [`UtilizationSample`].
    pub(crate) samples: Vec<UtilizationSample>,
    /// How many calls of a process list or of `nvmlDeviceGetProcessUtilization` with enough room
    /// find that the list has grown: they return INSUFFICIENT_SIZE, and one more than there was
    /// room for. Each process counts from its reading of this version of the file; with -1 it never
    /// stops.
    pub(crate) grow: i64,
    /// How many calls did since the file was read.
    #[serde(skip)]
    grown: AtomicU64,
}

/// Device memory, in bytes.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// Held by the driver itself.
    pub(crate) reserved: u64,
    /// Without `reserved`; by default the sum of the processes' memory.
    used: Option<u64>,
    /// An older driver: `nvmlDeviceGetMemoryInfo_v2` returns FUNCTION_NOT_FOUND.
    pub(crate) v1_only: bool,
}

/// Percent of the last sample period.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Utilization {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// MHz; by default the top clock of an H100.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Clocks {
    pub(crate) graphics: Option<u32>,
    pub(crate) sm: Option<u32>,
    pub(crate) memory: Option<u32>,
    pub(crate) video: Option<u32>,
}

/// Memory errors; the counters are NOT_SUPPORTED while `enabled` is false.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Ecc {
    pub(crate) enabled: bool,
    pub(crate) volatile_corrected: u64,
    pub(crate) volatile_uncorrected: u64,
    pub(crate) aggregate_corrected: u64,
    pub(crate) aggregate_uncorrected: u64,
}

/// The current and the maximum PCIe link; by default that of an H100.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Pcie {
    pub(crate) generation: Option<u32>,
    /// Lanes.
    pub(crate) width: Option<u32>,
    pub(crate) max_generation: Option<u32>,
    pub(crate) max_width: Option<u32>,
}

/// Rows replaced after memory errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RemappedRows {
    /// For errors that were corrected.
    pub(crate) correctable: u32,
    pub(crate) uncorrectable: u32,
    /// One more waits for the next reset.
    pub(crate) pending: bool,
    /// One could not be replaced.
    pub(crate) failure: bool,
}

/// The number of pages taken out of use; their addresses are invented.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetiredPages {
    /// After several single-bit errors.
    pub(crate) single_bit: u32,
    /// After a double-bit error.
    pub(crate) double_bit: u32,
    /// One more waits for the next reboot.
    pub(crate) pending: bool,
}

/// One MIG device: a compute instance of a GPU instance, with a handle of its own. The handle
/// supports identity, memory and process lists, and returns NOT_SUPPORTED for everything else; once
/// the instance is gone from the file it is an INVALID_ARGUMENT.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    /// By default derived from the position of the GPU and the two numbers.
    #[serde(default)]
    uuid: Option<String>,
    /// By default the GPU's name and a profile.
    #[serde(default)]
    name: Option<String>,
    /// Below 7, by default the position in `instances`. An unused index returns NOT_FOUND.
    #[serde(default)]
    index: Option<u32>,
    /// The memory of the GPU instance, which its compute instances share: one of them needs to
    /// specify it. By default that of the profile 1g.10gb; `used` by default as on a GPU.
    #[serde(default)]
    memory: Option<Memory>,
    #[serde(default)]
    pub(crate) attributes: Attributes,
    /// Function → the code it returns for this instance; also for the function that returns its
    /// handle.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u32>,
}

/// The instance's share of the GPU; by default that of the profile 1g.10gb of an H100.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Attributes {
    pub(crate) multiprocessors: u32,
    pub(crate) copy_engines: u32,
    pub(crate) decoders: u32,
    pub(crate) encoders: u32,
    pub(crate) jpegs: u32,
    pub(crate) optical_flows: u32,
    pub(crate) gpu_slices: u32,
    pub(crate) compute_slices: u32,
}

/// An event of a GPU. A set returns it once, if the GPU was registered there for its type, and if
/// its id is greater than all ids in the file at the registration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    /// From 1 on, each greater than the one before.
    pub(crate) id: u64,
    /// The position in `gpus`.
    pub(crate) gpu: usize,
    /// One of NVML's bits: 1 and 2 memory errors, 8 an XID, 0x100 MIG.
    #[serde(rename = "type")]
    pub(crate) kind: u64,
    /// The XID, for an XID event.
    #[serde(default)]
    pub(crate) data: u64,
    #[serde(default)]
    pub(crate) gpu_instance: Option<u32>,
    #[serde(default)]
    pub(crate) compute_instance: Option<u32>,
}

/// One process on a GPU. Only `pid` is required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Bytes; null or omitted: NVML_VALUE_NOT_AVAILABLE.
    #[serde(default)]
    pub(crate) memory: Option<u64>,
    /// Percent of the SMs' time; null or omitted: no sample of this process.
    #[serde(default)]
    pub(crate) sm: Option<u32>,
    /// Percent of the memory controller's time, part of the sample.
    #[serde(default)]
    pub(crate) mem_util: u32,
    /// Percent of the encoders' time, part of the sample.
    #[serde(default)]
    pub(crate) enc: u32,
    /// Percent of the decoders' time, part of the sample.
    #[serde(default)]
    pub(crate) dec: u32,
    /// Bytes, the last word of a record of 32 bytes.
    #[serde(default)]
    pub(crate) protected_memory: u64,
    #[serde(default)]
    pub(crate) kind: ProcessKind,
    /// With the next key, the instance that lists the process.
    #[serde(default)]
    pub(crate) gpu_instance: Option<u32>,
    #[serde(default)]
    pub(crate) compute_instance: Option<u32>,
}

/// One utilization sample of a process, returned unchanged.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UtilizationSample {
    pub(crate) pid: u32,
    /// This and the next three: percent.
    #[serde(default)]
    pub(crate) sm: u32,
    #[serde(default)]
    pub(crate) mem: u32,
    #[serde(default)]
    pub(crate) enc: u32,
    #[serde(default)]
    pub(crate) dec: u32,
    /// The age at the time of the call; a negative age is a time in the future.
    #[serde(default)]
    pub(crate) age_us: i64,
}

/// The process lists that contain a process.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProcessKind {
    #[default]
    Compute,
    Graphics,
    /// Compute and graphics.
    Both,
    Mps,
}

/// The record size of the lists named `_v3`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "u32")]
pub(crate) enum ProcessRecord {
    #[default]
    Bytes24,
    Bytes32,
}

impl TryFrom<u32> for ProcessRecord {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        match bytes {
            24 => Ok(Self::Bytes24),
            32 => Ok(Self::Bytes32),
            _ => Err(format!("a process record has 24 or 32 bytes, not {bytes}")),
        }
    }
}
