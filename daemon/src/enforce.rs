//! Ending processes: the only part that sends signals. A plan is made and kept
//! ([`Enforcer::plan`]), carried out on a thread of its own
//! ([`Enforcer::carry_out`]), and followed ([`Enforcer::follow`]) by whoever may.

mod ids;

mod slots;

mod guard_places;

mod note;

mod frozen;

mod recover;

mod room;

mod plans;

mod operations;

mod planning;

mod act;

mod sentence;

use crate::audit::Store;
use crate::authority::Authority;
use crate::clock::Clock;
use crate::host::crowd::Crowds;
use crate::look::{Look, Since, looked};
use crate::state;
use crate::state::Published;
use frozen::Frozen;
use gpukill_policy::access::{Caller, rights};
use gpukill_policy::kill::protected::protection;
use gpukill_proto::kill::{KillPlan, KillReport, KillRequest, OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::Right;
use planning::{FOR_A_PLACE, PLANNING, Planned, planned};
pub(crate) use recover::recover;
pub(crate) use room::widen_descriptors;
pub(crate) use sentence::{Sentence, Waits};
use slots::{Slot, Slots};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What acting needs of the daemon. Clones share it.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) authority: Authority,
    pub(crate) state: state::Reader,
    pub(crate) look: Look,
    pub(crate) crowds: Crowds,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// Makes the next poll come at once.
    pub(crate) hurry: Arc<dyn Fn() + Send + Sync>,
    /// Why this daemon may end no process, whoever asks.
    pub(crate) will_not_act: Option<String>,
    /// Set when the daemon stops: what is under way ends then.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Whom kills have stopped.
    pub(crate) frozen: Frozen,
}

impl Means {
    /// Whether this daemon acts at all, and goes on.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn acts(&self) -> Result<(), Refusal> {
        if let Some(why) = &self.will_not_act {
            return Err(Refusal::Unavailable(why.clone()));
        }
        if self.is_stopping() {
            return Err(Refusal::Unavailable("gpukilld stops".to_owned()));
        }
        Ok(())
    }

    /// Whether the daemon stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether this caller gets one of the places that are kept for operators.
    fn is_privileged(&self, caller: &Caller) -> bool {
        let rights = rights(caller, &self.authority.roles());
        let is_more = |right: &Right| matches!(right, Right::EndAny | Right::EditRules);
        rights.iter().any(is_more)
    }
}

/// Whose a plan or an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    uid: u32,
    /// Root of a container is not the box's root, and has the same uid.
    contained_root: bool,
}

impl Owner {
    fn of(caller: &Caller) -> Self {
        Self {
            uid: caller.uid,
            contained_root: caller.uid == 0 && caller.contained,
        }
    }
}

/// Plans and operations. Clones share it.
#[derive(Clone)]
pub(crate) struct Enforcer {
    means: Means,
    planning: Slots,
    plans: plans::Plans,
    operations: operations::Operations,
}

/// An operation, for whoever may follow it.
pub(crate) struct Followed {
    /// What it carries out.
    pub(crate) plan: Arc<KillPlan>,
    /// Whether this caller began it.
    pub(crate) is_own: bool,
    /// How it stands, now and later.
    pub(crate) report: watch::Receiver<Arc<KillReport>>,
}

impl Enforcer {
    pub(crate) fn new(means: Means) -> Self {
        Self {
            means,
            planning: Slots::new(PLANNING),
            plans: plans::Plans::default(),
            operations: operations::Operations::default(),
        }
    }

    /// What would be done. A plan that can be carried out is kept for ten minutes
    /// under the id; one that would end nobody, and is no dry run, is recorded as
    /// refused.
    ///
    /// # Errors
    /// As [`gpukill_policy::kill::plan`], where this daemon does not act, and
    /// [`Refusal::Busy`] where too many plans are being made for too long.
    pub(crate) async fn plan(
        &self,
        caller: &Caller,
        request: KillRequest,
    ) -> Result<(Option<PlanId>, Arc<KillPlan>), Refusal> {
        self.means.acts()?;
        let group = caller.limit_group;
        let is_privileged = self.means.is_privileged(caller);
        let slot = self.planning.wait(group, is_privileged, FOR_A_PLACE).await;
        let slot = slot.ok_or(Refusal::Busy)?;
        match self.planned(caller, request, Arc::new(slot)).await? {
            Planned::Kept(plan) => {
                let of = (Owner::of(caller), group);
                let id = self.plans.keep(of, Arc::clone(&plan), Instant::now());
                Ok((Some(id), plan))
            }
            Planned::Shown(plan) => Ok((None, plan)),
        }
    }

    /// Why nobody ends this process, whoever asks, by the rules of a kill. `None`
    /// where somebody may, where there is no such process, and where nobody can say
    /// that now: a kill looks again.
    pub(crate) async fn protection(&self, caller: &Caller, pid: u32) -> Option<String> {
        let is_privileged = self.means.is_privileged(caller);
        let slot = self
            .planning
            .wait(caller.limit_group, is_privileged, FOR_A_PLACE)
            .await?;
        let means = self.means.clone();
        let read = move || {
            let crowd = means.crowds.everybody(&means.authority.users).ok();
            drop(slot);
            let crowd = crowd?;
            let protected = protection(crowd.get(&pid)?, &crowd, &means.authority.protection())?;
            Some(match protected.way() {
                Some(way) => format!("{}; {way}", protected.why),
                None => protected.why,
            })
        };
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    async fn planned(
        &self,
        caller: &Caller,
        request: KillRequest,
        slot: Arc<Slot>,
    ) -> Result<Planned, Refusal> {
        let (means, asked) = (&self.means, Instant::now());
        let seen = looked(&means.look, &means.state, Since::Lately).await?;
        let made = planned(means, caller, &request, seen, &slot).await;
        let is_nobody = match &made {
            Err(refusal) => matches!(refusal, Refusal::NoMatch(_)),
            Ok(Planned::Shown(plan) | Planned::Kept(plan)) => plan.targets.is_empty(),
        };
        if !is_nobody {
            return made;
        }
        // It may have come to a GPU since a look that is news to others.
        let seen = looked(&means.look, &means.state, Since::After(asked)).await?;
        planned(means, caller, &request, seen, &slot).await
    }

    /// A plan that this caller made and that is still kept.
    ///
    /// # Errors
    /// [`Refusal::Expired`].
    pub(crate) fn kept(&self, caller: &Caller, id: PlanId) -> Result<Arc<KillPlan>, Refusal> {
        let plan = self.plans.of(Owner::of(caller), id, Instant::now());
        plan.ok_or(Refusal::Expired)
    }

    /// Begins what was planned.
    ///
    /// # Errors
    /// [`Refusal::Expired`], and [`Refusal::Busy`] where too many are under way.
    pub(crate) fn carry_out(&self, caller: &Caller, id: PlanId) -> Result<OperationId, Refusal> {
        self.means.acts()?;
        let owner = Owner::of(caller);
        // First of all: a plan that cannot be carried out now is kept.
        let is_privileged = self.means.is_privileged(caller);
        let slot = self.operations.place(caller.limit_group, is_privileged);
        let slot = slot.ok_or(Refusal::Busy)?;
        let plan = self.plans.take(owner, id, Instant::now());
        let plan = plan.ok_or(Refusal::Expired)?;
        let (means, caller, carried_out) = (self.means.clone(), caller.clone(), Arc::clone(&plan));
        let began = self.operations.begin(slot, owner, &plan, move |report| {
            carry_out(&carried_out, &caller, &means, report);
        });
        began.map_err(|error| {
            tracing::error!(%error, "no thread for a kill");
            Refusal::Unavailable("the system gives no thread for it".to_owned())
        })
    }

    /// How an operation stands, now and later.
    ///
    /// # Errors
    /// [`Refusal::NoMatch`] for one that there is not, or that this caller may not
    /// follow.
    pub(crate) fn follow(&self, caller: &Caller, id: OperationId) -> Result<Followed, Refusal> {
        let followed = self.operations.of(id).and_then(|followed| {
            let is_own = followed.owner == Owner::of(caller);
            (is_own || self.means.is_privileged(caller)).then_some(Followed {
                plan: followed.plan,
                is_own,
                report: followed.report,
            })
        });
        followed.ok_or_else(|| Refusal::NoMatch("there is no such operation of yours".to_owned()))
    }

    /// Tells what is under way that the daemon stops, and waits so long for it.
    pub(crate) fn stop(&self, patience: Duration) {
        self.means.stopping.store(true, Ordering::Relaxed);
        let left = self.operations.settle(Instant::now() + patience);
        self.means.frozen.end();
        if left > 0 {
            tracing::warn!(left, "kills under way did not end in time");
        }
    }
}

/// Carries a plan out, on the thread of its operation: looks anew, then acts.
fn carry_out(
    plan: &KillPlan,
    caller: &Caller,
    means: &Means,
    report: &watch::Sender<Arc<KillReport>>,
) {
    let seen = look_now(means);
    let word = act::Word {
        caller,
        asked: plan.request.selector.to_string(),
        must_be_recorded: false,
        users: None,
        person: None,
    };
    act::act(plan, &word, means, &seen, report);
}

/// What a look finds now; on a thread of its own.
fn look_now(means: &Means) -> Published {
    // A look waits, and the server's own thread may be gone by then.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let seen = match runtime {
        Ok(runtime) => runtime.block_on(looked(&means.look, &means.state, Since::Lately)),
        Err(error) => Err(Refusal::Unavailable(error.to_string())),
    };
    // Whoever held a device a moment ago is in the last answer. What a second look
    // does not find is not ended.
    seen.unwrap_or_else(|why| {
        tracing::warn!(%why, "no look at all processes before a kill");
        means.state.borrow().clone()
    })
}

#[cfg(test)]
mod tests;
