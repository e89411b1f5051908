//! The JSON of what the guard says of processes, in `list` and in `explain`.

use super::OpenViolationDocument;
use crate::guard::{GuardBrief, HeldTo, Marked, OpenViolation, RuleCounts, RuleName, Ruled};
use crate::units::Timestamp;
use serde::Serialize;

/// How the guard stands, as `list` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct GuardBriefDocument {
    /// `disabled`, `dry-run`, `soft`, `enforce`.
    pub mode: &'static str,
    /// It ends nobody in that mode, as too many were ended.
    pub stopped: bool,
    /// Without any nobody is limited.
    pub has_rules: bool,
    /// Of those that whoever asks may see.
    pub open: u32,
    /// Of these too: jobs that a dry run would have ended, and that are there still.
    pub would_have_ended: u32,
}

impl From<&GuardBrief> for GuardBriefDocument {
    fn from(brief: &GuardBrief) -> Self {
        let GuardBrief {
            mode,
            is_stopped,
            has_rules,
            open,
            would_have_ended,
            marked: _,
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

/// A rule that a process breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct MarkDocument {
    /// `default: idle`
    pub rule: String,
    pub source: String,
    pub kind: &'static str,
    /// In `dry-run` nobody is ended.
    pub mode: &'static str,
    /// When a job is ended for it, if nothing changes.
    pub deadline: Option<String>,
    /// When its own job would have been ended for it: in a dry run it is there still.
    pub would_have_ended_at: Option<String>,
    /// Whether that is its own; else it is one of several.
    pub sole: bool,
}

impl From<&Marked> for MarkDocument {
    fn from(marked: &Marked) -> Self {
        let Marked {
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

/// What the guard says of one process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RuledDocument {
    pub mode: &'static str,
    /// Violations that it is part of, without those in `would_have_ended`.
    pub open: Vec<OpenViolationDocument>,
    /// For what its job would have been ended in a dry run.
    pub would_have_ended: Vec<OpenViolationDocument>,
    /// Why no rule is about it.
    pub protected: Option<String>,
    /// What holds for its owner now.
    pub limits: Vec<LimitDocument>,
    /// Whom the rules mean by it: its `owner`, whoever logged in to start it (`login`), or
    /// that one, who is `unknown`.
    pub judged_as: &'static str,
    /// Who logged in, where it is judged as of them.
    pub login: Option<String>,
}

impl RuledDocument {
    pub(super) fn of(ruled: &Ruled) -> Self {
        let documents = |violations: &[OpenViolation]| {
            let violations = violations.iter();
            violations.map(OpenViolationDocument::from).collect()
        };
        Self {
            mode: ruled.mode.name(),
            open: documents(&ruled.violations),
            would_have_ended: documents(&ruled.would_have_ended),
            protected: ruled.protected.clone(),
            limits: ruled.limits.iter().map(LimitDocument::from).collect(),
            judged_as: ruled.judged_as.name(),
            login: ruled.judged_as.login().map(|person| person.name.clone()),
        }
    }
}

/// A limit that holds for somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct LimitDocument {
    pub rule: String,
    pub source: String,
    pub kind: &'static str,
    /// In the unit of the kind; `null` where it is not known whether it holds.
    pub limit: Option<u64>,
    /// What would hold if it were not said, the next first.
    pub replaces: Vec<ReplacedDocument>,
}

impl From<&HeldTo> for LimitDocument {
    fn from(held: &HeldTo) -> Self {
        Self {
            rule: held.rule.to_string(),
            source: held.rule.source.to_string(),
            kind: held.rule.kind.name(),
            limit: held.limit,
            replaces: held.replaces.iter().map(ReplacedDocument::from).collect(),
        }
    }
}

/// A limit in whose place another holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ReplacedDocument {
    pub rule: String,
    pub source: String,
    pub limit: u64,
}

impl From<&(RuleName, u64)> for ReplacedDocument {
    fn from((rule, limit): &(RuleName, u64)) -> Self {
        Self {
            rule: rule.to_string(),
            source: rule.source.to_string(),
            limit: *limit,
        }
    }
}

/// How many policies and rules there are of each source.
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
