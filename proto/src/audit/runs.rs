//! Runs: each job or process with the GPUs that it used, from the first observation to the last.

use super::{AuditFilter, Gap, UsageTotals};
use crate::model::{DeviceId, Owner};
use crate::reading::Reading;
use crate::units::{Percent, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};

/// A query for runs that overlap the period of its filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunQuery {
    /// The filter.
    pub filter: AuditFilter,
    /// What makes one run.
    pub unit: RunUnit,
    /// How much of each run to return.
    pub extent: RunExtent,
    /// Runs before this one: the `next` of the page before.
    pub before: Option<RunCursor>,
    /// The most runs to return; the daemon has its own maximum.
    pub limit: u32,
}

/// What makes one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunUnit {
    /// The processes of a job that follow each other without a pause of several minutes.
    Job,
    /// One process.
    Process,
}

/// How much of a run that began before the period, or continues after it, is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunExtent {
    /// The whole run, also its part outside the period.
    Whole,
    /// The part in the samples that began within the period, as in
    /// [`AuditSummary`](super::AuditSummary): with the processes, the times and the usage of this
    /// part. Its end is [`RunEnd::Running`] if the run continues after the period.
    WithinPeriod,
}

/// The position of a run: runs are sorted by their start, then by their id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunCursor {
    /// The start.
    pub from: Timestamp,
    /// Its [`RunRecord::id`].
    pub id: u64,
}

/// One page of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPage {
    /// The runs, the newest start first.
    pub runs: Vec<RunRecord>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<RunCursor>,
    /// On the first page, the periods without samples, the oldest first; the longest hundred.
    pub gaps: Vec<Gap>,
    /// The oldest sample, minute or hour that is kept; `None` if there is none.
    pub recorded_since: Option<Timestamp>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// A unique id. It stays the same while the run continues.
    pub id: u64,
    /// When the first of its processes was first observed on a GPU.
    pub from: Timestamp,
    /// When the last of its processes was last observed on a GPU; now for a run that continues.
    pub until: Timestamp,
    /// The GPUs by their last known index, each once.
    pub gpus: Vec<RunGpu>,
    /// The pids, lowest first; at most [`MAX_RUN_PIDS`].
    pub pids: Vec<u32>,
    /// The number of processes.
    pub processes: u32,
    /// The program and script, or the name of the process if the caller may not see command
    /// lines: `python train.py`. Of several processes, that of the one that held the most memory
    /// for the longest time.
    pub label: String,
    /// The command line of that process, if the caller may see it.
    pub command: Reading<String>,
    /// The kernel's name of that process.
    pub name: Option<String>,
    /// The real user id, in the daemon's user namespace.
    pub uid: Option<u32>,
    /// The name of that user.
    pub user: Option<String>,
    /// The owner: the person to ask.
    pub owner: Option<Owner>,
    /// The name or id of the container.
    pub container: Option<String>,
    /// The job, as `list` shows it.
    pub job: Option<String>,
    /// The usage. Its times add up to those of [`AuditSummary`](super::AuditSummary). Those of a
    /// whole run of one process are its own times instead: they add up to the time for which it
    /// held its GPUs, also together with other processes of its owner.
    pub used: UsageTotals,
    /// The mean utilization of its processes while they held a GPU, as far as known; `None` if
    /// unknown.
    pub utilization: Option<Percent>,
    /// How it ended.
    pub end: RunEnd,
}

/// The most pids of a run that are listed.
pub const MAX_RUN_PIDS: usize = 64;

/// A GPU of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunGpu {
    /// The last known index.
    pub index: u32,
    /// The device.
    pub device: DeviceId,
}

words! {
    /// How a run ended.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum RunEnd {
        /// It continues.
        Running = "running",
        /// Its processes ended by themselves, or were ended outside of gpukill.
        Exited = "exited",
        /// Its processes are alive and have closed the device.
        Released = "released",
        /// A user ended it with `kill` or `reset --force`.
        Killed {
            /// The [`ActionRecord::id`](super::ActionRecord::id) of the action.
            action: u64,
            /// The user who requested it.
            by: Option<u32>,
            /// The name of that user, if this host knows it now.
            by_name: Option<String>,
        } = "killed",
        /// The guard ended it.
        EndedByGuard {
            /// The [`ActionRecord::id`](super::ActionRecord::id) of the action.
            action: u64,
            /// The rule, if the caller may see it.
            rule: Option<String>,
        } = "ended_by_guard",
        /// Its device was reset.
        Reset {
            /// The [`ActionRecord::id`](super::ActionRecord::id) of the action.
            action: u64,
        } = "reset",
        /// The host was rebooted.
        Rebooted = "rebooted",
        /// gpukilld was not running when it ended.
        Unobserved = "unobserved",
    }
    /// The name in JSON.
    name(&self)
}

impl RunEnd {
    /// The id of the action that ended the run.
    #[must_use]
    pub const fn action(&self) -> Option<u64> {
        match self {
            Self::Killed { action, .. }
            | Self::EndedByGuard { action, .. }
            | Self::Reset { action } => Some(*action),
            Self::Running | Self::Exited | Self::Released | Self::Rebooted | Self::Unobserved => {
                None
            }
        }
    }

    /// The user who ended the run, and the name of that user.
    #[must_use]
    pub fn ended_by(&self) -> (Option<u32>, Option<&str>) {
        match self {
            Self::Killed { by, by_name, .. } => (*by, by_name.as_deref()),
            Self::Running
            | Self::Exited
            | Self::Released
            | Self::EndedByGuard { .. }
            | Self::Reset { .. }
            | Self::Rebooted
            | Self::Unobserved => (None, None),
        }
    }

    /// The rule for which the guard ended the run.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::EndedByGuard { rule, .. } => rule.as_deref(),
            Self::Running
            | Self::Exited
            | Self::Released
            | Self::Killed { .. }
            | Self::Reset { .. }
            | Self::Rebooted
            | Self::Unobserved => None,
        }
    }
}
