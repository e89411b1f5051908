//! Resetting devices: what is asked for, what stands in the way, and what came of
//! it.

use crate::kill::{KillReport, Stage};
use crate::reading::Reading;
use crate::snapshot::{DeviceId, ProcessKey, Vendor};
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetRequest {
    /// GPUs, as typed; `None` for all.
    pub gpu: Option<String>,
    /// End the processes that hold it first, by the rules of a kill with force.
    pub force: bool,
    /// How long each signal to them may take, in milliseconds, as in
    /// [`crate::kill::KillRequest::patience_ms`].
    pub patience_ms: u64,
    /// Only the plan is wanted.
    pub dry_run: bool,
}

impl fmt::Display for ResetRequest {
    /// As options of `gpukillctl reset`, for the record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.gpu {
            Some(gpu) => write!(f, "--gpu {gpu:?}")?,
            None => f.write_str("--all")?,
        }
        f.write_str(if self.force { " --force" } else { "" })
    }
}

/// What would be done, before anything is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetPlan {
    /// The daemon's clock when it was made.
    pub at: Timestamp,
    /// What it came from.
    pub request: ResetRequest,
    /// Each device, in the order of the indices: they are reset one by one.
    pub devices: Vec<ResetTarget>,
}

/// One device of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetTarget {
    /// Names it for good.
    pub device: DeviceId,
    /// For people.
    pub index: u32,
    /// As the driver names it.
    pub name: Reading<String>,
    /// Whose it is.
    pub vendor: Vendor,
    /// Its PCI address, by which the helper is told.
    pub pci: Reading<String>,
    /// Everything that stands in the way.
    pub blockers: Vec<Blocker>,
    /// Devices that share its links and lose their work with it, by index.
    pub peers: Vec<u32>,
    /// What else is to be known before it is agreed to.
    pub notes: Vec<String>,
    /// What is to become of it.
    pub fate: ResetFate,
}

/// Something that stands in the way of a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// The process, where it is one.
    pub process: Option<ProcessKey>,
    /// What it is, in words: `alice's python train.py (pid 4711)`, `persistence
    /// mode`.
    pub what: String,
    /// Who takes it away.
    pub remedy: Unblock,
}

/// What takes a blocker away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unblock {
    /// The daemon does: its own sensor, persistence mode.
    Daemon,
    /// `--force` ends it.
    Force,
    /// A person has to: a display, a fabric manager, what is protected.
    Person,
}

/// What a plan has in store for a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetFate {
    /// It is reset.
    Reset,
    /// Something stands in the way that the request does not take away.
    Blocked,
    /// It cannot be reset here; says why.
    Unsupported(String),
}

/// What has become of a plan by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetReport {
    /// Grows whenever something else is known.
    pub version: u64,
    /// How far it is.
    pub stage: Stage,
    /// Each device of the plan that is settled, in order.
    pub outcomes: Vec<ResetOutcome>,
    /// Why the act stands in the log alone and not in the store; `None` where it
    /// is recorded.
    pub unrecorded: Option<String>,
}

/// What became of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetOutcome {
    /// Names it for good.
    pub device: DeviceId,
    /// For people.
    pub index: u32,
    /// What became of the processes that were ended for it.
    pub ended: Option<KillReport>,
    /// What became of it.
    pub ending: ResetEnding,
    /// What did not come back as it was before.
    pub note: Option<String>,
}

/// How it went with one device. Only whoever saw it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetEnding {
    /// It was reset, answers again, and so many milliseconds it took.
    Reset(u64),
    /// Something stands in the way: nothing was done to it.
    Blocked(Vec<Blocker>),
    /// It cannot be reset here; says why.
    Unsupported(String),
    /// The vendor's step failed, and the device answers as before; says how.
    Failed(String),
    /// It does not answer any more: says what was tried, and what is left to do.
    Unreachable(String),
}
