//! The device behind a handle: a GPU, or one of its MIG instances.

use crate::code::Code;
use crate::layout::Handle;
use crate::session;
use crate::state::{Gpu, Instance, Memory, Process, State};

#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    pub(crate) state: &'a State,
    pub(crate) gpu: &'a Gpu,
    /// `None` for the whole GPU.
    pub(crate) instance: Option<&'a Instance>,
}

impl<'a> Device<'a> {
    pub(crate) fn whole(state: &'a State, gpu: &'a Gpu) -> Self {
        Self {
            state,
            gpu,
            instance: None,
        }
    }

    /// Finds the GPU or instance with a UUID.
    pub(crate) fn with_uuid(state: &'a State, uuid: &str) -> Option<Self> {
        state.gpus.iter().find_map(|gpu| {
            let whole = Self::whole(state, gpu);
            let instances = gpu.instances.iter().map(|instance| Self {
                instance: Some(instance),
                ..whole
            });
            instances
                .chain([whole])
                .find(|device| device.uuid() == uuid)
        })
    }

    /// The GPU, for values that NVML does not report for an instance.
    pub(crate) fn as_gpu(&self) -> Result<&'a Gpu, Code> {
        match self.instance {
            None => Ok(self.gpu),
            Some(_) => Err(Code::NOT_SUPPORTED),
        }
    }

    /// The instance, for values that NVML does not report for a whole GPU.
    pub(crate) fn as_instance(&self) -> Result<&'a Instance, Code> {
        self.instance.ok_or(Code::NOT_SUPPORTED)
    }

    pub(crate) fn handle(&self) -> Handle {
        match self.instance {
            None => session::handle_of(self.uuid(), Code::GPU_IS_LOST),
            Some(_) => session::handle_of(self.uuid(), Code::INVALID_ARGUMENT),
        }
    }

    pub(crate) fn uuid(&self) -> String {
        match self.instance {
            None => self.gpu.uuid(),
            Some(instance) => instance.uuid(self.gpu),
        }
    }

    pub(crate) fn name(&self) -> String {
        match self.instance {
            None => self.gpu.name.clone(),
            Some(instance) => instance.name(self.gpu),
        }
    }

    /// The memory, and the bytes in use apart from the driver's reserved memory.
    pub(crate) fn memory(&self) -> Option<(&'a Memory, u64)> {
        let processes = self.gpu.processes.iter();
        let Some(instance) = self.instance else {
            let memory = self.gpu.memory.as_ref()?;
            return Some((memory, memory.used_by(processes)));
        };
        let id = instance.gpu_instance;
        let memory = self.gpu.memory_of_instance(id);
        let sharing = processes.filter(|process| process.gpu_instance == Some(id));
        Some((memory, memory.used_by(sharing)))
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &'a Process> {
        let instance = self.instance;
        let is_here =
            move |process: &&Process| instance.is_none_or(|instance| instance.holds(process));
        self.gpu.processes.iter().filter(is_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIVIDED: &[u8] = br#"{"gpus": [{"uuid": "GPU-1"}, {"uuid": "GPU-2", "mig": true,
        "instances": [
            {"gpu_instance": 2, "compute_instance": 0, "uuid": "MIG-a", "memory": {"total": 100}},
            {"gpu_instance": 2, "compute_instance": 1, "uuid": "MIG-b"},
            {"gpu_instance": 3, "compute_instance": 0, "uuid": "MIG-c"}],
        "processes": [
            {"pid": 1, "memory": 5, "gpu_instance": 2, "compute_instance": 0},
            {"pid": 2, "memory": 7, "gpu_instance": 2, "compute_instance": 1},
            {"pid": 3, "memory": 9, "gpu_instance": 3, "compute_instance": 0}]}]}"#;

    fn pids(state: &State, uuid: &str) -> Vec<u32> {
        let device = Device::with_uuid(state, uuid).expect("a device");
        device.processes().map(|process| process.pid).collect()
    }

    #[test]
    fn instance_has_its_processes_gpu_has_all() {
        let state = State::parse(DIVIDED).expect("a valid state");
        assert_eq!(pids(&state, "GPU-2"), [1, 2, 3]);
        assert_eq!(pids(&state, "MIG-b"), [2]);
        assert_eq!(pids(&state, "GPU-1"), [] as [u32; 0]);
    }

    #[test]
    fn memory_is_shared_in_a_gpu_instance() {
        let state = State::parse(DIVIDED).expect("a valid state");
        let used = |uuid| {
            let device = Device::with_uuid(&state, uuid).expect("a device");
            device.memory().map(|(memory, used)| (memory.total, used))
        };
        assert_eq!(
            ["MIG-a", "MIG-b", "MIG-c", "GPU-2"].map(used),
            [
                Some((100, 12)),
                Some((100, 12)),
                Some((9984 << 20, 9)),
                Some((80 << 30, 21))
            ]
        );
    }
}
