//! Jobs that were ended and still have processes: these are about to go, and no other job
//! is ended for what they hold. Processes that survive their signals are signalled again
//! after growing waits, and protect no other process of their job. A dry run notes the jobs
//! that it counts as ended.

use crate::guard::person_key::PersonKey;
use crate::guard::state::device_reporting::DeviceReporting;
use crate::guard::state::{JobKey, pairs};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{OpenViolation, RuleName, Victim, ViolationSubject};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process: its pid and start time in ticks.
pub type PidStart = (u32, u64);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndedJob {
    pub(crate) at: Timestamp,
    /// The rule that it was ended for.
    #[serde(rename = "rule_name")]
    pub(crate) rule: Option<RuleName>,
    pub(crate) progress: EndProgress,
    /// How often it was chosen before without a signal.
    pub(crate) tries: u32,
    /// Its processes that are still present.
    pub(crate) processes: BTreeSet<PidStart>,
    /// Its owner.
    pub(crate) person: Option<PersonKey>,
    /// In a container that several users share: only processes of this user were ended.
    pub(crate) user: Option<ContainerUser>,
    /// Processes that joined it while any of `processes` was present, and are still
    /// present.
    pub(crate) joined: BTreeSet<PidStart>,
    /// Its processes that survived earlier signals and are still present.
    #[serde(with = "pairs")]
    pub(crate) survivors: BTreeMap<PidStart, Survivor>,
    /// The devices that it used when it was ended.
    pub(crate) devices: BTreeSet<DeviceId>,
}

/// The processes of one user in a container; `None` if the user is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ContainerUser(pub(crate) Option<u32>);

/// A process that is still present after its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Survivor {
    /// When it was chosen last.
    pub(crate) at: Timestamp,
    /// How often it was signalled.
    pub(crate) tries: u32,
}

impl Survivor {
    /// Whether it must be signalled again.
    fn is_due(self, now: Timestamp) -> bool {
        self.at < now
            && now.since(self.at) >= END_TIMEOUT * (1 << self.tries.min(MAX_RETRY_DOUBLINGS))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum EndProgress {
    /// It was chosen: no signal has been recorded yet.
    #[default]
    Chosen,
    /// Signals are about to be sent, or were sent.
    Began,
    /// Signals were sent, and their result is known.
    Over,
    /// The end could not begin, or is cancelled.
    Failed,
    /// It waits for the ends of other jobs, and may be chosen again at once.
    Postponed,
}

impl EndProgress {
    /// Whether the job may have been signalled.
    pub(crate) const fn had_signals(self) -> bool {
        match self {
            Self::Began | Self::Over => true,
            Self::Chosen | Self::Failed | Self::Postponed => false,
        }
    }
}

impl EndedJob {
    /// Whether the job is still within the time that its end may take.
    pub(crate) fn is_ending(&self, now: Timestamp) -> bool {
        // An end that could not begin is tried again after growing waits: each try is
        // recorded.
        let end_timeout = END_TIMEOUT * (1 << self.tries.min(MAX_WAIT_DOUBLINGS));
        self.progress != EndProgress::Postponed && self.is_younger(now, end_timeout)
    }

    /// How often it was chosen without a signal, once it is chosen again.
    pub(crate) const fn tries_after(&self) -> u32 {
        match self.progress {
            // Other jobs had its slot: that is no failed try.
            EndProgress::Postponed => self.tries,
            EndProgress::Chosen | EndProgress::Began | EndProgress::Over | EndProgress::Failed => {
                self.tries.saturating_add(1)
            }
        }
    }

    /// Whether its end is in progress.
    pub(crate) fn is_in_progress(&self, now: Timestamp) -> bool {
        let is_at_work = matches!(self.progress, EndProgress::Chosen | EndProgress::Began);
        is_at_work && self.is_younger(now, SIGNALLING_TIMEOUT)
    }

    /// Whether signals are being sent to it: processes forked meanwhile get them too.
    fn is_being_signalled(&self, now: Timestamp) -> bool {
        self.progress == EndProgress::Began && self.is_younger(now, SIGNALLING_TIMEOUT)
    }

    /// Whether it was chosen less than `than` ago; a clock may have been set back since.
    fn is_younger(&self, now: Timestamp, than: Duration) -> bool {
        self.at >= now || now.since(self.at) < than
    }

    /// Whether this process may have been signalled.
    pub(crate) fn was_signalled(&self, process: &PidStart) -> bool {
        self.survivors.contains_key(process) || self.was_signalled_last(process)
    }

    /// Whether this process may have been signalled since the job was chosen last.
    fn was_signalled_last(&self, process: &PidStart) -> bool {
        self.progress.had_signals() && self.remaining().any(|it| it == process)
    }

    /// Whether this process survived its signals, and must be signalled again.
    pub(crate) fn is_retry_due(&self, process: &PidStart, now: Timestamp) -> bool {
        let survivor = self.survivors.get(process);
        survivor.is_some_and(|it| it.is_due(now)) && !self.was_signalled_last(process)
    }

    /// The signals were sent: signalled processes that are still present have survived
    /// them. A process that joined the job later got none.
    fn settle(&mut self) {
        self.progress = EndProgress::Over;
        self.joined.clear();
        for process in std::mem::take(&mut self.processes) {
            let before = self.survivors.get(&process);
            let tries = before.map_or(0, |it| it.tries).saturating_add(1);
            let survivor = Survivor { at: self.at, tries };
            self.survivors.insert(process, survivor);
        }
    }

    /// Shifts the times by unobserved milliseconds.
    pub(crate) fn shift_time(&mut self, ms: i64) {
        let survivors = self.survivors.values_mut().map(|it| &mut it.at);
        for at in survivors.chain([&mut self.at]) {
            *at = Timestamp(at.0.saturating_add(ms));
        }
    }

    /// Its processes that are still present and did not survive earlier signals.
    pub(crate) fn remaining(&self) -> impl Iterator<Item = &PidStart> {
        self.processes.iter().chain(&self.joined)
    }
}

/// How long an ended job may take to go. If the end of a job could not begin, the job can be
/// chosen again after this time.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time for signals: on some devices SIGINT, SIGTERM and SIGKILL one after the
/// other, [`SIGNAL_TIMEOUT_MS`](super::plan_check::SIGNAL_TIMEOUT_MS) after each of the
/// first two; then rounds for processes forked meanwhile, and the wait for the memory.
const SIGNALLING_TIMEOUT: Duration = Duration::from_secs(120);

/// After this time the result of signals is no longer awaited.
const RESULT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Number of doublings of [`END_TIMEOUT`]: four minutes.
const MAX_WAIT_DOUBLINGS: u32 = 2;

/// Number of doublings of [`END_TIMEOUT`]: an hour. A process that survives SIGKILL usually
/// waits in the kernel, and each try is recorded.
const MAX_RETRY_DOUBLINGS: u32 = 6;

/// Updates which processes are still present: drops a job without any, and adds the
/// processes that join a job while an ended one is present. On a device that has not
/// reported, no process is known to be gone.
pub(crate) fn update_ended<'k>(
    ended: &mut BTreeMap<JobKey, EndedJob>,
    (device_reporting, now): (&DeviceReporting, Timestamp),
    present: &BTreeSet<PidStart>,
    processes: impl Iterator<Item = (PidStart, &'k JobKey, Option<u32>)>,
) {
    ended.retain_entries(|_, it| {
        if device_reporting.covers_all(&it.devices) {
            it.processes.retain(|process| present.contains(process));
            it.joined.retain(|process| present.contains(process));
            it.survivors
                .retain_entries(|process, _| present.contains(process));
        }
        // Its result is known, or never will be.
        let is_lost = it.progress == EndProgress::Began && !it.is_younger(now, RESULT_TIMEOUT);
        if it.progress == EndProgress::Over || is_lost {
            it.settle();
        }
        it.remaining().next().is_some() || !it.survivors.is_empty() || it.is_being_signalled(now)
    });
    for (process, job, user) in processes {
        if let Some(it) = ended.get_mut(job)
            && it.progress != EndProgress::Over
            && it.user.is_none_or(|part| part == ContainerUser(user))
            && !it.processes.is_empty()
            && !it.processes.contains(&process)
            && !it.survivors.contains_key(&process)
        {
            it.joined.insert(process);
        }
    }
}

/// A job, or the part of one user in a container that several users share.
pub(crate) type JobPart = (JobKey, Option<ContainerUser>);

/// A job that a dry run counts as ended and that is still present. It is a note on the
/// violation: the job and the violation go on, and every rule evaluates both as before. For the
/// same violation another job is chosen only for the excess that would remain without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedEnd {
    /// The violation at that time: its subject is the job, its processes are those of the
    /// job.
    pub violation: OpenViolation,
    /// Its processes that are still present: pid, and start in ticks.
    pub processes: BTreeSet<PidStart>,
}

/// How many jobs these ends refer to: one job may violate several rules.
#[must_use]
pub fn simulated_jobs<'a>(ends: impl IntoIterator<Item = &'a SimulatedEnd>) -> usize {
    let jobs = ends.into_iter().map(|end| &end.violation.subject);
    jobs.into_set().len()
}

impl SimulatedEnd {
    /// The simulated end of this job, or part of it.
    pub(crate) fn new(
        violation: OpenViolation,
        victim: &Victim,
        processes: BTreeSet<PidStart>,
    ) -> Self {
        let mut violation = violation;
        violation.subject = ViolationSubject::Job(victim.job.clone());
        violation.evidence.runs.clone_from(&victim.runs);
        violation.evidence.count = victim.count;
        Self {
            violation,
            processes,
        }
    }
}
