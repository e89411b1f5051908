//! The location of a process, and the job that it belongs to.

use super::process::ProcessKey;
use crate::reading::Reading;
use crate::words::words;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The location of a process. `Value(None)` is a known "in none".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLocation {
    /// Its container.
    pub container: Reading<Option<Container>>,
    /// Its systemd service or scope.
    pub unit: Reading<Option<Unit>>,
    /// Its login session: the 3 of `session-3.scope`.
    pub session: Reading<Option<String>>,
    /// Its controlling terminal: `pts/4`.
    pub terminal: Reading<Option<String>>,
    /// Its job in a batch scheduler.
    pub scheduler: Reading<Option<SchedulerJob>>,
}

impl ProcessLocation {
    /// A location of which nothing is known, for this reason.
    #[must_use]
    pub fn unknown(why: &Reading<()>) -> Self {
        Self {
            container: why.as_unknown(),
            unit: why.as_unknown(),
            session: why.as_unknown(),
            terminal: why.as_unknown(),
            scheduler: why.as_unknown(),
        }
    }
}

/// A container: the id from its cgroup, and the facts from the files of its runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The id.
    pub id: ContainerId,
    /// The user that runs the container by a systemd of their own, and chooses its names.
    /// `None` if only root could have created it.
    pub manager: Option<u32>,
    /// The name that its owner chose.
    pub name: Reading<String>,
    /// The image as requested at creation.
    pub image: Reading<String>,
    /// The Kubernetes pod; `None` if there is none.
    pub pod: Option<Pod>,
}

impl fmt::Display for Container {
    /// `docker train`, else `docker/0123456789ab`, `rootless podman train`, or for Kubernetes
    /// `pod team/train-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pod) = &self.pod
            && let (Some(namespace), Some(name)) =
                (pod.namespace.last_known(), pod.name.last_known())
        {
            return write!(f, "pod {namespace}/{name}");
        }
        if self.manager.is_some() {
            f.write_str("rootless ")?;
        }
        match self.name.last_known() {
            Some(name) if *name != self.id.id => write!(f, "{} {name}", self.id.runtime),
            _ => write!(f, "{}", self.id),
        }
    }
}

/// The id of a container, from its cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerId {
    /// `docker`, `podman`, `containerd`, `cri-o`, `lxc`, `systemd-nspawn`, …
    pub runtime: String,
    /// 64 hexadecimal digits, or the name that the runtime uses.
    pub id: String,
}

impl fmt::Display for ContainerId {
    /// `docker/0123456789ab`: the first twelve digits, as the runtimes print an id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_hash = self.id.len() == 64 && self.id.bytes().all(|b| b.is_ascii_hexdigit());
        let id = if is_hash { &self.id[..12] } else { &self.id };
        write!(f, "{}/{id}", self.runtime)
    }
}

/// A Kubernetes pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// With dashes, or 32 digits for a static pod.
    pub uid: String,
    /// Its name.
    pub name: Reading<String>,
    /// The namespace of the pod.
    pub namespace: Reading<String>,
}

/// A systemd service or scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit {
    /// The name: `train.service`.
    pub name: String,
    /// The user that runs the unit by a systemd of their own; `None` for the system's.
    pub manager: Option<u32>,
}

words! {
    /// A batch scheduler.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Scheduler {
        /// Slurm.
        Slurm = "slurm",
        /// OpenPBS and PBS Professional.
        Pbs = "pbs",
        /// IBM Spectrum LSF.
        Lsf = "lsf",
        /// HTCondor.
        HtCondor = "htcondor",
    }
    /// The name on the screen and in JSON.
    name(self)
}

/// A job of a batch scheduler, or a step of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SchedulerJob {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The job id, as the scheduler writes it: `1234`.
    pub job: String,
    /// A step, a part of the job that is started and ended as a whole: `0`, `batch`.
    pub step: Option<String>,
}

impl fmt::Display for SchedulerJob {
    /// `slurm 1234.0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.scheduler.name(), self.job)?;
        match &self.step {
            Some(step) => write!(f, ".{step}"),
            None => Ok(()),
        }
    }
}

words! {
    /// Processes that belong together and are ended together.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Job {
        /// A job or step of a batch scheduler.
        Scheduler(SchedulerJob) = "scheduler",
        /// Everything in a container.
        Container {
            /// The id.
            id: ContainerId,
            /// Like [`Container::manager`]: two managers may use the same id.
            manager: Option<u32>,
        } = "container",
        /// Everything that one user runs in a systemd service or scope that is not a session.
        Unit {
            /// The service or scope.
            unit: Unit,
            /// The real user id: a unit may run processes of several users, and a job belongs to
            /// one user.
            uid: u32,
        } = "unit",
        /// This process and its descendants.
        Tree(ProcessKey) = "tree",
    }
    /// The name of its kind in JSON.
    kind(&self)
}

impl fmt::Display for Job {
    /// `slurm 1234.0`, `docker/0123456789ab`, `train.service`, `tree 4711`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler(job) => job.fmt(f),
            Self::Container { id, .. } => id.fmt(f),
            Self::Unit { unit, .. } => f.write_str(&unit.name),
            Self::Tree(root) => write!(f, "tree {}", root.pid),
        }
    }
}

impl Job {
    /// The unique name on this host, unlike [`fmt::Display`]: no two jobs of one moment have
    /// the same.
    #[must_use]
    pub fn id(&self) -> String {
        let of_user = |manager: &Option<u32>| match manager {
            Some(uid) => format!("user {uid}, "),
            None => String::new(),
        };
        match self {
            Self::Scheduler(job) => job.to_string(),
            Self::Container { id, manager } => {
                format!("{}{}/{}", of_user(manager), id.runtime, id.id)
            }
            Self::Unit { unit, uid } => {
                format!("{}{} of {uid}", of_user(&unit.manager), unit.name)
            }
            Self::Tree(root) => format!("tree {} {}", root.pid, root.start_ticks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique() {
        let unit = |manager, uid| Job::Unit {
            unit: Unit {
                name: "train.service".into(),
                manager,
            },
            uid,
        };
        let container = |manager| Job::Container {
            id: ContainerId {
                runtime: "docker".into(),
                id: "ab".repeat(32),
            },
            manager,
        };
        let tree = |start_ticks| {
            Job::Tree(ProcessKey {
                pid: 7,
                start_ticks,
            })
        };
        let jobs = [
            unit(None, 0),
            unit(None, 1000),
            unit(Some(1000), 1000),
            unit(Some(1001), 1001),
            container(None),
            container(Some(1000)),
            tree(1),
            tree(2),
        ];
        let names: std::collections::BTreeSet<String> = jobs.iter().map(Job::id).collect();
        assert_eq!(names.len(), jobs.len(), "{names:?}");
    }
}
