//! The JSON of a replay: what rules would have done.

use super::fields::{document, documents};
use super::summary::hours;
use super::{GapDocument, GuardRecordDocument, OpenViolationDocument, SCHEMA};
use crate::guard::{ReplayReport, RuleOutcome, UnevaluatedTime};
use crate::units::Timestamp;

document! {
    /// The document that `gpukillctl guard replay -o json` prints.
    plain ReplayDocument(report: &ReplayReport) {
        schema: u32 = SCHEMA,
        since: String as Timestamp = report.since.to_rfc3339(),
        until: String as Timestamp = report.until.to_rfc3339(),
        /// The number of evaluated samples, minutes and hours.
        evaluated: u64 = report.evaluated,
        /// Before this time minutes and hours were evaluated instead of samples.
        samples_since: Option<String> as Option<Timestamp> = report.samples_since.map(Timestamp::to_rfc3339),
        people: u32 = report.people,
        runs: u32 = report.runs,
        rules: u32 = report.rules,
        outcomes: Vec<RuleOutcomeDocument> = documents(&report.outcomes),
        /// The oldest first.
        records: Vec<GuardRecordDocument> = report
            .records
            .iter()
            .map(|record| GuardRecordDocument::new(None, record))
            .collect(),
        more_records: u64 = report.more_records,
        open: Vec<OpenViolationDocument> = documents(&report.open),
        gaps: Vec<GapDocument> = documents(&report.gaps),
        not_evaluated: Vec<UnevaluatedTimeDocument> = documents(&report.not_evaluated),
    }
}

document! {
    /// The outcome of one rule.
    plain RuleOutcomeDocument(outcome: &RuleOutcome) {
        rule: String = outcome.rule.to_string(),
        violated: u64 = outcome.violated,
        warned: u64 = outcome.warned,
        ended: u64 = outcome.ended,
        /// Ended jobs that worked, or may have.
        ended_busy: u64 = outcome.ended_busy,
        /// Jobs left to the scheduler that owns them.
        left: u64 = outcome.left,
        /// Services among the warned, which are only warned.
        services: u64 = outcome.services,
        freed_gpu_hours: f64 = hours(outcome.freed_ms),
    }
}

document! {
    /// A time that could not be evaluated: by one rule, or by all rules on a device.
    plain UnevaluatedTimeDocument(unknown: &UnevaluatedTime) {
        /// `null` for a device that no rule could evaluate.
        rule: Option<String> = unknown.rule.as_ref().map(ToString::to_string),
        why: String = unknown.why.clone(),
        /// The first subject.
        subject: String = unknown.subject.to_string(),
        subjects: u64 = unknown.subjects,
        for_seconds: u64 = unknown.for_ms / 1_000,
    }
}
