//! The state file: the machine to play. This file is the reference of its format.
//!
//! JSON. Every key has a default, so `{"gpus": [{}]}` is one idle H100; an unknown key is an error.
//! `null` where an `Option` stands means that this GPU does not have it (NOT_SUPPORTED).
//! Functions are named by their exact symbol, with the suffix: `nvmlDeviceGetMemoryInfo_v2`.

mod defaults;
mod reading;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

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
    /// How long every call takes before it answers.
    pub(crate) delay_ms: u64,
    /// Function → the code it returns, whatever the GPU.
    pub(crate) errors: BTreeMap<String, u32>,
    /// Functions that never return.
    pub(crate) hang: BTreeSet<String>,
    /// Functions that abort the process.
    pub(crate) crash: BTreeSet<String>,
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
    pub(crate) power_mw: Option<u32>,
    /// Both the limit asked for and the one enforced.
    pub(crate) power_limit_mw: Option<u32>,
    /// Since the driver was loaded.
    pub(crate) energy_mj: Option<u64>,
    /// Percent of the one fan's speed.
    pub(crate) fan: Option<u32>,
    pub(crate) clocks: Clocks,
    pub(crate) max_clocks: Clocks,
    /// 0 (fastest) to 15.
    pub(crate) performance_state: Option<u32>,
    /// 0 default, 2 prohibited, 3 exclusive process.
    pub(crate) compute_mode: Option<u32>,
    pub(crate) persistence: Option<bool>,
    /// Whether a display is attached and used.
    pub(crate) display: bool,
    pub(crate) ecc: Option<Ecc>,
    /// MIG mode. Instances are not played; a real GPU in this mode has `utilization` null too.
    pub(crate) mig: Option<bool>,
    /// Function → the code it returns for this GPU.
    pub(crate) errors: BTreeMap<String, u32>,
    /// Fallen off the bus: every function answers GPU_IS_LOST.
    pub(crate) lost: bool,
    /// Whether `nvmlDeviceGetProcessUtilization` is supported.
    pub(crate) process_utilization: bool,
    pub(crate) processes: Vec<Process>,
}

/// Device memory, in bytes.
#[derive(Debug, Deserialize)]
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
    #[serde(default)]
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) gpu_instance: Option<u32>,
    #[serde(default)]
    pub(crate) compute_instance: Option<u32>,
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

impl Gpu {
    pub(crate) fn uuid(&self) -> String {
        let made = || format!("GPU-00000000-0000-0000-0000-{:012x}", self.index);
        self.uuid.clone().unwrap_or_else(made)
    }

    pub(crate) fn pci(&self) -> PciAddress {
        // One bus per GPU, from 0x1B on as on common HGX boards; 256 buses to a domain.
        let bus = u8::try_from((0x1b + self.index) % 0x100).unwrap_or_default();
        let made = PciAddress {
            domain: (0x1b + self.index) / 0x100,
            bus,
            device: 0,
            function: 0,
        };
        self.pci.unwrap_or(made)
    }

    pub(crate) fn minor(&self) -> u32 {
        self.minor.unwrap_or(self.index)
    }

    /// Bytes in use besides the driver's own.
    pub(crate) fn memory_used(&self, memory: &Memory) -> u64 {
        let by_processes = self.processes.iter().filter_map(|process| process.memory);
        memory
            .used
            .unwrap_or_else(|| by_processes.fold(0, u64::saturating_add))
    }
}
