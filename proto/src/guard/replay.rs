//! Replay: what rules would have done in the past.

use super::{GuardRecord, OpenViolation, RuleName, RuleSetSource, ViolationSubject};
use crate::audit::Gap;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// A request to replay rules over a past period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRequest {
    /// The rules.
    pub rules: RuleSetSource,
    /// The start of the period.
    pub since: Timestamp,
    /// The end of the period.
    pub until: Timestamp,
}

/// The result of a replay. A job that would have been ended is absent from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The start of the evaluated period.
    pub since: Timestamp,
    /// The end of the evaluated period.
    pub until: Timestamp,
    /// The number of evaluated samples; beyond the retention of samples, minutes or hours.
    pub evaluated: u64,
    /// The start of the samples: before it only minutes or hours exist; `None` if there are
    /// samples for the whole period.
    pub samples_since: Option<Timestamp>,
    /// The number of persons who used a device.
    pub people: u32,
    /// The number of processes that used a device, counted for each device.
    pub runs: u32,
    /// The number of policies and rules.
    pub rules: u32,
    /// The outcome of each rule that had an effect, the rule that freed most first.
    pub outcomes: Vec<RuleOutcome>,
    /// The simulated steps, the oldest first.
    pub records: Vec<GuardRecord>,
    /// The number of omitted records.
    pub more_records: u64,
    /// The violations that were open at the end.
    pub open: Vec<OpenViolation>,
    /// Periods without samples.
    pub gaps: Vec<Gap>,
    /// The subjects that could not be evaluated, the longest time first.
    pub not_evaluated: Vec<UnevaluatedTime>,
}

/// The outcome of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleOutcome {
    /// The rule.
    pub rule: RuleName,
    /// The number of its violations.
    pub violated: u64,
    /// The number of violations with a warning.
    pub warned: u64,
    /// The number of jobs that it would have ended.
    pub ended: u64,
    /// The number of ended jobs that worked at that time, or may have.
    pub ended_busy: u64,
    /// The number of jobs left to the scheduler that owns them.
    pub left: u64,
    /// The number of violations with a warning that are services, and are only warned.
    pub services: u64,
    /// The time for which the ended jobs still held devices afterwards, in milliseconds of one
    /// device.
    pub freed_ms: u64,
}

/// A time that could not be evaluated: by one rule, or by all rules on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnevaluatedTime {
    /// The rule; `None` for a device that no rule could evaluate.
    pub rule: Option<RuleName>,
    /// The unknown fact.
    pub why: String,
    /// The first subject with the unknown fact.
    pub subject: ViolationSubject,
    /// The number of persons, processes or devices.
    pub subjects: u64,
    /// The time in milliseconds, summed over all subjects.
    pub for_ms: u64,
}
