//! Who is ended, and how? A plan is made of what a person asks for and of what is
//! seen; whoever acts looks again at each of its targets.
//!
//! In reading order: who uses devices ([`usage`]), who is [`meant`], what
//! [`belongs`] to it, what is [`protected`], [`plan()`], the [`signals`], a second
//! look ([`again`]), what the person has to agree to ([`consent`]), the memory that
//! [`returned`], who came in the place of the ended ([`respawned`]), and how it went
//! as a whole ([`success`]).

pub mod usage;

pub mod meant;

mod condition;

pub mod belongs;

pub mod protected;

pub mod signals;

mod plan;

mod people;

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
    /// What to call whoever it belongs to.
    pub owner: Reading<String>,
    /// Its arguments, joined by blanks, controls made visible.
    pub command: Reading<String>,
    /// Its container.
    pub container: Reading<Option<Container>>,
    /// The job that it is part of.
    pub job: Reading<Job>,
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
