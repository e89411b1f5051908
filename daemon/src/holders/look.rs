//! What the search asks of a tree of processes. Any of it may never be answered:
//! only the threads of the search ask.

use super::{DeviceNumber, Open};
use std::io;
use std::num::NonZeroU64;

/// Looks into processes. Replaced in tests by one that hangs when told to.
pub(super) trait Eyes: Send + Sync {
    /// The pid that was given out last, where that can be told.
    fn newest(&self) -> Option<u32>;

    /// Pids of processes, ascending.
    fn list(&self, which: Which) -> io::Result<Listed>;

    /// How long a process has run and how much it has open, where both can be told.
    /// Never waits.
    fn ran(&self, pid: u32) -> Option<Ran>;

    /// What a process has open of these devices. These of its threads were seen to have
    /// some in descriptors of their own.
    fn look(
        &self,
        pid: u32,
        numbers: &[DeviceNumber],
        care: Care,
        depth: Depth,
        threads: &[u32],
    ) -> Looked;
}

/// What changes when a process opens something: how long all its threads have run,
/// and how many descriptors it has, since another process may open some in a table
/// that both have (`CLONE_FILES`). Small, as there is one of each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ran(NonZeroU64);

impl Ran {
    /// Of a process that has run for so many nanoseconds; `None` of one that has
    /// not run at all. It is the same again after three days of processor time, to
    /// the nanosecond.
    pub(super) fn new(time: u64, descriptors: u64) -> Option<Self> {
        if time == 0 {
            return None;
        }
        NonZeroU64::new(time << 16 | descriptors.min(0xffff)).map(Self)
    }
}

/// Which processes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Those with a pid above the one, up to the other.
    Between(u32, u32),
}

/// Processes that there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) pids: Vec<u32>,
    /// The system keeps others from us.
    pub(super) others_hidden: bool,
    /// There are more than are listed.
    pub(super) is_cut: bool,
}

/// What may be asked of the file systems that a descriptor is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    Anything,
    /// Only what is called `/dev/…`: some other file system does not answer.
    OnlyDev,
}

/// Whose descriptors are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The first thread's, which all share but for few, and those of some others: at each
    /// look of other ones.
    Process,
    /// Also those of threads that have another number of them, and of more others.
    Threads,
}

/// What there was to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked {
    Gone,
    /// A thread of the kernel: it has no descriptors, ever.
    Kernel,
    Process {
        start_ticks: u64,
        /// Whose it is: the effective user, or the person behind that one.
        uid: u32,
        /// As the kernel calls it; empty where that cannot be told.
        name: String,
        /// How many descriptors were looked at.
        descriptors: usize,
        opens: Vec<Open>,
        /// Why there may be more.
        missed: Option<Missed>,
    },
}

impl Looked {
    /// The same as of the person behind its user, where it holds a device.
    pub(super) fn of_person(mut self, person: impl Fn(u32) -> u32) -> Self {
        if let Self::Process { uid, opens, .. } = &mut self
            && !opens.is_empty()
        {
            *uid = person(*uid);
        }
        self
    }
}

/// Why not all of a process was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Missed {
    /// By [`Care::OnlyDev`].
    NotAsked,
    /// Another user's.
    NotPermitted,
    /// One of the user that looks: it has rights that we have not, or hides.
    OwnNotPermitted,
    /// It has more open than is looked at.
    TooMany,
    Failed,
    /// It holds a device, and others took all the room there is for that.
    NoRoom,
}
