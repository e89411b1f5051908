//! The second look, right before a signal: is the process still the one that was
//! planned, and may it still be ended?

use super::belongs::{container_key, keeps_work};
use super::people::{names, whom_to_ask};
use super::plan::reaper;
use super::protected::{Protection, may_be_hosts_file, protection};
use super::{Candidate, Crowd};
use crate::access::{Caller, Operation, Roles, Ruling, Uids, check};
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{Ending, Fate, KillTarget, Protected};
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
    /// It as it was when it became a target.
    pub before: Option<&'a Candidate>,
    /// The person whose processes alone are ended; `None` for whoever may end them.
    pub person: Option<u32>,
    /// Whether it, or in a wider scope one of its like, still uses a device.
    pub uses_gpu: bool,
    /// Whether it used a device itself when the plan was carried out.
    pub used_gpu_itself: bool,
    /// Whether it had a signal already.
    pub had_signal: bool,
}

/// Whether `now`, which was read after a handle on the process was opened, may get
/// its signal. `None`: send it. What `now` lacks because reading it may hang is
/// taken from the target and from [`Again::before`].
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
    let now = &completed(now, target, again.before);
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
        Fate::Protected(protected) => Some(Ending::Protected(protected.why.clone())),
        Fate::Denied(ask) => Some(Ending::Denied(ask.clone())),
        Fate::Unclear(why) => Some(Ending::Unclear(why.clone())),
        Fate::Zombie(reaper) => Some(Ending::Zombie(reaper.clone())),
    }
}

/// With what was known of the same process when it became a target.
fn completed(now: &Candidate, target: &KillTarget, before: Option<&Candidate>) -> Candidate {
    let mut now = now.clone();
    // It tells a shell that runs a job's script from one that keeps people's work.
    if now.job.known().is_none() {
        now.job = target.job.clone();
    }
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
        if now.program.known().is_none() && now.kin.executable == before.kin.executable {
            now.program = before.program.clone();
        }
        now.kin.unit = now.kin.unit.or_else(|| before.kin.unit.clone());
        now.kin.arguments = now.kin.arguments.or_else(|| before.kin.arguments.clone());
    }
    now
}

fn protected(target: &KillTarget, now: &Candidate, again: &Again<'_>) -> Option<Ending> {
    let is_renamed = now.kin.name != target.name;
    let is_overridden = target.overridden.is_some() && !is_renamed;
    let protected = protection(now, again.crowd, again.protection);
    if let Some(Protected { why, .. }) =
        protected.filter(|it| !(is_overridden && it.root_may_override))
    {
        let changed = format!("it is {} now: {why}", now.kin.name);
        return Some(if is_renamed {
            Ending::Changed(changed)
        } else {
            Ending::Protected(why)
        });
    }
    becomes_keeper(target, now, again).then(|| {
        let name = &now.kin.name;
        Ending::Changed(format!("it is {name} now, which keeps people's work"))
    })
}

/// Whether a process that a scope merely reached keeps people's work by now. A process that
/// was named, that uses a device or that had a signal is the same process whatever it
/// executes since, and so is one that the guard ends: else it would save itself by executing
/// a program that is called so.
fn becomes_keeper(target: &KillTarget, now: &Candidate, again: &Again<'_>) -> bool {
    let is_meant_itself = target.named || again.used_gpu_itself;
    if is_meant_itself || again.had_signal || again.person.is_some() {
        return false;
    }
    let executes_another = again
        .before
        .is_none_or(|it| it.kin.executable != now.kin.executable);
    keeps_work(now) && (!executes_another || may_be_hosts_file(now))
}

fn not_theirs(target: &KillTarget, now: &Candidate, again: &Again<'_>) -> Option<Ending> {
    let unclear = || Some(Ending::Unclear("whose it is is not known".into()));
    let before = target.uid.known();
    let uids = now.uids.known().copied();
    if before.is_some() && uids.is_none() {
        return unclear();
    }
    let changed = uids.filter(|uids| before.is_some_and(|before| *before != uids.real));
    let operation = Operation::End {
        uids,
        namespace_owner: now.namespace_owner.known().copied().flatten(),
    };
    match (check(again.caller, operation, again.roles), changed) {
        (Ruling::Allow, None) => None,
        (Ruling::Allow, Some(uids)) if may_have_changed(uids, now, again) => None,
        (Ruling::Allow | Ruling::Deny(_), Some(uids)) => {
            Some(Ending::Changed(format!("it runs as uid {} now", uids.real)))
        }
        (Ruling::Deny(_), None) if matches!(now.uids, Reading::Value(_)) => {
            let names = names(again.crowd);
            let ask = whom_to_ask(now, again.roles, again.operators, &names);
            Some(Ending::Denied(ask))
        }
        (Ruling::Deny(_), None) => unclear(),
    }
}

/// Whether a process that runs as another user than before gets its signal from somebody
/// who may end it. It is the same process, and a number that its owner can choose saves
/// nobody: within a user namespace or a container of their own, or by programs that take
/// turns with their users. What has become the system's gets none.
fn may_have_changed(uids: Uids, now: &Candidate, again: &Again<'_>) -> bool {
    let before = again.before.filter(|it| it.kin.key == now.kin.key);
    let is_in_namespace = uids.real != 0 && now.kin.maker.is_some();
    let is_in_same_container = before.is_some_and(|before| {
        container_key(now).is_some_and(|(_, manager)| manager.is_none())
            && container_key(before) == container_key(now)
    });
    if uids.real < again.protection.uid_min && !is_in_namespace && !is_in_same_container {
        return false;
    }
    again.person.is_none_or(|person| {
        is_of_person(now, person)
            || before.is_some_and(|before| before.kin.is_same_persons(&now.kin))
    })
}

/// Whether a process is this person's: by its user namespace, or by one of its users.
#[must_use]
pub fn is_of_person(process: &Candidate, person: u32) -> bool {
    let uids = process.uids.known();
    process.kin.person() == Some(person)
        || uids.is_some_and(|it| [it.real, it.effective, it.saved].contains(&person))
}
