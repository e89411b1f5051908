//! Who is ended for a violation: one whole job, of the lowest priority that there is;
//! within a priority one that suffices alone, else the one that frees most; of these
//! one that has done nothing, then the newest. Never who is protected, never a job of
//! which a part is or is somebody else's, and nobody while another that was ended is still going.

mod told;

use super::clock::Due;
use super::ghosts::{Ended as EndedJob, Process, Progress};
use super::judge::{Excess, Held, Job, Scene};
use super::limits::milliseconds;
use super::memory::streak::{Streak, Through};
use super::memory::{JobKey, Memory};
use gpukill_proto::guard::{GuardAction, GuardMode, OpenViolation, RuleKind, RuleName, Victim};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use told::victim;

/// Whom.
pub(crate) enum Choice {
    /// This job.
    Job { job: usize, victim: Victim },
    /// Somebody is going already, or is gone.
    NotYet,
    /// Who is to go has more time.
    NotDue,
    /// Nobody may be, and why.
    Nobody(Reasons),
}

/// Why nobody is: put in words only when they are said.
pub(crate) struct Reasons(Vec<Reason>);

enum Reason {
    /// It is not known whose a process is.
    Unowned,
    /// That job was ended.
    IsStillThere(usize),
    /// What is so of that job.
    Of(usize, &'static str),
}

impl Reasons {
    /// In words.
    pub(crate) fn told(&self, scene: &Scene<'_>, kind: RuleKind) -> String {
        let shown = |job: &usize| scene.jobs[*job].shown();
        let words = self.0.iter().map(|reason| match reason {
            Reason::Unowned => "whose a process is, is not known".to_owned(),
            Reason::IsStillThere(job) => format!("{} was ended, and is there still", shown(job)),
            Reason::Of(job, why) => format!("{}: {why}", shown(job)),
        });
        why_nobody(words.collect(), kind)
    }
}

/// Who was ended, in this bucket or before, and is there still.
pub(crate) struct Ended {
    jobs: BTreeMap<JobKey, EndedJob>,
    /// What those who are ended in this bucket used.
    devices: BTreeSet<DeviceId>,
    /// Where somebody was ended a short while ago, and when.
    cooling: BTreeMap<DeviceId, Timestamp>,
    at: Timestamp,
    is_dry_run: bool,
}

impl Ended {
    pub(crate) fn of(memory: &mut Memory, scene: &Scene<'_>) -> Self {
        let at = scene.bucket.until;
        let cooldown = scene.book.rules().enforcement.cooldown;
        let mut cooling = std::mem::take(&mut memory.cooling);
        for since in cooling.values_mut() {
            // A clock that was set back a little ends nothing.
            *since = at.min(*since);
        }
        cooling.retain(|_, since| at.since(*since) < cooldown);
        Self {
            jobs: std::mem::take(&mut memory.ended),
            devices: BTreeSet::new(),
            cooling,
            at,
            is_dry_run: scene.book.rules().mode == GuardMode::DryRun,
        }
    }

    pub(crate) fn remember(self, memory: &mut Memory) {
        memory.ended = self.jobs;
        memory.cooling = self.cooling;
        memory.begins_anew(|device| self.devices.contains(device));
    }

    /// Notes that a job is ended.
    pub(crate) fn end(&mut self, scene: &Scene<'_>, job: usize, rule: &RuleName) {
        let job = &scene.jobs[job];
        let used = job.runs.iter().map(|run| &scene.runs[*run].key.device);
        let used: BTreeSet<DeviceId> = used.cloned().collect();
        self.cooling
            .extend(used.iter().map(|device| (device.clone(), self.at)));
        self.devices.extend(used.iter().cloned());
        let policy = scene.book.find(&rule.source);
        let rule = policy.map(|policy| (rule.clone(), scene.book.print_of(policy)));
        let before = self.jobs.remove(job.key.as_ref());
        let was_begun = |it: &EndedJob| it.is_ghost || it.progress.had_signals();
        let in_vain = before.as_ref().filter(|it| !was_begun(it));
        let ended = EndedJob {
            at: self.at,
            rule,
            book: scene.book.print(),
            is_ghost: self.is_dry_run,
            progress: Progress::Chosen,
            tries: in_vain.map_or(0, |it| it.tries.saturating_add(1)),
            processes: job.runs.iter().map(|run| process(scene, *run)).collect(),
            joined: before.iter().flat_map(EndedJob::all).copied().collect(),
            devices: used,
            shown: None,
        };
        self.jobs.insert(JobKey::clone(&job.key), ended);
    }

    /// Whether what somebody held on a device is still coming back.
    pub(crate) fn is_cooling(&self, device: &DeviceId) -> bool {
        self.cooling.contains_key(device)
    }

    /// Notes for what a job was ended, where it is there for all to see.
    pub(crate) fn shows(
        &mut self,
        job: &JobKey,
        violation: Option<OpenViolation>,
        victim: &Victim,
    ) {
        if let Some(ended) = self.jobs.get_mut(job) {
            ended.shows(violation, victim);
        }
    }
}

fn process(scene: &Scene<'_>, run: usize) -> Process {
    let key = scene.runs[run].key;
    (key.pid, key.start_ticks)
}

/// Chooses, of the jobs that a condition is known by.
pub(crate) fn choose(
    scene: &Scene<'_>,
    held: &Held,
    ended: &Ended,
    left_to: Option<&JobKey>,
    (due, mode): (&Due, GuardMode),
) -> Choice {
    let is_there = |run: &usize| scene.runs[*run].judged.is_present;
    let runs: Vec<usize> = held.runs.iter().copied().filter(is_there).collect();
    if runs.is_empty() && !held.runs.is_empty() {
        return Choice::NotYet;
    }
    let mut jobs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut spared = Vec::new();
    for run in runs {
        match scene.runs[run].job {
            Some(job) => jobs.entry(job).or_default().push(run),
            None => {
                spared.push(Reason::Unowned);
            }
        }
    }
    for position in jobs.keys() {
        let job = &scene.jobs[*position];
        if left_to == Some(job.key.as_ref()) {
            return Choice::NotYet;
        }
        // A ghost is not there: who is, began after it.
        let going = ended.jobs.get(job.key.as_ref());
        if let Some(going) = going.filter(|it| !it.is_ghost || it.at >= ended.at) {
            if going.is_going(ended.at) {
                return Choice::NotYet;
            }
            // Who never had a signal is chosen like anybody else.
            if going.progress.had_signals() && held.excess != Excess::All {
                return Choice::Nobody(Reasons(vec![Reason::IsStillThere(*position)]));
            }
        }
    }
    let mut candidates = Vec::new();
    for (position, runs) in &jobs {
        let job = &scene.jobs[*position];
        let was_ended = ended.jobs.get(job.key.as_ref());
        if was_ended.is_some_and(|it| !it.is_ghost && it.progress.had_signals()) {
            spared.push(Reason::IsStillThere(*position));
            continue;
        }
        if let Some(why) = may_not(scene, job) {
            spared.push(Reason::Of(*position, why));
            continue;
        }
        if let Some(why) = left_alone(scene, job, mode) {
            spared.push(Reason::Of(*position, why));
            continue;
        }
        if !is_warned(scene, job, due) {
            spared.push(Reason::Of(*position, "its owner cannot be warned"));
            continue;
        }
        let frees = frees(scene, runs, held.excess);
        if frees == 0 {
            spared.push(Reason::Of(*position, "what it holds is not known"));
            continue;
        }
        candidates.push(Candidate {
            job: *position,
            priority: priority(scene, job),
            frees,
            is_idle: is_idle(scene, job),
            began: began(scene, job),
        });
    }
    match best(&candidates, held.excess) {
        // Who is to be ended is no other because it has more time left.
        Some(chosen) if !is_due(scene, &scene.jobs[chosen.job], due) => Choice::NotDue,
        Some(chosen) => Choice::Job {
            job: chosen.job,
            victim: victim(scene, chosen),
        },
        None => Choice::Nobody(Reasons(spared)),
    }
}

/// Whether the grace of whose job it is is over, where there is one.
fn is_due(scene: &Scene<'_>, job: &Job, due: &Due) -> bool {
    match due {
        Due::Nobody => false,
        Due::Anybody => true,
        Due::Of { over, .. } => {
            let uid = scene.people[job.person].uid;
            uid.is_some_and(|uid| over.contains(&uid))
        }
    }
}

/// Whether whose job it is was warned, where that is needed.
fn is_warned(scene: &Scene<'_>, job: &Job, due: &Due) -> bool {
    match due {
        Due::Nobody | Due::Anybody => true,
        Due::Of { warned, .. } => {
            let uid = scene.people[job.person].uid;
            uid.is_some_and(|uid| warned.contains(&uid))
        }
    }
}

struct Candidate {
    job: usize,
    priority: u8,
    /// In the unit of what is too much.
    frees: u64,
    /// It is known to have done nothing for as long as utilisation is judged by.
    is_idle: bool,
    /// The younger the later.
    began: (Timestamp, u64, u32),
}

fn best(candidates: &[Candidate], excess: Excess) -> Option<&Candidate> {
    let lowest = candidates.iter().map(|it| it.priority).min()?;
    let of_lowest = || candidates.iter().filter(|it| it.priority == lowest);
    let needed = match excess {
        Excess::Bytes(needed) | Excess::Processes(needed) | Excess::Percent(needed) => needed,
        Excess::All => 1,
    };
    let suffices = of_lowest().filter(|it| it.frees >= needed);
    // Of two that cost as much, the one that nobody misses: a pause of a moment does
    // not make it that one, nor does a doubt.
    let best = suffices.max_by_key(|it| (it.is_idle, it.began));
    best.or_else(|| of_lowest().max_by_key(|it| (it.frees, it.is_idle, it.began)))
}

/// How much less it would be without these.
fn frees(scene: &Scene<'_>, runs: &[usize], excess: Excess) -> u64 {
    let runs = runs.iter().map(|run| &scene.runs[*run]);
    match excess {
        Excess::Bytes(_) => total(runs.map(|run| run.memory.value)),
        Excess::Percent(_) => total(runs.map(|run| run.load.value)),
        Excess::Processes(_) => {
            let processes: BTreeSet<_> =
                runs.map(|run| (run.key.pid, run.key.start_ticks)).collect();
            processes.len() as u64
        }
        Excess::All => 1,
    }
}

fn total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// The highest of its processes': one that is to be spared spares the others.
fn priority(scene: &Scene<'_>, job: &Job) -> u8 {
    let priorities = job.runs.iter().map(|run| {
        let profile = &scene.profiles[scene.runs[*run].profile].0;
        scene.book.priority(profile)
    });
    priorities.max().unwrap_or(super::rules::PRIORITY)
}

fn is_idle(scene: &Scene<'_>, job: &Job) -> bool {
    let window = milliseconds(scene.book.rules().enforcement.utilization_window);
    let (began, ..) = began(scene, job);
    let through = |still: &Streak| still.through(window.max(1), scene.bucket.until, began);
    let streaks = job.streaks.as_ref();
    streaks.is_some_and(|(still, _)| matches!(through(still), Through::Since(_)))
}

/// When the first of its processes that are there began.
fn began(scene: &Scene<'_>, job: &Job) -> (Timestamp, u64, u32) {
    let began = job.runs.iter().map(|run| {
        let run = &scene.runs[*run];
        (run.judged.first_seen, run.key.start_ticks, run.key.pid)
    });
    began.min().unwrap_or_default()
}

/// Why the guard does not end a job.
fn may_not(scene: &Scene<'_>, job: &Job) -> Option<&'static str> {
    if job.spare.is_some() {
        return job.spare;
    }
    let is_unclear = job.runs.iter().any(|run| {
        let about = &scene.runs[*run].judged.about;
        about.scheduler.is_none() || about.pod_of_the_box().is_none()
    });
    is_unclear.then_some("whether a scheduler or Kubernetes owns it is not known")
}

/// Why a job is left alone though others of those who break a rule together are not: its
/// owner's own policy is milder.
fn left_alone(scene: &Scene<'_>, job: &Job, mode: GuardMode) -> Option<&'static str> {
    let rules = scene.book.rules();
    let users = job.runs.iter().flat_map(|run| {
        let (profile, _) = &scene.profiles[scene.runs[*run].profile];
        profile.users()
    });
    let mut measures = users.map(|at| &rules.users[at].measures);
    measures.find_map(|it| {
        let is_told = it.action == Some(GuardAction::Warn);
        let is_rehearsed = it.mode == Some(GuardMode::DryRun) && mode > GuardMode::DryRun;
        match () {
            () if is_told => Some("its owner is only warned"),
            () if is_rehearsed => Some("its owner's rules are a dry run"),
            () => None,
        }
    })
}

fn why_nobody(spared: BTreeSet<String>, kind: RuleKind) -> String {
    /// So many are named.
    const NAMED: usize = 3;
    let count = spared.len();
    let mut named: Vec<String> = spared.into_iter().take(NAMED).collect();
    if count > NAMED {
        named.push(format!("{} more", count - NAMED));
    }
    if named.is_empty() {
        return format!(
            "no process is known by whom the {} would change",
            kind.name()
        );
    }
    named.join("; ")
}
