//! A violation that goes on, as the world sees it.

use super::{Evidence, GuardAction, GuardMode, RuleName, Subject};
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// A violation that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenViolation {
    /// Which rule.
    pub rule: RuleName,
    /// Broken by whom.
    pub subject: Subject,
    /// How far the guard goes for this rule.
    pub mode: GuardMode,
    /// What comes of it.
    pub action: GuardAction,
    /// When it was beyond doubt.
    pub violated_at: Timestamp,
    /// When its owner was warned first.
    pub warned_at: Option<Timestamp>,
    /// How often.
    pub warnings: u32,
    /// When somebody is ended for it, if nothing changes: the first, or whoever asks.
    pub deadline: Option<Timestamp>,
    /// Those who were warned that something is ended.
    pub readers: Vec<Reader>,
    /// When somebody was last ended for it.
    pub ended_at: Option<Timestamp>,
    /// What is known by now.
    pub evidence: Evidence,
    /// The admin's own words.
    pub message: Option<String>,
    /// Nobody is ended for it, as the own policy of whoever broke the rule is milder.
    pub own_policy: Option<Milder>,
    /// Nothing is ended for it before this moment, whatever the mode: everybody it is about
    /// has snoozed it.
    pub snoozed_until: Option<Timestamp>,
    /// Since when the rule is known to be kept, also because the processes have ended: the
    /// evidence is of before. It is over once that has lasted for a while.
    pub not_broken_since: Option<Timestamp>,
}

/// What the own policy of whoever broke a rule makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Milder {
    /// They are warned, and no more.
    Warned,
    /// They are neither warned nor ended.
    Rehearsed,
}

impl Milder {
    /// As it is written in JSON, and in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warned => GuardAction::Warn.name(),
            Self::Rehearsed => GuardMode::DryRun.name(),
        }
    }
}

/// Somebody who was warned that something is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reader {
    /// The user's number.
    pub uid: u32,
    /// When something of theirs may be ended, if nothing changes.
    pub deadline: Timestamp,
    /// How often more they may ask for more time.
    pub snoozes_left: u32,
}

impl OpenViolation {
    /// This user, if they were warned that something is ended.
    #[must_use]
    pub fn reader(&self, uid: u32) -> Option<&Reader> {
        self.readers.iter().find(|reader| reader.uid == uid)
    }

    /// When something of this user's is ended for it, if nothing changes: each who was
    /// warned has a grace of their own.
    #[must_use]
    pub fn deadline_of(&self, uid: Option<u32>) -> Option<Timestamp> {
        let own = uid.and_then(|uid| self.reader(uid));
        // Where nobody is ended, nobody is after a time of their own.
        let first = self.deadline?;
        Some(own.map_or(first, |own| own.deadline))
    }
}

/// Rules on behaviour concern so many people that they may not fit this box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesDoubt {
    /// Since when that is known.
    pub since: Timestamp,
    /// How many people were warned or ended within a day.
    pub people: u32,
    /// Of how many who used a GPU within it.
    pub of: u32,
    /// These rules only warn until an admin confirms them.
    pub only_warn: bool,
}
