//! Containers that several people share: which of their processes may be ended for what
//! one of these people did?
//!
//! A container that root made runs as whatever users its image or its makers chose, so
//! they are told apart by number alone, but for user namespaces that one of them made
//! within it. Its root, mapped or not, runs it for the others. In a container of a
//! person's own systemd root is one user more: nobody becomes root there who is not the
//! root of the box.

use super::belongs::container_key;
use super::{Candidate, Crowd};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillPlan, KillTarget};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;

/// A plan for a job, without the processes of other people in a shared container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrowed {
    /// What is left of the plan.
    pub plan: KillPlan,
    /// The users whose later processes may join what is ended; `None` where the container
    /// is not shared and the plan is whole.
    pub users: Option<People>,
}

/// Some of the people who share a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct People {
    pub(super) users: BTreeSet<u32>,
    roots: BTreeSet<u32>,
}

impl People {
    /// Whether a process belongs to one of them.
    #[must_use]
    pub fn have(&self, process: &Candidate) -> bool {
        user_behind(process, &self.roots).is_some_and(|user| self.users.contains(&user))
    }

    fn have_target(&self, target: &KillTarget, crowd: &Crowd) -> bool {
        let process = crowd.get(&target.key.pid);
        process.is_some_and(|process| process.kin.key == target.key && self.have(process))
    }
}

/// Leaves out of `plan` the processes of people other than those of `judged`, where its
/// targets are in a container that several people use.
///
/// # Errors
/// Why none of it can be carried out: to end a process that was judged would end others'.
pub fn narrow(
    plan: KillPlan,
    judged: &BTreeSet<ProcessKey>,
    crowd: &Crowd,
) -> Result<Narrowed, String> {
    let Some(container) = Shared::of(&plan, crowd) else {
        return Ok(Narrowed { plan, users: None });
    };
    let people = container.people_of(judged, crowd);
    let mut plan = plan;
    // How much of each job goes on is known of the whole alone.
    plan.rest.clear();
    if let Some(first) = judged.iter().find(|key| container.would_end_others(**key)) {
        return Err(format!(
            "process {} is the first of its container, and other users' processes would end with it",
            first.pid
        ));
    }
    plan.targets.retain(|target| {
        judged.contains(&target.key)
            || (people.have_target(target, crowd) && !container.would_end_others(target.key))
    });
    Ok(Narrowed {
        plan,
        users: Some(people),
    })
}

/// The user behind a process: who made its user namespace, or whom it runs as. Root, and
/// these roots of a container, make namespaces for others, and are not behind what runs in
/// them.
fn user_behind(process: &Candidate, roots: &BTreeSet<u32>) -> Option<u32> {
    match &process.namespace_owner {
        Reading::Value(_) | Reading::Unsupported => {
            let person = process.kin.person();
            let is_root = person.is_some_and(|person| roots.contains(&person));
            if is_root { process.kin.uid } else { person }
        }
        Reading::Stale(..) | Reading::Failed(_) | Reading::Withheld => None,
    }
}

/// The processes of a container that several people use.
struct Shared<'a> {
    crowd: &'a Crowd,
    members: Vec<&'a Candidate>,
    /// Its root: that of the box, and whom its user namespace maps to root. A container of
    /// a person's own systemd has none.
    roots: BTreeSet<u32>,
}

impl<'a> Shared<'a> {
    /// The container of the processes of a plan; `None` where that has one user besides
    /// root, or is none.
    fn of(plan: &KillPlan, crowd: &'a Crowd) -> Option<Self> {
        let targets = plan.targets.iter();
        let processes = targets.filter_map(|target| crowd.get(&target.key.pid));
        let keys: BTreeSet<_> = processes.filter_map(container_key).into_set();
        let is_member = |process: &&Candidate| {
            container_key(process).is_some_and(|container| keys.contains(&container))
        };
        let members: Vec<&Candidate> = crowd.values().filter(is_member).collect();
        let mapped = members.iter().filter_map(|process| process.namespace_root);
        let is_roots = keys.iter().all(|(_, manager)| manager.is_none());
        let roots = mapped.chain([0]).filter(|_| is_roots);
        let shared = Self {
            roots: roots.collect(),
            crowd,
            members,
        };
        // A process of an unknown user is one of a user more.
        let members = shared.members.iter();
        let users = members.map(|process| user_behind(process, &shared.roots));
        let users: BTreeSet<Option<u32>> = users
            .filter(|user| user.is_none_or(|user| !shared.roots.contains(&user)))
            .into_set();
        (users.len() > 1).then_some(shared)
    }

    /// The people whose these processes are, without its root.
    fn people_of(&self, judged: &BTreeSet<ProcessKey>, crowd: &Crowd) -> People {
        let judged = judged.iter().filter_map(|key| crowd.get(&key.pid));
        let users = judged.filter_map(|process| user_behind(process, &self.roots));
        People {
            users: users.filter(|user| !self.roots.contains(user)).collect(),
            roots: self.roots.clone(),
        }
    }

    /// Whether the kernel ends processes of other users with this one: it is the first of a
    /// PID namespace that they are in.
    fn would_end_others(&self, key: ProcessKey) -> bool {
        let first = self.crowd.get(&key.pid);
        let Some(first) = first.filter(|it| it.kin.key == key && it.is_namespace_init) else {
            return false;
        };
        let user = user_behind(first, &self.roots);
        self.members.iter().any(|member| {
            let is_anothers = user.is_none() || user_behind(member, &self.roots) != user;
            is_anothers && self.is_below(member, first)
        })
    }

    /// Whether a process, or one that it descends from, is of this one's PID namespace.
    fn is_below(&self, process: &Candidate, first: &Candidate) -> bool {
        let mut visited = BTreeSet::new();
        let mut next = Some(process);
        while let Some(process) = next.filter(|it| visited.insert(it.kin.key)) {
            let is_in_it =
                process.pid_namespace.is_some() && process.pid_namespace == first.pid_namespace;
            if process.kin.key == first.kin.key || is_in_it {
                return true;
            }
            next = self.crowd.get(&process.parent);
        }
        false
    }
}
