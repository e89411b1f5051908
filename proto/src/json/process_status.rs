//! The JSON of the guard's status for processes, in `list` and in `explain`.

use super::OpenViolationDocument;
use super::fields::{document, documents};
use crate::guard::{
    AppliedLimit, GuardMode, GuardSummary, ProcessGuardStatus, RuleKind, RuleName, ViolationMark,
};
use crate::units::Timestamp;

document! {
    /// The summary of the guard, in `list`.
    plain GuardSummaryDocument(summary: &GuardSummary) {
        /// `disabled`, `dry-run`, `soft`, `enforce`.
        mode: &'static str as GuardMode = summary.mode.name(),
        /// Whether no job is ended in that mode, because too many were ended.
        stopped: bool = summary.is_stopped,
        /// Without rules there are no limits.
        has_rules: bool = summary.has_rules,
        /// The open violations that the caller may see.
        open: u32 = summary.open,
        /// The jobs that a dry run would have ended and that still exist, of those that the caller
        /// may see.
        would_have_ended: u32 = summary.would_have_ended,
    }
}

document! {
    /// A rule that a process violates.
    plain ViolationMarkDocument(mark: &ViolationMark) {
        /// `default: idle`
        rule: String = mark.rule.to_string(),
        source: String = mark.rule.source.to_string(),
        kind: &'static str as RuleKind = mark.rule.kind.name(),
        /// In `dry-run` no job is ended.
        mode: &'static str as GuardMode = mark.mode.name(),
        /// When a job is ended for it if nothing changes.
        deadline: Option<String> as Option<Timestamp> = mark.deadline.map(Timestamp::to_rfc3339),
        /// When a dry run would have ended the job of this process, which still exists.
        would_have_ended_at: Option<String> as Option<Timestamp> = mark.would_have_ended_at.map(Timestamp::to_rfc3339),
        /// Whether that job is the one of this process; else it may be another one.
        sole: bool = mark.is_sole,
    }
}

document! {
    /// The guard's status for one process.
    plain ProcessGuardStatusDocument(status: &ProcessGuardStatus) {
        mode: &'static str as GuardMode = status.mode.name(),
        /// The violations that involve it, without those in `would_have_ended`.
        open: Vec<OpenViolationDocument> = documents(&status.violations),
        /// The violations for which a dry run would have ended its job.
        would_have_ended: Vec<OpenViolationDocument> = documents(&status.would_have_ended),
        /// Why no rule applies to it.
        protected: Option<String> = status.protected.clone(),
        /// The limits that now apply to its owner.
        limits: Vec<AppliedLimitDocument> = documents(&status.limits),
    }
}

document! {
    /// A limit that applies to a person.
    plain AppliedLimitDocument(applied: &AppliedLimit) {
        rule: String = applied.rule.to_string(),
        source: String = applied.rule.source.to_string(),
        kind: &'static str as RuleKind = applied.rule.kind.name(),
        /// In the unit of the kind; `null` if it is unknown whether the limit applies.
        limit: Option<u64> = applied.limit,
        /// The limits that would apply without it, in order.
        replaces: Vec<ReplacedLimitDocument> = documents(&applied.replaces),
    }
}

document! {
    /// A limit that another one replaces.
    plain ReplacedLimitDocument(replaced: &(RuleName, u64)) {
        rule: String = replaced.0.to_string(),
        source: String = replaced.0.source.to_string(),
        limit: u64 = replaced.1,
    }
}
