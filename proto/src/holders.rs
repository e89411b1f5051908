//! Who has devices open, and whose the memory is that no process explains.

use crate::guard::Ruled;
use crate::reading::Reading;
use crate::rogue::Looked;
use crate::snapshot::{Container, DeviceId, GpuProcess, Owner, ProcessKey, Use};
use crate::units::{Bytes, Percent, Timestamp};
use serde::{Deserialize, Serialize};

/// One device and everybody who has it open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldDevice {
    /// Names it for good.
    pub id: DeviceId,
    /// As in the snapshot of the same moment.
    pub index: u32,
    /// As the driver names it.
    pub name: Reading<String>,
    /// Its memory.
    pub memory_total: Reading<Bytes>,
    /// Held by anybody.
    pub memory_used: Reading<Bytes>,
    /// Explained by no listed process.
    pub memory_unattributed: Reading<Bytes>,
    /// Share of time in which it works.
    pub utilization: Reading<Percent>,
    /// Since when it is busy without a pause, with nobody who holds it.
    pub busy_alone_since: Option<Timestamp>,
    /// Whoever has it open, or is listed by its driver, by pid.
    pub holders: Vec<Holder>,
    /// Processes that held it and have ended a short time ago, the last first.
    pub ended: Vec<EndedHolder>,
    /// Why there may be other holders; `None` after a look at every process.
    pub unseen: Option<String>,
}

impl HeldDevice {
    /// What it is called.
    #[must_use]
    pub fn label(&self) -> DeviceLabel {
        DeviceLabel {
            id: self.id.clone(),
            index: self.index,
            name: self.name.clone(),
        }
    }
}

/// One process that has a device open, or that its driver lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// In the daemon's PID namespace.
    pub pid: u32,
    /// With `pid` it names the process; failed when there is no such process
    /// here. Stale where it has ended that long ago and its driver lists it still.
    pub start_ticks: Reading<u64>,
    /// The real user id.
    pub uid: Reading<u32>,
    /// The name of that user.
    pub user: Reading<String>,
    /// Whose it is: whom to ask.
    pub owner: Reading<Owner>,
    /// Who made its user namespace; `None` when it has the daemon's own.
    pub namespace_owner: Reading<Option<u32>>,
    /// The kernel's name for it.
    pub name: Reading<String>,
    /// Its arguments joined by blanks.
    pub command: Reading<String>,
    /// What it does now.
    pub state: Reading<ProcessState>,
    /// Its parent; 1 for one whose parent has ended.
    pub parent: Reading<u32>,
    /// The parent's name.
    pub parent_name: Reading<String>,
    /// Its process group: the pid of the process that began it.
    pub group: Reading<u32>,
    /// Whether that process still is.
    pub group_leader_is_here: Reading<bool>,
    /// Its pid as its own container or namespace has it; `None` when that is
    /// the same.
    pub inner_pid: Reading<Option<u32>>,
    /// Its container.
    pub container: Reading<Option<Container>>,
    /// The device files that it has open, as below `/dev`: `nvidia6`,
    /// `nvidia-uvm`. Those of this device first.
    pub holds: Vec<String>,
    /// Whether one of them is of this device alone (`nvidia6`), and not of all
    /// (`nvidiactl`).
    pub holds_this_device: bool,
    /// Whether the driver, or the memory of its clients, says that it uses the
    /// device.
    pub listed: bool,
    /// The process for which the memory of what it has open is counted: both have
    /// the same client of the device (DRM), by fork or handed over. It is free
    /// only when all of them have closed it.
    pub shares_with: Option<u32>,
    /// It holds a client of the device (DRM) that processes of several persons held: the
    /// descriptor was passed from one to another. The client counts for no process. This
    /// is the first holder that is known of; it may be the process itself.
    pub passed_from: Option<FirstHolder>,
    /// What it does with the device, where it is listed.
    pub used_for: Use,
    /// Device memory it holds, where it is listed. Of one that is not it failed
    /// where the driver's list is not known, and so neither is whether it is on it.
    pub memory: Reading<Bytes>,
}

/// The process that was first seen with a client of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstHolder {
    /// Its pid. It may have ended, and another process may have its pid.
    pub pid: u32,
    /// The user that it belonged to, where that is known.
    pub uid: Option<u32>,
}

/// A process that held a device, and has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedHolder {
    /// Names it.
    pub key: ProcessKey,
    /// The kernel's name for it.
    pub name: Reading<String>,
    /// The name of its user.
    pub user: Reading<String>,
    /// What it held when it was last seen.
    pub memory: Reading<Bytes>,
    /// What of the device's memory nobody explained then.
    pub unexplained_before: Reading<Bytes>,
    /// When it was first missed.
    pub at: Timestamp,
}

/// What a process does now, as the kernel has it (`proc_pid_stat(5)`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessState {
    /// It runs, or could.
    Running,
    /// It waits, and a signal wakes it.
    Sleeping,
    /// It is stuck in the kernel: no signal reaches it. Says what it waits on,
    /// where the kernel tells.
    Uninterruptible(Option<String>),
    /// Somebody stopped or traces it.
    Stopped,
    /// It has ended, and its parent has not asked how.
    Zombie,
    /// Another state, by the kernel's letter.
    Other(char),
}

/// Why memory is held that no process explains, or why a device is not free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// The processes that it is about.
    pub pids: Vec<u32>,
    /// What was seen that says so, a sentence each.
    pub evidence: Vec<String>,
    /// What frees it, as a command where one does.
    pub remedy: Option<Remedy>,
}

/// What frees a device of what holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// End these processes: orphans, and nobody else.
    End(Vec<u32>),
    /// Reset the device.
    Reset,
    /// Its parent has to ask how it ended, and is nobody's to end for that.
    Reap(u32),
    /// Nothing but waiting; of a process that is stuck in the kernel perhaps in
    /// vain. Then only a reboot helps, but how long is too long nobody knows: what
    /// waits for a file server goes on when that is back.
    Wait,
}

/// Each known kind of memory that has no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// Children that kept the descriptors of a parent that has ended.
    Orphans,
    /// Processes of a container or a PID namespace that the driver does not
    /// list.
    OtherNamespace,
    /// A process that has ended, and whose parent has not reaped it.
    Zombie,
    /// A process that is stuck in the kernel.
    Uninterruptible,
    /// An MPS server, which holds memory for its clients.
    Mps,
    /// A display server or a desktop.
    Display,
    /// Memory of a process that has just ended.
    TearingDown,
    /// Busy, with nobody who holds it.
    BusyAlone,
    /// Processes that have it open and are not listed.
    Unlisted,
    /// No process was found that could hold it.
    Unknown,
}

impl Cause {
    /// As JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Orphans => "orphans",
            Self::OtherNamespace => "other_namespace",
            Self::Zombie => "zombie",
            Self::Uninterruptible => "uninterruptible",
            Self::Mps => "mps",
            Self::Display => "display",
            Self::TearingDown => "tearing_down",
            Self::BusyAlone => "busy_alone",
            Self::Unlisted => "unlisted",
            Self::Unknown => "unknown",
        }
    }
}

impl ProcessState {
    /// As it is written on the screen and in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible(_) => "uninterruptible",
            Self::Stopped => "stopped",
            Self::Zombie => "zombie",
            Self::Other(_) => "other",
        }
    }
}

/// What a process is to a device that it has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It uses the device, and is listed.
    User,
    /// It is listed, and uses the device through an MPS server.
    MpsClient,
    /// An MPS server, or what controls one.
    Mps,
    /// A display server or a desktop.
    Display,
    /// It watches devices, or has only files open that all devices share: it
    /// holds no memory.
    Monitor,
    /// It is listed, and there is no such process here, or none any more.
    Gone,
    /// It is not listed, and kept the descriptors of one that has ended.
    Orphan {
        /// The process that it came from, where that is known.
        of: Option<u32>,
        /// When that was first missed.
        ended: Option<Timestamp>,
    },
    /// It is not listed, and runs in a container or in another PID namespace.
    OtherNamespace,
    /// It has ended, and its parent has not asked how.
    Zombie,
    /// It is stuck in the kernel.
    Uninterruptible,
    /// It has the device open and is not listed.
    Unlisted,
    /// What it has open is counted for another process, which has the same client
    /// of the device: [`Holder::shares_with`].
    Sharer,
    /// It is not listed, and holds a descriptor that was passed between processes of
    /// several persons: [`Holder::passed_from`].
    Passed,
}

impl Role {
    /// As JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::MpsClient => "mps_client",
            Self::Mps => "mps",
            Self::Display => "display",
            Self::Monitor => "monitor",
            Self::Gone => "gone",
            Self::Orphan { .. } => "orphan",
            Self::OtherNamespace => "other_namespace",
            Self::Zombie => "zombie",
            Self::Uninterruptible => "uninterruptible",
            Self::Unlisted => "unlisted",
            Self::Sharer => "sharer",
            Self::Passed => "passed",
        }
    }

    /// Of an orphan the process that it came from, and when that was first
    /// missed.
    #[must_use]
    pub const fn orphan(self) -> (Option<u32>, Option<Timestamp>) {
        match self {
            Self::Orphan { of, ended } => (of, ended),
            Self::User
            | Self::MpsClient
            | Self::Mps
            | Self::Display
            | Self::Monitor
            | Self::Gone
            | Self::OtherNamespace
            | Self::Zombie
            | Self::Uninterruptible
            | Self::Unlisted
            | Self::Sharer
            | Self::Passed => (None, None),
        }
    }
}

/// What is known of one device and its holders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldersReport {
    /// The device, with as many of its holders as the page has.
    pub device: HeldDevice,
    /// What each of these holders is.
    pub roles: Vec<Role>,
    /// Whose the memory is that no process explains, the likeliest first.
    pub findings: Vec<Finding>,
}

/// As much of the answer to `gpukillctl holders` as one frame holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldersPage {
    /// The daemon's clock; ages are counted from it.
    pub at: Timestamp,
    /// By index. A device whose holders go on from the page before has no
    /// findings and none that ended: the first of its pages had them.
    pub devices: Vec<HoldersReport>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<u32>,
}

/// What a device is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLabel {
    /// Names it for good.
    pub id: DeviceId,
    /// For display.
    pub index: u32,
    /// As the driver names it.
    pub name: Reading<String>,
}

/// The answer to `gpukillctl explain`: one process, on every device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The daemon's clock; ages are counted from it.
    pub at: Timestamp,
    /// Who is explained.
    pub pid: u32,
    /// What drivers list of it, one for each device or part of one.
    pub uses: Vec<(DeviceLabel, GpuProcess)>,
    /// The devices that it has open, or is listed on.
    pub holds: Vec<(DeviceLabel, Holder, Role)>,
    /// The findings that name it, by the index of their device.
    pub findings: Vec<(u32, Finding)>,
    /// How much memory its end gives back at least, of what it does not share.
    pub frees: Reading<Bytes>,
    /// Others that have the same clients of devices open: what it shares with
    /// them is free only when they have ended too.
    pub shared_with: Vec<u32>,
    /// Who may end it.
    pub may_end: MayEnd,
    /// What the guard says of it: unsupported where no driver lists it, for only
    /// then it is judged.
    pub guard: Reading<Ruled>,
    /// What it may be: unsupported where no driver lists it, for only then it is looked
    /// at.
    pub rogue: Reading<Looked>,
}

/// Who may end a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MayEnd {
    /// In words: `bob`, `group gpukill-operators`, `root`.
    pub people: Vec<String>,
    /// Whether whoever asks is one of them.
    pub you: bool,
    /// Why the daemon ends it for none of them.
    pub never: Option<String>,
}
