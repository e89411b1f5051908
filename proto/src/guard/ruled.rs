//! What the guard says of one process, and what holds for it.

use super::{GuardMode, OpenViolation, RuleName};
use serde::{Deserialize, Serialize};

/// So many violations, and so many limits, are told of one process.
pub const MOST_RULED: usize = 64;

/// What the guard says of a process now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ruled {
    /// How far it goes.
    pub mode: GuardMode,
    /// Violations that it is part of, at most [`MOST_RULED`].
    pub violations: Vec<OpenViolation>,
    /// For what its job would have been ended in a dry run, with what was known then.
    pub would_have_ended: Option<OpenViolation>,
    /// The limits that hold for its owner now, at most [`MOST_RULED`].
    pub limits: Vec<HeldTo>,
}

/// One limit that holds for somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTo {
    /// Where it is said, and of what.
    pub rule: RuleName,
    /// In the unit of the rule's kind; `None` where it is not known whether this one
    /// holds.
    pub limit: Option<u64>,
    /// What would hold in its place if it were not said, the next first.
    pub replaces: Vec<(RuleName, u64)>,
}
