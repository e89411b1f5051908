//! Whether a plan ends the job that the guard chose, and nothing else. What was judged is
//! a moment old when it is planned: where they differ, what was judged is ended alone, or
//! nobody is.

use super::acting::Signals;
use super::ghosts::Process;
use gpukill_proto::guard::{Acted, JudgedJob};
use gpukill_proto::kill::{
    Ending, Fate, KillPlan, KillReport, KillRequest, KillScope, KillSelector, KillTarget, MOST_PIDS,
};
use gpukill_proto::snapshot::Job;
use std::collections::BTreeSet;
use std::fmt;

/// How long SIGTERM may take before SIGKILL: some write a checkpoint first.
pub const PATIENCE_MS: u64 = 30_000;

/// What is asked for, to end these processes: with all their job, or alone.
#[must_use]
pub fn request(processes: &BTreeSet<Process>, scope: KillScope) -> KillRequest {
    let pids = processes.iter().map(|(pid, _)| *pid).take(MOST_PIDS);
    KillRequest {
        selector: KillSelector {
            pids: pids.collect(),
            ..KillSelector::default()
        },
        scope,
        force: true,
        patience_ms: PATIENCE_MS,
        ..KillRequest::default()
    }
}

/// Why a plan is not to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// What was judged can be ended, but not with all its job: says why. Else whoever
    /// moves from job to job, or has a display server in theirs, would never be ended.
    ToTheRest(String),
    /// Nobody is to be ended: says why.
    ToAll(String),
}

impl Objection {
    fn to_all(pid: u32, why: impl fmt::Display) -> Self {
        Self::ToAll(format!("process {pid} {why}"))
    }

    fn to_the_rest(pid: u32, why: impl fmt::Display) -> Self {
        Self::ToTheRest(format!("process {pid} {why}"))
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToTheRest(why) | Self::ToAll(why) => f.write_str(why),
        }
    }
}

/// Why a plan is not to be carried out for this job, of which these processes were judged
/// and live; `None` where it is.
#[must_use]
pub fn objection(
    plan: &KillPlan,
    job: &JudgedJob,
    processes: &BTreeSet<Process>,
) -> Option<Objection> {
    let planned: BTreeSet<Process> = plan.targets.iter().map(process).collect();
    if let Some((pid, _)) = processes.iter().find(|it| !planned.contains(it)) {
        return Some(Objection::to_all(*pid, "is no part of what would be ended"));
    }
    let of_judged = |it: &&KillTarget| processes.contains(&process(it));
    let judged = plan.targets.iter().filter(of_judged);
    let others = plan.targets.iter().filter(|it| !of_judged(it));
    let mut objections: Vec<Objection> = judged
        .filter_map(|target| to_judged(target, job))
        .chain(others.filter_map(to_other))
        .collect();
    // What speaks against all of it weighs more.
    objections.sort_by_key(|it| matches!(it, Objection::ToTheRest(_)));
    objections.into_iter().next().or_else(|| {
        let ends = |it: &KillTarget| matches!(it.fate, Fate::End(_));
        let nobody = || Objection::ToAll("none of its processes can be ended".to_owned());
        (!plan.targets.iter().any(ends)).then(nobody)
    })
}

/// What speaks against ending a process that was judged with this job.
fn to_judged(target: &KillTarget, job: &JudgedJob) -> Option<Objection> {
    let pid = target.key.pid;
    if let Some(why) = of_fate(target) {
        return Some(Objection::to_all(pid, why));
    }
    let Some(now) = target.job.known() else {
        let why = format!("what job process {pid} is part of is not known");
        return Some(Objection::ToAll(why));
    };
    if now.id() == job.id {
        return None;
    }
    let moved = "is part of another job by now";
    let is_its_owners = job.owner.uid.is_some() && target.uid.known().copied() == job.owner.uid;
    match now {
        Job::Tree(_) | Job::Unit { .. } if is_its_owners => {
            Some(Objection::to_the_rest(pid, moved))
        }
        Job::Tree(_) | Job::Unit { .. } | Job::Scheduler(_) | Job::Container { .. } => {
            Some(Objection::to_all(pid, moved))
        }
    }
}

/// What speaks against ending another process of the same job.
fn to_other(target: &KillTarget) -> Option<Objection> {
    let pid = target.key.pid;
    let why = of_fate(target)?;
    Some(match target.fate {
        Fate::Protected(_) => Objection::to_the_rest(pid, why),
        Fate::End(_) | Fate::Denied(_) | Fate::Unclear(_) | Fate::Zombie(_) => {
            Objection::to_all(pid, why)
        }
    })
}

fn of_fate(target: &KillTarget) -> Option<String> {
    match &target.fate {
        Fate::End(_) | Fate::Zombie(_) => None,
        Fate::Protected(why) => Some(format!("is protected: {why}")),
        Fate::Denied(_) => Some("is nobody's to end here".to_owned()),
        Fate::Unclear(why) => Some(format!("cannot be judged: {why}")),
    }
}

/// Why a plan that should end what was judged alone is not to be carried out; `None` where
/// it is.
#[must_use]
pub fn objection_alone(
    plan: &KillPlan,
    job: &JudgedJob,
    processes: &BTreeSet<Process>,
) -> Option<String> {
    let other = plan.targets.iter().map(process);
    if let Some((pid, _)) = other.into_iter().find(|it| !processes.contains(it)) {
        return Some(format!("process {pid} was not judged"));
    }
    match objection(plan, job, processes) {
        Some(Objection::ToAll(why)) => Some(why),
        // They are ended alone.
        Some(Objection::ToTheRest(_)) | None => None,
    }
}

fn process(target: &KillTarget) -> Process {
    (target.key.pid, target.key.start_ticks)
}

/// Whether anything was signalled.
#[must_use]
pub fn signals(report: &KillReport) -> Signals {
    // What cannot be recorded is not done.
    if report.unrecorded.is_some() {
        return Signals::Unsent;
    }
    let had_signals = report.outcomes.iter().any(|outcome| match outcome.ending {
        Ending::Ended(..)
        | Ending::Survived(..)
        | Ending::Uninterruptible(_)
        | Ending::Failed(_) => true,
        Ending::Gone
        | Ending::Zombie(_)
        | Ending::Changed(_)
        | Ending::Protected(_)
        | Ending::Denied(_)
        | Ending::Unclear(_) => false,
    });
    match had_signals {
        true => Signals::Sent,
        false => Signals::Unsent,
    }
}

/// What came of it.
#[must_use]
pub fn acted(job: JudgedJob, report: &KillReport) -> Acted {
    let mut acted = Acted {
        job,
        ended: 0,
        left: 0,
        why: None,
    };
    for outcome in &report.outcomes {
        let pid = outcome.key.pid;
        let why = match &outcome.ending {
            Ending::Ended(..) => {
                acted.ended = acted.ended.saturating_add(1);
                continue;
            }
            // Nobody can end what has ended.
            Ending::Gone | Ending::Zombie(_) => continue,
            Ending::Survived(signal, _) => format!("process {pid} goes on after {signal}"),
            Ending::Uninterruptible(_) => format!("process {pid} is stuck in the kernel"),
            Ending::Protected(why) => format!("process {pid} is protected: {why}"),
            Ending::Denied(_) => format!("process {pid} is nobody's to end here"),
            Ending::Changed(why) | Ending::Unclear(why) | Ending::Failed(why) => {
                format!("process {pid}: {why}")
            }
        };
        acted.left = acted.left.saturating_add(1);
        acted.why.get_or_insert(why);
    }
    let missing = report.memory.iter().find(|it| it.after_ms.is_none());
    if let (None, Some(missing)) = (&acted.why, missing) {
        acted.why = Some(format!("not all memory of GPU {} came back", missing.index));
    }
    acted
}
