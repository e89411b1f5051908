//! What is handed to the store: what some polls saw, added up, and whom.

use gpukill_policy::guard::about::About;
use gpukill_policy::usage::{Run, Usage};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::rogue::Suspected;
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
    /// What the watch for rogues says of each process that it has looked at.
    pub(crate) suspected: Arc<Suspicions>,
}

impl Sample {
    /// Every process of it on every device, as it was last seen there.
    pub(crate) fn processes(&self) -> BTreeMap<Run, &GpuProcess> {
        let departed = self.departed.iter().map(|departed| &departed.process);
        // Who is there last is told of last.
        let all = departed.chain(&self.snapshot.processes);
        all.map(|process| (Run::of(process), process)).into_map()
    }

    /// The runs of it that were over at its end.
    pub(crate) fn left(&self) -> impl Iterator<Item = Run> {
        self.departed.iter().map(|it| Run::of(&it.process))
    }

    /// What rules may know of each process of it: one thing, on whatever devices it is
    /// and was, and that is what was seen last.
    pub(crate) fn abouts(&self) -> BTreeMap<ProcessKey, Arc<About>> {
        let mut departed: Vec<&Departed> = self.departed.iter().collect();
        departed.sort_indirect_by_key(|it| (it.last_seen, Run::of(&it.process)));
        let mut present: Vec<&GpuProcess> = self.snapshot.processes.iter().collect();
        present.sort_indirect_by_key(|process| Run::of(process));
        let all = departed.into_iter().map(|it| &it.process).chain(present);
        let last: BTreeMap<ProcessKey, &GpuProcess> = all
            .filter_map(|process| Some((process.key()?, process)))
            .into_map();
        last.into_iter()
            .map(|(key, process)| {
                let about = About {
                    suspected: self.suspected.get(&key).copied(),
                    ..about(process, &self.groups, &self.accounts)
                };
                (key, Arc::new(about))
            })
            .into_map()
    }
}

/// What rules may know of a process, but for what it is taken for.
pub(crate) fn about(process: &GpuProcess, groups: &Groups, accounts: &Accounts) -> About {
    let account = process.key().and_then(|key| accounts.get(&key));
    About::of(process, groups).charged_to(account.map(String::as_str))
}

/// The names of users' groups, by uid.
pub(crate) type Groups = BTreeMap<u32, Vec<String>>;

/// What the watch for rogues says of processes: nothing of whom it has not looked at, and
/// `None` of whom there is no verdict.
pub(crate) type Suspicions = BTreeMap<ProcessKey, Option<Suspected>>;

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
