//! The JSON of the guard's status for processes, in `list` and in `explain`.

use super::OpenViolationDocument;
use crate::guard::{
    AppliedLimit, GuardSummary, OpenViolation, ProcessGuardStatus, RuleCounts, RuleName,
    ViolationMark,
};
use crate::units::Timestamp;
use serde::Serialize;

/// The summary of the guard, in `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct GuardSummaryDocument {
    /// `disabled`, `dry-run`, `soft`, `enforce`.
    pub mode: &'static str,
    /// Whether no job is ended in that mode, because too many were ended.
    pub stopped: bool,
    /// Without rules there are no limits.
    pub has_rules: bool,
    /// The open violations that the caller may see.
    pub open: u32,
    /// The jobs that a dry run would have ended and that still exist, of those that the caller
    /// may see.
    pub would_have_ended: u32,
}

impl From<&GuardSummary> for GuardSummaryDocument {
    fn from(brief: &GuardSummary) -> Self {
        let GuardSummary {
            mode,
            is_stopped,
            has_rules,
            open,
            would_have_ended,
            marks: _,
            own_warnings: _,
        } = brief;
        Self {
            mode: mode.name(),
            stopped: *is_stopped,
            has_rules: *has_rules,
            open: *open,
            would_have_ended: *would_have_ended,
        }
    }
}

/// A rule that a process violates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ViolationMarkDocument {
    /// `default: idle`
    pub rule: String,
    pub source: String,
    pub kind: &'static str,
    /// In `dry-run` no job is ended.
    pub mode: &'static str,
    /// When a job is ended for it if nothing changes.
    pub deadline: Option<String>,
    /// When a dry run would have ended the job of this process, which still exists.
    pub would_have_ended_at: Option<String>,
    /// Whether that job is the one of this process; else it may be another one.
    pub sole: bool,
}

impl From<&ViolationMark> for ViolationMarkDocument {
    fn from(marked: &ViolationMark) -> Self {
        let ViolationMark {
            run: _,
            rule,
            mode,
            deadline,
            would_have_ended_at,
            is_sole,
            can_snooze: _,
        } = marked;
        Self {
            rule: rule.to_string(),
            source: rule.source.to_string(),
            kind: rule.kind.name(),
            mode: mode.name(),
            deadline: deadline.map(Timestamp::to_rfc3339),
            would_have_ended_at: would_have_ended_at.map(Timestamp::to_rfc3339),
            sole: *is_sole,
        }
    }
}

/// The guard's status for one process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ProcessGuardStatusDocument {
    pub mode: &'static str,
    /// The violations that involve it, without those in `would_have_ended`.
    pub open: Vec<OpenViolationDocument>,
    /// The violations for which a dry run would have ended its job.
    pub would_have_ended: Vec<OpenViolationDocument>,
    /// Why no rule applies to it.
    pub protected: Option<String>,
    /// The limits that now apply to its owner.
    pub limits: Vec<AppliedLimitDocument>,
}

impl ProcessGuardStatusDocument {
    pub(super) fn new(ruled: &ProcessGuardStatus) -> Self {
        let documents = |violations: &[OpenViolation]| {
            let violations = violations.iter();
            violations.map(OpenViolationDocument::from).collect()
        };
        Self {
            mode: ruled.mode.name(),
            open: documents(&ruled.violations),
            would_have_ended: documents(&ruled.would_have_ended),
            protected: ruled.protected.clone(),
            limits: ruled
                .limits
                .iter()
                .map(AppliedLimitDocument::from)
                .collect(),
        }
    }
}

/// A limit that applies to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct AppliedLimitDocument {
    pub rule: String,
    pub source: String,
    pub kind: &'static str,
    /// In the unit of the kind; `null` if it is unknown whether the limit applies.
    pub limit: Option<u64>,
    /// The limits that would apply without it, in order.
    pub replaces: Vec<ReplacedLimitDocument>,
}

impl From<&AppliedLimit> for AppliedLimitDocument {
    fn from(held: &AppliedLimit) -> Self {
        Self {
            rule: held.rule.to_string(),
            source: held.rule.source.to_string(),
            kind: held.rule.kind.name(),
            limit: held.limit,
            replaces: held
                .replaces
                .iter()
                .map(ReplacedLimitDocument::from)
                .collect(),
        }
    }
}

/// A limit that another one replaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ReplacedLimitDocument {
    pub rule: String,
    pub source: String,
    pub limit: u64,
}

impl From<&(RuleName, u64)> for ReplacedLimitDocument {
    fn from((rule, limit): &(RuleName, u64)) -> Self {
        Self {
            rule: rule.to_string(),
            source: rule.source.to_string(),
            limit: *limit,
        }
    }
}

/// The number of policies and rules from each source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RuleCountsDocument {
    pub defaults: u32,
    pub users: u32,
    pub groups: u32,
    pub gpus: u32,
    pub times: u32,
    pub rules: u32,
}

impl From<RuleCounts> for RuleCountsDocument {
    fn from(counts: RuleCounts) -> Self {
        let RuleCounts {
            defaults,
            users,
            groups,
            gpus,
            times,
            rules,
        } = counts;
        Self {
            defaults,
            users,
            groups,
            gpus,
            times,
            rules,
        }
    }
}
