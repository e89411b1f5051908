//! Gathers what polls see into samples for the store.

#[doc(hidden)]
pub mod measured;

use crate::audit::{Accounts, Departed, Departure, Groups, Sample, Suspicions};
use crate::procfs::stat::Stat;
use gpukill_policy::usage::{Run, Usage, seen};
use gpukill_proto::snapshot::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The sample that is being gathered.
pub(crate) struct Gatherer {
    procfs: PathBuf,
    last: Option<Last>,
    /// Those of the last poll whose device did not tell of them, nor of anybody.
    unlisted: BTreeSet<Run>,
    gathering: Option<Gathering>,
    /// When the last sample was complete.
    sampled_at: Option<Duration>,
}

/// The last poll.
struct Last {
    snapshot: Arc<Snapshot>,
    groups: Arc<Groups>,
    accounts: Arc<Accounts>,
    suspected: Arc<Suspicions>,
    /// By the steady clock.
    at: Duration,
    /// How soon there should be another.
    interval: Duration,
}

struct Gathering {
    usage: Usage<DeviceId, Run>,
    departed: BTreeMap<Run, Departed>,
    /// Of those that departed.
    accounts: Accounts,
    /// Of those that departed.
    suspected: Suspicions,
}

/// One poll, and how often there should be one, and a sample.
pub(crate) struct Poll<'a> {
    pub(crate) snapshot: &'a Arc<Snapshot>,
    pub(crate) groups: &'a Arc<Groups>,
    pub(crate) accounts: &'a Arc<Accounts>,
    /// What the watch for rogues says of each process that it has looked at.
    pub(crate) suspected: &'a Arc<Suspicions>,
    /// By a clock that never jumps.
    pub(crate) at: Duration,
    pub(crate) interval: Duration,
    pub(crate) sample_interval: Duration,
}

/// How a poll follows the one before.
struct Step {
    /// So much of the time between them it tells of.
    seen: Duration,
    /// What it tells of began then, by the wall clock.
    from: Timestamp,
    /// No sample spans both.
    is_break: bool,
}

impl Gatherer {
    /// `procfs` tells whether a process that left a device lives.
    pub(crate) fn new(procfs: PathBuf) -> Self {
        Self {
            procfs,
            last: None,
            unlisted: BTreeSet::new(),
            gathering: None,
            sampled_at: None,
        }
    }

    /// Adds a poll; gives the samples that are complete: mostly none, and two
    /// where one ends at a gap.
    pub(crate) fn add(&mut self, poll: &Poll<'_>) -> Vec<Sample> {
        let step = self.step(poll);
        let mut complete = Vec::new();
        if step.is_break {
            complete.extend(self.complete());
        }
        let unlisted = self.unlisted(poll.snapshot);
        let seen = self.with(&unlisted, poll);
        let departed = self.departed(&seen.snapshot);
        let gathering = self.gathering.get_or_insert_with(|| Gathering {
            usage: Usage::starting(step.from),
            departed: BTreeMap::new(),
            accounts: Accounts::new(),
            suspected: Suspicions::new(),
        });
        if let Some(last) = &self.last {
            let gone = || departed.iter().filter_map(|(_, gone)| gone.process.key());
            gathering.accounts.extend(told(&last.accounts, gone()));
            gathering.suspected.extend(told(&last.suspected, gone()));
        }
        gathering.usage.add(poll.snapshot, step.seen);
        for process in &unlisted {
            let run = gathering.usage.runs.entry(Run::of(process)).or_default();
            run.is_untold();
        }
        gathering.departed.extend(departed);
        self.last = Some(seen);
        self.unlisted = unlisted.iter().map(Run::of).collect();
        // Half a poll early is on time: the samples would drift by a whole poll.
        let slack = poll.interval / 2;
        let is_due = self
            .sampled_at
            .is_none_or(|last| poll.at.saturating_sub(last) + slack >= poll.sample_interval);
        if is_due {
            self.sampled_at = Some(poll.at);
            complete.extend(self.complete());
        }
        complete
    }

    /// What is gathered, where the daemon stops.
    pub(crate) fn rest(&mut self) -> Option<Sample> {
        self.complete()
    }

    /// Those of the poll before whose device has told of nobody since, for its list of
    /// processes failed: they are neither there nor gone, while they live. Of a device that
    /// its driver does not list any more they are gone.
    fn unlisted(&self, snapshot: &Snapshot) -> Vec<GpuProcess> {
        let Some(last) = &self.last else {
            return Vec::new();
        };
        let failed = snapshot.devices.iter();
        let failed = failed.filter(|it| it.process_count.failure().is_some() && !it.is_gone());
        let failed: BTreeSet<&DeviceId> = failed.map(|it| &it.id).collect();
        if failed.is_empty() {
            return Vec::new();
        }
        // Of a device whose list is never whole, who is not in it has left.
        let whole = last.snapshot.devices.iter();
        let whole = whole.filter(|it| it.process_count.known().is_some());
        let whole: BTreeSet<&DeviceId> = whole.map(|it| &it.id).collect();
        let present = present(snapshot);
        let before = last.snapshot.processes.iter();
        let unlisted = before.filter(|process| {
            let run = Run::of(process);
            failed.contains(&process.device)
                && (whole.contains(&process.device) || self.unlisted.contains(&run))
                && !present.contains(&run)
                && self.departure(process) == Departure::Left
        });
        unlisted.cloned().collect()
    }

    /// The poll, with these, and with what was known of them before.
    fn with(&self, unlisted: &[GpuProcess], poll: &Poll<'_>) -> Last {
        let mut seen = Last {
            snapshot: Arc::clone(poll.snapshot),
            groups: Arc::clone(poll.groups),
            accounts: Arc::clone(poll.accounts),
            suspected: Arc::clone(poll.suspected),
            at: poll.at,
            interval: poll.interval,
        };
        let Some(last) = self.last.as_ref().filter(|_| !unlisted.is_empty()) else {
            return seen;
        };
        let processes = &mut Arc::make_mut(&mut seen.snapshot).processes;
        processes.extend(unlisted.iter().cloned());
        let groups = Arc::make_mut(&mut seen.groups);
        for (uid, names) in last.groups.iter() {
            groups.entry(*uid).or_insert_with(|| names.clone());
        }
        let keys = || unlisted.iter().filter_map(GpuProcess::key);
        fill(&mut seen.accounts, told(&last.accounts, keys()));
        fill(&mut seen.suspected, told(&last.suspected, keys()));
        seen
    }

    fn step(&self, poll: &Poll<'_>) -> Step {
        let now = poll.snapshot.taken_at;
        let Some(last) = &self.last else {
            return Step {
                seen: Duration::ZERO,
                from: now,
                is_break: false,
            };
        };
        let since = poll.at.saturating_sub(last.at);
        // An interval that was made shorter holds from now on.
        let interval = poll.interval.max(last.interval);
        let seen = seen(Some(since), interval);
        let before = last.snapshot.taken_at;
        let by_the_wall = i128::from(now.0) - i128::from(before.0);
        let jump = by_the_wall.abs_diff(i128::try_from(since.as_millis()).unwrap_or(i128::MAX));
        let has_jumped = jump > interval.as_millis();
        let seen_ms = i64::try_from(seen.as_millis()).unwrap_or(i64::MAX);
        Step {
            seen,
            from: if has_jumped || seen < since {
                Timestamp(now.0.saturating_sub(seen_ms))
            } else {
                before
            },
            // What was used in a gap is not known; and where the clock was set, or
            // the box slept, there is no stretch of the wall clock to tell of.
            is_break: has_jumped || seen < since,
        }
    }

    fn complete(&mut self) -> Option<Sample> {
        let last = self.last.as_ref()?;
        let Gathering {
            usage,
            departed,
            accounts: accounts_of_departed,
            suspected: suspected_of_departed,
        } = self.gathering.take()?;
        let mut accounts = Arc::clone(&last.accounts);
        let mut suspected = Arc::clone(&last.suspected);
        // One of one device may be there on another, and may be known better now.
        fill(&mut accounts, accounts_of_departed);
        fill(&mut suspected, suspected_of_departed);
        let present = present(&last.snapshot);
        let departed = departed
            .into_iter()
            // It may have come back.
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

    /// Those of the poll before that are gone.
    fn departed(&self, snapshot: &Snapshot) -> Vec<(Run, Departed)> {
        let Some(last) = &self.last else {
            return Vec::new();
        };
        let present = present(snapshot);
        let before = last.snapshot.processes.iter();
        let before = before.map(|process| (Run::of(process), process));
        let gone = before.filter(|(run, _)| !present.contains(run));
        gone.map(|(run, process)| {
            let departed = Departed {
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
        // One that nobody has waited for yet has ended all the same.
        let now = now.filter(|stat| stat.threads > 1 || !matches!(stat.state, 'Z' | 'X'));
        let start_ticks = now.map(|stat| stat.start_ticks);
        match process.key() {
            Some(key) if start_ticks == Some(key.start_ticks) => Departure::Left,
            Some(_) | None => Departure::Ended,
        }
    }
}

/// What is told of these processes.
fn told<V: Clone>(
    of: &BTreeMap<ProcessKey, V>,
    processes: impl Iterator<Item = ProcessKey>,
) -> impl Iterator<Item = (ProcessKey, V)> {
    processes.filter_map(|key| Some((key, of.get(&key)?.clone())))
}

/// Adds what is told of processes of which nothing is known.
fn fill<V: Clone>(
    known: &mut Arc<BTreeMap<ProcessKey, V>>,
    told: impl IntoIterator<Item = (ProcessKey, V)>,
) {
    let mut told = told.into_iter().peekable();
    // Mostly there is nothing to add, and no copy to make.
    if told.peek().is_some() {
        let known = Arc::make_mut(known);
        for (process, value) in told {
            known.entry(process).or_insert(value);
        }
    }
}

fn present(snapshot: &Snapshot) -> BTreeSet<Run> {
    snapshot.processes.iter().map(Run::of).collect()
}
