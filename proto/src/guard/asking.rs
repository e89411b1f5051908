//! Questions to the guard, and its answers.

use super::{GuardMode, GuardRecord, JudgedRun, OpenViolation, RuleName};
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// How the guard stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// How far it goes.
    pub mode: GuardMode,
    /// What a dry run rehearses: [`GuardMode::Soft`] or [`GuardMode::Enforce`].
    pub rehearses: GuardMode,
    /// How many policies and rules there are.
    pub rules: u32,
    /// Where they are written.
    pub file: String,
    /// Names what they say; `None` where there is no file, and the built-in
    /// defaults hold.
    pub revision: Option<RulesRevision>,
    /// Why the file as it is now is not in force, and others are: every mistake.
    pub mistakes: Vec<String>,
    /// When the last sample was judged.
    pub judged_at: Option<Timestamp>,
    /// Samples that came too fast to be judged, since start.
    pub dropped: u64,
    /// How many violations go on.
    pub open: u32,
    /// How many were warned since midnight, or would have been.
    pub warned_today: u32,
    /// How many jobs were ended since midnight, or would have been.
    pub ended_today: u32,
}

/// Names what a file of rules says: another text has another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RulesRevision(pub String);

/// What `list` shows of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuardBrief {
    /// How far it goes.
    pub mode: GuardMode,
    /// How many violations go on.
    pub open: u32,
    /// The processes that are told of in them; not all, where they are many.
    pub marked: Vec<Marked>,
}

/// A process that breaks a rule, or is part of what does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// Which.
    pub run: JudgedRun,
    /// The rule.
    pub rule: RuleName,
    /// How far the guard goes for it.
    pub mode: GuardMode,
    /// When it is ended for that, if nothing changes.
    pub deadline: Option<Timestamp>,
}

/// Which violations are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolationQuery {
    /// Not before this moment.
    pub since: Timestamp,
    /// Before this moment.
    pub until: Timestamp,
    /// Of this person, by name or number.
    pub user: Option<String>,
    /// Records older than this one: the `next` of the page before.
    pub before: Option<u64>,
    /// At most so many records; the daemon has a maximum of its own.
    pub limit: u32,
}

/// Some of what the guard decided, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolationPage {
    /// Those that go on, of all that are asked for; with the first page alone, and
    /// at most so many as a page has.
    pub open: Vec<OpenViolation>,
    /// With their ids, which grow with time and fit in 53 bits.
    pub records: Vec<(u64, GuardRecord)>,
    /// Where the next page begins; `None` when this is the last one.
    pub next: Option<u64>,
}

/// Which rules are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RulesFrom {
    /// Those in force.
    Force,
    /// Those that this connection offered.
    Offered,
}

/// A part of the text of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesText {
    /// Where they are written.
    pub file: String,
    /// Names what is written there; `None` where there is no file.
    pub revision: Option<RulesRevision>,
    /// Bytes of the text from the offset that was asked for; none at its end.
    pub part: Vec<u8>,
}

/// What an edit changed, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditReport {
    /// Names what was written before.
    pub before: Option<RulesRevision>,
    /// Names what is written now.
    pub after: RulesRevision,
    /// The lines that differ, as `diff -u` has them; cut where they are many.
    pub difference: String,
    /// What of the new rules can never hold, or contradicts itself.
    pub warnings: Vec<String>,
}
