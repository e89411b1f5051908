//! Values derived from the keys of a GPU and its instances, and generated values for omitted keys.

use std::sync::atomic::Ordering;

use super::{Gpu, Instance, Memory, Process};
use crate::code::Code;
use crate::pci::PciAddress;

/// The profile 1g.10gb of an H100 80GB, as reported by `nvidia-smi -q` of driver 590.
static SMALLEST_INSTANCE: Memory = Memory {
    total: 9984 << 20,
    reserved: 0,
    used: None,
    v1_only: false,
};

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

    pub(crate) fn is_divided(&self) -> bool {
        self.mig == Some(true)
    }

    /// Refuses values that NVML does not report for a GPU while MIG is on.
    pub(crate) fn undivided(&self) -> Result<&Self, Code> {
        if self.is_divided() {
            Err(Code::NOT_SUPPORTED)
        } else {
            Ok(self)
        }
    }

    /// The instance at an index, which is not always its position.
    pub(crate) fn instance_at(&self, index: u32) -> Option<&Instance> {
        self.indexed_instances()
            .find(|(at, _)| *at == index)
            .map(|(_, instance)| instance)
    }

    /// The instances, each with its index.
    pub(super) fn indexed_instances(&self) -> impl Iterator<Item = (u32, &Instance)> {
        (0..)
            .zip(&self.instances)
            .map(|(place, instance)| (instance.index.unwrap_or(place), instance))
    }

    /// The memory of a GPU instance, as specified by any of its compute instances.
    pub(crate) fn memory_of_instance(&self, gpu_instance: u32) -> &Memory {
        self.instances
            .iter()
            .filter(|instance| instance.gpu_instance == gpu_instance)
            .find_map(|instance| instance.memory.as_ref())
            .unwrap_or(&SMALLEST_INSTANCE)
    }

    /// Whether a list for which the caller has room has grown meanwhile; counts the call.
    pub(crate) fn grows(&self) -> bool {
        let before = self.grown.fetch_add(1, Ordering::Relaxed);
        u64::try_from(self.grow).map_or(true, |limit| before < limit)
    }
}

impl Instance {
    pub(crate) fn uuid(&self, gpu: &Gpu) -> String {
        let made = || {
            let Self {
                gpu_instance,
                compute_instance,
                ..
            } = self;
            let gpu = gpu.index;
            format!("MIG-00000000-0000-0000-{gpu:04x}-{gpu_instance:06x}{compute_instance:06x}")
        };
        self.uuid.clone().unwrap_or_else(made)
    }

    pub(crate) fn name(&self, gpu: &Gpu) -> String {
        let made = || format!("{} MIG 1g.10gb", gpu.name);
        self.name.clone().unwrap_or_else(made)
    }

    pub(crate) fn holds(&self, process: &Process) -> bool {
        process.gpu_instance == Some(self.gpu_instance)
            && process.compute_instance == Some(self.compute_instance)
    }
}

impl Memory {
    /// Bytes in use, without the driver's own, with these processes.
    pub(crate) fn used_by<'a>(&self, processes: impl Iterator<Item = &'a Process>) -> u64 {
        let by_processes = || {
            processes
                .filter_map(|process| process.memory)
                .fold(0, u64::saturating_add)
        };
        self.used.unwrap_or_else(by_processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(text: &str) -> Gpu {
        serde_json::from_str(text).expect("a GPU")
    }

    #[test]
    fn list_grows_a_given_number_of_times() {
        for (grow, expected) in [
            (0, [false, false, false]),
            (2, [true, true, false]),
            (-1, [true, true, true]),
        ] {
            let gpu = gpu(&format!(r#"{{"grow": {grow}}}"#));
            assert_eq!([(); 3].map(|()| gpu.grows()), expected, "grow: {grow}");
        }
    }

    #[test]
    fn instance_index_defaults_to_its_position() {
        let gpu = gpu(r#"{"mig": true, "instances": [
                {"gpu_instance": 9, "compute_instance": 0, "index": 4},
                {"gpu_instance": 10, "compute_instance": 0}]}"#);
        let at = |index| gpu.instance_at(index).map(|found| found.gpu_instance);
        assert_eq!([0, 1, 4].map(at), [None, Some(10), Some(9)]);
    }

    #[test]
    fn compute_instances_share_memory() {
        let gpu = gpu(r#"{"mig": true, "instances": [
                {"gpu_instance": 2, "compute_instance": 0},
                {"gpu_instance": 2, "compute_instance": 1, "memory": {"total": 7}},
                {"gpu_instance": 3, "compute_instance": 0}]}"#);
        assert_eq!(
            [2, 3].map(|id| gpu.memory_of_instance(id).total),
            [7, 9984 << 20]
        );
    }

    #[test]
    fn used_memory_defaults_to_processes() {
        let gpu =
            gpu(r#"{"processes": [{"pid": 1, "memory": 5}, {"pid": 2}, {"pid": 3, "memory": 7}]}"#);
        assert_eq!(Memory::default().used_by(gpu.processes.iter()), 12);
    }

    #[test]
    fn instance_holds_matching_processes() {
        let instance: Instance =
            serde_json::from_str(r#"{"gpu_instance": 2, "compute_instance": 1}"#).expect("one");
        for (process, holds) in [
            (
                r#"{"pid": 1, "gpu_instance": 2, "compute_instance": 1}"#,
                true,
            ),
            (
                r#"{"pid": 1, "gpu_instance": 2, "compute_instance": 0}"#,
                false,
            ),
            (
                r#"{"pid": 1, "gpu_instance": 1, "compute_instance": 1}"#,
                false,
            ),
            (r#"{"pid": 1}"#, false),
        ] {
            let process: Process = serde_json::from_str(process).expect("a process");
            assert_eq!(instance.holds(&process), holds, "{process:?}");
        }
    }
}
