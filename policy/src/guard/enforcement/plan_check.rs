//! Checks that a plan ends the job that the guard chose, and nothing else. The evaluation
//! is a moment older than the plan: where they differ, the evaluated processes are ended
//! alone, or none is.

use super::ended_jobs::PidStart;
use super::order::SignalStatus;
use crate::guard::rules::RuleSet;
use crate::kill::ProcessTable;
use crate::kill::recheck::belongs_to_person;
use crate::usage::is_fresh;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{EnforcementOutcome, OwnedJob};
use gpukill_proto::kill::{
    KillPlan, KillReport, KillRequest, KillScope, KillSelector, KillTarget, MAX_PIDS, Outcome,
    PlannedAction,
};
use gpukill_proto::model::{DeviceId, GpuProcess, Job, Snapshot};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;
use std::fmt;

/// How long SIGTERM may take before SIGKILL: some programs write a checkpoint first.
pub const SIGNAL_TIMEOUT_MS: u64 = 30_000;

/// The request that ends these processes: with their whole job, or alone.
#[must_use]
pub fn kill_request(processes: &BTreeSet<PidStart>, scope: KillScope) -> KillRequest {
    let pids = processes.iter().map(|(pid, _)| *pid).take(MAX_PIDS);
    KillRequest {
        selector: KillSelector {
            pids: pids.collect(),
            ..KillSelector::default()
        },
        scope,
        force: true,
        signal_timeout_ms: SIGNAL_TIMEOUT_MS,
        ..KillRequest::default()
    }
}

/// The given processes that are on a GPU by a fresh reading. They were evaluated on these
/// devices.
///
/// # Errors
/// The reason if there are none: they use no GPU any more, or it is unknown whether they
/// do.
pub fn processes_on_devices(
    snapshot: &Snapshot,
    processes: &BTreeSet<PidStart>,
    devices: &BTreeSet<DeviceId>,
) -> Result<BTreeSet<PidStart>, String> {
    let fresh = snapshot.devices.iter().filter(|device| is_fresh(device));
    let fresh: BTreeSet<&DeviceId> = fresh.map(|device| &device.id).into_set();
    let rows = snapshot.processes.iter();
    let rows = rows.filter(|row| fresh.contains(&row.device));
    let keys = rows.filter_map(GpuProcess::key);
    let keys: BTreeSet<PidStart> = keys.map(|key| (key.pid, key.start_ticks)).into_set();
    let on_devices: BTreeSet<PidStart> = keys.intersection(processes).copied().into_set();
    if !on_devices.is_empty() {
        return Ok(on_devices);
    }
    let silent = devices.iter().find_map(|id| silence_reason(snapshot, id));
    Err(match silent {
        Some(why) => format!("whether its processes still use a GPU is not known: {why}"),
        None => "none of its processes uses a GPU any more".to_owned(),
    })
}

/// Why a device does not report its processes now; `None` if it does.
fn silence_reason(snapshot: &Snapshot, id: &DeviceId) -> Option<String> {
    let Some(device) = snapshot.devices.iter().find(|device| device.id == *id) else {
        return Some(format!("{} is gone", id.0));
    };
    let index = device.index;
    if let Some(loss) = &device.lost {
        return Some(format!("GPU {index} is {}", loss.kind.label()));
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

/// Why a plan is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanVeto {
    /// The evaluated processes can be ended, but not with their whole job, with the reason.
    /// Otherwise a person who moves from job to job, or has a display server in the job,
    /// would never be affected.
    RestOfJob(String),
    /// No process is ended, with the reason.
    WholePlan(String),
}

impl PlanVeto {
    fn whole_plan(pid: u32, why: impl fmt::Display) -> Self {
        Self::WholePlan(format!("process {pid} {why}"))
    }

    fn rest_of_job(pid: u32, why: impl fmt::Display) -> Self {
        Self::RestOfJob(format!("process {pid} {why}"))
    }
}

impl fmt::Display for PlanVeto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestOfJob(why) | Self::WholePlan(why) => f.write_str(why),
        }
    }
}

/// The evaluated processes that are to be ended.
#[derive(Debug, Clone, Copy)]
pub struct EnforcementTarget<'a> {
    /// The job.
    pub job: &'a OwnedJob,
    /// Its processes that are alive and use a device.
    pub processes: &'a BTreeSet<PidStart>,
    /// The rules of the evaluation.
    pub rules: &'a RuleSet,
    /// The process table when the plan was made.
    pub process_table: &'a ProcessTable,
    /// The first uid of a person.
    pub uid_min: u32,
}

/// Why a plan for a whole job is not carried out; `None` if it is.
#[must_use]
pub fn job_plan_veto(plan: &KillPlan, evaluated: EnforcementTarget<'_>) -> Option<PlanVeto> {
    let planned: BTreeSet<PidStart> = plan.targets.iter().map(pid_start).into_set();
    if let Some((pid, _)) = evaluated.processes.iter().find(|it| !planned.contains(it)) {
        return Some(PlanVeto::whole_plan(*pid, "is not part of the plan"));
    }
    let mut vetoes: Vec<PlanVeto> = plan
        .targets
        .iter()
        .filter_map(
            |target| match evaluated.processes.contains(&pid_start(target)) {
                true => veto_evaluated_process(target, evaluated),
                false => veto_other_process(target, evaluated),
            },
        )
        .collect();
    // A veto against the whole plan outranks others.
    vetoes.sort_indirect_by_key(|it| matches!(it, PlanVeto::RestOfJob(_)));
    vetoes.into_iter().next().or_else(|| veto_empty_plan(plan))
}

/// Why a plan for the evaluated processes alone is not carried out; `None` if it is.
#[must_use]
pub fn process_plan_veto(plan: &KillPlan, evaluated: EnforcementTarget<'_>) -> Option<PlanVeto> {
    let vetoes = plan.targets.iter().find_map(|target| {
        let pid = target.key.pid;
        if !evaluated.processes.contains(&pid_start(target)) {
            return Some(PlanVeto::whole_plan(pid, "was not evaluated"));
        }
        if let Some(why) = action_reason(target) {
            return Some(PlanVeto::whole_plan(pid, why));
        }
        if let Some(veto) = veto_other_person(target, evaluated) {
            return Some(veto);
        }
        let moved = target
            .job
            .known()
            .filter(|now| now.id() != evaluated.job.id)?;
        // Whether the owner can move the process there and away again.
        let is_movable = match moved {
            Job::Tree(_) | Job::Unit { .. } => belongs_to_owner(target, evaluated),
            Job::Container { manager, .. } => {
                manager.is_some()
                    && *manager == evaluated.job.owner.uid
                    && belongs_to_owner(target, evaluated)
            }
            Job::Scheduler(_) => false,
        };
        (!is_movable).then(|| PlanVeto::whole_plan(pid, MOVED_TO_OTHER_JOB))
    });
    vetoes.or_else(|| veto_empty_plan(plan))
}

fn veto_empty_plan(plan: &KillPlan) -> Option<PlanVeto> {
    let ends = |it: &KillTarget| matches!(it.action, PlannedAction::End(_));
    let is_any = plan.targets.iter().any(ends);
    (!is_any).then(|| PlanVeto::WholePlan("none of its processes can be ended".to_owned()))
}

const MOVED_TO_OTHER_JOB: &str = "is now part of another job";

/// The veto against ending a process that was evaluated with this job.
fn veto_evaluated_process(
    target: &KillTarget,
    evaluated: EnforcementTarget<'_>,
) -> Option<PlanVeto> {
    let pid = target.key.pid;
    if let Some(veto) = veto_other_person(target, evaluated) {
        return Some(veto);
    }
    match &target.action {
        PlannedAction::End(_) | PlannedAction::Zombie(_) => {}
        PlannedAction::Protected(_) | PlannedAction::Denied(_) => {
            return action_reason(target).map(|why| PlanVeto::whole_plan(pid, why));
        }
        // Enough may be known about the process itself.
        PlannedAction::Unclear(_) => {
            return action_reason(target).map(|why| PlanVeto::rest_of_job(pid, why));
        }
    }
    match target.job.known() {
        Some(now) if now.id() == evaluated.job.id => None,
        Some(_) => Some(PlanVeto::rest_of_job(pid, MOVED_TO_OTHER_JOB)),
        None => {
            let why = format!("the job of process {pid} is not known");
            Some(PlanVeto::RestOfJob(why))
        }
    }
}

/// The veto against a process that now belongs to another person than the evaluated one: it
/// may have changed its user since.
fn veto_other_person(target: &KillTarget, evaluated: EnforcementTarget<'_>) -> Option<PlanVeto> {
    belongs_to_another(target, evaluated)
        .then(|| PlanVeto::whole_plan(target.key.pid, "now belongs to another person"))
}

/// Whether its users, its user namespace and its owner's name all differ from those of the
/// evaluated person.
fn belongs_to_another(target: &KillTarget, evaluated: EnforcementTarget<'_>) -> bool {
    let owner = &evaluated.job.owner;
    let Some(person) = owner.uid else {
        return false;
    };
    let process = evaluated.process_table.get(&target.key.pid);
    let process = process.filter(|it| it.lineage.key == target.key);
    target.uid.known().is_some_and(|uid| *uid != person)
        && target.owner.known() != Some(&owner.name)
        && !process.is_some_and(|process| belongs_to_person(process, person))
}

fn belongs_to_owner(target: &KillTarget, evaluated: EnforcementTarget<'_>) -> bool {
    evaluated.job.owner.uid.is_some() && !belongs_to_another(target, evaluated)
}

/// The veto against ending another process of the same job.
fn veto_other_process(target: &KillTarget, evaluated: EnforcementTarget<'_>) -> Option<PlanVeto> {
    let pid = target.key.pid;
    if may_have_trusted_name(target, evaluated)
        && evaluated.rules.protect.may_protect_name(&target.name)
    {
        let why = format!("is protected by its name, {}", target.name);
        return Some(PlanVeto::rest_of_job(pid, why));
    }
    let why = action_reason(target)?;
    Some(PlanVeto::rest_of_job(pid, why))
}

/// Whether its name may protect it: a person's process can choose its name.
fn may_have_trusted_name(target: &KillTarget, evaluated: EnforcementTarget<'_>) -> bool {
    target
        .uid
        .known()
        .is_none_or(|uid| *uid < evaluated.uid_min)
}

fn action_reason(target: &KillTarget) -> Option<String> {
    match &target.action {
        PlannedAction::End(_) | PlannedAction::Zombie(_) => None,
        PlannedAction::Protected(protected) => Some(format!("is protected: {}", protected.why)),
        PlannedAction::Denied(_) => Some("cannot be ended: not permitted".to_owned()),
        PlannedAction::Unclear(why) => Some(format!("cannot be checked: {why}")),
    }
}

fn pid_start(target: &KillTarget) -> PidStart {
    (target.key.pid, target.key.start_ticks)
}

/// Whether any process was signalled.
#[must_use]
pub fn signals_sent(report: &KillReport) -> SignalStatus {
    // An end that cannot be recorded is not begun.
    if report.unrecorded.is_some() {
        return SignalStatus::Unsent;
    }
    let had_signals = report.outcomes.iter().any(|outcome| match outcome.outcome {
        Outcome::Ended(..)
        | Outcome::Survived(..)
        | Outcome::Uninterruptible(_)
        | Outcome::Failed(_) => true,
        Outcome::Gone
        | Outcome::Zombie(_)
        | Outcome::Changed(_)
        | Outcome::Protected(_)
        | Outcome::Denied(_)
        | Outcome::Unclear(_) => false,
    });
    match had_signals {
        true => SignalStatus::Sent,
        false => SignalStatus::Unsent,
    }
}

/// Summarises a kill for the record of the guard.
#[must_use]
pub fn summarize_report(job: OwnedJob, report: &KillReport) -> EnforcementOutcome {
    let mut summary = EnforcementOutcome {
        job,
        ended: 0,
        left: 0,
        why: None,
    };
    for outcome in &report.outcomes {
        let pid = outcome.key.pid;
        let why = match &outcome.outcome {
            Outcome::Ended(..) => {
                summary.ended = summary.ended.saturating_add(1);
                continue;
            }
            // A process that has ended cannot be ended.
            Outcome::Gone | Outcome::Zombie(_) => continue,
            Outcome::Survived(signal, _) => format!("process {pid} survived {signal}"),
            Outcome::Uninterruptible(_) => format!("process {pid} is stuck in the kernel"),
            Outcome::Protected(why) => format!("process {pid} is protected: {why}"),
            Outcome::Denied(_) => format!("process {pid} cannot be ended: not permitted"),
            Outcome::Changed(why) | Outcome::Unclear(why) | Outcome::Failed(why) => {
                format!("process {pid}: {why}")
            }
        };
        summary.left = summary.left.saturating_add(1);
        summary.why.get_or_insert(why);
    }
    if let Some(why) = &report.unchecked {
        summary.left = summary.left.max(1);
        let why = || format!("processes of it may be left: {why}");
        summary.why.get_or_insert_with(why);
    }
    let missing = report.memory.iter().find(|it| it.after_ms.is_none());
    if let (None, Some(missing)) = (&summary.why, missing) {
        summary.why = Some(format!(
            "not all memory of GPU {} was released",
            missing.index
        ));
    }
    summary
}
