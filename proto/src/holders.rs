//! The processes that have devices open, and the causes of unattributed memory.

use crate::guard::ProcessGuardStatus;
use crate::model::{Container, DeviceId, GpuProcess, GpuUse, Owner, ProcessKey};
use crate::reading::Reading;
use crate::rogue::RogueAssessment;
use crate::units::{Bytes, Percent, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};

/// One device and the processes that have it open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceHolders {
    /// The permanent identity.
    pub id: DeviceId,
    /// The number, as in the snapshot of the same moment.
    pub index: u32,
    /// The name that the driver reports.
    pub name: Reading<String>,
    /// Physical memory.
    pub memory_total: Reading<Bytes>,
    /// Memory in use.
    pub memory_used: Reading<Bytes>,
    /// Used memory that no listed process explains.
    pub memory_unattributed: Reading<Bytes>,
    /// Share of time in which the device works.
    pub utilization: Reading<Percent>,
    /// Since when the device has been busy without a pause and without a holder.
    pub busy_without_holder_since: Option<Timestamp>,
    /// The processes that have it open, or that its driver lists, by pid.
    pub holders: Vec<Holder>,
    /// Holders that ended a short time ago, the last first.
    pub ended: Vec<EndedHolder>,
    /// Why there may be other holders; `None` after a complete scan of all processes.
    pub incomplete_reason: Option<String>,
}

impl DeviceHolders {
    /// The device's label.
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
    /// The pid in the daemon's PID namespace.
    pub pid: u32,
    /// Identifies the process together with `pid`; failed if it does not exist on this host.
    /// Stale if the process has ended and its driver still lists it: the age is the time since
    /// the end.
    pub start_ticks: Reading<u64>,
    /// The real user id.
    pub uid: Reading<u32>,
    /// The name of that user.
    pub user: Reading<String>,
    /// The owner: the person to ask.
    pub owner: Reading<Owner>,
    /// The creator of its user namespace; `None` if it is in the daemon's own.
    pub namespace_owner: Reading<Option<u32>>,
    /// The kernel's name of the process.
    pub name: Reading<String>,
    /// Its arguments joined by blanks.
    pub command: Reading<String>,
    /// The current state.
    pub state: Reading<ProcessState>,
    /// The parent; 1 if the parent has ended.
    pub parent: Reading<u32>,
    /// The parent's name.
    pub parent_name: Reading<String>,
    /// The process group: the pid of the process that created it.
    pub group: Reading<u32>,
    /// Whether that process still exists.
    pub group_leader_is_here: Reading<bool>,
    /// The pid in its own container or namespace; `None` if it is the same.
    pub inner_pid: Reading<Option<u32>>,
    /// Its container.
    pub container: Reading<Option<Container>>,
    /// Its open device files, as below `/dev`: `nvidia6`, `nvidia-uvm`. Those of this device
    /// come first.
    pub holds: Vec<String>,
    /// Whether one of these files belongs to this device alone (`nvidia6`), and not to all
    /// devices (`nvidiactl`).
    pub holds_this_device: bool,
    /// Whether the driver, or the memory of the device's clients, shows that the process uses
    /// the device.
    pub listed: bool,
    /// The process that the memory of its open files is counted for: both have the same client
    /// of the device (DRM), by fork or by passing a descriptor. The memory is free only when
    /// all of them have closed it.
    pub shares_with: Option<u32>,
    /// The process holds a client of the device (DRM) that processes of several persons held:
    /// the descriptor was passed from one to another. The client counts for no process. This is
    /// the first known holder; it may be the process itself.
    pub passed_from: Option<FirstHolder>,
    /// How the process uses the device, if it is listed.
    pub used_for: GpuUse,
    /// The device memory that it holds, if it is listed. For a process that is not listed the
    /// reading is failed if the driver's list is unknown, because the process may be on it.
    pub memory: Reading<Bytes>,
}

/// The process that was first observed with a client of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstHolder {
    /// The pid. The process may have ended, and another process may have reused its pid.
    pub pid: u32,
    /// The user of that process, if known.
    pub uid: Option<u32>,
}

/// A process that held a device and has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedHolder {
    /// The identity.
    pub key: ProcessKey,
    /// The kernel's name of the process.
    pub name: Reading<String>,
    /// The name of its user.
    pub user: Reading<String>,
    /// The memory that it held when last observed.
    pub memory: Reading<Bytes>,
    /// The unattributed memory of the device at that time.
    pub unattributed_before: Reading<Bytes>,
    /// When its end was first observed.
    pub at: Timestamp,
}

words! {
    /// The state of a process, as the kernel reports it (`proc_pid_stat(5)`).
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ProcessState {
        /// It runs or is ready to run.
        Running = "running",
        /// It waits, and a signal wakes it.
        Sleeping = "sleeping",
        /// It waits in the kernel, and no signal reaches it. Says what it waits on, if the kernel
        /// reports that.
        Uninterruptible(Option<String>) = "uninterruptible",
        /// It is stopped or traced.
        Stopped = "stopped",
        /// It has ended, and its parent has not reaped it.
        Zombie = "zombie",
        /// Another state, by the letter of the kernel.
        Other(char) = "other",
    }
    /// The name on the screen and in JSON.
    name(&self)
}

/// Why memory is unattributed, or why a device is not free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderFinding {
    /// The cause.
    pub cause: Cause,
    /// The processes that cause it.
    pub pids: Vec<u32>,
    /// The observations that show the cause, one sentence each.
    pub evidence: Vec<String>,
    /// The remedy that frees the memory or the device, as a command if there is one.
    pub remedy: Option<Remedy>,
}

words! {
    /// The remedy that frees a device.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Remedy {
        /// End these processes: orphans only.
        End(Vec<u32>) = "end",
        /// Reset the device.
        Reset = "reset",
        /// This parent has to reap its child; that alone is no reason to end the parent.
        Reap(u32) = "reap",
        /// Wait. A process that is stuck in the kernel may never end, and then only a reboot helps;
        /// but no waiting time proves that: a process that waits for a file server continues when
        /// the server is back.
        Wait = "wait",
    }
    /// The name in JSON.
    name(&self)
}

words! {
    /// The known causes of unattributed memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum Cause {
        /// Children that kept the descriptors of a parent that has ended.
        Orphans = "orphans",
        /// Processes of a container or a PID namespace that the driver does not list.
        OtherNamespace = "other_namespace",
        /// A process that has ended and that its parent has not reaped.
        Zombie = "zombie",
        /// A process that is stuck in the kernel.
        Uninterruptible = "uninterruptible",
        /// An MPS server, which holds memory for its clients.
        Mps = "mps",
        /// A display server or a desktop.
        Display = "display",
        /// Memory of a process that has just ended.
        TearingDown = "tearing_down",
        /// The device is busy without a holder.
        BusyWithoutHolder = "busy_without_holder",
        /// Processes that have the device open and are not listed.
        Unlisted = "unlisted",
        /// No process was found that could hold the memory.
        Unknown = "unknown",
    }
    /// The name in JSON.
    name(self)
}

words! {
    /// The role of a process for a device that it has open.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Role {
        /// It uses the device and is listed.
        User = "user",
        /// It is listed, and uses the device through an MPS server.
        MpsClient = "mps_client",
        /// An MPS server, or the program that controls it.
        Mps = "mps",
        /// A display server or a desktop.
        Display = "display",
        /// It monitors devices, or has only files open that all devices share: it holds no memory.
        Monitor = "monitor",
        /// It is listed, and it does not exist on this host, or no longer.
        Gone = "gone",
        /// It is not listed, and kept the descriptors of a process that has ended.
        Orphan {
            /// The ended process, if known.
            parent: Option<u32>,
            /// When its end was first observed.
            ended: Option<Timestamp>,
        } = "orphan",
        /// It is not listed, and runs in a container or in another PID namespace.
        OtherNamespace = "other_namespace",
        /// It has ended, and its parent has not reaped it.
        Zombie = "zombie",
        /// It is stuck in the kernel.
        Uninterruptible = "uninterruptible",
        /// It has the device open and is not listed.
        Unlisted = "unlisted",
        /// Its open files are counted for another process, which has the same client of the device:
        /// [`Holder::shares_with`].
        SharedClient = "shared_client",
        /// It is not listed, and holds a descriptor that was passed between processes of several
        /// persons: [`Holder::passed_from`].
        Passed = "passed",
    }
    /// The name in JSON.
    name(self)
}

impl Role {
    /// For an orphan, the ended process that had its descriptors, and when that end was first
    /// observed.
    #[must_use]
    pub const fn orphan_origin(self) -> (Option<u32>, Option<Timestamp>) {
        match self {
            Self::Orphan { parent: of, ended } => (of, ended),
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
            | Self::SharedClient
            | Self::Passed => (None, None),
        }
    }
}

/// One device, its holders, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldersReport {
    /// The device, with those of its holders that fit the page.
    pub device: DeviceHolders,
    /// The roles of these holders, in the same order.
    pub roles: Vec<Role>,
    /// The causes of unattributed memory, the most likely first.
    pub findings: Vec<HolderFinding>,
    /// The processes of these findings that the caller may end.
    pub may_end: Vec<u32>,
}

/// The part of the answer to `gpukillctl holders` that fits one frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldersPage {
    /// The daemon's clock; ages are counted from it.
    pub at: Timestamp,
    /// The devices by index. A device that continues from the page before has neither findings
    /// nor ended holders: its first page has them.
    pub devices: Vec<HoldersReport>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<u32>,
}

/// The label of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLabel {
    /// The permanent identity.
    pub id: DeviceId,
    /// The number for display.
    pub index: u32,
    /// The name that the driver reports.
    pub name: Reading<String>,
}

/// The answer to `gpukillctl explain`: one process, on every device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The daemon's clock; ages are counted from it.
    pub at: Timestamp,
    /// The pid of the process.
    pub pid: u32,
    /// Its entries in the lists of the drivers, one entry for each device or instance.
    pub uses: Vec<(DeviceLabel, GpuProcess)>,
    /// The devices that it has open, or that list it.
    pub holds: Vec<(DeviceLabel, Holder, Role)>,
    /// When its open files were read: stale if they cannot be read now, failed if other files may
    /// be open.
    pub files_read_at: Reading<Timestamp>,
    /// The findings that name it, with the index of their device.
    pub findings: Vec<(u32, HolderFinding)>,
    /// The memory that its end frees at least, without shared memory.
    pub frees: Reading<Bytes>,
    /// Other processes that have the same clients of devices open: shared memory is free only
    /// when they have ended too.
    pub shared_with: Vec<u32>,
    /// The callers that may end it.
    pub may_end: EndPermission,
    /// The guard's status for it; unsupported if no driver lists it, because rules apply only
    /// to listed processes.
    pub guard: Reading<ProcessGuardStatus>,
    /// Its assessment; unsupported if no driver lists it, because only listed processes are
    /// assessed.
    pub rogue: Reading<RogueAssessment>,
}

/// The callers that may end a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndPermission {
    /// In words: `bob`, `group gpukill-operators`, `root`.
    pub people: Vec<String>,
    /// Whether the caller is one of them.
    pub includes_caller: bool,
    /// Why the daemon ends it for none of them.
    pub never_reason: Option<String>,
}
