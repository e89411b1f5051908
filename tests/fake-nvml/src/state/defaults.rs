//! The defaults of a state file: an idle H100 SXM under driver 580.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use super::{
    Attributes, Clocks, Ecc, Gpu, Memory, Pcie, ProcessRecord, RemappedRows, State, Utilization,
};

impl Default for State {
    fn default() -> Self {
        Self {
            driver: "580.65.06".to_owned(),
            cuda: 13000,
            nvml: "13.580.65.06".to_owned(),
            init_error: 0,
            load: 0,
            // LIB_RM_VERSION_MISMATCH.
            load_error: 18,
            delay_ms: 0,
            errors: BTreeMap::new(),
            hang: BTreeSet::new(),
            crash: BTreeSet::new(),
            tamper: BTreeSet::new(),
            trespass: None,
            process_record: ProcessRecord::Bytes24,
            events: Vec::new(),
            event_wait_error: 0,
            gpus: Vec::new(),
        }
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            index: 0,
            uuid: None,
            pci: None,
            minor: None,
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            serial: None,
            pci_device_id: 0x2330_10de,
            compute_capability: [9, 0],
            memory: Some(Memory::default()),
            utilization: Some(Utilization::default()),
            encoder: Some(0),
            decoder: Some(0),
            temperature: Some(30),
            memory_temperature: Some(34),
            power_mw: Some(70_000),
            power_limit_mw: Some(700_000),
            energy_mj: None,
            fan: None,
            clocks: Clocks {
                graphics: Some(345),
                sm: Some(345),
                memory: Some(2619),
                video: Some(765),
            },
            max_clocks: Clocks::default(),
            // Idle.
            throttle: Some(0x1),
            pcie: Some(Pcie::default()),
            performance_state: Some(0),
            compute_mode: Some(0),
            persistence: Some(false),
            display: false,
            ecc: Some(Ecc::default()),
            remapped_rows: Some(RemappedRows::default()),
            retired_pages: None,
            recovery_action: Some(0),
            field_errors: BTreeMap::new(),
            mig: Some(false),
            mig_mode_raw: None,
            instances: Vec::new(),
            mig_parent_lists: 0,
            mig_instance_lists: 0,
            // Single-bit and double-bit memory errors, XIDs, changes of MIG, fatal poison.
            supported_events: Some(0x1 | 0x2 | 0x8 | 0x100 | 0x2000),
            errors: BTreeMap::new(),
            hang: BTreeSet::new(),
            slow: BTreeMap::new(),
            lost: false,
            process_utilization: true,
            processes: Vec::new(),
            samples: Vec::new(),
            grow: 0,
            grown: AtomicU64::new(0),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            total: 80 << 30,
            reserved: 0,
            used: None,
            v1_only: false,
        }
    }
}

/// The top clocks of an H100 SXM.
impl Default for Clocks {
    fn default() -> Self {
        Self {
            graphics: Some(1980),
            sm: Some(1980),
            memory: Some(2619),
            video: Some(1545),
        }
    }
}

/// The maximum of the card and the slot of an HGX board.
impl Default for Pcie {
    fn default() -> Self {
        Self {
            generation: Some(5),
            width: Some(16),
            max_generation: Some(5),
            max_width: Some(16),
        }
    }
}

/// As reported for 1g.10gb by `nvidia-smi -q` of driver 590.
impl Default for Attributes {
    fn default() -> Self {
        Self {
            multiprocessors: 16,
            copy_engines: 1,
            decoders: 1,
            encoders: 0,
            jpegs: 1,
            optical_flows: 0,
            gpu_slices: 1,
            compute_slices: 1,
        }
    }
}

impl Default for Ecc {
    fn default() -> Self {
        Self {
            enabled: true,
            volatile_corrected: 0,
            volatile_uncorrected: 0,
            aggregate_corrected: 0,
            aggregate_uncorrected: 0,
        }
    }
}
