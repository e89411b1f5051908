//! Resetting devices: what stands in the way is taken away or named, the vendor's
//! last step is the root helper's, and what came of it is looked at.
//!
//! In reading order: what is [`kept`] of plans and operations, how one is made
//! ([`planning`]), how it is carried out ([`act`]), how the [`asking`] of the
//! helper goes, whether the device answers again ([`verify`]), and what the log says
//! of it ([`events`]).

mod kept;

mod planning;

mod act;

mod asking;

mod events;

mod verify;

pub(crate) use asking::{Answer, understand};

use crate::audit::{Act, ActKind};
use crate::enforce::{Enforcer, Means};
use crate::look::{Since, looked};
use crate::quiesce::Quiesce;
use gpukill_policy::access::Caller;
use gpukill_policy::reset::may_reset;
use gpukill_proto::document::ResetPlanDocument;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetFate, ResetPlan, ResetReport, ResetRequest};
use kept::Kept;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the end waits for the device that is being reset: a third of what
/// systemd gives a service to stop (`DefaultTimeoutStopSec=`, 90 s). A reset takes
/// some seconds, and a sensor that starts wakes every GPU.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// Plans and carries out resets. Clones share it.
#[derive(Clone)]
pub(crate) struct Resetter {
    means: Means,
    enforcer: Enforcer,
    quiesce: Quiesce,
    kept: Kept,
}

impl Resetter {
    pub(crate) fn new(means: Means, enforcer: Enforcer, quiesce: Quiesce) -> Self {
        Self {
            means,
            enforcer,
            quiesce,
            kept: Kept::default(),
        }
    }

    /// What would be done, and everything that stands in its way. A plan that
    /// resets something, and is no dry run, is kept for ten minutes under the id;
    /// one that resets nothing is recorded as refused.
    ///
    /// # Errors
    /// As [`gpukill_policy::reset::plan`], and where this daemon does not act.
    pub(crate) async fn plan(
        &self,
        caller: &Caller,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        self.may(caller, Some(&request)).await?;
        let means = &self.means;
        let seen = looked(&means.look, &means.state, Since::Lately).await?;
        let (resetter, of) = (self.clone(), caller.clone());
        let is_dry_run = request.dry_run;
        let plan = self
            .apart(move || planning::plan(&resetter.means, &of, &request, &seen))
            .await??;
        if is_dry_run {
            return Ok((None, plan));
        }
        if plan.devices.iter().any(|it| it.fate == ResetFate::Reset) {
            let id = self
                .kept
                .keep(caller.uid, Arc::new(plan.clone()), Instant::now());
            return Ok((Some(id), plan));
        }
        let why = planning::why_none(&plan);
        let document = serde_json::to_string(&ResetPlanDocument::from(&plan)).unwrap_or_default();
        self.refuse(caller, &plan.request, document, why).await;
        Ok((None, plan))
    }

    /// Begins what was planned.
    ///
    /// # Errors
    /// [`Refusal::Expired`], and [`Refusal::Busy`] while another reset goes on.
    pub(crate) async fn carry_out(
        &self,
        caller: &Caller,
        id: PlanId,
    ) -> Result<OperationId, Refusal> {
        self.may(caller, None).await?;
        // First of all: a plan that cannot be carried out now is kept.
        let (operation, report) = self.kept.begin(caller.uid, id, Instant::now())?;
        let (resetter, caller) = (self.clone(), caller.clone());
        let plan = Arc::clone(&report.plan);
        let carry_out = move || {
            act::act(&resetter, &plan, &caller, &report.sender);
            resetter.kept.end(operation, Instant::now());
        };
        let thread = std::thread::Builder::new().name("reset".into());
        if let Err(error) = thread.spawn(carry_out) {
            tracing::error!(%error, "no thread for a reset");
            self.kept.forget(operation);
            let what = "the system gives no thread for it";
            return Err(Refusal::Unavailable(what.to_owned()));
        }
        Ok(operation)
    }

    /// How an operation stands, now and later: whoever may reset may follow all.
    ///
    /// # Errors
    /// [`Refusal::NoMatch`] for one that there is not.
    pub(crate) async fn follow(
        &self,
        caller: &Caller,
        id: OperationId,
    ) -> Result<watch::Receiver<Arc<ResetReport>>, Refusal> {
        let authority = &self.means.authority;
        may_reset(caller, &authority.roles(), &authority.operators())?;
        let followed = self.kept.of(id, Instant::now());
        followed.ok_or_else(|| Refusal::NoMatch("there is no such reset".to_owned()))
    }

    /// Lets no other device be reset, and waits for the one that is. The helper goes
    /// on with it in any case: half a reset is worse than one that nobody waits for.
    /// To be called while there are polls, and before other acts are told to end.
    pub(crate) fn stop(&self) {
        if !self.kept.stop(Instant::now() + STOP_PATIENCE) {
            tracing::warn!("the reset under way did not end in time: gpukill-reset goes on");
        }
    }

    /// Whether this daemon acts at all, and for this caller. Who may not, and asked
    /// for more than to see, is recorded.
    async fn may(&self, caller: &Caller, asked: Option<&ResetRequest>) -> Result<(), Refusal> {
        self.means.acts()?;
        let authority = &self.means.authority;
        let may = may_reset(caller, &authority.roles(), &authority.operators());
        if let (Err(Refusal::Denied { asked, ask }), Some(request)) =
            (&may, asked.filter(|request| !request.dry_run))
        {
            let why = format!("cannot {asked}: ask {ask}");
            self.refuse(caller, request, String::new(), why).await;
        }
        may
    }

    /// Records what was not begun. The store may make it wait, and nobody else.
    async fn refuse(&self, caller: &Caller, request: &ResetRequest, plan: String, why: String) {
        let asked = request.to_string();
        let act = Act {
            kind: ActKind::Reset,
            uid: caller.uid,
            asked,
            plan,
        };
        let (store, by) = (self.means.store.clone(), caller.limit_group);
        // A store that panicked has said so.
        let _ = self.apart(move || store.refuse(act, by, why)).await;
    }

    /// Does something that takes long, and holds up nobody else.
    async fn apart<T: Send + 'static>(
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
