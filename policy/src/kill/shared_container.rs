//! Decides which processes of a container with several users may be ended for the
//! violation of one of them.
//!
//! A container that root made runs as users that its image or makers chose, so only
//! uids distinguish its users, plus user namespaces that one of them made within it.
//! Root of the container, mapped or not, runs it for the others. In a container of a
//! person's own systemd, root counts as one more user: only root of the host can become
//! root there.

use super::scope::container_key;
use super::{ProcessInfo, ProcessTable};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillPlan, KillTarget};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

/// A plan for a job, without the processes of other people in a shared container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NarrowedPlan {
    /// The remaining plan.
    pub plan: KillPlan,
    /// Later processes of these users may join the plan; `None` where the container is
    /// not shared and the plan is unchanged.
    pub users: Option<ContainerUsers>,
}

/// Some of the people who share a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerUsers {
    pub(super) users: BTreeSet<u32>,
    roots: BTreeSet<u32>,
}

impl ContainerUsers {
    /// Whether a process belongs to one of these users.
    #[must_use]
    pub fn include(&self, process: &ProcessInfo) -> bool {
        responsible_user(process, &self.roots).is_some_and(|user| self.users.contains(&user))
    }

    fn include_target(&self, target: &KillTarget, table: &ProcessTable) -> bool {
        let process = table.get(&target.key.pid);
        process.is_some_and(|process| process.lineage.key == target.key && self.include(process))
    }
}

/// Removes from `plan` the processes of people other than the owners of `evaluated`, where
/// its targets are in a container with several users.
///
/// # Errors
/// The reason why no part of the plan can be carried out: ending an evaluated process would
/// end processes of others.
pub fn narrow_plan(
    plan: KillPlan,
    evaluated: &BTreeSet<ProcessKey>,
    table: &ProcessTable,
) -> Result<NarrowedPlan, String> {
    let Some(container) = SharedContainer::from_plan(&plan, table) else {
        return Ok(NarrowedPlan { plan, users: None });
    };
    let people = container.users_of(evaluated, table);
    let mut plan = plan;
    // The number of remaining processes is only known for the whole plan.
    plan.remaining_jobs.clear();
    if let Some(first) = evaluated
        .iter()
        .find(|key| container.would_end_others(**key))
    {
        return Err(format!(
            "process {} is the init process of its container, and processes of other users would \
            end with it",
            first.pid
        ));
    }
    plan.targets.retain(|target| {
        evaluated.contains(&target.key)
            || (people.include_target(target, table) && !container.would_end_others(target.key))
    });
    Ok(NarrowedPlan {
        plan,
        users: Some(people),
    })
}

/// The user responsible for a process: the creator of its user namespace, or the user
/// it runs as. Root, and these roots of a container, create namespaces for others and
/// are not responsible for the processes in them.
fn responsible_user(process: &ProcessInfo, roots: &BTreeSet<u32>) -> Option<u32> {
    match &process.namespace_owner {
        Reading::Value(_) | Reading::Unsupported => {
            let person = process.lineage.person();
            let is_root = person.is_some_and(|person| roots.contains(&person));
            if is_root { process.lineage.uid } else { person }
        }
        Reading::Stale(..) | Reading::Failed(_) | Reading::Withheld => None,
    }
}

/// The processes of a container with several users.
struct SharedContainer<'a> {
    table: &'a ProcessTable,
    members: Vec<&'a ProcessInfo>,
    /// Root of the container: root of the host, and the uid that its user namespace
    /// maps to root. A container of a person's own systemd has none.
    roots: BTreeSet<u32>,
}

impl<'a> SharedContainer<'a> {
    /// Returns the container of the processes of a plan; `None` where it has one user
    /// besides root, or the plan has no container.
    fn from_plan(plan: &KillPlan, table: &'a ProcessTable) -> Option<Self> {
        let targets = plan.targets.iter();
        let processes = targets.filter_map(|target| table.get(&target.key.pid));
        let keys: BTreeSet<_> = processes.filter_map(container_key).into_set();
        let is_member = |process: &&ProcessInfo| {
            container_key(process).is_some_and(|container| keys.contains(&container))
        };
        let members: Vec<&ProcessInfo> = table.values().filter(is_member).collect();
        let mapped = members.iter().filter_map(|process| process.namespace_root);
        let is_roots = keys.iter().all(|(_, manager)| manager.is_none());
        let roots = mapped.chain([0]).filter(|_| is_roots);
        let shared = Self {
            roots: roots.into_set(),
            table,
            members,
        };
        // A process of an unknown user counts as another user.
        let members = shared.members.iter();
        let users = members.map(|process| responsible_user(process, &shared.roots));
        let users: BTreeSet<Option<u32>> = users
            .filter(|user| user.is_none_or(|user| !shared.roots.contains(&user)))
            .into_set();
        (users.len() > 1).then_some(shared)
    }

    /// The owners of these processes, without root.
    fn users_of(&self, evaluated: &BTreeSet<ProcessKey>, table: &ProcessTable) -> ContainerUsers {
        let evaluated = evaluated.iter().filter_map(|key| table.get(&key.pid));
        let users = evaluated.filter_map(|process| responsible_user(process, &self.roots));
        ContainerUsers {
            users: users.filter(|user| !self.roots.contains(user)).into_set(),
            roots: self.roots.clone(),
        }
    }

    /// Whether the kernel ends processes of other users together with this one, because
    /// it is the first process of their PID namespace.
    fn would_end_others(&self, key: ProcessKey) -> bool {
        let first = self.table.get(&key.pid);
        let Some(first) = first.filter(|it| it.lineage.key == key && it.is_namespace_init) else {
            return false;
        };
        let user = responsible_user(first, &self.roots);
        self.members.iter().any(|member| {
            let is_anothers = user.is_none() || responsible_user(member, &self.roots) != user;
            is_anothers && self.is_in_namespace_of(member, first)
        })
    }

    /// Whether a process, or one of its ancestors, is in the PID namespace of this one.
    fn is_in_namespace_of(&self, process: &ProcessInfo, first: &ProcessInfo) -> bool {
        let mut visited = BTreeSet::new();
        let mut next = Some(process);
        while let Some(process) = next.filter(|it| visited.insert(it.lineage.key)) {
            let is_in_it =
                process.pid_namespace.is_some() && process.pid_namespace == first.pid_namespace;
            if process.lineage.key == first.lineage.key || is_in_it {
                return true;
            }
            next = self.table.get(&process.parent);
        }
        false
    }
}
