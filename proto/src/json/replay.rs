//! The JSON of a replay: what rules would have done.

use super::{GapDocument, GuardRecordDocument, OpenViolationDocument, SCHEMA};
use crate::guard::{ReplayReport, RuleOutcome, UnevaluatedTime};
use crate::units::Timestamp;
use serde::Serialize;

/// What `gpukillctl guard replay -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct ReplayDocument {
    pub schema: u32,
    pub since: String,
    pub until: String,
    /// The number of evaluated samples, minutes and hours.
    pub evaluated: u64,
    /// Before this time minutes and hours were evaluated instead of samples.
    pub samples_since: Option<String>,
    pub people: u32,
    pub runs: u32,
    pub rules: u32,
    pub outcomes: Vec<RuleOutcomeDocument>,
    /// The oldest first.
    pub records: Vec<GuardRecordDocument>,
    pub more_records: u64,
    pub open: Vec<OpenViolationDocument>,
    pub gaps: Vec<GapDocument>,
    pub not_evaluated: Vec<UnevaluatedTimeDocument>,
}

impl From<&ReplayReport> for ReplayDocument {
    fn from(report: &ReplayReport) -> Self {
        let records = report.records.iter();
        Self {
            schema: SCHEMA,
            since: report.since.to_rfc3339(),
            until: report.until.to_rfc3339(),
            evaluated: report.evaluated,
            samples_since: report.samples_since.map(Timestamp::to_rfc3339),
            people: report.people,
            runs: report.runs,
            rules: report.rules,
            outcomes: report
                .outcomes
                .iter()
                .map(RuleOutcomeDocument::from)
                .collect(),
            records: records
                .map(|record| GuardRecordDocument::new(None, record))
                .collect(),
            more_records: report.more_records,
            open: report
                .open
                .iter()
                .map(OpenViolationDocument::from)
                .collect(),
            gaps: report.gaps.iter().map(GapDocument::from).collect(),
            not_evaluated: report
                .not_evaluated
                .iter()
                .map(UnevaluatedTimeDocument::from)
                .collect(),
        }
    }
}

/// The outcome of one rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct RuleOutcomeDocument {
    pub rule: String,
    pub violated: u64,
    pub warned: u64,
    pub ended: u64,
    /// Ended jobs that worked, or may have.
    pub ended_busy: u64,
    /// Jobs left to the scheduler that owns them.
    pub left: u64,
    /// Services among the warned, which are only warned.
    pub services: u64,
    pub freed_gpu_hours: f64,
}

impl From<&RuleOutcome> for RuleOutcomeDocument {
    #[expect(clippy::cast_precision_loss, reason = "53 bits hold 285,000 years")]
    fn from(outcome: &RuleOutcome) -> Self {
        Self {
            rule: outcome.rule.to_string(),
            violated: outcome.violated,
            warned: outcome.warned,
            ended: outcome.ended,
            ended_busy: outcome.ended_busy,
            left: outcome.left,
            services: outcome.services,
            freed_gpu_hours: outcome.freed_ms as f64 / 3_600_000.0,
        }
    }
}

/// A time that could not be evaluated: by one rule, or by all rules on a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct UnevaluatedTimeDocument {
    /// `null` for a device that no rule could evaluate.
    pub rule: Option<String>,
    pub why: String,
    /// The first subject.
    pub subject: String,
    pub subjects: u64,
    pub for_seconds: u64,
}

impl From<&UnevaluatedTime> for UnevaluatedTimeDocument {
    fn from(unknown: &UnevaluatedTime) -> Self {
        Self {
            rule: unknown.rule.as_ref().map(ToString::to_string),
            why: unknown.why.clone(),
            subject: unknown.subject.to_string(),
            subjects: unknown.subjects,
            for_seconds: unknown.for_ms / 1_000,
        }
    }
}
