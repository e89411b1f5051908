//! The second look, right before a signal: is the process still the one that was
//! planned, and may it still be ended?

use super::belongs::keeps_work;
use super::people::{names, whom_to_ask};
use super::plan::reaper;
use super::protected::{Protection, protection};
use super::{Candidate, Crowd};
use crate::access::{Caller, Operation, Roles, Ruling, check};
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{Ending, Fate, KillTarget};
use gpukill_proto::reading::Reading;

/// What a second look has to go by.
#[derive(Debug, Clone, Copy)]
pub struct Again<'a> {
    /// Who asked.
    pub caller: &'a Caller,
    /// Who may what, now.
    pub roles: &'a Roles,
    /// What to call the group of operators.
    pub operators: &'a str,
    /// Every process, as it was seen when the plan was carried out.
    pub crowd: &'a Crowd,
    /// What nobody ends.
    pub protection: &'a Protection,
    /// Whether it, or in a wider scope one of its like, still uses a device.
    pub uses_gpu: bool,
}

/// Whether `now`, which was read after a handle on the process was opened, may get
/// its signal. `None`: send it. What `now` lacks because reading it may hang is
/// taken from the target and from [`Again::crowd`].
#[must_use]
pub fn objection(target: &KillTarget, now: &Candidate, again: &Again<'_>) -> Option<Ending> {
    if now.kin.key != target.key {
        return Some(Ending::Gone);
    }
    if let Some(ending) = planned_otherwise(&target.fate) {
        return Some(ending);
    }
    if now.state == ProcessState::Zombie {
        return Some(Ending::Zombie(reaper(now, again.crowd)));
    }
    let now = &completed(now, target, again.crowd);
    protected(target, now, again)
        .or_else(|| not_theirs(target, now, again))
        .or_else(|| {
            let why = "it does not use a GPU any more";
            (!again.uses_gpu).then(|| Ending::Changed(why.into()))
        })
}

/// What becomes of a target that the plan does not end.
fn planned_otherwise(fate: &Fate) -> Option<Ending> {
    match fate {
        Fate::End(_) => None,
        Fate::Protected(why) => Some(Ending::Protected(why.clone())),
        Fate::Denied(ask) => Some(Ending::Denied(ask.clone())),
        Fate::Unclear(why) => Some(Ending::Unclear(why.clone())),
        Fate::Zombie(reaper) => Some(Ending::Zombie(reaper.clone())),
    }
}

/// With what was known of the same process when it became a target.
fn completed(now: &Candidate, target: &KillTarget, crowd: &Crowd) -> Candidate {
    let mut now = now.clone();
    // It tells a shell that runs a job's script from one that keeps people's work.
    if now.job.known().is_none() {
        now.job = target.job.clone();
    }
    let before = crowd.get(&now.kin.key.pid);
    if let Some(before) = before.filter(|before| before.kin.key == now.kin.key) {
        if now.owner.known().is_none() {
            now.owner = before.owner.clone();
        }
        let lacks_name = |container: &Option<gpukill_proto::snapshot::Container>| {
            container
                .as_ref()
                .is_some_and(|container| container.name.known().is_none())
        };
        if now.container.known().is_none_or(lacks_name) {
            now.container = before.container.clone();
        }
        now.kin.unit = now.kin.unit.or_else(|| before.kin.unit.clone());
        now.kin.arguments = now.kin.arguments.or_else(|| before.kin.arguments.clone());
    }
    now
}

fn protected(target: &KillTarget, now: &Candidate, again: &Again<'_>) -> Option<Ending> {
    let is_renamed = now.kin.name != target.name;
    if let Some(why) = protection(now, again.crowd, again.protection) {
        let changed = format!("it is {} now: {why}", now.kin.name);
        return Some(if is_renamed {
            Ending::Changed(changed)
        } else {
            Ending::Protected(why)
        });
    }
    ((is_renamed || !target.named) && keeps_work(now)).then(|| {
        let name = &now.kin.name;
        Ending::Changed(format!("it is {name} now, which keeps people's work"))
    })
}

fn not_theirs(target: &KillTarget, now: &Candidate, again: &Again<'_>) -> Option<Ending> {
    let real = now.uids.known().map(|uids| uids.real);
    match (target.uid.known(), real) {
        (Some(_), None) => return Some(Ending::Unclear("whose it is is not known".into())),
        (Some(before), Some(real)) if *before != real => {
            return Some(Ending::Changed(format!("it runs as uid {real} now")));
        }
        (Some(_) | None, _) => {}
    }
    let operation = Operation::End {
        uids: now.uids.known().copied(),
        namespace_owner: now.namespace_owner.known().copied().flatten(),
    };
    match check(again.caller, operation, again.roles) {
        Ruling::Allow => None,
        Ruling::Deny(_) if matches!(now.uids, Reading::Value(_)) => {
            let names = names(again.crowd);
            let ask = whom_to_ask(now, again.roles, again.operators, &names);
            Some(Ending::Denied(ask))
        }
        Ruling::Deny(_) => Some(Ending::Unclear("whose it is is not known".into())),
    }
}
