//! Who is ended, and how? A plan is made of what a person asks for and of what is
//! seen; whoever acts looks again at each of its targets.
//!
//! In reading order: who uses devices ([`usage`]), who is [`meant`], what
//! [`belongs`] to it, what is [`protected`], which display servers are at a
//! [`seat`], [`plan()`], the [`signals`], a second
//! look ([`again`]), what the person has to agree to ([`consent`]), the memory that
//! [`returned`], who came in the place of the ended ([`respawned`]), and how it went
//! as a whole ([`success`]). What the guard ends leaves other people's processes of a
//! [`shared`] container alone.

pub mod usage;

pub mod meant;

mod condition;

pub mod belongs;

pub mod newcomers;

pub mod protected;

pub mod seat;

pub mod signals;

mod plan;

mod people;

pub mod shared;

pub mod again;

pub mod consent;

pub mod returned;

pub mod respawned;

pub mod success;

use crate::access::{Caller, Roles, Uids};
use crate::job::Kin;
use gpukill_proto::holders::{HeldDevice, ProcessState};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Container, Job, Snapshot};
pub use plan::plan;
use protected::Protection;
use std::collections::BTreeMap;

/// One process of the box, as far as it matters for whom a plan meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Who it is: key, real user, name, group, session, executable, unit.
    pub kin: Kin,
    /// Its parent; 0 where that is of another PID namespace.
    pub parent: u32,
    /// Whether it is a thread of the kernel's own.
    pub is_kernel_thread: bool,
    /// What it does now.
    pub state: ProcessState,
    /// As whom it runs.
    pub uids: Reading<Uids>,
    /// Who made its user namespace; `None` when it has the daemon's own.
    pub namespace_owner: Reading<Option<u32>>,
    /// In a container: the user whom the namespace that root made for it calls root.
    pub namespace_root: Option<u32>,
    /// In a container: the number of its PID namespace.
    pub pid_namespace: Option<u64>,
    /// Whether it is the first process of a PID namespace below the daemon's: all others
    /// of that end with it.
    pub is_namespace_init: bool,
    /// What to call whoever it belongs to.
    pub owner: Reading<String>,
    /// Its arguments, joined by blanks, controls made visible.
    pub command: Reading<String>,
    /// Its container.
    pub container: Reading<Option<Container>>,
    /// The job that it is part of.
    pub job: Reading<Job>,
    /// Whose file it executes; read where its name may protect it.
    pub program: Reading<ProgramOrigin>,
    /// Whether it is part of an active session at a seat of this box, by logind's
    /// record; read of what is called like a display server.
    pub at_seat: Reading<bool>,
}

/// Whose file a process executes. Compared by device and inode: a path alone is a
/// matter of the process's own mount namespace.
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

/// Every process of the box, by pid.
pub type Crowd = BTreeMap<u32, Candidate>;

/// Everything that a plan is made of.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Who may what.
    pub roles: &'a Roles,
    /// What to call the group whose members may end anybody's processes.
    pub operators: &'a str,
    /// The devices, and who uses them.
    pub snapshot: &'a Snapshot,
    /// Who has devices open, listed or not.
    pub holders: &'a [HeldDevice],
    /// Every process.
    pub crowd: &'a Crowd,
    /// What nobody ends.
    pub protection: &'a Protection,
}

#[cfg(test)]
mod tests;
