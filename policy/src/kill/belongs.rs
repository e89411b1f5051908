//! What belongs to a process, and is ended with it in a wider scope.

use super::protected::{agrees, is_of_the_box};
use super::{Candidate, Crowd};
use crate::holders::names;
use crate::job::{is_keeper, is_server};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::KillScope;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Container, ContainerId, Job, ProcessKey};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that this scope reaches from one process, itself included. Never
/// what only keeps people's work, and in scopes tree and job never another
/// person's process.
///
/// # Errors
/// Why the scope cannot be told: a job that is not known, no container.
pub fn reach(
    process: &Candidate,
    scope: KillScope,
    crowd: &Crowd,
) -> Result<BTreeSet<ProcessKey>, String> {
    Kindred::new(crowd).reach(process, scope)
}

/// Whether this process only keeps people's work, or runs others' jobs and
/// containers: no scope reaches it.
pub(super) fn keeps_work(process: &Candidate) -> bool {
    let keeps = is_keeper(&process.kin) && !is_script(process);
    keeps
        || (names::is_runtime(&process.kin.name)
            && is_of_the_box(process)
            && agrees(&process.kin, names::is_runtime))
}

/// Whether it is a shell that runs what a scheduler, a service or a container was
/// given: it would go on with the next command.
fn is_script(process: &Candidate) -> bool {
    let is_of_a_group = matches!(
        process.job.known(),
        Some(Job::Scheduler(_) | Job::Unit { .. } | Job::Container { .. })
    );
    is_of_a_group && !process.kin.on_terminal && !is_server(&process.kin)
}

/// This process of a crowd, where it is there and no other has its pid.
pub(super) fn at(crowd: &Crowd, key: ProcessKey) -> Option<&Candidate> {
    let process = crowd.get(&key.pid)?;
    (process.kin.key == key).then_some(process)
}

/// What a process is part of: of all that have the same, a job or a container has
/// the same members.
pub(super) type Whole<'a> = (Option<&'a Job>, Option<Whose<'a>>, Option<u32>);

pub(super) fn whole(process: &Candidate) -> Whole<'_> {
    let container = process.container.known().and_then(Option::as_ref);
    (
        process.job.known(),
        container.map(whose),
        process.kin.person(),
    )
}

/// Which container: its id, and below whose systemd it runs.
pub(super) type Whose<'a> = (&'a ContainerId, Option<u32>);

/// The container of a process, where it is in one.
pub(super) fn container_key(process: &Candidate) -> Option<Whose<'_>> {
    process
        .container
        .known()
        .and_then(Option::as_ref)
        .map(whose)
}

/// Who belongs to whom, of a whole crowd.
pub(super) struct Kindred<'a> {
    children: BTreeMap<u32, Vec<&'a Candidate>>,
    groups: BTreeMap<u32, Vec<&'a Candidate>>,
    sessions: BTreeMap<u32, Vec<&'a Candidate>>,
    jobs: BTreeMap<&'a Job, Vec<&'a Candidate>>,
    containers: BTreeMap<Whose<'a>, Vec<&'a Candidate>>,
    /// The pids below which a server of sessions runs.
    above_servers: BTreeSet<u32>,
}

impl<'a> Kindred<'a> {
    pub(super) fn new(crowd: &'a Crowd) -> Self {
        let mut kindred = Self {
            children: BTreeMap::new(),
            groups: BTreeMap::new(),
            sessions: BTreeMap::new(),
            jobs: BTreeMap::new(),
            containers: BTreeMap::new(),
            above_servers: above_servers(crowd),
        };
        for process in crowd.values() {
            let kin = &process.kin;
            for (index, of) in [
                (&mut kindred.children, process.parent),
                (&mut kindred.groups, kin.group),
                (&mut kindred.sessions, kin.session),
            ] {
                // 0 is one of another PID namespace: whoever has that has
                // nothing in common.
                if of != 0 {
                    index.entry(of).or_default().push(process);
                }
            }
            if let Some(job) = process.job.known() {
                kindred.jobs.entry(job).or_default().push(process);
            }
            if let Some(Some(container)) = process.container.known() {
                let within = kindred.containers.entry(whose(container)).or_default();
                within.push(process);
            }
        }
        kindred
    }

    /// As the function of this name.
    pub(super) fn reach(
        &self,
        process: &Candidate,
        scope: KillScope,
    ) -> Result<BTreeSet<ProcessKey>, String> {
        let mut reached = match scope {
            KillScope::Process => BTreeSet::new(),
            KillScope::Tree => {
                known_person(process)?;
                let mut below = BTreeSet::new();
                self.below(process, &mut BTreeSet::new(), &mut below);
                below
            }
            KillScope::Job => self.job(process)?,
            KillScope::Container => self.container(process)?,
        };
        reached.insert(process.kin.key);
        Ok(reached)
    }

    /// Those that descend from this one and are the same person's: what is below it,
    /// and what has its group or its session, since nobody enters a session who is
    /// not born into it.
    pub(super) fn lineage(
        &self,
        member: &Candidate,
        visited: &mut BTreeSet<ProcessKey>,
        found: &mut BTreeSet<ProcessKey>,
    ) {
        self.below(member, visited, found);
        for index in [&self.groups, &self.sessions] {
            let of_member = index.get(&member.kin.key.pid).into_iter().flatten();
            let own = of_member.filter(|other| {
                is_same_person(member, other) && !keeps_work(other) && is_younger(member, other)
            });
            for other in own {
                found.insert(other.kin.key);
                self.below(other, visited, found);
            }
        }
    }

    /// Those below it that are the same person's. Shells that run one command are
    /// passed by, and what keeps the work of people who come and go is the end of
    /// the line. Below those that were visited nobody is looked for again.
    pub(super) fn below(
        &self,
        process: &Candidate,
        visited: &mut BTreeSet<ProcessKey>,
        found: &mut BTreeSet<ProcessKey>,
    ) {
        let mut left = vec![process];
        while let Some(parent) = left.pop() {
            let children = self.children.get(&parent.kin.key.pid);
            for child in children.into_iter().flatten() {
                let is_a_child = is_same_person(parent, child) && is_younger(parent, child);
                if !is_a_child || is_server(&child.kin) || !visited.insert(child.kin.key) {
                    continue;
                }
                if !keeps_work(child) {
                    found.insert(child.kin.key);
                }
                left.push(child);
            }
        }
    }

    /// The whole job, without what keeps people's work.
    pub(super) fn job(&self, process: &Candidate) -> Result<BTreeSet<ProcessKey>, String> {
        let job = match &process.job {
            Reading::Value(job) => job,
            unknown => {
                let why = unknown.reason().unwrap_or_default();
                return Err(format!("its job is not known: {why}"));
            }
        };
        let (one_person, with_groups) = match job {
            // What runs in a container may be several users'.
            Job::Container { .. } => (false, false),
            Job::Scheduler(_) | Job::Unit { .. } => (true, false),
            // A pipeline is a group, and each of its parts a tree of its own.
            Job::Tree(_) => (true, true),
        };
        if one_person {
            known_person(process)?;
        }
        // A container ends with its first process, and a scheduler's job and a unit
        // with what they were given: with it a server of sessions would, too.
        let keeps_a_server = |other: &Candidate| {
            !matches!(job, Job::Tree(_)) && self.above_servers.contains(&other.kin.key.pid)
        };
        let is_part = |other: &Candidate| {
            (!one_person || is_same_person(process, other))
                && !keeps_work(other)
                && !keeps_a_server(other)
        };
        let parts = self.jobs.get(job).into_iter().flatten();
        let mut members: BTreeSet<ProcessKey> = parts
            .filter(|other| is_part(other))
            .map(|other| other.kin.key)
            .into_set();
        if with_groups {
            let pids: Vec<u32> = members.iter().map(|key| key.pid).collect();
            for pid in pids {
                let group = self.groups.get(&pid).into_iter().flatten();
                let own = group.filter(|other| is_part(other));
                members.extend(own.map(|other| other.kin.key));
            }
        }
        Ok(members)
    }

    /// Everything in its container, without what keeps people's work.
    pub(super) fn container(&self, process: &Candidate) -> Result<BTreeSet<ProcessKey>, String> {
        let container = match &process.container {
            Reading::Value(Some(container)) => container,
            Reading::Value(None) => return Err("it is in no container".into()),
            unknown => {
                let why = unknown.reason().unwrap_or_default();
                return Err(format!("its container is not known: {why}"));
            }
        };
        let within = self.containers.get(&whose(container)).into_iter().flatten();
        let parts = within.filter(|other| !keeps_work(other));
        Ok(parts.map(|other| other.kin.key).collect())
    }
}

/// The pids above what keeps the work of people who come and go.
fn above_servers(crowd: &Crowd) -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    for server in crowd.values().filter(|process| is_server(&process.kin)) {
        let mut next = server.parent;
        // Above one that was seen all were. A crowd is not read all at once: a line
        // of it may be a circle.
        while above.insert(next) {
            next = crowd.get(&next).map_or(0, |process| process.parent);
        }
    }
    above
}

fn whose(container: &Container) -> Whose<'_> {
    (&container.id, container.manager)
}

fn known_person(process: &Candidate) -> Result<u32, String> {
    let person = process.kin.person();
    person.ok_or_else(|| "whose it is is not known".into())
}

fn is_same_person(process: &Candidate, other: &Candidate) -> bool {
    process.kin.is_same_persons(&other.kin)
}

/// Whether it did not start before the other: nobody is born before their parent,
/// so that one who seems to be was read when the pid was another's.
pub(super) fn is_younger(elder: &Candidate, process: &Candidate) -> bool {
    process.kin.key.start_ticks >= elder.kin.key.start_ticks
}
