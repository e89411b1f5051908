//! What a state file need not say: an idle H100 SXM under driver 580.

use std::collections::{BTreeMap, BTreeSet};

use super::{Clocks, Ecc, Gpu, Memory, State, Utilization};

impl Default for State {
    fn default() -> Self {
        Self {
            driver: "580.65.06".to_owned(),
            cuda: 13000,
            nvml: "13.580.65.06".to_owned(),
            init_error: 0,
            delay_ms: 0,
            errors: BTreeMap::new(),
            hang: BTreeSet::new(),
            crash: BTreeSet::new(),
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
            performance_state: Some(0),
            compute_mode: Some(0),
            persistence: Some(false),
            display: false,
            ecc: Some(Ecc::default()),
            mig: Some(false),
            errors: BTreeMap::new(),
            lost: false,
            process_utilization: true,
            processes: Vec::new(),
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
