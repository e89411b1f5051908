//! Which job is a process part of: what belongs together, and is ended together?
//!
//! The first that applies: a step of a batch scheduler, a container, a systemd
//! service or scope, the tree of processes that its user started as one. What
//! only keeps people's work, such as a login session, a shell or a Jupyter
//! server, is no job and is never part of one.

mod keepers;
mod script;
mod units;

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Container, Job, ProcessKey, SchedulerJob, Unit};
pub(crate) use keepers::is_called_like_one as is_called_like_a_keeper;
pub(crate) use keepers::{is_keeper, is_server, program};
pub(crate) use script::{Ran, ran};
use std::sync::Arc;
use units::keeps;

/// One process, as far as it matters for its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kin {
    /// Names it.
    pub key: ProcessKey,
    /// Its real user; `None` where that is not known.
    pub uid: Option<u32>,
    /// The user who made its user namespace, of nested ones the outermost that root did
    /// not make; `None` where there is none, or it is not known.
    pub maker: Option<u32>,
    /// The kernel's name for it, at most 15 bytes.
    pub name: String,
    /// Its process group.
    pub group: u32,
    /// Its session: the pid of whoever began it.
    pub session: u32,
    /// Whether it has a terminal.
    pub on_terminal: bool,
    /// The path of what it executes; `None` where that is not known.
    pub executable: Option<String>,
    /// What it was started with, where that says more than its name: see
    /// [`Kin::needs_arguments`].
    pub arguments: Option<Arc<[String]>>,
    /// The systemd service or scope that it is in; `None` where that is not known.
    pub unit: Option<Unit>,
}

impl Kin {
    /// The person that it belongs to: who made its user namespace, or else its real user.
    /// Within their own namespace a person runs processes under any number that is mapped
    /// there, and changes it at will. Nobody but root brings uid 0 of the box into one.
    #[must_use]
    pub fn person(&self) -> Option<u32> {
        match self.uid {
            None | Some(0) => self.uid,
            Some(uid) => Some(self.maker.unwrap_or(uid)),
        }
    }

    /// Whether both belong to the same person, who is known.
    #[must_use]
    pub fn is_same_persons(&self, other: &Self) -> bool {
        self.person().is_some() && self.person() == other.person()
    }

    /// Whether its name says only which interpreter it is, so that
    /// [`Kin::arguments`] is needed to know what runs in it.
    #[must_use]
    pub fn needs_arguments(&self) -> bool {
        keepers::interprets(self)
    }

    fn leads_its_session(&self) -> bool {
        self.session == self.key.pid
    }

    /// Whether it runs `child` as a shell runs a command: in a process group of
    /// its own on the terminal of the session that it leads. This finds the
    /// shells that no list names. A launcher may do the same with its workers.
    fn controls(&self, child: &Kin) -> bool {
        self.leads_its_session()
            && self.on_terminal
            && child.session == self.session
            && child.group != self.group
            && !keepers::launches(self)
    }
}

/// The ancestors of a process, the nearest first, without pid 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ancestors {
    /// Those that were looked at.
    pub line: Vec<Kin>,
    /// Whether there are more, at which nobody looked.
    pub is_cut: bool,
}

/// What is known of a process and where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The process.
    pub process: &'a Kin,
    /// Its ancestors.
    pub ancestors: &'a Ancestors,
    /// Its job in a batch scheduler.
    pub scheduler: &'a Reading<Option<SchedulerJob>>,
    /// Its container.
    pub container: &'a Reading<Option<&'a Container>>,
    /// Its systemd service or scope.
    pub unit: &'a Reading<Option<Unit>>,
}

/// The job of a process. Where it is not known whether it runs in a container,
/// its job is not known either: "none" would make jobs of a container's parts.
#[must_use]
pub fn job(facts: Facts<'_>) -> Reading<Job> {
    let scheduler = match facts.scheduler {
        Reading::Value(job) => job,
        unknown => return unknown.because(),
    };
    let container = match facts.container {
        Reading::Value(container) => container,
        unknown => return unknown.because(),
    };
    let unit = match facts.unit {
        Reading::Value(unit) => unit,
        unknown => return unknown.because(),
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
    match unit.as_ref().filter(|unit| !keeps(unit)) {
        Some(unit) => inside(unit, facts.process, facts.ancestors),
        None => tree(facts.process, facts.ancestors),
    }
}

/// The notebook servers above the tree of a process, the nearest first: of the same person,
/// each the parent of the one before. What such a server calls itself makes its user's own
/// processes less of a service, and nothing else.
#[must_use]
pub fn notebook_servers(process: &Kin, ancestors: &Ancestors) -> Vec<ProcessKey> {
    let is_own = |it: &&Kin| it.key.pid > 1 && it.is_same_persons(process);
    let own = ancestors.line.iter().take_while(is_own);
    let above = own.skip_while(|it| !keepers::is_notebook_server(it) && !is_keeper(it));
    let servers = above.take_while(|it| keepers::is_notebook_server(it));
    servers.map(|it| it.key).collect()
}

/// The job of a process in a service or scope that keeps nothing by its name: all
/// of that, but where a server of sessions runs in it, the tree below that.
fn inside(unit: &Unit, process: &Kin, ancestors: &Ancestors) -> Reading<Job> {
    if is_server(process) {
        return Reading::Value(Job::Tree(process.key));
    }
    // Of whatever user: root's server of sessions keeps alice's work.
    let is_inside = |ancestor: &&Kin| ancestor.unit.as_ref() == Some(unit);
    if ancestors.line.iter().filter(is_inside).any(is_server) {
        return tree(process, ancestors);
    }
    if ancestors.is_cut {
        return too_deep();
    }
    match process.person() {
        Some(uid) => Reading::Value(Job::Unit {
            unit: unit.clone(),
            uid,
        }),
        None => Reading::Failed("whose it is is not known".into()),
    }
}

fn tree(process: &Kin, ancestors: &Ancestors) -> Reading<Job> {
    if process.key.pid <= 1 {
        return Reading::Failed("process 1 is no job: all others are below it".into());
    }
    match root(process, &ancestors.line) {
        Root::Found(root) => Reading::Value(Job::Tree(root)),
        Root::Above(_) if ancestors.is_cut => too_deep(),
        Root::Above(root) => Reading::Value(Job::Tree(root)),
    }
}

fn too_deep() -> Reading<Job> {
    Reading::Failed("it has too many ancestors to look at".into())
}

/// The root of a tree of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    /// What is above it is no part of the job.
    Found(ProcessKey),
    /// It is the last in the line, so that what is above it, if any, may be part
    /// of the job.
    Above(ProcessKey),
}

/// The highest ancestor that is the same person's, with everything between it and
/// the process, and nothing among them that only keeps people's work. The process
/// itself is always part of its own job, whatever it is called.
fn root(process: &Kin, ancestors: &[Kin]) -> Root {
    let mut root = process;
    for ancestor in ancestors {
        let same_person = ancestor.is_same_persons(process);
        if !same_person || ancestor.key.pid <= 1 || is_keeper(ancestor) || ancestor.controls(root) {
            return Root::Found(root.key);
        }
        root = ancestor;
    }
    Root::Above(root.key)
}

#[cfg(test)]
mod tests;
