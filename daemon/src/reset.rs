//! Resets devices: removes or names the obstacles, lets the root helper take the vendor's last
//! step, and verifies the result.
//!
//! In reading order: the plans and [`operations`], how a plan is made ([`planner`]) and executed
//! ([`executor`]), and the requests to the helper ([`helper_client`]).

mod executor;
mod helper_client;
mod operations;
mod planner;

pub(crate) use helper_client::{HelperAnswer, parse_answer};

use crate::fd_scan::full_scan::ScanFreshness;
use crate::kill::{KillEnvironment, KillService};
use crate::quiesce::Quiesce;
use crate::store::{Action, ActionKind};
use gpukill_policy::access::Caller;
use gpukill_policy::reset::may_reset;
use gpukill_proto::json::ResetPlanDocument;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetReport, ResetRequest};
use operations::ResetOperations;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a stop waits for a running reset: a third of the time that systemd gives a service to
/// stop (`DefaultTimeoutStopSec=`, 90 s). A reset takes some seconds, and a sensor that starts
/// wakes every GPU.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Plans and executes resets. Clones share the state.
#[derive(Clone)]
pub(crate) struct ResetService {
    environment: KillEnvironment,
    enforcer: KillService,
    quiesce: Quiesce,
    operations: ResetOperations,
}

impl ResetService {
    pub(crate) fn new(
        environment: KillEnvironment,
        enforcer: KillService,
        quiesce: Quiesce,
    ) -> Self {
        Self {
            environment,
            enforcer,
            quiesce,
            operations: ResetOperations::default(),
        }
    }

    /// Plans a reset, with all its obstacles. A plan that resets at least one device and is not a
    /// dry run is kept for ten minutes under its id; a plan that resets nothing is recorded as
    /// refused.
    ///
    /// # Errors
    /// As [`gpukill_policy::reset::plan`], and if this daemon may not act.
    pub(crate) async fn plan(
        &self,
        caller: &Caller,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        self.require_right(caller, Some(&request)).await?;
        let published = self.environment.scan(ScanFreshness::Recent).await?;
        let (resetter, of) = (self.clone(), caller.clone());
        let is_dry_run = request.dry_run;
        let plan = self
            .run_blocking(move || planner::plan(&resetter.environment, &of, &request, &published))
            .await??;
        if is_dry_run {
            return Ok((None, plan));
        }
        if plan
            .devices
            .iter()
            .any(|it| it.action == PlannedReset::Reset)
        {
            let id = self
                .operations
                .add_plan(caller.uid, Arc::new(plan.clone()), Instant::now());
            return Ok((Some(id), plan));
        }
        let why = planner::explain_no_reset(&plan);
        let document = serde_json::to_string(&ResetPlanDocument::from(&plan)).unwrap_or_default();
        self.record_refusal(caller, &plan.request, document, why)
            .await;
        Ok((None, plan))
    }

    /// Starts the execution of a plan.
    ///
    /// # Errors
    /// [`Refusal::Expired`], and [`Refusal::Busy`] while another reset runs.
    pub(crate) async fn execute(
        &self,
        caller: &Caller,
        id: PlanId,
    ) -> Result<OperationId, Refusal> {
        self.require_right(caller, None).await?;
        // First of all: a plan that cannot be executed now is kept.
        let (operation, report) = self.operations.start(caller.uid, id, Instant::now())?;
        let (resetter, caller) = (self.clone(), caller.clone());
        let plan = Arc::clone(&report.plan);
        let carry_out = move || {
            executor::execute(&resetter, &plan, &caller, &report.sender);
            resetter.operations.finish(operation, Instant::now());
        };
        let thread = std::thread::Builder::new().name("reset".into());
        if let Err(error) = thread.spawn(carry_out) {
            tracing::error!(%error, "cannot start a thread for a reset");
            self.operations.remove(operation);
            let what = "cannot start a thread for it";
            return Err(Refusal::Unavailable(what.to_owned()));
        }
        Ok(operation)
    }

    /// The report of an operation and its changes. A caller who may reset may follow every
    /// operation.
    ///
    /// # Errors
    /// [`Refusal::NoMatch`] for an unknown operation.
    pub(crate) async fn follow(
        &self,
        caller: &Caller,
        id: OperationId,
    ) -> Result<watch::Receiver<Arc<ResetReport>>, Refusal> {
        let authority = &self.environment.authority;
        may_reset(caller, &authority.roles(), &authority.operator_group_name())?;
        let followed = self.operations.report(id, Instant::now());
        followed.ok_or_else(|| Refusal::NoMatch("no such reset".to_owned()))
    }

    /// Prevents further resets, and waits for the running one. The helper continues it in any case:
    /// an incomplete reset is worse than one that nothing waits for. Must be called while polls
    /// still run, and before other actions are asked to end.
    pub(crate) fn stop(&self) {
        if !self.operations.stop(Instant::now() + STOP_TIMEOUT) {
            tracing::warn!("the running reset did not end in time: gpukill-reset continues it");
        }
    }

    /// Checks that this daemon acts at all, and for this caller. A refused request is recorded
    /// unless it is a dry run.
    async fn require_right(
        &self,
        caller: &Caller,
        asked: Option<&ResetRequest>,
    ) -> Result<(), Refusal> {
        self.environment.check_enabled()?;
        let authority = &self.environment.authority;
        let may = may_reset(caller, &authority.roles(), &authority.operator_group_name());
        if let (Err(Refusal::Denied { asked, ask }), Some(request)) =
            (&may, asked.filter(|request| !request.dry_run))
        {
            let why = format!("cannot {asked}: ask {ask}");
            self.record_refusal(caller, request, String::new(), why)
                .await;
        }
        may
    }

    /// Records a reset that was not started. The store may make it wait, but nothing else.
    async fn record_refusal(
        &self,
        caller: &Caller,
        request: &ResetRequest,
        plan: String,
        why: String,
    ) {
        let asked = request.to_string();
        let action = Action {
            kind: ActionKind::Reset,
            uid: caller.uid,
            request: asked,
            plan,
        };
        let (store, by) = (self.environment.store.clone(), caller.limit_group);
        // A store that panicked has logged it.
        let _ = self
            .run_blocking(move || store.record_refusal(action, by, why))
            .await;
    }

    /// Runs work that takes long, without blocking others.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| {
            tracing::error!(%error, "a reset's plan panicked");
            Refusal::Internal
        })
    }
}
