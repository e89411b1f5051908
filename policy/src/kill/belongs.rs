//! What belongs to a process, and is ended with it in a wider scope.

use super::protected::{agrees, is_of_the_box};
use super::{Candidate, Crowd};
use crate::holders::names;
use crate::job::{is_keeper, is_server};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{Fate, KillPlan, KillScope};
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

/// Those of a later crowd that were born to members of what is being ended, and
/// are not in the first one: below one of them, or of a process group or session
/// that one of them began; in scope job also part of the same job, in scope
/// container in the same container. `members` are all that were ever ended, each as
/// it was when it became one: what a member that has gone began is still known by
/// it. What is found joins them for the next round.
///
/// It is never a process of somebody who has none among the members, and never
/// what only keeps people's work. In scope process it is nobody. Whether who asks
/// may end it is not judged here.
#[must_use]
pub fn newborn(
    members: &BTreeMap<ProcessKey, Candidate>,
    scope: KillScope,
    first: &Crowd,
    now: &Crowd,
) -> BTreeSet<ProcessKey> {
    if scope == KillScope::Process {
        return BTreeSet::new();
    }
    let kindred = Kindred::new(now);
    let newest = members.values().map(|member| {
        // One that came later may have found its place meanwhile.
        let found = at(now, member.kin.key);
        let found = found.filter(|it| at(first, it.kin.key).is_none());
        found.unwrap_or(member)
    });
    let members_seen: Vec<&Candidate> = newest.collect();
    let people: BTreeSet<u32> = members_seen
        .iter()
        .filter_map(|member| member.kin.person())
        .into_set();
    let mut found = BTreeSet::new();
    let mut visited = BTreeSet::new();
    let mut wholes = BTreeSet::new();
    for member in members_seen {
        // No pid is given again while a group or a session has its number.
        let is_replaced = |other: &Candidate| other.kin.key != member.kin.key;
        if !now.get(&member.kin.key.pid).is_some_and(is_replaced) {
            kindred.lineage(member, &mut visited, &mut found);
        }
        if !wholes.insert(whole(member)) {
            continue;
        }
        let others = match scope {
            KillScope::Process | KillScope::Tree => Ok(BTreeSet::new()),
            KillScope::Job => kindred.job(member),
            KillScope::Container => kindred.container(member),
        };
        // What cannot be told of a member says nothing of others.
        found.extend(others.unwrap_or_default());
    }
    found.retain(|key| {
        let person = at(now, *key).and_then(|process| process.kin.person());
        person.is_some_and(|person| people.contains(&person))
            && !members.contains_key(key)
            && at(first, *key).is_none()
    });
    found
}

/// Those that the scope of a plan reaches now from those that it names and ends,
/// and that are not in it: they came since it was made. As with [`newborn`],
/// whether who asks may end them is not judged here.
#[must_use]
pub fn joined(plan: &KillPlan, now: &Crowd) -> BTreeSet<ProcessKey> {
    let scope = plan.request.scope;
    if scope == KillScope::Process {
        return BTreeSet::new();
    }
    let kindred = Kindred::new(now);
    let ended = |fate: &Fate| matches!(fate, Fate::End(_));
    let named = plan.targets.iter();
    let named = named.filter(|target| target.named && ended(&target.fate));
    let mut found = BTreeSet::new();
    let mut wholes = BTreeSet::new();
    for process in named.filter_map(|target| at(now, target.key)) {
        // A thousand workers of one job reach the same.
        if found.contains(&process.kin.key) && wholes.contains(&whole(process)) {
            continue;
        }
        wholes.insert(whole(process));
        // What cannot be told any more says nothing of others.
        found.extend(kindred.reach(process, scope).unwrap_or_default());
    }
    for target in &plan.targets {
        found.remove(&target.key);
    }
    // Who runs something in a person's own container since then was shown to nobody.
    let people: BTreeSet<u32> = plan
        .targets
        .iter()
        .filter(|target| ended(&target.fate))
        .filter_map(|target| at(now, target.key)?.kin.person())
        .into_set();
    found.retain(|key| {
        at(now, *key).is_some_and(|process| {
            let is_systems = container_key(process).is_none_or(|(_, manager)| manager.is_none());
            let person = process.kin.person();
            is_systems || person.is_some_and(|person| people.contains(&person))
        })
    });
    found
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

fn at(crowd: &Crowd, key: ProcessKey) -> Option<&Candidate> {
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
    fn lineage(
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
    fn below(
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
    fn job(&self, process: &Candidate) -> Result<BTreeSet<ProcessKey>, String> {
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
    fn container(&self, process: &Candidate) -> Result<BTreeSet<ProcessKey>, String> {
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
fn is_younger(elder: &Candidate, process: &Candidate) -> bool {
    process.kin.key.start_ticks >= elder.kin.key.start_ticks
}
