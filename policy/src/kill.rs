//! Plans which processes a kill ends, and how. A plan follows from the request and from
//! the snapshot; the executor rechecks each target right before a signal.
//!
//! In reading order: the users of devices ([`device_use`]), the processes that a
//! request selects ([`resolve`]), the processes in its scope ([`scope`]), protected
//! processes ([`protection`]), display servers at a seat ([`seat`]), [`plan()`], the
//! [`signals`], the recheck ([`recheck`]), the consent that a person has to give
//! ([`consent`]), reclaimed memory ([`reclaimed`]), processes that replaced ended ones
//! ([`respawned`]), and the overall result ([`outcome`]). A kill by the guard leaves
//! the processes of other people in a [`shared_container`] alone.

mod condition;
pub mod consent;
mod contacts;
pub mod device_use;
pub mod late_members;
pub mod outcome;
mod plan;
pub mod protection;
pub mod recheck;
pub mod reclaimed;
pub mod resolve;
pub mod respawned;
pub mod scope;
pub mod seat;
pub mod shared_container;
pub mod signals;

use crate::access::{Caller, Roles, Uids};
use crate::job::ProcessLineage;
use gpukill_proto::holders::{DeviceHolders, ProcessState};
use gpukill_proto::model::{Container, Job, Snapshot};
use gpukill_proto::reading::Reading;
pub use plan::plan;
use protection::Protection;
use std::collections::BTreeMap;

/// The facts about a process of the host that a plan needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its lineage: key, real user, name, group, session, executable, unit.
    pub lineage: ProcessLineage,
    /// Its parent; 0 where the parent is in another PID namespace.
    pub parent: u32,
    /// Whether it is a kernel thread.
    pub is_kernel_thread: bool,
    /// Its state.
    pub state: ProcessState,
    /// The users it runs as.
    pub uids: Reading<Uids>,
    /// The owner of its user namespace; `None` where it is the daemon's own.
    pub namespace_owner: Reading<Option<u32>>,
    /// In a container: the user who is root in the user namespace that root made for
    /// it.
    pub namespace_root: Option<u32>,
    /// In a container: the number of its PID namespace.
    pub pid_namespace: Option<u64>,
    /// Whether it is the first process of a PID namespace below the daemon's: all other
    /// processes of that namespace end with it.
    pub is_namespace_init: bool,
    /// The displayed name of its owner.
    pub owner: Reading<String>,
    /// The host's name of the owner of its user namespace, or of its user in the daemon's
    /// own. Never a label.
    pub person_name: Reading<String>,
    /// Its arguments, joined by spaces, with control characters made visible.
    pub command: Reading<String>,
    /// Its container.
    pub container: Reading<Option<Container>>,
    /// Its job.
    pub job: Reading<Job>,
    /// The origin of its executable; read where its name may protect it.
    pub program: Reading<ProgramOrigin>,
    /// Whether it is part of an active session at a seat of this host, as logind
    /// records it. Read for processes with the name of a display server.
    pub at_seat: Reading<bool>,
}

/// The origin of an executable. Compared by device and inode: a path depends on the
/// mount namespace of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramOrigin {
    /// The file that the host has at this path.
    Host,
    /// A file that was deleted or replaced, as by an upgrade, while the process sees
    /// the host's root directory.
    Replaced,
    /// A file of a container or of a mount namespace.
    Elsewhere,
}

/// Every process of the host, by pid.
pub type ProcessTable = BTreeMap<u32, ProcessInfo>;

/// The inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub struct KillContext<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The groups and users with rights.
    pub roles: &'a Roles,
    /// The name of the group of operators, who may end any process.
    pub operators: &'a str,
    /// The devices and their listed processes.
    pub snapshot: &'a Snapshot,
    /// The processes that have devices open, listed or not.
    pub holders: &'a [DeviceHolders],
    /// Every process.
    pub processes: &'a ProcessTable,
    /// The protection of processes.
    pub protection: &'a Protection,
}

#[cfg(test)]
mod tests;
