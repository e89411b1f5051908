//! An open violation, as callers see it.

use super::{Evidence, GuardAction, GuardMode, RuleName, ViolationSubject};
use crate::units::Timestamp;
use crate::words::words;
use serde::{Deserialize, Serialize};

/// A violation that continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenViolation {
    /// The rule.
    pub rule: RuleName,
    /// The subject.
    pub subject: ViolationSubject,
    /// The mode for this rule.
    pub mode: GuardMode,
    /// The action for it.
    pub action: GuardAction,
    /// When it was confirmed.
    pub violated_at: Timestamp,
    /// When its owner was first warned.
    pub warned_at: Option<Timestamp>,
    /// The number of warnings.
    pub warnings: u32,
    /// When a job is ended for it if nothing changes: the first deadline of all owners, or the
    /// deadline of the caller.
    pub deadline: Option<Timestamp>,
    /// The owners who were warned of an end.
    pub readers: Vec<WarnedOwner>,
    /// When a job was last chosen for it of which no process is left; in a dry run, when one would
    /// have been ended.
    pub ended_at: Option<Timestamp>,
    /// The job that was last chosen for it, while processes of it may be left.
    pub unfinished_end: Option<UnfinishedEnd>,
    /// The current evidence.
    pub evidence: Evidence,
    /// The admin's message.
    pub message: Option<String>,
    /// Set if no job is ended for it, because the violator's own policy is milder.
    pub own_policy: Option<MilderPolicy>,
    /// Until when no job is ended for it in any mode, because all owners involved have snoozed
    /// it.
    pub snoozed_until: Option<Timestamp>,
    /// Since when the rule has not been violated, also because the processes have ended; the
    /// evidence is older. The violation is over after some time in this state.
    pub not_broken_since: Option<Timestamp>,
}

/// The end of a job that has not succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnfinishedEnd {
    /// The job was chosen at this time, and the outcome is not known yet.
    UnderWay(Timestamp),
    /// A process of the job survived its signals, as was known at this time.
    Survived(Timestamp),
}

words! {
    /// The effect of the violator's own, milder policy on a violation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum MilderPolicy {
        /// The violator is only warned.
        Warned = GuardAction::Warn.name(),
        /// The violator is neither warned nor affected.
        DryRun = GuardMode::DryRun.name(),
    }
    /// The name in JSON and in rules.
    name(self)
}

/// An owner who was warned of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarnedOwner {
    /// The uid.
    pub uid: u32,
    /// When a job of this owner may be ended if nothing changes.
    pub deadline: Timestamp,
    /// The number of remaining snoozes.
    pub snoozes_left: u32,
}

impl OpenViolation {
    /// The entry of this user, if the user was warned of an end.
    #[must_use]
    pub fn warned_owner(&self, uid: u32) -> Option<&WarnedOwner> {
        self.readers.iter().find(|reader| reader.uid == uid)
    }

    /// When a job of this user is ended for it if nothing changes: each warned owner has a
    /// separate grace period.
    #[must_use]
    pub fn deadline_for(&self, uid: Option<u32>) -> Option<Timestamp> {
        let own = uid.and_then(|uid| self.warned_owner(uid));
        // If no job is ended, no owner has a deadline.
        let first = self.deadline?;
        Some(own.map_or(first, |own| own.deadline))
    }
}

/// Doubt about behaviour rules: they concern so many people that they may not fit this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesDoubt {
    /// Since when the doubt exists.
    pub since: Timestamp,
    /// The number of people who were warned or lost a job within a day.
    pub people: u32,
    /// The number of people who used a GPU within that day.
    pub of: u32,
    /// Whether these rules only warn until an admin confirms them.
    pub only_warn: bool,
}
