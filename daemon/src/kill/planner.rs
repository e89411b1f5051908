//! Makes one plan: reads the process table, calls the policy, and records refusals. It runs on a
//! thread of its own, since it may take a second.

use super::KillEnvironment;
use super::concurrency::{ConcurrencyLimits, ConcurrencySlot};
use crate::log_events::EventSubject;
use crate::state::PublishedPoll;
use crate::store::{Action, ActionKind};
use gpukill_policy::access::Caller;
use gpukill_policy::kill::plan;
use gpukill_proto::json::KillPlanDocument;
use gpukill_proto::kill::{KillPlan, KillRequest, KillTarget, PlannedAction};
use gpukill_proto::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How many plans may be made at once. Each reads all processes and holds them for that time.
pub(super) const PLANNING_LIMITS: ConcurrencyLimits = ConcurrencyLimits {
    total: 4,
    reserved: 2,
    per_group: 1,
};

/// How long a request waits for a planning slot. Each slot is free again after one or two seconds;
/// a client waits 15 s for its plan, and the scans come after the slot.
pub(super) const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) enum PlanResult {
    Executable(Arc<KillPlan>),
    /// For display only.
    DisplayOnly(Arc<KillPlan>),
}

/// Makes the plan. The thread holds the slot until it ends, even if the caller has gone.
///
/// # Errors
/// The errors of [`plan`].
pub(super) async fn plan_on_thread(
    environment: &KillEnvironment,
    caller: &Caller,
    request: &KillRequest,
    published: PublishedPoll,
    slot: &Arc<ConcurrencySlot>,
) -> Result<PlanResult, Refusal> {
    let (environment, caller, request) = (environment.clone(), caller.clone(), request.clone());
    let slot = Arc::clone(slot);
    let (sender, result) = oneshot::channel();
    let make = move || {
        let made = make_plan(&environment, &caller, &request, &published);
        drop(slot);
        // The caller may have gone.
        let _ = sender.send(made);
    };
    let thread = std::thread::Builder::new().name("plan".into()).spawn(make);
    thread.map_err(|error| {
        tracing::error!(%error, "cannot start a thread for a plan");
        Refusal::Unavailable("cannot start a thread for a plan".to_owned())
    })?;
    // The thread ends without an answer only after a panic, which is logged.
    result.await.unwrap_or_else(|_| {
        tracing::error!("a plan panicked");
        Err(Refusal::Internal)
    })
}

fn make_plan(
    environment: &KillEnvironment,
    caller: &Caller,
    request: &KillRequest,
    published: &PublishedPoll,
) -> Result<PlanResult, Refusal> {
    let facts = environment.plan_facts()?;
    let context = facts.context(caller, published);
    let made = plan(request, &context, environment.clock.now());
    if let (Err(Refusal::Denied { asked, ask }), false) = (&made, request.dry_run) {
        let why = format!("cannot {asked}: ask {ask}");
        record_refused(environment, caller, request, String::new(), why);
    }
    let plan = Arc::new(made?);
    // A request without any known target is not a refusal.
    if request.dry_run || plan.targets.is_empty() {
        return Ok(PlanResult::DisplayOnly(plan));
    }
    if ends_any(&plan) {
        return Ok(PlanResult::Executable(plan));
    }
    record_refused(
        environment,
        caller,
        request,
        plan_json(&plan),
        describe_refusals(&plan),
    );
    Ok(PlanResult::DisplayOnly(plan))
}

fn ends_any(plan: &KillPlan) -> bool {
    let mut targets = plan.targets.iter();
    targets.any(|target| matches!(target.action, PlannedAction::End(_)))
}

/// Why a plan ends no process, with the reasons of its first targets.
fn describe_refusals(plan: &KillPlan) -> String {
    const MAX_DESCRIBED: usize = 4;
    let targets = plan.targets.iter().take(MAX_DESCRIBED);
    let mut descriptions: Vec<String> = targets
        .map(|target| {
            let why = match &target.action {
                PlannedAction::End(_) => "is ended".to_owned(),
                PlannedAction::Protected(protected) => format!("is protected: {}", protected.why),
                PlannedAction::Denied(ask) => format!("does not belong to the caller: ask {ask}"),
                PlannedAction::Unclear(why) => format!("cannot be evaluated: {why}"),
                PlannedAction::Zombie(parent) => format!("waits for its parent {}", parent.pid),
            };
            format!("process {} {why}", target.key.pid)
        })
        .collect();
    let more = plan.targets.len().saturating_sub(MAX_DESCRIBED);
    if more > 0 {
        descriptions.push(format!("and {more} more"));
    }
    descriptions.join("; ")
}

/// The plan as JSON, for the record.
fn plan_json(plan: &KillPlan) -> String {
    serde_json::to_string(&KillPlanDocument::from(plan)).unwrap_or_default()
}

fn record_refused(
    environment: &KillEnvironment,
    caller: &Caller,
    request: &KillRequest,
    plan: String,
    why: String,
) {
    let asked = request.selector.text_for_caller(caller.uid);
    let action = Action {
        kind: ActionKind::Kill,
        uid: caller.uid,
        request: asked,
        plan,
    };
    environment
        .store
        .record_refusal(action, caller.limit_group, why);
}

/// The processes that a plan ends, their users and the devices they hold.
pub(super) fn affected_facts(plan: &KillPlan) -> EventSubject {
    let mut affected = EventSubject::default();
    let is_ended = |target: &&KillTarget| matches!(target.action, PlannedAction::End(_));
    for target in plan.targets.iter().filter(is_ended) {
        affected.add_pid(target.key.pid);
        affected.add_uid(target.uid.known().copied());
        for hold in &target.holds {
            affected.add_device(&hold.device.0);
        }
    }
    affected
}
