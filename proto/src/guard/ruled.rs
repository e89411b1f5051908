//! What the guard says of one process, and what holds for it.

use super::{GuardMode, OpenViolation, Person, RuleName};
use serde::{Deserialize, Serialize};

/// So many violations, and so many limits, are told of one process.
pub const MOST_RULED: usize = 64;

/// What the guard says of a process now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ruled {
    /// How far it goes.
    pub mode: GuardMode,
    /// Whether it ends nobody in that mode, as too many were ended.
    pub is_stopped: bool,
    /// Violations that it is part of, at most [`MOST_RULED`], without those that are in
    /// `would_have_ended`.
    pub violations: Vec<OpenViolation>,
    /// For what its job would have been ended in a dry run, with what was known then; at
    /// most [`MOST_RULED`].
    pub would_have_ended: Vec<OpenViolation>,
    /// Why no rule is about it: it is protected, or may be. Then it has no limits.
    pub protected: Option<String>,
    /// The limits that hold for its owner now, at most [`MOST_RULED`].
    pub limits: Vec<HeldTo>,
    /// Whom the rules mean by it.
    pub judged_as: JudgedAs,
}

/// Whom rules mean by a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum JudgedAs {
    /// Its owner.
    #[default]
    Owner,
    /// Another, who logged in to start it.
    Login(Person),
    /// Who logged in to start it, which is not known.
    Unknown,
}

impl JudgedAs {
    /// As it is written in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Login(_) => "login",
            Self::Unknown => "unknown",
        }
    }

    /// Who logged in, where it is another.
    #[must_use]
    pub const fn login(&self) -> Option<&Person> {
        match self {
            Self::Login(person) => Some(person),
            Self::Owner | Self::Unknown => None,
        }
    }
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
