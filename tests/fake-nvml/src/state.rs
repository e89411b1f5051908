//! The state file: the machine to play. This file is the reference of its format.
//!
//! JSON. Every key has a default, so `{"gpus": [{}]}` is one idle H100; an unknown key is an error.
//! `null` where an `Option` stands means that this GPU does not have it (NOT_SUPPORTED).
//! Functions are named by their exact symbol, with the suffix: `nvmlDeviceGetMemoryInfo_v2`.

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
    /// What `nvmlInit` returns; 0 lets it succeed.
    pub(crate) init_error: u32,
    /// Which load of the driver this is. The one that the first successful `nvmlInit` finds is
    /// remembered for as long as the library is mapped; while the file says another, every call and
    /// every init answers `load_error`. Only a fresh mapping (a new process) speaks to the new load.
    pub(crate) load: u64,
    pub(crate) load_error: u32,
    /// How long every call takes before it answers.
    pub(crate) delay_ms: u64,
    /// Function → the code it returns, whatever the GPU.
    pub(crate) errors: BTreeMap<String, u32>,
    /// Functions that never return.
    pub(crate) hang: BTreeSet<String>,
    /// Functions that abort the process.
    pub(crate) crash: BTreeSet<String>,
    /// Files to which each call appends a byte and which it opens to everybody (mode 0777), while
    /// it asks its parent to end: a library that somebody overwrote.
    pub(crate) tamper: BTreeSet<PathBuf>,
    /// A file that is there, to which the first call writes which of the things that a sensor
    /// has no business with were let through, and whom it left running. See `trespass`.
    pub(crate) trespass: Option<PathBuf>,
    /// How the process lists named `_v3` write a process: 24 bytes, or 32 as some builds of R535
    /// did, whatever room the caller left for each.
    pub(crate) process_record: ProcessRecord,
    /// What happened, by growing id. See [`Event`].
    pub(crate) events: Vec<Event>,
    /// What `nvmlEventSetWait` and `_v2` fail with, also in the middle of a wait; 0 lets them wait.
    pub(crate) event_wait_error: u32,
    /// In the order NVML enumerates them. They may be reordered, added and removed while playing:
    /// a handle belongs to a UUID, and one whose UUID is gone answers GPU_IS_LOST.
    pub(crate) gpus: Vec<Gpu>,
}

/// One GPU.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Gpu {
    /// Its place in `gpus`.
    #[serde(skip)]
    pub(crate) index: u32,
    /// By default made from the place.
    uuid: Option<String>,
    /// By default made from the place.
    pci: Option<PciAddress>,
    /// The N of `/dev/nvidiaN`; by default the place.
    minor: Option<u32>,
    pub(crate) name: String,
    pub(crate) serial: Option<String>,
    /// Device and vendor, as NVML joins them.
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
    /// Both the limit asked for and the one enforced.
    pub(crate) power_limit_mw: Option<u32>,
    /// Since the driver was loaded; also field 83.
    pub(crate) energy_mj: Option<u64>,
    /// Percent of the one fan's speed.
    pub(crate) fan: Option<u32>,
    pub(crate) clocks: Clocks,
    pub(crate) max_clocks: Clocks,
    /// Why the clocks are not higher, as NVML's bits: 1 idle, 4 power cap, 8 hardware slowdown, 0x20
    /// and 0x40 heat, 0x80 power brake. Any bit can be played, known or not.
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
    /// Rows of memory replaced by spare ones (Ampere and newer); the fields 142 to 145 too.
    pub(crate) remapped_rows: Option<RemappedRows>,
    /// Pages of memory taken out of use (before Ampere).
    pub(crate) retired_pages: Option<RetiredPages>,
    /// Field 230: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain and reset; any number can be played.
    pub(crate) recovery_action: Option<u32>,
    /// Field → the code it carries within an answer that succeeds: `{"230": 999}`.
    pub(crate) field_errors: BTreeMap<u32, u32>,
    /// MIG mode. While it is on, utilisation, encoder, decoder, remapped rows and the utilisation
    /// by process are NOT_SUPPORTED, whatever their keys say.
    pub(crate) mig: Option<bool>,
    /// What `nvmlDeviceGetMigMode` tells instead of `mig`, such as a mode that is not known (7).
    pub(crate) mig_mode_raw: Option<u32>,
    /// The MIG devices of a GPU with `mig` true.
    pub(crate) instances: Vec<Instance>,
    /// What the process lists of a GPU with `mig` true fail with, such as 4 (NO_PERMISSION); those
    /// of its instances do not. 0 lets them work, and then they name the processes of all instances.
    pub(crate) mig_parent_lists: u32,
    /// What the process lists of its instances fail with; those of the whole GPU do not.
    pub(crate) mig_instance_lists: u32,
    /// The events it can tell of; registering for another is NOT_SUPPORTED.
    pub(crate) supported_events: Option<u64>,
    /// Function → the code it returns for this GPU and its instances.
    pub(crate) errors: BTreeMap<String, u32>,
    /// Functions that never return for this GPU and its instances.
    pub(crate) hang: BTreeSet<String>,
    /// Function → how many milliseconds it takes for this GPU and its instances.
    pub(crate) slow: BTreeMap<String, u64>,
    /// Fallen off the bus: every function answers GPU_IS_LOST.
    pub(crate) lost: bool,
    /// Whether `nvmlDeviceGetProcessUtilization` is supported.
    pub(crate) process_utilization: bool,
    pub(crate) processes: Vec<Process>,
    /// Samples of utilisation told after the processes' own: pids that are not there and values that
    /// cannot be. See [`Sample`].
    pub(crate) samples: Vec<Sample>,
    /// How many calls of a process list, or of `nvmlDeviceGetProcessUtilization`, that brought room
    /// enough find the list grown meanwhile: INSUFFICIENT_SIZE, and one more than there was room for.
    /// Each process counts from when it read this version of the file; -1 never stops.
    pub(crate) grow: i64,
    /// How many did, since the file was read.
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
    /// Without `reserved`; by default the sum of what the processes use.
    used: Option<u64>,
    /// An older driver: `nvmlDeviceGetMemoryInfo_v2` answers FUNCTION_NOT_FOUND.
    pub(crate) v1_only: bool,
}

/// Percent of the last sample period.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Utilization {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// MHz; one left out is the top clock of an H100.
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

/// The PCIe link, now and at best; one left out is that of an H100.
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

/// How many pages were taken out of use; their addresses are made up.
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

/// One MIG device: a compute instance of a GPU instance, which has a handle of its own. That handle
/// answers identity, memory and process lists, and NOT_SUPPORTED to all else; once the instance is
/// gone from the file it is an INVALID_ARGUMENT.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    /// By default made from the place of the GPU and the two numbers.
    #[serde(default)]
    uuid: Option<String>,
    /// By default the GPU's name and a profile.
    #[serde(default)]
    name: Option<String>,
    /// Below 7, by default the place in `instances`. An index that nobody has answers NOT_FOUND.
    #[serde(default)]
    index: Option<u32>,
    /// The memory of the GPU instance, which its compute instances share: it is enough that one of
    /// them tells it. By default that of the profile 1g.10gb; `used` by default as on a GPU.
    #[serde(default)]
    memory: Option<Memory>,
    #[serde(default)]
    pub(crate) attributes: Attributes,
    /// Function → the code it returns for this instance; also for the function that gives its handle.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u32>,
}

/// What part of the GPU an instance has; by default that of the profile 1g.10gb of an H100.
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

/// Something that happened to a GPU. A set is told of it once, if the GPU was registered there for
/// its type, and if its id is greater than all that the file had when it was registered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    /// From 1 on, each greater than the one before.
    pub(crate) id: u64,
    /// The place in `gpus`.
    pub(crate) gpu: usize,
    /// One of NVML's bits: 1 and 2 memory errors, 8 an XID, 0x100 MIG.
    #[serde(rename = "type")]
    pub(crate) kind: u64,
    /// The XID, if it is one.
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
    /// Bytes; null or left out: NVML_VALUE_NOT_AVAILABLE.
    #[serde(default)]
    pub(crate) memory: Option<u64>,
    /// Percent of the SMs' time; null or left out: no sample of this process.
    #[serde(default)]
    pub(crate) sm: Option<u32>,
    /// Percent of the memory controller's time, told with the sample.
    #[serde(default)]
    pub(crate) mem_util: u32,
    /// Percent of the encoders' time, told with the sample.
    #[serde(default)]
    pub(crate) enc: u32,
    /// Percent of the decoders' time, told with the sample.
    #[serde(default)]
    pub(crate) dec: u32,
    /// Bytes, the last word of a record of 32 bytes.
    #[serde(default)]
    pub(crate) protected_memory: u64,
    #[serde(default)]
    pub(crate) kind: Kind,
    /// With the next, the instance whose lists name it.
    #[serde(default)]
    pub(crate) gpu_instance: Option<u32>,
    #[serde(default)]
    pub(crate) compute_instance: Option<u32>,
}

/// One sample of what a process used, as it is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sample {
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
    /// Taken as long before it is asked for; a negative age is a time to come.
    #[serde(default)]
    pub(crate) age_us: i64,
}

/// Which of the three process lists name a process.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Compute,
    Graphics,
    /// Compute and graphics.
    Both,
    Mps,
}

/// The size of a process in the lists named `_v3`.
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
