//! Determines the job of a process: the processes that belong together and are ended
//! together.
//!
//! The first that applies: a step of a batch scheduler, a container, a systemd service
//! or scope, the tree of processes that a user started as one. A *session host*, such
//! as a login session, a shell or a Jupyter server, only runs the work of people: it is
//! no job and never part of one.

mod script;
mod session_hosts;
mod units;

use gpukill_proto::model::{Container, Job, ProcessKey, SchedulerJob, Unit};
use gpukill_proto::reading::Reading;
pub use script::runs_notebook_kernel;
pub(crate) use script::{InterpreterTarget, interpreter_target};
pub(crate) use session_hosts::may_be_session_host as is_called_like_a_keeper;
pub(crate) use session_hosts::{executable_name, is_session_host, is_session_server};
use std::sync::Arc;
use units::is_session_unit;

/// The facts about a process that determine its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessLineage {
    /// The process.
    pub key: ProcessKey,
    /// The real user; `None` where it is unknown.
    pub uid: Option<u32>,
    /// The lowest uid of a person on this host; lower ones are system accounts.
    pub uid_min: u32,
    /// The creator of its user namespace: of nested namespaces, the outermost that root
    /// did not create. `None` where there is none, or it is unknown.
    pub namespace_creator: Option<u32>,
    /// The kernel's name, at most 15 bytes.
    pub name: String,
    /// The process group.
    pub group: u32,
    /// The session: the pid of its leader.
    pub session: u32,
    /// Whether the process has a terminal.
    pub on_terminal: bool,
    /// The path of the executable; `None` where it is unknown.
    pub executable: Option<String>,
    /// The arguments, where they say more than the name: see
    /// [`ProcessLineage::needs_arguments`].
    pub arguments: Option<Arc<[String]>>,
    /// The systemd service or scope; `None` where it is unknown.
    pub unit: Option<Unit>,
}

impl ProcessLineage {
    /// The person that owns the process: the creator of its user namespace, or else its
    /// real user. Within their own namespace a person runs processes under any uid that
    /// is mapped there, and changes it freely. Only root brings uid 0 of the host into
    /// a namespace.
    #[must_use]
    pub fn person(&self) -> Option<u32> {
        match self.uid {
            None | Some(0) => self.uid,
            Some(uid) => Some(self.namespace_creator.unwrap_or(uid)),
        }
    }

    /// Whether both processes belong to the same, known person.
    #[must_use]
    pub fn has_same_person(&self, other: &Self) -> bool {
        self.person().is_some() && self.person() == other.person()
    }

    /// Whether the name says only which interpreter runs, so that
    /// [`ProcessLineage::arguments`] are needed to know the program.
    #[must_use]
    pub fn needs_arguments(&self) -> bool {
        session_hosts::is_interpreter_process(self)
    }

    /// Whether it runs as root or as a system account of the host. In a user namespace a
    /// person chooses the user. An unknown user counts as such an account: the process
    /// belongs to no person's job.
    pub(crate) fn is_system_account(&self) -> bool {
        self.namespace_creator.is_none() && self.uid.is_none_or(|uid| uid < self.uid_min)
    }

    pub(crate) fn is_session_leader(&self) -> bool {
        self.session == self.key.pid
    }

    /// Whether it leads its session or its process group.
    pub(crate) fn is_leader(&self) -> bool {
        self.is_session_leader() || self.group == self.key.pid
    }

    /// Whether this process runs `child` as a shell runs a command: in a process group
    /// of its own, on the terminal of the session that this process leads. This
    /// recognizes shells that no list names. A launcher may do the same with its
    /// workers.
    fn controls(&self, child: &ProcessLineage) -> bool {
        self.is_session_leader()
            && self.on_terminal
            && child.session == self.session
            && child.group != self.group
            && !session_hosts::is_launcher(self)
    }
}

/// The ancestors of a process, the nearest first, without pid 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ancestors {
    /// The ancestors that were read.
    pub processes: Vec<ProcessLineage>,
    /// Whether there are more ancestors, which were not read.
    pub is_truncated: bool,
}

/// The facts that determine the job of a process.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    /// The process.
    pub process: &'a ProcessLineage,
    /// Its ancestors.
    pub ancestors: &'a Ancestors,
    /// Its job in a batch scheduler.
    pub scheduler: &'a Reading<Option<SchedulerJob>>,
    /// Its container.
    pub container: &'a Reading<Option<&'a Container>>,
    /// Its systemd service or scope.
    pub unit: &'a Reading<Option<Unit>>,
}

/// Returns the job of a process. Where it is unknown whether the process runs in a
/// container, the job is unknown too: assuming no container would split a container
/// into several jobs.
#[must_use]
pub fn determine_job(facts: JobFacts<'_>) -> Reading<Job> {
    let scheduler = match facts.scheduler {
        Reading::Value(job) => job,
        unknown => return unknown.as_unknown(),
    };
    let container = match facts.container {
        Reading::Value(container) => container,
        unknown => return unknown.as_unknown(),
    };
    let unit = match facts.unit {
        Reading::Value(unit) => unit,
        unknown => return unknown.as_unknown(),
    };
    if let Some(job) = scheduler {
        return Reading::Value(Job::Scheduler(job.clone()));
    }
    if let Some(container) = container {
        return Reading::Value(Job::Container {
            id: container.id.clone(),
            manager: container.manager,
        });
    }
    match unit.as_ref().filter(|unit| !is_session_unit(unit)) {
        Some(unit) => job_in_unit(unit, facts.process, facts.ancestors),
        None => job_of_tree(facts.process, facts.ancestors),
    }
}

/// Returns the notebook servers above the tree of a process, the nearest first: servers
/// of the same person, each the parent of the one before. A name that a person gives to
/// such a server only makes that person's own processes less of a service.
#[must_use]
pub fn notebook_servers(process: &ProcessLineage, ancestors: &Ancestors) -> Vec<ProcessKey> {
    let is_own = |it: &&ProcessLineage| it.key.pid > 1 && it.has_same_person(process);
    let own = ancestors.processes.iter().take_while(is_own);
    let above = own.skip_while(|it| !session_hosts::is_notebook_server(it) && !is_session_host(it));
    let servers = above.take_while(|it| session_hosts::is_notebook_server(it));
    servers.map(|it| it.key).collect()
}

/// The job of a process in a service or scope that is no session host by its name: the
/// whole unit, or, where a session server runs in the unit, the tree below that server.
/// A process with the name of such a server is part of the unit where it leads no
/// session or process group, or runs below other work of the same person there.
fn job_in_unit(unit: &Unit, process: &ProcessLineage, ancestors: &Ancestors) -> Reading<Job> {
    let is_inside = |ancestor: &&ProcessLineage| ancestor.unit.as_ref() == Some(unit);
    let is_work =
        |other: &ProcessLineage| other.has_same_person(process) && !is_session_host(other);
    let is_below_work = ancestors.processes.iter().filter(is_inside).any(is_work);
    let is_in_place = process.is_system_account() || (process.is_leader() && !is_below_work);
    if is_session_server(process) && is_in_place {
        return Reading::Value(Job::Tree(process.key));
    }
    // Of any user: a session server of root hosts the work of alice.
    if ancestors
        .processes
        .iter()
        .filter(is_inside)
        .any(is_session_server)
    {
        return job_of_tree(process, ancestors);
    }
    if ancestors.is_truncated {
        return too_many_ancestors();
    }
    match process.person() {
        Some(uid) => Reading::Value(Job::Unit {
            unit: unit.clone(),
            uid,
        }),
        None => Reading::Failed("its owner is not known".into()),
    }
}

fn job_of_tree(process: &ProcessLineage, ancestors: &Ancestors) -> Reading<Job> {
    if process.key.pid <= 1 {
        return Reading::Failed("process 1 is not a job: all other processes are below it".into());
    }
    match find_root(process, &ancestors.processes) {
        TreeRoot::Found(root) => Reading::Value(Job::Tree(root)),
        TreeRoot::Above(_) if ancestors.is_truncated => too_many_ancestors(),
        TreeRoot::Above(root) => Reading::Value(Job::Tree(root)),
    }
}

fn too_many_ancestors() -> Reading<Job> {
    Reading::Failed("it has too many ancestors to read".into())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeRoot {
    /// The process above it is not part of the job.
    Found(ProcessKey),
    /// The last known ancestor: a process above it may be part of the job.
    Above(ProcessKey),
}

/// Finds the highest ancestor of the same person, such that no process up to it is a
/// session host. The process itself is always part of its own job, whatever its name
/// is.
fn find_root(process: &ProcessLineage, ancestors: &[ProcessLineage]) -> TreeRoot {
    let mut root = process;
    for ancestor in ancestors {
        let same_person = ancestor.has_same_person(process);
        if !same_person
            || ancestor.key.pid <= 1
            || is_session_host(ancestor)
            || ancestor.controls(root)
        {
            return TreeRoot::Found(root.key);
        }
        root = ancestor;
    }
    TreeRoot::Above(root.key)
}

#[cfg(test)]
mod tests;
