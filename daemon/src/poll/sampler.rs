//! Collects polls into samples for the store.

use crate::procfs::stat::Stat;
use crate::store::{DepartedProcess, Departure, GroupNames, JobAccounts, RogueSuspicions, Sample};
use gpukill_policy::usage::{DeviceRun, Usage, covered_time};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The sample in progress.
pub(crate) struct Sampler {
    procfs: PathBuf,
    last: Option<LastPoll>,
    /// Processes of the last poll that a device with a failed list may still have.
    unlisted: BTreeSet<DeviceRun>,
    pending: Option<PendingSample>,
    /// When the last sample was completed.
    sampled_at: Option<Duration>,
}

struct LastPoll {
    snapshot: Arc<Snapshot>,
    groups: Arc<GroupNames>,
    accounts: Arc<JobAccounts>,
    suspected: Arc<RogueSuspicions>,
    /// By the monotonic clock.
    at: Duration,
    /// When the next poll is due after it.
    interval: Duration,
}

struct PendingSample {
    usage: Usage<DeviceId, DeviceRun>,
    departed: BTreeMap<DeviceRun, DepartedProcess>,
    /// Accounts of departed processes.
    accounts: JobAccounts,
    /// Verdicts on departed processes.
    suspected: RogueSuspicions,
}

/// One poll, with the poll interval and the sample interval.
pub(crate) struct SamplerInput<'a> {
    pub(crate) snapshot: &'a Arc<Snapshot>,
    pub(crate) groups: &'a Arc<GroupNames>,
    pub(crate) accounts: &'a Arc<JobAccounts>,
    /// The rogue verdict of each process that was assessed.
    pub(crate) suspected: &'a Arc<RogueSuspicions>,
    /// By the monotonic clock.
    pub(crate) at: Duration,
    pub(crate) interval: Duration,
    pub(crate) sample_interval: Duration,
}

/// The time between a poll and the previous one.
struct PollTransition {
    /// The part of that time that the poll accounts for.
    observed: Duration,
    /// The start of that part by the wall clock.
    from: Timestamp,
    /// Whether no sample may span both polls.
    splits_sample: bool,
}

impl Sampler {
    /// `procfs` shows whether a process that left a device still runs.
    pub(crate) fn new(procfs: PathBuf) -> Self {
        Self {
            procfs,
            last: None,
            unlisted: BTreeSet::new(),
            pending: None,
            sampled_at: None,
        }
    }

    /// Adds a poll and returns the completed samples: usually none, and two where a sample ends at
    /// a gap.
    pub(crate) fn add(&mut self, poll: &SamplerInput<'_>) -> Vec<Sample> {
        let step = self.transition(poll);
        let mut complete = Vec::new();
        if step.splits_sample {
            complete.extend(self.complete_sample());
        }
        let unlisted = self.unlisted_processes(poll.snapshot);
        let current = self.merge_unlisted(&unlisted, poll);
        let departed = self.departures(&current.snapshot);
        let pending = self.pending.get_or_insert_with(|| PendingSample {
            usage: Usage::starting_at(step.from),
            departed: BTreeMap::new(),
            accounts: JobAccounts::new(),
            suspected: RogueSuspicions::new(),
        });
        if let Some(last) = &self.last {
            let gone = || departed.iter().filter_map(|(_, gone)| gone.process.key());
            pending.accounts.extend(values_of(&last.accounts, gone()));
            pending.suspected.extend(values_of(&last.suspected, gone()));
        }
        pending.usage.add(poll.snapshot, step.observed);
        for process in &unlisted {
            let run = pending
                .usage
                .runs
                .entry(DeviceRun::from_process(process))
                .or_default();
            run.mark_unreported();
        }
        pending.departed.extend(departed);
        self.last = Some(current);
        self.unlisted = unlisted.iter().map(DeviceRun::from_process).into_set();
        // Half an interval early counts as due; otherwise the samples would drift by a whole poll.
        let slack = poll.interval / 2;
        let is_due = self
            .sampled_at
            .is_none_or(|last| poll.at.saturating_sub(last) + slack >= poll.sample_interval);
        if is_due {
            self.sampled_at = Some(poll.at);
            complete.extend(self.complete_sample());
        }
        complete
    }

    /// Processes of the previous poll on a device with a failed process list since. While they run
    /// they are neither present nor gone. Processes of a device that its driver no longer lists are
    /// gone.
    fn unlisted_processes(&self, snapshot: &Snapshot) -> Vec<GpuProcess> {
        let Some(last) = &self.last else {
            return Vec::new();
        };
        let failed = snapshot.devices.iter();
        let failed = failed.filter(|it| it.process_count.failure().is_some() && !it.is_gone());
        let failed: BTreeSet<&DeviceId> = failed.map(|it| &it.id).into_set();
        if failed.is_empty() {
            return Vec::new();
        }
        // On a device with a list that is never complete, a process that is absent has left.
        let whole = last.snapshot.devices.iter();
        let whole = whole.filter(|it| it.process_count.known().is_some());
        let whole: BTreeSet<&DeviceId> = whole.map(|it| &it.id).into_set();
        let present = present_runs(snapshot);
        let before = last.snapshot.processes.iter();
        let unlisted = before.filter(|process| {
            let run = DeviceRun::from_process(process);
            failed.contains(&process.device)
                && (whole.contains(&process.device) || self.unlisted.contains(&run))
                && !present.contains(&run)
                && self.departure(process) == Departure::Released
        });
        unlisted.cloned().collect()
    }

    /// The poll with these processes added, and with the earlier data about them.
    fn merge_unlisted(&self, unlisted: &[GpuProcess], poll: &SamplerInput<'_>) -> LastPoll {
        let mut merged = LastPoll {
            snapshot: Arc::clone(poll.snapshot),
            groups: Arc::clone(poll.groups),
            accounts: Arc::clone(poll.accounts),
            suspected: Arc::clone(poll.suspected),
            at: poll.at,
            interval: poll.interval,
        };
        let Some(last) = self.last.as_ref().filter(|_| !unlisted.is_empty()) else {
            return merged;
        };
        let processes = &mut Arc::make_mut(&mut merged.snapshot).processes;
        processes.extend(unlisted.iter().cloned());
        let groups = Arc::make_mut(&mut merged.groups);
        for (uid, names) in last.groups.iter() {
            groups.entry(*uid).or_insert_with(|| names.clone());
        }
        let keys = || unlisted.iter().filter_map(GpuProcess::key);
        fill_missing(&mut merged.accounts, values_of(&last.accounts, keys()));
        fill_missing(&mut merged.suspected, values_of(&last.suspected, keys()));
        merged
    }

    fn transition(&self, poll: &SamplerInput<'_>) -> PollTransition {
        let now = poll.snapshot.taken_at;
        let Some(last) = &self.last else {
            return PollTransition {
                observed: Duration::ZERO,
                from: now,
                splits_sample: false,
            };
        };
        let since = poll.at.saturating_sub(last.at);
        // A shorter interval takes effect with this poll.
        let interval = poll.interval.max(last.interval);
        let covered = covered_time(Some(since), interval);
        let before = last.snapshot.taken_at;
        let wall_ms = i128::from(now.0) - i128::from(before.0);
        let jump = wall_ms.abs_diff(i128::try_from(since.as_millis()).unwrap_or(i128::MAX));
        let has_jumped = jump > interval.as_millis();
        let covered_ms = i64::try_from(covered.as_millis()).unwrap_or(i64::MAX);
        PollTransition {
            observed: covered,
            from: if has_jumped || covered < since {
                Timestamp(now.0.saturating_sub(covered_ms))
            } else {
                before
            },
            // Use during a gap is unknown; and when the clock was set or the host was suspended,
            // the sample's wall clock times would be wrong.
            splits_sample: has_jumped || covered < since,
        }
    }

    /// Ends the current sample; `None` without a poll since the last one.
    pub(crate) fn complete_sample(&mut self) -> Option<Sample> {
        let last = self.last.as_ref()?;
        let PendingSample {
            usage,
            departed,
            accounts: accounts_of_departed,
            suspected: suspected_of_departed,
        } = self.pending.take()?;
        let mut accounts = Arc::clone(&last.accounts);
        let mut suspected = Arc::clone(&last.suspected);
        // A process that departed from one device may be on another, with better data.
        fill_missing(&mut accounts, accounts_of_departed);
        fill_missing(&mut suspected, suspected_of_departed);
        let present = present_runs(&last.snapshot);
        let departed = departed
            .into_iter()
            // It may have returned.
            .filter(|(run, _)| !present.contains(run))
            .map(|(_, departed)| departed);
        Some(Sample {
            usage,
            snapshot: Arc::clone(&last.snapshot),
            departed: departed.collect(),
            groups: Arc::clone(&last.groups),
            accounts,
            suspected,
        })
    }

    /// Processes of the previous poll that are gone.
    fn departures(&self, snapshot: &Snapshot) -> Vec<(DeviceRun, DepartedProcess)> {
        let Some(last) = &self.last else {
            return Vec::new();
        };
        let present = present_runs(snapshot);
        let before = last.snapshot.processes.iter();
        let before = before.map(|process| (DeviceRun::from_process(process), process));
        let gone = before.filter(|(run, _)| !present.contains(run));
        gone.map(|(run, process)| {
            let departed = DepartedProcess {
                process: process.clone(),
                departure: self.departure(process),
                last_seen: last.snapshot.taken_at,
            };
            (run, departed)
        })
        .collect()
    }

    fn departure(&self, process: &GpuProcess) -> Departure {
        let directory = self.procfs.join(process.pid.to_string());
        let now = Stat::read(&directory).ok();
        // A zombie has ended, too.
        let now = now.filter(|stat| stat.threads > 1 || !matches!(stat.state, 'Z' | 'X'));
        let start_ticks = now.map(|stat| stat.start_ticks);
        match process.key() {
            Some(key) if start_ticks == Some(key.start_ticks) => Departure::Released,
            Some(_) | None => Departure::Ended,
        }
    }
}

fn values_of<V: Clone>(
    of: &BTreeMap<ProcessKey, V>,
    processes: impl Iterator<Item = ProcessKey>,
) -> impl Iterator<Item = (ProcessKey, V)> {
    processes.filter_map(|key| Some((key, of.get(&key)?.clone())))
}

/// Adds values of processes that have none yet.
fn fill_missing<V: Clone>(
    known: &mut Arc<BTreeMap<ProcessKey, V>>,
    new: impl IntoIterator<Item = (ProcessKey, V)>,
) {
    let mut new = new.into_iter().peekable();
    // Usually there is nothing to add, and no copy is made.
    if new.peek().is_some() {
        let known = Arc::make_mut(known);
        for (process, value) in new {
            known.entry(process).or_insert(value);
        }
    }
}

fn present_runs(snapshot: &Snapshot) -> BTreeSet<DeviceRun> {
    snapshot
        .processes
        .iter()
        .map(DeviceRun::from_process)
        .into_set()
}
