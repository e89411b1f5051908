//! Makes one plan: looks at all processes, asks policy, and records what was
//! refused. All that on a thread of its own: it may take a second.

use super::Means;
use super::slots::{Places, Slot};
use crate::audit::{Act, ActKind};
use crate::catalogue::About;
use crate::state::Published;
use gpukill_policy::access::Caller;
use gpukill_policy::kill::{Seen, plan};
use gpukill_proto::document::KillPlanDocument;
use gpukill_proto::kill::{Fate, KillPlan, KillRequest, KillTarget};
use gpukill_proto::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// So many plans may be made at once: each reads all processes, and holds them
/// for that time.
pub(super) const PLANNING: Places = Places {
    most: 4,
    reserved: 2,
    of_one: 1,
};

/// How long is waited for a place, of which each is free again after a second or
/// two: a client waits 15 s for its plan, and the looks are still to come then.
pub(super) const FOR_A_PLACE: Duration = Duration::from_secs(5);

/// What came of a request.
pub(super) enum Planned {
    /// It can be carried out.
    Kept(Arc<KillPlan>),
    /// It is only to be shown.
    Shown(Arc<KillPlan>),
}

/// Plans what is asked for. The place is held until the thread has ended, whether
/// or not anybody waits for it.
///
/// # Errors
/// As [`plan`].
pub(super) async fn planned(
    means: &Means,
    caller: &Caller,
    request: &KillRequest,
    seen: Published,
    slot: &Arc<Slot>,
) -> Result<Planned, Refusal> {
    let (means, caller, request) = (means.clone(), caller.clone(), request.clone());
    let slot = Arc::clone(slot);
    let (tell, told) = oneshot::channel();
    let make = move || {
        let made = make(&means, &caller, &request, &seen);
        drop(slot);
        // Whoever asked may have gone.
        let _ = tell.send(made);
    };
    let thread = std::thread::Builder::new().name("plan".into()).spawn(make);
    thread.map_err(|error| {
        tracing::error!(%error, "no thread for a plan");
        Refusal::Unavailable("the system gives no thread for a plan".to_owned())
    })?;
    // It only ends without an answer when it panics, which it has said then.
    told.await.unwrap_or_else(|_| {
        tracing::error!("a plan panicked");
        Err(Refusal::Internal)
    })
}

fn make(
    means: &Means,
    caller: &Caller,
    request: &KillRequest,
    published: &Published,
) -> Result<Planned, Refusal> {
    let crowd = means.crowds.everybody(&means.authority.users);
    let crowd = crowd.map_err(|error| {
        tracing::error!(%error, "processes cannot be looked at");
        Refusal::Unavailable(format!("processes cannot be looked at: {error}"))
    })?;
    let (roles, operators) = (means.authority.roles(), means.authority.operators());
    let protection = means.authority.protection();
    let seen = Seen {
        caller,
        roles: &roles,
        operators: &operators,
        snapshot: &published.snapshot,
        holders: &published.holders,
        crowd: &crowd,
        protection: &protection,
    };
    let made = plan(request, &seen, means.clock.now());
    if let (Err(Refusal::Denied { asked, ask }), false) = (&made, request.dry_run) {
        let why = format!("cannot {asked}: ask {ask}");
        record_refused(means, caller, request, String::new(), why);
    }
    let plan = Arc::new(made?);
    // Nothing is refused to whoever means nobody, as far as that is known.
    if request.dry_run || plan.targets.is_empty() {
        return Ok(Planned::Shown(plan));
    }
    if ends_somebody(&plan) {
        return Ok(Planned::Kept(plan));
    }
    record_refused(means, caller, request, document(&plan), why_nobody(&plan));
    Ok(Planned::Shown(plan))
}

fn ends_somebody(plan: &KillPlan) -> bool {
    let mut targets = plan.targets.iter();
    targets.any(|target| matches!(target.fate, Fate::End(_)))
}

/// Why a plan ends nobody, by what is said of the first ones.
fn why_nobody(plan: &KillPlan) -> String {
    const SAID: usize = 4;
    let targets = plan.targets.iter().take(SAID);
    let mut said: Vec<String> = targets
        .map(|target| {
            let why = match &target.fate {
                Fate::End(_) => "is ended".to_owned(),
                Fate::Protected(protected) => format!("is protected: {}", protected.why),
                Fate::Denied(ask) => format!("is not the caller's: ask {ask}"),
                Fate::Unclear(why) => format!("cannot be judged: {why}"),
                Fate::Zombie(parent) => format!("waits for its parent {}", parent.pid),
            };
            format!("process {} {why}", target.key.pid)
        })
        .collect();
    let more = plan.targets.len().saturating_sub(SAID);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    said.join("; ")
}

/// A plan as it is recorded.
fn document(plan: &KillPlan) -> String {
    serde_json::to_string(&KillPlanDocument::from(plan)).unwrap_or_default()
}

fn record_refused(
    means: &Means,
    caller: &Caller,
    request: &KillRequest,
    plan: String,
    why: String,
) {
    let asked = request.selector.to_string();
    let act = Act {
        kind: ActKind::Kill,
        uid: caller.uid,
        asked,
        plan,
    };
    means.store.refuse(act, caller.limit_group, why);
}

/// Those whom a plan ends, and what they hold.
pub(super) fn about(plan: &KillPlan) -> About {
    let mut about = About::default();
    let is_ended = |target: &&KillTarget| matches!(target.fate, Fate::End(_));
    for target in plan.targets.iter().filter(is_ended) {
        about.pid(target.key.pid);
        about.uid(target.uid.known().copied());
        for hold in &target.holds {
            about.device(&hold.device.0);
        }
    }
    about
}
