//! Jobs that were ended and are there still. In a dry run all of these are: they count
//! as gone, so that what it tells is what would happen. Else they are about to go, and
//! nobody else is ended for what they hold.

use super::judge::Rulebook;
use super::memory::sight::Sight;
use super::memory::{JobKey, is_current};
use gpukill_proto::guard::{GuardMode, OpenViolation, RuleName, Subject, Told, Victim};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process: its pid and when it began.
pub type Process = (u32, u64);

/// A job that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) at: Timestamp,
    /// For which rule, and what that said.
    #[serde(default)]
    pub(crate) rule: Option<(RuleName, u64)>,
    /// By which rules as a whole.
    #[serde(default)]
    pub(crate) book: u64,
    /// Nobody really ended it.
    pub(crate) is_ghost: bool,
    /// How far that has come, where it is real.
    #[serde(default)]
    pub(crate) progress: Progress,
    /// So often it was chosen before, and no signal was sent.
    #[serde(default)]
    pub(crate) tries: u32,
    /// Those of its processes that are there still.
    pub(crate) processes: BTreeSet<Process>,
    /// Those that joined it while any of these was there, and are there still.
    #[serde(default)]
    pub(crate) joined: BTreeSet<Process>,
    /// What they used when it was ended.
    #[serde(default)]
    pub(crate) devices: BTreeSet<DeviceId>,
    /// For what, as it was then: of a ghost alone, for whoever looks. Nothing is judged by
    /// it.
    #[serde(default)]
    pub(crate) shown: Option<OpenViolation>,
}

/// How far ending a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Progress {
    /// It was chosen: no signal was sent yet, as far as was written down.
    #[default]
    Chosen,
    /// Signals are about to be sent, or were.
    Began,
    /// Signals were sent, and what came of that is known.
    Over,
    /// It could not be begun, or is not to be any more.
    Failed,
}

impl Progress {
    /// Whether it may have had a signal.
    pub(crate) const fn had_signals(self) -> bool {
        match self {
            Self::Began | Self::Over => true,
            Self::Chosen | Self::Failed => false,
        }
    }
}

impl Ended {
    /// Notes for what a ghost was ended, of which that job's part is shown.
    pub(crate) fn shows(&mut self, violation: Option<OpenViolation>, victim: &Victim) {
        if self.is_ghost {
            self.shown = violation.map(|violation| of_victim(violation, victim));
        }
    }

    /// As the world sees it; `None` where nobody noted for what it was ended.
    pub(crate) fn ghost(&self) -> Option<Ghost> {
        let violation = self.shown.clone().filter(|_| self.is_ghost)?;
        Some(Ghost {
            violation,
            processes: self.all().copied().collect(),
        })
    }

    /// Whether it has been going for no longer than that takes.
    pub(crate) fn is_going(&self, now: Timestamp) -> bool {
        // What could not be begun is tried again ever later: each try is told of.
        let going = GOING * (1 << self.tries.min(LONGEST_WAIT));
        self.is_younger(now, going)
    }

    /// Whether signals are being sent to it: who is born to it meanwhile has them too.
    fn is_under_way(&self, now: Timestamp) -> bool {
        !self.is_ghost && self.progress == Progress::Began && self.is_younger(now, UNDER_WAY)
    }

    /// Whether it was chosen less than so long ago; a clock may have been set back since.
    fn is_younger(&self, now: Timestamp, than: Duration) -> bool {
        self.at >= now || now.since(self.at) < than
    }

    /// All that are there still.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().chain(&self.joined)
    }
}

/// A job that was ended has so long to go, or, where its end could not be begun, to be
/// chosen again.
const GOING: Duration = Duration::from_secs(60);

/// So long signals are sent at most: on some devices SIGINT, SIGTERM and SIGKILL one after
/// the other, [`PATIENCE_MS`](super::sentence::PATIENCE_MS) after each of the first two;
/// then rounds for what was born meanwhile, and the wait for the memory.
const UNDER_WAY: Duration = Duration::from_secs(120);

/// Doubled so often that makes four minutes.
const LONGEST_WAIT: u32 = 2;

/// A job that a dry run would have ended, and that is there still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ghost {
    /// For what, as it was then: the subject is the job, the processes are its own.
    pub violation: OpenViolation,
    /// Those of its processes that are there still: pid, and start in ticks.
    pub processes: BTreeSet<Process>,
}

impl Ghost {
    /// Whether this tells all that a violation tells.
    fn covers(&self, open: &OpenViolation) -> bool {
        let told = &open.evidence.runs;
        let is_its_job = open.subject == self.violation.subject;
        let is_whole = is_its_job || told.len() >= open.evidence.count as usize;
        let is_gone = |told| self.processes.contains(&process(told));
        open.rule == self.violation.rule && is_whole && told.iter().all(is_gone)
    }

    fn processes(&self) -> impl Iterator<Item = Process> {
        self.processes.iter().copied()
    }
}

const fn process(told: &Told) -> Process {
    (told.run.pid, told.run.start_ticks)
}

/// The violations that go on, but for those of which all is told as a ghost's: they are
/// over as soon as anybody looks again, since these count as gone.
#[must_use]
pub fn but_for_ghosts(open: Vec<OpenViolation>, ghosts: &[Ghost]) -> Vec<OpenViolation> {
    let of_ghost = |ghost| Ghost::processes(ghost).map(move |process| (process, ghost));
    let whose: BTreeMap<Process, &Ghost> = ghosts.iter().flat_map(of_ghost).collect();
    let is_covered = |open: &OpenViolation| {
        let first = open.evidence.runs.first().map(process);
        let ghost = first.and_then(|first| whose.get(&first));
        ghost.is_some_and(|ghost| ghost.covers(open))
    };
    let mut open = open;
    open.retain(|open| !is_covered(open));
    open
}

/// Of a violation, the part of the job that is ended for it.
fn of_victim(violation: OpenViolation, victim: &Victim) -> OpenViolation {
    let mut shown = violation;
    shown.subject = Subject::Job(victim.job.clone());
    shown.evidence.runs.clone_from(&victim.runs);
    shown.evidence.count = victim.count;
    shown
}

/// Which processes count as gone.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(BTreeSet<Process>);

impl Ghosts {
    pub(crate) fn hold(&self, process: Process) -> bool {
        self.0.contains(&process)
    }
}

/// Looks who is there still: forgets a job of whose processes none is, and takes in who
/// joins one while any is that was ended. Ghosts end with the dry run, and with the rule for
/// which they are ghosts, or what it said. Of a device out of sight nobody is known to be
/// gone.
pub(crate) fn haunt<'k>(
    ended: &mut BTreeMap<JobKey, Ended>,
    book: &Rulebook,
    (sight, now): (&Sight, Timestamp),
    there: &BTreeSet<Process>,
    processes: impl Iterator<Item = (Process, &'k JobKey)>,
) -> Ghosts {
    let is_dry_run = book.rules().mode == GuardMode::DryRun;
    let is_in_force = |it: &Ended| {
        let rule = it.rule.as_ref();
        is_dry_run && rule.is_some_and(|(rule, print)| is_current(book, rule, *print))
    };
    ended.retain(|_, it| {
        if sight.is_of_all(&it.devices) {
            it.processes.retain(|process| there.contains(process));
            it.joined.retain(|process| there.contains(process));
        }
        // What came of it is known: who came to it since then had no signal, and is judged
        // as anybody else once those are gone who had.
        if it.progress == Progress::Over {
            it.joined.clear();
        }
        let is_there = it.all().next().is_some() || it.is_under_way(now);
        is_there && (!it.is_ghost || is_in_force(it))
    });
    for (process, job) in processes {
        if let Some(it) = ended.get_mut(job)
            && it.progress != Progress::Over
            && !it.processes.is_empty()
            && !it.processes.contains(&process)
        {
            it.joined.insert(process);
        }
    }
    let ghosts = ended.values().filter(|it| it.is_ghost);
    Ghosts(ghosts.flat_map(|it| it.all().copied()).collect())
}
