//! The sample that the store receives: the sums of some polls, and the processes in them.

use gpukill_policy::guard::facts::ProcessFacts;
use gpukill_policy::usage::{DeviceRun, Usage};
use gpukill_proto::collect::{IntoMap as _, SortIndirect as _};
use gpukill_proto::model::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::rogue::VerdictSummary;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) usage: Usage<DeviceId, DeviceRun>,
    /// The last poll of the sample.
    pub(crate) snapshot: Arc<Snapshot>,
    /// The processes that were observed in the sample, but no longer at its last poll.
    pub(crate) departed: Vec<DepartedProcess>,
    pub(crate) groups: Arc<GroupNames>,
    /// The accounts that Slurm jobs are charged to, as their processes state.
    pub(crate) accounts: Arc<JobAccounts>,
    /// The rogue verdict on each process that was assessed.
    pub(crate) suspected: Arc<RogueSuspicions>,
}

impl Sample {
    /// Every process on every device, as it was last observed there.
    pub(crate) fn processes(&self) -> BTreeMap<DeviceRun, &GpuProcess> {
        let departed = self.departed.iter().map(|departed| &departed.process);
        // Present processes come last and take precedence.
        let all = departed.chain(&self.snapshot.processes);
        all.map(|process| (DeviceRun::from_process(process), process))
            .into_map()
    }

    /// The runs that had ended at the end of the sample.
    pub(crate) fn departed_runs(&self) -> impl Iterator<Item = DeviceRun> {
        self.departed
            .iter()
            .map(|it| DeviceRun::from_process(&it.process))
    }

    /// The facts of each process for the rules. Facts do not depend on the device; the last
    /// observation counts.
    pub(crate) fn process_facts(&self) -> BTreeMap<ProcessKey, Arc<ProcessFacts>> {
        let mut departed: Vec<&DepartedProcess> = self.departed.iter().collect();
        departed.sort_indirect_by_key(|it| (it.last_seen, DeviceRun::from_process(&it.process)));
        let mut present: Vec<&GpuProcess> = self.snapshot.processes.iter().collect();
        present.sort_indirect_by_key(|process| DeviceRun::from_process(process));
        let all = departed.into_iter().map(|it| &it.process).chain(present);
        let last: BTreeMap<ProcessKey, &GpuProcess> = all
            .filter_map(|process| Some((process.key()?, process)))
            .into_map();
        last.into_iter()
            .map(|(key, process)| {
                let facts = ProcessFacts {
                    suspected: self.suspected.get(&key).copied(),
                    ..process_facts(process, &self.groups, &self.accounts)
                };
                (key, Arc::new(facts))
            })
            .into_map()
    }
}

/// The facts of a process for the rules, without the rogue verdict.
pub(crate) fn process_facts(
    process: &GpuProcess,
    groups: &GroupNames,
    accounts: &JobAccounts,
) -> ProcessFacts {
    let account = process.key().and_then(|key| accounts.get(&key));
    ProcessFacts::from_process(process, groups).with_account(account.map(String::as_str))
}

/// Group names by uid.
pub(crate) type GroupNames = BTreeMap<u32, Vec<String>>;

/// Rogue verdicts by process: no entry for a process that was not assessed, and `None` for a
/// process without a verdict.
pub(crate) type RogueSuspicions = BTreeMap<ProcessKey, Option<VerdictSummary>>;

pub(crate) type JobAccounts = BTreeMap<ProcessKey, String>;

/// A process that no longer uses a device.
#[derive(Debug, Clone)]
pub(crate) struct DepartedProcess {
    /// As it was last observed there.
    pub(crate) process: GpuProcess,
    pub(crate) departure: Departure,
    /// The wall-clock time of that observation.
    pub(crate) last_seen: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The process ended.
    Ended,
    /// The process is alive and has released the device.
    Released,
}

impl Departure {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Released => "released",
        }
    }
}
