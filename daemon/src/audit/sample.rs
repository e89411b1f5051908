//! What is handed to the store: what some polls saw, added up, and whom.

use gpukill_policy::guard::about::About;
use gpukill_policy::usage::{Run, Usage};
use gpukill_proto::snapshot::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One sample.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// What was used.
    pub(crate) usage: Usage<DeviceId, Run>,
    /// The last poll of it.
    pub(crate) snapshot: Arc<Snapshot>,
    /// Those that were seen in it, and at its last poll not any more.
    pub(crate) departed: Vec<Departed>,
    /// The names of each user's groups.
    pub(crate) groups: Arc<Groups>,
    /// What jobs of Slurm are charged to, as their processes say.
    pub(crate) accounts: Arc<Accounts>,
}

impl Sample {
    /// What rules may know of a process of it.
    pub(crate) fn about(&self, process: &GpuProcess) -> About {
        let account = process.key().and_then(|key| self.accounts.get(&key));
        About::of(process, &self.groups).charged_to(account.map(String::as_str))
    }
}

/// The names of users' groups, by uid.
pub(crate) type Groups = BTreeMap<u32, Vec<String>>;

/// The accounts that processes name.
pub(crate) type Accounts = BTreeMap<ProcessKey, String>;

/// A process that does not use a device any more.
#[derive(Debug, Clone)]
pub(crate) struct Departed {
    /// As it was last seen there.
    pub(crate) process: GpuProcess,
    pub(crate) departure: Departure,
    /// When that was, by the wall clock.
    pub(crate) last_seen: Timestamp,
}

/// How a process stopped using a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It ended.
    Ended,
    /// It lives.
    Left,
}

impl Departure {
    /// As it is recorded.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Left => "left",
        }
    }
}
