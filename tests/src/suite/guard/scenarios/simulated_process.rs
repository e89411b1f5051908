//! One process of a scenario: its owner, its GPU usage, and what the daemon can know about it.

/// The usage of one GPU by a process.
#[derive(Clone, Copy)]
pub(super) struct GpuUsage {
    pub(super) gpu: usize,
    /// Bytes; `None` if the driver does not report the memory.
    pub(super) memory: Option<u64>,
    /// Utilization in percent.
    pub(super) utilization: u32,
}

/// Memory without utilization.
pub(super) const fn memory_on(gpu: usize, memory: u64) -> GpuUsage {
    GpuUsage {
        gpu,
        memory: Some(memory),
        utilization: 0,
    }
}

/// Unknown memory without utilization.
pub(super) const fn unknown_memory_on(gpu: usize) -> GpuUsage {
    GpuUsage {
        gpu,
        memory: None,
        utilization: 0,
    }
}

impl GpuUsage {
    /// Sets the utilization in percent.
    pub(super) const fn with_utilization(self, percent: u32) -> Self {
        Self {
            utilization: percent,
            ..self
        }
    }
}

/// One process and its properties.
pub(super) struct SimulatedProcess<'a> {
    pub(super) person: &'a str,
    /// Its name in the scenario, if the person has several processes.
    pub(super) name: Option<&'a str>,
    pub(super) usage: &'a [GpuUsage],
    /// The name of its program.
    pub(super) program: &'a str,
    /// The last argument of its command line.
    pub(super) argument: &'a str,
    pub(super) cgroup: &'a str,
    /// Files in `/proc` that the daemon cannot read.
    pub(super) unreadable_files: &'a [&'a str],
    /// Whether its parent has ended.
    pub(super) is_orphan: bool,
}

impl Default for SimulatedProcess<'_> {
    fn default() -> Self {
        Self {
            person: "somebody",
            name: None,
            usage: &[],
            program: "sleep",
            argument: "0",
            cgroup: "0::/\n",
            unreadable_files: &[],
            is_orphan: false,
        }
    }
}
