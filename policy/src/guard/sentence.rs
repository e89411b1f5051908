//! Whether a plan ends the job that the guard chose, and nothing else. What was judged is
//! a moment old when it is planned: where they differ, what was judged is ended alone, or
//! nobody is.

use super::acting::Signals;
use super::ended::Process;
use super::rules::{PersonBy, Rules};
use crate::kill::Crowd;
use crate::kill::again::is_of_person;
use crate::usage::is_fresh;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{Acted, JudgedJob};
use gpukill_proto::kill::{
    Ending, Fate, KillPlan, KillReport, KillRequest, KillScope, KillSelector, KillTarget, MOST_PIDS,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, GpuProcess, Job, Snapshot};
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

/// Those of these processes that are on a GPU by a fresh reading. They were judged on these
/// devices.
///
/// # Errors
/// Why there are none: they use no GPU any more, or it is not known whether they do.
pub fn on_devices(
    snapshot: &Snapshot,
    processes: &BTreeSet<Process>,
    devices: &BTreeSet<DeviceId>,
) -> Result<BTreeSet<Process>, String> {
    let fresh = snapshot.devices.iter().filter(|device| is_fresh(device));
    let fresh: BTreeSet<&DeviceId> = fresh.map(|device| &device.id).into_set();
    let rows = snapshot.processes.iter();
    let rows = rows.filter(|row| fresh.contains(&row.device));
    let keys = rows.filter_map(GpuProcess::key);
    let keys: BTreeSet<Process> = keys.map(|key| (key.pid, key.start_ticks)).into_set();
    let on_devices: BTreeSet<Process> = keys.intersection(processes).copied().into_set();
    if !on_devices.is_empty() {
        return Ok(on_devices);
    }
    let silent = devices.iter().find_map(|id| is_silent(snapshot, id));
    Err(match silent {
        Some(why) => format!("whether its processes still use a GPU is not known: {why}"),
        None => "none of its processes uses a GPU any more".to_owned(),
    })
}

/// Why a device does not tell who uses it now; `None` where it does.
fn is_silent(snapshot: &Snapshot, id: &DeviceId) -> Option<String> {
    let Some(device) = snapshot.devices.iter().find(|device| device.id == *id) else {
        return Some(format!("{} is gone", id.0));
    };
    let index = device.index;
    if let Some(loss) = &device.lost {
        return Some(format!("GPU {index} is {}", loss.kind.words()));
    }
    let old = |seconds| format!("the readings of GPU {index} are {seconds} s old");
    match (&device.process_count, &device.memory_used) {
        (Reading::Failed(why), _) => Some(format!(
            "the list of processes of GPU {index} failed: {why}"
        )),
        (Reading::Stale(_, seconds), _) | (_, Reading::Stale(_, seconds)) => Some(old(seconds)),
        (Reading::Value(_) | Reading::Unsupported | Reading::Withheld, _) => None,
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

/// What was judged, and is to be ended.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// The job.
    pub job: &'a JudgedJob,
    /// Those of its processes that live, and use a device.
    pub processes: &'a BTreeSet<Process>,
    /// By which rules.
    pub rules: &'a Rules,
    /// Every process, as it was when the plan was made.
    pub crowd: &'a Crowd,
    /// The first uid that is a person's.
    pub uid_min: u32,
}

/// Why a plan for all of a job is not to be carried out; `None` where it is.
#[must_use]
pub fn objection(plan: &KillPlan, judged: Judged<'_>) -> Option<Objection> {
    let planned: BTreeSet<Process> = plan.targets.iter().map(process).into_set();
    if let Some((pid, _)) = judged.processes.iter().find(|it| !planned.contains(it)) {
        return Some(Objection::to_all(*pid, "is no part of what would be ended"));
    }
    let mut objections: Vec<Objection> = plan
        .targets
        .iter()
        .filter_map(|target| match judged.processes.contains(&process(target)) {
            true => to_judged(target, judged),
            false => to_other(target, judged),
        })
        .collect();
    // What speaks against all of it weighs more.
    objections.sort_indirect_by_key(|it| matches!(it, Objection::ToTheRest(_)));
    objections.into_iter().next().or_else(|| nobody(plan))
}

/// Why a plan that should end what was judged alone is not to be carried out; `None` where
/// it is.
#[must_use]
pub fn objection_alone(plan: &KillPlan, judged: Judged<'_>) -> Option<Objection> {
    let objections = plan.targets.iter().find_map(|target| {
        let pid = target.key.pid;
        if !judged.processes.contains(&process(target)) {
            return Some(Objection::to_all(pid, "was not judged"));
        }
        if let Some(why) = of_fate(target) {
            return Some(Objection::to_all(pid, why));
        }
        if let Some(objection) = of_another(target, judged) {
            return Some(objection);
        }
        let moved = target.job.known().filter(|now| now.id() != judged.job.id)?;
        // Whether its owner can move it there, and out of there.
        let is_movable = match moved {
            Job::Tree(_) | Job::Unit { .. } => is_its_owners(target, judged),
            Job::Container { manager, .. } => {
                manager.is_some()
                    && *manager == judged.job.owner.uid
                    && is_its_owners(target, judged)
            }
            Job::Scheduler(_) => false,
        };
        (!is_movable).then(|| Objection::to_all(pid, MOVED))
    });
    objections.or_else(|| nobody(plan))
}

fn nobody(plan: &KillPlan) -> Option<Objection> {
    let ends = |it: &KillTarget| matches!(it.fate, Fate::End(_));
    let is_any = plan.targets.iter().any(ends);
    (!is_any).then(|| Objection::ToAll("none of its processes can be ended".to_owned()))
}

const MOVED: &str = "is part of another job by now";

/// What speaks against ending a process that was judged with this job.
fn to_judged(target: &KillTarget, judged: Judged<'_>) -> Option<Objection> {
    let pid = target.key.pid;
    if let Some(objection) = of_another(target, judged) {
        return Some(objection);
    }
    match &target.fate {
        Fate::End(_) | Fate::Zombie(_) => {}
        Fate::Protected(_) | Fate::Denied(_) => {
            return of_fate(target).map(|why| Objection::to_all(pid, why));
        }
        // Of itself enough may be known.
        Fate::Unclear(_) => return of_fate(target).map(|why| Objection::to_the_rest(pid, why)),
    }
    match target.job.known() {
        Some(now) if now.id() == judged.job.id => None,
        Some(_) => Some(Objection::to_the_rest(pid, MOVED)),
        None => {
            let why = format!("what job process {pid} is part of is not known");
            Some(Objection::ToTheRest(why))
        }
    }
}

/// That a process is another person's than whoever was judged, as far as rules are about
/// whose processes are: it may have changed its user since.
fn of_another(target: &KillTarget, judged: Judged<'_>) -> Option<Objection> {
    let is_another = match judged.rules.person {
        PersonBy::Owner => is_anothers(target, judged),
        // Whoever logged in is who was judged, and no process changes that.
        PersonBy::Login => false,
    };
    is_another.then(|| Objection::to_all(target.key.pid, "is another person's by now"))
}

/// Whether it is not of whom was judged, neither by its users nor by its user namespace,
/// nor by what to call its owner.
fn is_anothers(target: &KillTarget, judged: Judged<'_>) -> bool {
    let owner = &judged.job.owner;
    let Some(person) = owner.uid else {
        return false;
    };
    let process = judged.crowd.get(&target.key.pid);
    let process = process.filter(|it| it.kin.key == target.key);
    target.uid.known().is_some_and(|uid| *uid != person)
        && target.owner.known() != Some(&owner.name)
        && !process.is_some_and(|process| is_of_person(process, person))
}

fn is_its_owners(target: &KillTarget, judged: Judged<'_>) -> bool {
    judged.job.owner.uid.is_some() && !is_anothers(target, judged)
}

/// The person whose processes alone are ended for this job; `None` where it is not judged
/// by its processes' users.
#[must_use]
pub fn person_judged(rules: &Rules, job: &JudgedJob) -> Option<u32> {
    match rules.person {
        PersonBy::Owner => job.owner.uid,
        PersonBy::Login => None,
    }
}

/// What speaks against ending another process of the same job.
fn to_other(target: &KillTarget, judged: Judged<'_>) -> Option<Objection> {
    let pid = target.key.pid;
    if may_have_trusted_name(target, judged) && judged.rules.protect.may_name(&target.name) {
        let why = format!("is protected by its name, {}", target.name);
        return Some(Objection::to_the_rest(pid, why));
    }
    let why = of_fate(target)?;
    Some(Objection::to_the_rest(pid, why))
}

/// Whether its name may protect it: a person's process calls itself what it likes.
fn may_have_trusted_name(target: &KillTarget, judged: Judged<'_>) -> bool {
    target.uid.known().is_none_or(|uid| *uid < judged.uid_min)
}

fn of_fate(target: &KillTarget) -> Option<String> {
    match &target.fate {
        Fate::End(_) | Fate::Zombie(_) => None,
        Fate::Protected(protected) => Some(format!("is protected: {}", protected.why)),
        Fate::Denied(_) => Some("is nobody's to end here".to_owned()),
        Fate::Unclear(why) => Some(format!("cannot be judged: {why}")),
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
