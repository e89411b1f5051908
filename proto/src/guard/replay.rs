//! Rules tried on the past: what they would have done.

use super::{GuardRecord, OpenViolation, RuleName, RulesFrom, Subject};
use crate::audit::Gap;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// Which rules are tried on which stretch of the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRequest {
    /// Which rules.
    pub rules: RulesFrom,
    /// From then on.
    pub since: Timestamp,
    /// Until then.
    pub until: Timestamp,
}

/// What they would have done. Whoever would have been ended is gone from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// When what was judged begins.
    pub since: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// How many stretches of time were judged: samples, and where these are not
    /// kept any more, minutes or hours.
    pub judged: u64,
    /// Before this moment there are minutes or hours alone; `None` where all are
    /// samples.
    pub samples_since: Option<Timestamp>,
    /// How many persons used a device.
    pub people: u32,
    /// How many processes did, each on each device.
    pub runs: u32,
    /// How many policies and rules there are.
    pub rules: u32,
    /// What came of each rule that did anything, the one that freed most first.
    pub outcomes: Vec<RuleOutcome>,
    /// What would have been done, the oldest first.
    pub records: Vec<GuardRecord>,
    /// How many more records there are than these.
    pub more_records: u64,
    /// Violations that went on at the end.
    pub open: Vec<OpenViolation>,
    /// When nobody looked.
    pub gaps: Vec<Gap>,
    /// What could not be judged, the longest first.
    pub not_judged: Vec<NotJudged>,
}

/// What came of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleOutcome {
    /// Which.
    pub rule: RuleName,
    /// How many violations of it there were.
    pub violated: u64,
    /// How many of these would have been warned.
    pub warned: u64,
    /// How many jobs would have been ended.
    pub ended: u64,
    /// How many of these worked when they were ended, or may have.
    pub ended_busy: u64,
    /// How many jobs are left to the scheduler that owns them.
    pub left: u64,
    /// How many of those that would have been warned are services, and are only warned.
    pub services: u64,
    /// How long those that were ended held devices afterwards, in milliseconds of
    /// one device.
    pub freed_ms: u64,
}

/// What could not be judged: by one rule, or by all rules on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotJudged {
    /// By which; `None` of a device that no rule could judge.
    pub rule: Option<RuleName>,
    /// What was not known.
    pub why: String,
    /// Of whom or what: the first of them.
    pub subject: Subject,
    /// Of how many persons, processes or devices.
    pub subjects: u64,
    /// For how long, in milliseconds; of several at once it counts for each.
    pub for_ms: u64,
}
