//! The guard's status for one process, and the limits that apply to it.

use super::{GuardMode, OpenViolation, RuleName};
use serde::{Deserialize, Serialize};

/// The most violations, and the most limits, in the status of one process.
pub const MAX_GUARD_ENTRIES: usize = 64;

/// The guard's current status for a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessGuardStatus {
    /// The mode.
    pub mode: GuardMode,
    /// Whether no job is ended in that mode, because too many were ended.
    pub is_stopped: bool,
    /// The violations that involve the process, at most [`MAX_GUARD_ENTRIES`], without those in
    /// `would_have_ended`.
    pub violations: Vec<OpenViolation>,
    /// The violations for which a dry run would have ended its job, with the evidence of that
    /// time; at most [`MAX_GUARD_ENTRIES`].
    pub would_have_ended: Vec<OpenViolation>,
    /// Why no rule applies to it: it is protected, or may be. Then it has no limits.
    pub protected: Option<String>,
    /// The limits that now apply to its owner, at most [`MAX_GUARD_ENTRIES`].
    pub limits: Vec<AppliedLimit>,
}

/// A limit that applies to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedLimit {
    /// The rule that sets it.
    pub rule: RuleName,
    /// The limit in the unit of the rule's kind; `None` if it is unknown whether the limit
    /// applies.
    pub limit: Option<u64>,
    /// The limits that would apply without it, in order.
    pub replaces: Vec<(RuleName, u64)>,
}
