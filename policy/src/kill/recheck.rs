//! The recheck right before a signal: whether the process is still the planned one, and
//! whether it may still be ended.

use super::contacts::{contact_text, user_names};
use super::plan::find_reaper;
use super::protection::{DaemonFamily, Protection, may_run_host_file, protection_of};
use super::scope::{ContainerKey, container_key, hosts_sessions_alone};
use super::{ProcessInfo, ProcessTable};
use crate::access::{Caller, Operation, Roles, Ruling, Uids, check};
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{KillTarget, Outcome, PlannedAction, ProtectionReason};
use gpukill_proto::model::{Container, ContainerId};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// The inputs of a recheck.
#[derive(Debug, Clone, Copy)]
pub struct RecheckContext<'a> {
    /// The caller of the kill.
    pub caller: &'a Caller,
    /// The current groups and users with rights.
    pub roles: &'a Roles,
    /// The name of the group of operators.
    pub operators: &'a str,
    /// Every process, read when the execution of the plan started.
    pub processes: &'a ProcessTable,
    /// The names that they show.
    pub names: &'a KnownNames,
    /// The daemon's ancestors and own processes among them.
    pub family: &'a DaemonFamily,
    /// The protection of processes.
    pub protection: &'a Protection,
    /// The process as it was when it became a target.
    pub before: Option<&'a ProcessInfo>,
    /// Only processes of this person are ended; `None` for a caller who may end processes of
    /// others.
    pub person: Option<u32>,
    /// Whether the process, or in a wider scope another process of the plan, still uses
    /// a device.
    pub uses_gpu: bool,
    /// Whether the process itself used a device when the execution of the plan started.
    pub used_gpu_itself: bool,
    /// Whether the process has received a signal.
    pub had_signal: bool,
}

/// The names that the processes of a table show. Thousands of rechecks look them up.
#[derive(Debug, Clone, Default)]
pub struct KnownNames {
    /// The containers with a known name, by id and user manager.
    containers: BTreeMap<(ContainerId, Option<u32>), Container>,
    users: BTreeMap<u32, String>,
}

impl KnownNames {
    /// The names that these processes show. If processes of one container have several
    /// names for it, that of the lowest PID counts.
    #[must_use]
    pub fn new(processes: &ProcessTable) -> Self {
        let mut named = BTreeMap::new();
        let containers = processes.values().filter_map(|it| it.container.known());
        for container in containers.flatten().filter(|it| !lacks_name(it)) {
            let key = (container.id.clone(), container.manager);
            named.entry(key).or_insert_with(|| container.clone());
        }
        Self {
            containers: named,
            users: user_names(processes),
        }
    }

    fn find_container(&self, (id, manager): ContainerKey<'_>) -> Option<&Container> {
        self.containers.get(&(id.clone(), manager))
    }
}

fn lacks_name(container: &Container) -> bool {
    container.name.known().is_none()
}

/// Decides whether the process may get its signal; `None` means that it may. `now` was
/// read after a handle on the process was opened. Facts that `now` lacks, because
/// reading them may block, come from the target and from [`RecheckContext::before`].
#[must_use]
pub fn veto(
    target: &KillTarget,
    now: &ProcessInfo,
    context: &RecheckContext<'_>,
) -> Option<Outcome> {
    if now.lineage.key != target.key {
        return Some(Outcome::Gone);
    }
    if let Some(ending) = planned_outcome(&target.action) {
        return Some(ending);
    }
    if now.state == ProcessState::Zombie {
        return Some(Outcome::Zombie(find_reaper(now, context.processes)));
    }
    let now = &with_earlier_facts(now, target, context);
    protection_outcome(target, now, context)
        .or_else(|| permission_outcome(target, now, context))
        .or_else(|| {
            let why = "it no longer uses a GPU";
            (!context.uses_gpu).then(|| Outcome::Changed(why.into()))
        })
}

/// The outcome of a target that the plan does not end.
fn planned_outcome(action: &PlannedAction) -> Option<Outcome> {
    match action {
        PlannedAction::End(_) => None,
        PlannedAction::Protected(protected) => Some(Outcome::Protected(protected.why.clone())),
        PlannedAction::Denied(ask) => Some(Outcome::Denied(ask.clone())),
        PlannedAction::Unclear(why) => Some(Outcome::Unclear(why.clone())),
        PlannedAction::Zombie(reaper) => Some(Outcome::Zombie(reaper.clone())),
    }
}

/// Adds the facts that were known when the process became a target.
fn with_earlier_facts(
    now: &ProcessInfo,
    target: &KillTarget,
    context: &RecheckContext<'_>,
) -> ProcessInfo {
    let is_nameless = |container: &Option<Container>| container.as_ref().is_some_and(lacks_name);
    let mut now = now.clone();
    // The job distinguishes a shell that runs a job's script from a session host.
    if now.job.known().is_none() {
        now.job = target.job.clone();
    }
    let before = context.before;
    if let Some(before) = before.filter(|before| before.lineage.key == now.lineage.key) {
        // A process that changed its user has another name.
        let is_in_namespace = now.namespace_owner.known().copied().flatten().is_some();
        let has_same_user = now.namespace_owner == before.namespace_owner
            && (is_in_namespace || now.lineage.uid == before.lineage.uid);
        if has_same_user && now.owner.known().is_none() {
            now.owner = before.owner.clone();
        }
        if has_same_user && now.person_name.known().is_none() {
            now.person_name = before.person_name.clone();
        }
        if now.container.known().is_none_or(is_nameless) {
            now.container = before.container.clone();
        }
        if now.program.known().is_none() && now.lineage.executable == before.lineage.executable {
            now.program = before.program.clone();
        }
        now.lineage.unit = now.lineage.unit.or_else(|| before.lineage.unit.clone());
        now.lineage.arguments = now
            .lineage
            .arguments
            .or_else(|| before.lineage.arguments.clone());
    }
    // A process that was forked after the plan is never read with the name of its container.
    if !context.protection.containers.is_empty() && now.container.known().is_some_and(is_nameless) {
        let named = container_key(&now).and_then(|key| context.names.find_container(key));
        if let Some(container) = named {
            now.container = Reading::Value(Some(container.clone()));
        }
    }
    now
}

fn protection_outcome(
    target: &KillTarget,
    now: &ProcessInfo,
    context: &RecheckContext<'_>,
) -> Option<Outcome> {
    let is_renamed = now.lineage.name != target.name;
    let is_overridden = target.overridden.is_some() && !is_renamed;
    let protected = protection_of(now, context.family, context.protection);
    if let Some(ProtectionReason { why, .. }) =
        protected.filter(|it| !(is_overridden && it.root_may_override))
    {
        let changed = format!("it is {} now: {why}", now.lineage.name);
        return Some(if is_renamed {
            Outcome::Changed(changed)
        } else {
            Outcome::Protected(why)
        });
    }
    became_session_host(target, now, context).then(|| {
        let name = &now.lineage.name;
        Outcome::Changed(format!("it is {name} now, which hosts sessions"))
    })
}

/// Whether a process that was only reached by a scope is a session host by now. A named
/// process, a process that uses a device and a process that received a signal stay
/// targets whatever they execute. So do processes that the guard ends: otherwise a
/// process could save itself by executing a program with such a name.
fn became_session_host(
    target: &KillTarget,
    now: &ProcessInfo,
    context: &RecheckContext<'_>,
) -> bool {
    let is_meant_itself = target.named || context.used_gpu_itself;
    if is_meant_itself || context.had_signal || context.person.is_some() {
        return false;
    }
    let executes_another = context
        .before
        .is_none_or(|it| it.lineage.executable != now.lineage.executable);
    hosts_sessions_alone(now) && (!executes_another || may_run_host_file(now))
}

fn permission_outcome(
    target: &KillTarget,
    now: &ProcessInfo,
    context: &RecheckContext<'_>,
) -> Option<Outcome> {
    let unclear = || Some(Outcome::Unclear("its owner is not known".into()));
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
    match (check(context.caller, operation, context.roles), changed) {
        (Ruling::Allow, None) => None,
        (Ruling::Allow, Some(uids)) if accepts_uid_change(uids, now, context) => None,
        (Ruling::Allow | Ruling::Deny(_), Some(uids)) => Some(Outcome::Changed(format!(
            "it runs as uid {} now",
            uids.real
        ))),
        (Ruling::Deny(_), None) if matches!(now.uids, Reading::Value(_)) => {
            let names = &context.names.users;
            let ask = contact_text(now, context.roles, context.operators, names);
            Some(Outcome::Denied(ask))
        }
        (Ruling::Deny(_), None) => unclear(),
    }
}

/// Whether a process that changed its user still gets a signal from a caller who may
/// end it. It is the same process, and a uid that its owner can choose protects no
/// process: within a user namespace or container of the owner, or of a program that
/// switches between its users. A process that became the system's gets no signal.
fn accepts_uid_change(uids: Uids, now: &ProcessInfo, context: &RecheckContext<'_>) -> bool {
    let before = context
        .before
        .filter(|it| it.lineage.key == now.lineage.key);
    let is_in_namespace = uids.real != 0 && now.lineage.namespace_creator.is_some();
    let is_in_same_container = before.is_some_and(|before| {
        container_key(now).is_some_and(|(_, manager)| manager.is_none())
            && container_key(before) == container_key(now)
    });
    if uids.real < context.protection.uid_min && !is_in_namespace && !is_in_same_container {
        return false;
    }
    context.person.is_none_or(|person| {
        belongs_to_person(now, person)
            || before.is_some_and(|before| before.lineage.has_same_person(&now.lineage))
    })
}

/// Whether the process belongs to this person, by its user namespace or by one of its
/// user ids.
#[must_use]
pub fn belongs_to_person(process: &ProcessInfo, person: u32) -> bool {
    let uids = process.uids.known();
    process.lineage.person() == Some(person)
        || uids.is_some_and(|it| [it.real, it.effective, it.saved].contains(&person))
}
