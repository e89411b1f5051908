//! The interface between the scan and a process tree. Any of its calls may block forever, so only
//! the threads of the scan make them.

use super::{DeviceNumber, OpenDescriptor};
use std::io;
use std::num::NonZeroU64;

/// Scans processes. Tests use an implementation that blocks on demand.
pub(super) trait FdScanner: Send + Sync {
    /// The PID that was assigned last, where it can be determined.
    fn newest_pid(&self) -> Option<u32>;

    /// The PIDs of processes, ascending.
    fn list_pids(&self, which: PidRange) -> io::Result<PidList>;

    /// The activity of a process, where it can be determined. Never blocks.
    fn activity(&self, pid: u32) -> Option<ProcessActivity>;

    /// The descriptors of a process that are open on these devices. `threads` are threads known to
    /// have some in a descriptor table of their own.
    fn scan_process(
        &self,
        pid: u32,
        numbers: &[DeviceNumber],
        scope: FileScope,
        effort: ScanEffort,
        threads: &[u32],
    ) -> ProcessScan;

    /// Whether the system hides processes from the daemon.
    fn hides_processes(&self) -> bool;
}

/// Changes whenever a process opens a file: combines the processor time of all its threads with its
/// number of descriptors, since another process may open a file in a shared table (`CLONE_FILES`).
/// Small, because there is one for each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessActivity(NonZeroU64);

impl ProcessActivity {
    /// The activity of a process with this processor time in nanoseconds; `None` where the time is
    /// zero. The value repeats after three days of processor time, to the nanosecond.
    pub(super) fn new(time: u64, descriptors: u64) -> Option<Self> {
        if time == 0 {
            return None;
        }
        NonZeroU64::new(time << 16 | descriptors.min(0xffff)).map(Self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PidRange {
    All,
    /// PIDs above the first and up to the second.
    Between(u32, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidList {
    pub(super) pids: Vec<u32>,
    /// The system hides other processes.
    pub(super) others_hidden: bool,
    /// There are more processes than are listed.
    pub(super) is_truncated: bool,
}

/// The files that may be queried through their file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileScope {
    AnyFile,
    /// Only files named `/dev/…`: another file system does not answer.
    OnlyDev,
}

/// The threads to read descriptors of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanEffort {
    /// The first thread, which shares its descriptors with most threads, and a few of the other
    /// threads, different ones at each scan.
    FirstThread,
    /// Also threads with a different number of descriptors, and more of the other threads.
    AllThreads,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessScan {
    Gone,
    /// A kernel thread: it never has descriptors.
    KernelThread,
    Process {
        start_ticks: u64,
        /// Its effective uid, or the person behind it.
        uid: u32,
        /// The kernel's name of it; empty where that cannot be determined.
        name: String,
        /// How many descriptors were read.
        descriptors: usize,
        opens: Vec<OpenDescriptor>,
        /// Why there may be more.
        skipped: Option<SkipReason>,
    },
}

impl ProcessScan {
    /// Replaces the uid of a holder by its person.
    pub(super) fn with_person(mut self, person: impl Fn(u32) -> u32) -> Self {
        if let Self::Process { uid, opens, .. } = &mut self
            && !opens.is_empty()
        {
            *uid = person(*uid);
        }
        self
    }
}

/// Why a process was not scanned completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipReason {
    /// By [`FileScope::OnlyDev`].
    OutsideDev,
    /// It belongs to another user.
    NotPermitted,
    /// It belongs to the daemon's user: it has rights that the daemon lacks, or hides itself.
    OwnNotPermitted,
    /// It has more descriptors than are read.
    TooMany,
    Failed,
    /// It holds a device, but other holders took all the room for the result.
    NoRoom,
}
