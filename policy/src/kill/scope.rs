//! The processes that a scope adds to a process.
//!
//! No scope reaches a session host, and a person decides which name, file and code a
//! process has. So a process that seems to be a session host is one only where the
//! process table agrees, by the first line that applies:
//!
//! | process | session host |
//! |---|---|
//! | the script of a scheduler's job, of a service or of a container | no |
//! | a server of root or a system account, outside of containers, from the host's file | yes |
//! | a shell that leads its session or process group on a terminal | yes |
//! | a server with another session below it: a pane, a kernel, a login | yes |
//! | a server that such a server of the host started: the session of sshd | yes |
//! | leads no session or process group | no |
//! | its parent is pid 1, another person's, or outside of its container | yes |
//! | its parent is a session host | yes |
//! | its parent is other work of the same person | no |
//!
//! A person can still arrange a process as a real server is arranged, away from the
//! job or with sessions below it. That is no more than a real tmux gives.

use super::protection::{executable_matches_name, may_be_in_host_namespace};
use super::{ProcessInfo, ProcessTable, ProgramOrigin};
use crate::holders::program_names;
use crate::job::{is_session_host, is_session_server};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::KillScope;
use gpukill_proto::model::{Container, ContainerId, Job, ProcessKey};
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};

/// The greatest number of session hosts in a row above a process that are followed.
/// Shells and terminals in each other are few.
const MAX_NESTED_HOSTS: usize = 64;

/// Whether the process is a session host, or runs jobs and containers of others, by
/// facts about itself; `None` where the processes around it decide.
fn hosts_by_itself(process: &ProcessInfo) -> Option<bool> {
    let is_server = is_server(process);
    if !is_server && (!is_session_host(&process.lineage) || is_job_script(process)) {
        return Some(false);
    }
    let is_host = match is_server {
        true => is_systems_own(process),
        false => process.lineage.on_terminal && process.lineage.is_leader(),
    };
    is_host.then_some(true)
}

/// As [`ScopeIndex::hosts_sessions`], for a process that was read alone: the root of a
/// tree has no other work of its person above it.
pub(super) fn hosts_sessions_alone(process: &ProcessInfo) -> bool {
    hosts_by_itself(process).unwrap_or_else(|| {
        let root = Job::Tree(process.lineage.key);
        process.lineage.is_leader() && process.job.known() == Some(&root)
    })
}

/// Whether the process has the name and file of a session server, or of a program that
/// runs jobs and containers of others.
fn is_server(process: &ProcessInfo) -> bool {
    is_session_server(&process.lineage)
        || (program_names::is_runtime(&process.lineage.name)
            && may_be_in_host_namespace(process)
            && executable_matches_name(&process.lineage, program_names::is_runtime))
}

/// Whether the process is root's or a system account's, outside of containers, and does
/// or may execute the host's file. In a container its users choose files and users.
fn is_systems_own(process: &ProcessInfo) -> bool {
    process.lineage.is_system_account()
        && container_key(process).is_none()
        && process.program.known() != Some(&ProgramOrigin::Elsewhere)
}

/// Whether no work of the same person is above the process: its parent is pid 1, of
/// another person or container, or the first process of its container, which adopts the
/// others.
fn is_uppermost(process: &ProcessInfo, parent: &ProcessInfo) -> bool {
    let container = container_key(process);
    parent.lineage.key.pid <= 1
        || !is_same_person(process, parent)
        || container_key(parent) != container
        || (container.is_some() && parent.is_namespace_init)
}

/// Whether the process is a shell that runs the script of a scheduler, service or
/// container: left alone, it would run the next command.
fn is_job_script(process: &ProcessInfo) -> bool {
    let is_of_a_group = matches!(
        process.job.known(),
        Some(Job::Scheduler(_) | Job::Unit { .. } | Job::Container { .. })
    );
    is_of_a_group && !process.lineage.on_terminal && !is_session_server(&process.lineage)
}

/// Returns the process with this key, unless its pid belongs to another process.
pub(super) fn find_process(table: &ProcessTable, key: ProcessKey) -> Option<&ProcessInfo> {
    let process = table.get(&key.pid)?;
    (process.lineage.key == key).then_some(process)
}

/// Job, container and person of a process. Processes with the same key have the same
/// job and container members.
pub(super) type MembershipKey<'a> = (Option<&'a Job>, Option<ContainerKey<'a>>, Option<u32>);

pub(super) fn membership_key(process: &ProcessInfo) -> MembershipKey<'_> {
    let container = process.container.known().and_then(Option::as_ref);
    (
        process.job.known(),
        container.map(key_of_container),
        process.lineage.person(),
    )
}

/// A container: its id, and the user manager that it runs below.
pub(super) type ContainerKey<'a> = (&'a ContainerId, Option<u32>);

/// The container of a process, if any.
pub(super) fn container_key(process: &ProcessInfo) -> Option<ContainerKey<'_>> {
    process
        .container
        .known()
        .and_then(Option::as_ref)
        .map(key_of_container)
}

/// Indices of a process table that answer which processes belong together.
pub(super) struct ScopeIndex<'a> {
    table: &'a ProcessTable,
    children: BTreeMap<u32, Vec<&'a ProcessInfo>>,
    groups: BTreeMap<u32, Vec<&'a ProcessInfo>>,
    sessions: BTreeMap<u32, Vec<&'a ProcessInfo>>,
    jobs: BTreeMap<&'a Job, Vec<&'a ProcessInfo>>,
    containers: BTreeMap<ContainerKey<'a>, Vec<&'a ProcessInfo>>,
    /// Pids with a leader of a session below them.
    session_ancestors: BTreeSet<u32>,
    /// Pids with a session server below them.
    session_server_ancestors: BTreeSet<u32>,
}

impl<'a> ScopeIndex<'a> {
    pub(super) fn new(table: &'a ProcessTable) -> Self {
        let mut scopes = Self {
            table,
            children: BTreeMap::new(),
            groups: BTreeMap::new(),
            sessions: BTreeMap::new(),
            jobs: BTreeMap::new(),
            containers: BTreeMap::new(),
            session_ancestors: pids_above(table, &|process| {
                process.lineage.is_session_leader() && process.state != ProcessState::Zombie
            }),
            session_server_ancestors: BTreeSet::new(),
        };
        let servers = pids_above(table, &|process| {
            is_session_server(&process.lineage) && scopes.hosts_sessions(process)
        });
        scopes.session_server_ancestors = servers;
        for process in table.values() {
            let lineage = &process.lineage;
            for (index, of) in [
                (&mut scopes.children, process.parent),
                (&mut scopes.groups, lineage.group),
                (&mut scopes.sessions, lineage.session),
            ] {
                // 0 stands for a process in another PID namespace: two such values need
                // not be the same process.
                if of != 0 {
                    index.entry(of).or_default().push(process);
                }
            }
            if let Some(job) = process.job.known() {
                scopes.jobs.entry(job).or_default().push(process);
            }
            if let Some(Some(container)) = process.container.known() {
                let within = scopes
                    .containers
                    .entry(key_of_container(container))
                    .or_default();
                within.push(process);
            }
        }
        scopes
    }

    /// Whether the process is a session host, or runs jobs and containers of others. No
    /// scope reaches it. The module's table has the reasons.
    pub(super) fn hosts_sessions(&self, process: &ProcessInfo) -> bool {
        let mut process = process;
        for _ in 0..MAX_NESTED_HOSTS {
            if let Some(hosts) = hosts_by_itself(process) {
                return hosts;
            }
            let is_server = is_server(process);
            let has_sessions = self.session_ancestors.contains(&process.lineage.key.pid);
            if is_server && has_sessions {
                return true;
            }
            let leads = process.lineage.is_leader();
            let parent = self.table.get(&process.parent);
            let Some(parent) = parent.filter(|parent| is_not_older(parent, process)) else {
                return leads;
            };
            if is_uppermost(process, parent) {
                let is_of_server = parent.lineage.key.pid > 1
                    && is_session_server(&parent.lineage)
                    && is_systems_own(parent);
                return leads || (is_server && is_of_server);
            }
            if !leads {
                return false;
            }
            process = parent;
        }
        false
    }

    /// Returns every process that this scope reaches from `process`, including itself. The
    /// result never contains a session host; in scopes tree and job it contains processes
    /// of one person only.
    ///
    /// # Errors
    /// The reason why the scope is unknown: the job is unknown, or there is no container.
    pub(super) fn processes_in_scope(
        &self,
        process: &ProcessInfo,
        scope: KillScope,
    ) -> Result<BTreeSet<ProcessKey>, String> {
        let mut reached = match scope {
            KillScope::Process => BTreeSet::new(),
            KillScope::Tree => {
                require_person(process)?;
                let mut below = BTreeSet::new();
                self.collect_below(process, &mut BTreeSet::new(), &mut below);
                below
            }
            KillScope::Job => self.job_members(process)?,
            KillScope::Container => self.container_members(process)?,
        };
        reached.insert(process.lineage.key);
        Ok(reached)
    }

    /// Finds the descendants of the same person: processes below this one, and
    /// processes in its group or session. A process can only be born into a session,
    /// never enter it.
    pub(super) fn collect_descendants(
        &self,
        member: &ProcessInfo,
        visited: &mut BTreeSet<ProcessKey>,
        members: &mut BTreeSet<ProcessKey>,
    ) {
        self.collect_below(member, visited, members);
        for index in [&self.groups, &self.sessions] {
            let of_member = index.get(&member.lineage.key.pid).into_iter().flatten();
            let own = of_member.filter(|other| {
                is_same_person(member, other)
                    && !self.hosts_sessions(other)
                    && is_not_older(member, other)
            });
            for other in own {
                members.insert(other.lineage.key);
                self.collect_below(other, visited, members);
            }
        }
    }

    /// Finds the processes below this one that belong to the same person. Shells with
    /// one command are not collected but their children are; a session server ends the
    /// line. Nothing is searched again below a visited process.
    pub(super) fn collect_below(
        &self,
        process: &ProcessInfo,
        visited: &mut BTreeSet<ProcessKey>,
        members: &mut BTreeSet<ProcessKey>,
    ) {
        let mut left = vec![process];
        while let Some(parent) = left.pop() {
            let children = self.children.get(&parent.lineage.key.pid);
            for child in children.into_iter().flatten() {
                let is_a_child = is_same_person(parent, child) && is_not_older(parent, child);
                if !is_a_child || visited.contains(&child.lineage.key) {
                    continue;
                }
                let hosts_sessions = self.hosts_sessions(child);
                if hosts_sessions && is_session_server(&child.lineage) {
                    continue;
                }
                visited.insert(child.lineage.key);
                if !hosts_sessions {
                    members.insert(child.lineage.key);
                }
                left.push(child);
            }
        }
    }

    /// The whole job, without session hosts.
    pub(super) fn job_members(
        &self,
        process: &ProcessInfo,
    ) -> Result<BTreeSet<ProcessKey>, String> {
        let job = match &process.job {
            Reading::Value(job) => job,
            unknown => {
                let why = unknown.reason().unwrap_or_default();
                return Err(format!("its job is not known: {why}"));
            }
        };
        let (one_person, with_groups) = match job {
            // A container may run processes of several users.
            Job::Container { .. } => (false, false),
            Job::Scheduler(_) | Job::Unit { .. } => (true, false),
            // A pipeline is a process group, and each of its parts is a tree.
            Job::Tree(_) => (true, true),
        };
        if one_person {
            require_person(process)?;
        }
        // A container ends with its first process, and a scheduler's job and a unit end
        // with their main process: a session server below that process would end too.
        let keeps_a_server = |other: &ProcessInfo| {
            !matches!(job, Job::Tree(_))
                && self
                    .session_server_ancestors
                    .contains(&other.lineage.key.pid)
        };
        let is_part = |other: &ProcessInfo| {
            (!one_person || is_same_person(process, other))
                && !self.hosts_sessions(other)
                && !keeps_a_server(other)
        };
        let parts = self.jobs.get(job).into_iter().flatten();
        let mut members: BTreeSet<ProcessKey> = parts
            .filter(|other| is_part(other))
            .map(|other| other.lineage.key)
            .into_set();
        if with_groups {
            let pids: Vec<u32> = members.iter().map(|key| key.pid).collect();
            for pid in pids {
                let group = self.groups.get(&pid).into_iter().flatten();
                let own = group.filter(|other| is_part(other));
                members.extend(own.map(|other| other.lineage.key));
            }
        }
        Ok(members)
    }

    /// Every process of its container, without session hosts.
    pub(super) fn container_members(
        &self,
        process: &ProcessInfo,
    ) -> Result<BTreeSet<ProcessKey>, String> {
        let container = match &process.container {
            Reading::Value(Some(container)) => container,
            Reading::Value(None) => return Err("it is not in a container".into()),
            unknown => {
                let why = unknown.reason().unwrap_or_default();
                return Err(format!("its container is not known: {why}"));
            }
        };
        let within = self
            .containers
            .get(&key_of_container(container))
            .into_iter()
            .flatten();
        let parts = within.filter(|other| !self.hosts_sessions(other));
        Ok(parts.map(|other| other.lineage.key).into_set())
    }
}

/// The pids above the processes for which this holds.
fn pids_above(table: &ProcessTable, holds: &dyn Fn(&ProcessInfo) -> bool) -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    for process in table.values().filter(|process| holds(process)) {
        let mut next = process.parent;
        // Above a visited pid every pid is visited. The process table is not read
        // atomically, so a chain of parents may be a cycle.
        while above.insert(next) {
            next = table.get(&next).map_or(0, |process| process.parent);
        }
    }
    above
}

fn key_of_container(container: &Container) -> ContainerKey<'_> {
    (&container.id, container.manager)
}

fn require_person(process: &ProcessInfo) -> Result<u32, String> {
    let person = process.lineage.person();
    person.ok_or_else(|| "its owner is not known".into())
}

fn is_same_person(process: &ProcessInfo, other: &ProcessInfo) -> bool {
    process.lineage.has_same_person(&other.lineage)
}

/// Whether the process did not start before `older`. A child cannot be older than its
/// parent: such a process was read when the pid belonged to another process.
pub(super) fn is_not_older(older: &ProcessInfo, process: &ProcessInfo) -> bool {
    process.lineage.key.start_ticks >= older.lineage.key.start_ticks
}
