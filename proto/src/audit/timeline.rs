//! The timeline: everything that happened to GPUs and processes, in the order of time.

use super::ActionRecord;
use crate::guard::GuardRecord;
use crate::model::{InstanceId, Owner};
use crate::reading::Reading;
use crate::rogue::RogueFinding;
use crate::units::{Percent, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};

/// A query for a timeline. All conditions must hold. Events of the whole host, such as a start
/// of the daemon, belong to every timeline, and so do edits of rules that may concern everyone. The
/// timeline of a process or a job begins with its first observation and ends shortly after its last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineQuery {
    /// The earliest time.
    pub since: Timestamp,
    /// The end of the period, exclusive.
    pub until: Timestamp,
    /// The devices that this selector selects.
    pub gpu: Option<String>,
    /// What this user did, and what was done to processes of this user, by name or number.
    pub user: Option<String>,
    /// The job, as `list` shows it.
    pub job: Option<String>,
    /// The process.
    pub pid: Option<u32>,
    /// The first entry of the page: the `next` of the page before.
    pub from: Option<TimelineCursor>,
    /// The most entries to return; the daemon has its own maximum.
    pub limit: u32,
}

/// The position of an entry. Positions are unique, and entries have the order of their
/// positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimelineCursor {
    /// The time of the entry.
    pub at: Timestamp,
    /// The source of the entry.
    pub source: TimelineSource,
    /// Identifies the entry within its source.
    pub id: u64,
}

/// A source of entries, in the order of entries with the same time: causes before effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TimelineSource {
    /// Events of the daemon and the devices.
    Event,
    /// Periods without samples.
    Gap,
    /// The first observation of a process on a device.
    RunStart,
    /// Stretches of the use of a device by a process.
    Stretch,
    /// Decisions of the guard.
    Guard,
    /// Requested actions.
    Action,
    /// Rogue findings.
    Finding,
    /// The last observation of a process on a device.
    RunEnd,
}

/// One page of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelinePage {
    /// The entries, oldest first. A page before the last one may have none.
    pub entries: Vec<TimelineEntry>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<TimelineCursor>,
    /// Whether busy and idle stretches are left out, because the query does not select one
    /// device, job, process or user with few processes.
    pub stretches_omitted: bool,
}

/// One entry of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// The time; of a stretch or a gap, its start.
    pub at: Timestamp,
    /// The indices of the devices, if the entry is about devices that are known.
    pub gpus: Vec<u32>,
    /// The event.
    pub event: TimelineEvent,
}

words! {
    /// What happened.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum TimelineEvent {
        /// A process was first observed on a device.
        Started(TimelineProcess) = "started",
        /// A process no longer uses a device.
        Ended(TimelineProcess, TimelineEnd) = "ended",
        /// A process used its device in the same way for a while.
        Stretch {
            /// The pid.
            pid: u32,
            /// Identifies the process together with `pid`; `None` if there was no such process.
            start_ticks: Option<u64>,
            /// The instance, if the device was divided.
            instance: Option<InstanceId>,
            /// Its use of the device.
            usage: UsageStretch,
        } = "stretch",
        /// A decision of the guard.
        Guard(GuardRecord) = "guard",
        /// A requested action, or an event of the daemon or of a device.
        Action(ActionRecord) = "action",
        /// A rogue finding.
        Finding(RogueFinding) = "finding",
        /// No sample was recorded until this time.
        Gap(Timestamp) = "gap",
    }
    /// The name in JSON.
    name(&self)
}

/// A process on a device, as it was last observed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineProcess {
    /// The pid.
    pub pid: u32,
    /// Identifies the process together with `pid`; `None` if there was no such process.
    pub start_ticks: Option<u64>,
    /// The instance, if the device was divided.
    pub instance: Option<InstanceId>,
    /// The real user id, in the daemon's user namespace.
    pub uid: Option<u32>,
    /// The name of that user.
    pub user: Option<String>,
    /// The owner: the person to ask.
    pub owner: Option<Owner>,
    /// The kernel's name of the process.
    pub name: Option<String>,
    /// The command line, if the caller may see it.
    pub command: Reading<String>,
    /// Its container.
    pub container: Option<String>,
    /// Its job, as `list` shows it.
    pub job: Option<String>,
}

words! {
    /// How the use of a device by a process ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum TimelineEnd {
        /// The process ended.
        Exited = "exited",
        /// The process is alive and released the device.
        Released = "released",
        /// This action ended it: an [`ActionRecord::id`].
        Killed(Option<u64>) = "killed",
        /// The daemon did not run when it ended.
        Unobserved = "unobserved",
        /// The host was rebooted.
        Rebooted = "rebooted",
    }
    /// The name in JSON.
    name(self)
}

/// A stretch of time in which a process used its device in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageStretch {
    /// The end.
    pub until: Timestamp,
    /// The kind of use.
    pub state: UsageState,
    /// The mean utilization; `None` if unknown.
    pub utilization: Option<Percent>,
    /// The utilization of equal parts of the stretch, in percent; empty unless it was busy.
    pub utilization_series: Vec<u8>,
}

/// The most values in [`UsageStretch::utilization_series`].
pub const MAX_STRETCH_MEANS: usize = 20;

words! {
    /// Whether a process was at work.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum UsageState {
        /// At work.
        Busy = "busy",
        /// Known not to be at work.
        Idle = "idle",
        /// Unknown.
        Unknown = "unknown",
    }
    /// The name on the screen and in JSON.
    name(self)
}
