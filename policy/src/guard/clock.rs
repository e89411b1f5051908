//! A violation's clock: what happens to it from the first look to the last.
//!
//! ```text
//! holds ──► holds again ──► violated ──► warned … warned ──► ended ──► over
//! ```
//!
//! What is not allowed at all is violated at the first look, as is what was looked at
//! through a whole window; all else at the second in a row. A look of which nothing is
//! known neither confirms nor ends anything.

use super::judge::Course;
use super::limits::milliseconds;
use super::memory::JobKey;
use super::memory::proof::Proof;
use super::rules::Rehearsed;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardStep, OpenViolation, RuleKind, RuleName, Subject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};

/// Of one rule and one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// Since when it holds.
    pub(crate) since: Timestamp,
    /// It held in the bucket before, and nobody was ended for it then.
    held_before: bool,
    /// For how long it has been known not to hold.
    settled_ms: u64,
    pub(crate) opened: Option<Opened>,
}

/// It is beyond doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) mode: GuardMode,
    action: GuardAction,
    violated_at: Timestamp,
    warned_at: Option<Timestamp>,
    warnings: u32,
    deadline: Option<Timestamp>,
    /// So much of the time since the first warning is no part of the grace.
    #[serde(default)]
    moved_ms: i64,
    ended_at: Option<Timestamp>,
    /// That nobody could be ended for it was said.
    was_spared: bool,
    /// A job that others end, of which they were told.
    pub(crate) left_to: Option<JobKey>,
    pub(crate) evidence: Proof,
    pub(crate) message: Option<String>,
}

/// What may come of a look at which it held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) steps: Vec<GuardStep>,
    /// Somebody is to be ended now.
    pub(crate) is_due: bool,
}

impl Clock {
    pub(crate) const fn starting(since: Timestamp) -> Self {
        Self {
            since,
            held_before: false,
            settled_ms: 0,
            opened: None,
        }
    }

    /// It holds, as is proved where it is beyond doubt.
    pub(crate) fn holds(
        &mut self,
        kind: RuleKind,
        course: &Course,
        at: Timestamp,
        proof: impl FnOnce() -> Proof,
    ) -> Turn {
        let mut steps = Vec::new();
        self.settled_ms = 0;
        let is_confirmed = self.held_before || is_told_at_once(kind);
        let held_before = std::mem::replace(&mut self.held_before, true);
        let is_new = self.opened.is_none();
        if is_new && !is_confirmed {
            return Turn {
                steps,
                is_due: false,
            };
        }
        let evidence = proof();
        let opened = self.opened.get_or_insert_with(|| {
            steps.push(GuardStep::Violated);
            Opened {
                mode: course.mode,
                action: course.action,
                violated_at: at,
                warned_at: None,
                warnings: 0,
                deadline: None,
                moved_ms: 0,
                ended_at: None,
                was_spared: false,
                left_to: None,
                evidence: evidence.clone(),
                message: course.message.clone(),
            }
        });
        opened.evidence = evidence;
        let is_due = match (course.acts, course.action) {
            (Rehearsed::Enforce, GuardAction::Terminate) => is_new || held_before,
            (Rehearsed::Soft, GuardAction::Terminate) => {
                steps.extend(opened.warn(course, at));
                held_before && opened.deadline.is_some_and(|deadline| at >= deadline)
            }
            (Rehearsed::Soft | Rehearsed::Enforce, GuardAction::Warn) => {
                steps.extend(opened.warn(course, at));
                false
            }
        };
        Turn { steps, is_due }
    }

    /// It is known not to hold, for so long. Whether it is over.
    pub(crate) fn holds_not(&mut self, seen_ms: u64, settled_after_ms: u64) -> bool {
        self.held_before = false;
        self.settled_ms = self.settled_ms.saturating_add(seen_ms);
        self.opened.is_none() || self.settled_ms >= settled_after_ms
    }

    /// Whether it does not hold since a dry run counts somebody as gone for it.
    pub(crate) fn was_rid(&self) -> bool {
        self.settled_ms > 0 && self.is_rehearsed()
    }

    /// Whether a dry run counts somebody as gone for it.
    pub(crate) fn is_rehearsed(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|it| it.ended_at.is_some() && it.mode == GuardMode::DryRun)
    }

    /// So much time went by in which nobody looked, or the clock on the wall was set
    /// forward or back: whoever was warned had no part of the grace in it.
    pub(crate) fn moves(&mut self, ms: i64) {
        if let Some(opened) = &mut self.opened {
            let deadline = opened.deadline;
            opened.deadline = deadline.map(|it| Timestamp(it.0.saturating_add(ms)));
            opened.moved_ms = opened.moved_ms.saturating_add(ms);
        }
    }

    /// Whether it holds is not known.
    pub(crate) fn lost_sight(&mut self) {
        self.held_before = false;
    }

    /// Somebody was ended for it, or is about to be: whether that was enough is for
    /// the next two looks to tell.
    pub(crate) fn looks_anew(&mut self) {
        self.held_before = false;
    }

    pub(crate) fn ended(&mut self, at: Timestamp) {
        self.looks_anew();
        if let Some(opened) = &mut self.opened {
            opened.ended_at = Some(at);
        }
    }

    /// Nobody can be ended for it: that is said once.
    pub(crate) fn spared(&mut self, why: impl FnOnce() -> String) -> Option<GuardStep> {
        self.looks_anew();
        let opened = self.opened.as_mut()?;
        let was_said = std::mem::replace(&mut opened.was_spared, true);
        (!was_said).then(|| GuardStep::Spared(why()))
    }

    /// As the world sees it; `None` before it is beyond doubt.
    pub(crate) fn open(&self, rule: &RuleName, subject: &Subject) -> Option<OpenViolation> {
        let opened = self.opened.as_ref()?;
        Some(OpenViolation {
            rule: rule.clone(),
            subject: subject.clone(),
            mode: opened.mode,
            action: opened.action,
            violated_at: opened.violated_at,
            warned_at: opened.warned_at,
            warnings: opened.warnings,
            deadline: opened.deadline,
            ended_at: opened.ended_at,
            evidence: opened.evidence.told(),
            message: opened.message.clone(),
        })
    }
}

impl Opened {
    /// The warning that is due, where one is: the first at once, the others evenly
    /// spread over the grace. After it nobody is warned any more.
    fn warn(&mut self, course: &Course, at: Timestamp) -> Option<GuardStep> {
        let Some(first) = self.warned_at else {
            self.warned_at = Some(at);
            let grace = i64::try_from(course.grace_ms).unwrap_or(i64::MAX);
            self.deadline = match course.action {
                GuardAction::Terminate => Some(Timestamp(at.0.saturating_add(grace))),
                GuardAction::Warn => None,
            };
            return Some(self.warned());
        };
        let judged = Timestamp(at.0.saturating_sub(self.moved_ms));
        let since = u128::from(milliseconds(judged.since(first)));
        let due = u128::from(self.warnings) * u128::from(course.grace_ms);
        let is_due = since * u128::from(course.max_warnings) >= due;
        let is_over = self.deadline.is_some_and(|deadline| at >= deadline);
        (is_due && !is_over && self.warnings < course.max_warnings).then(|| self.warned())
    }

    fn warned(&mut self) -> GuardStep {
        self.warnings = self.warnings.saturating_add(1);
        GuardStep::Warned {
            times: self.warnings,
            deadline: self.deadline,
        }
    }
}

/// What needs no second look: it is not allowed at all, or was looked at through a
/// whole window.
const fn is_told_at_once(kind: RuleKind) -> bool {
    match kind {
        RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours
        | RuleKind::Utilization
        | RuleKind::TotalUtilization
        | RuleKind::GpuUtilization
        | RuleKind::Idle
        | RuleKind::Waste
        | RuleKind::Runaway
        | RuleKind::Growth => true,
        RuleKind::Memory
        | RuleKind::Duration
        | RuleKind::Processes
        | RuleKind::TotalMemory
        | RuleKind::TotalProcesses
        | RuleKind::ProcessMemory
        | RuleKind::ReservedMemory => false,
    }
}
