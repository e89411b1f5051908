//! A violation's clock: what happens to it from the first look to the last.
//!
//! ```text
//! holds ──► holds again ──► violated ──► warned … warned ──► ended ──► over
//! ```
//!
//! What is not allowed at all is violated at the first look, as is what was looked at
//! through a whole window; all else at the second in a row. A look of which nothing is
//! known neither confirms nor ends anything.

use super::bucket::Bucket;
use super::judge::Course;
use super::memory::JobKey;
use super::memory::pairs;
use super::memory::proof::Proof;
use super::rules::Rehearsed;
use super::simulated::{JobPart, SimulatedEnd};
use super::snoozes::Grant;
use super::warned::{Warned, is_read};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardStep, OpenViolation, RuleKind, RuleName, Subject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Of one rule and one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// Since when it holds.
    pub(crate) since: Timestamp,
    /// It held in the bucket before, and nobody was ended for it then.
    held_before: bool,
    /// For how long it has been known not to hold.
    settled_ms: u64,
    /// Since when.
    not_broken_since: Option<Timestamp>,
    pub(crate) opened: Option<Opened>,
}

/// It is beyond doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) mode: GuardMode,
    pub(crate) action: GuardAction,
    violated_at: Timestamp,
    pub(crate) warned: Warned,
    ended_at: Option<Timestamp>,
    /// In a dry run: the jobs that would have been ended, and are there still.
    #[serde(with = "pairs")]
    pub(crate) simulated: BTreeMap<JobPart, SimulatedEnd>,
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
    pub(crate) due: Due,
}

/// Who may be ended now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    Nobody,
    /// Whoever it is.
    Anybody,
    /// Jobs of these users, whose grace is over; each of those who were `warned` may be the
    /// one who is to be ended, and then their grace is waited for.
    Of {
        over: BTreeSet<u32>,
        warned: BTreeSet<u32>,
    },
}

impl Clock {
    pub(crate) const fn starting(since: Timestamp) -> Self {
        Self {
            since,
            held_before: false,
            settled_ms: 0,
            not_broken_since: None,
            opened: None,
        }
    }

    /// It holds, as is proved where it is beyond doubt. Whoever is told of there reads a
    /// warning.
    pub(crate) fn holds(
        &mut self,
        kind: RuleKind,
        course: &Course,
        (at, snoozes): (Timestamp, &BTreeMap<u32, Grant>),
        proof: impl FnOnce() -> Proof,
    ) -> Turn {
        let mut steps = Vec::new();
        self.settled_ms = 0;
        self.not_broken_since = None;
        let is_confirmed = self.held_before || is_told_at_once(kind);
        let held_before = std::mem::replace(&mut self.held_before, true);
        let is_new = self.opened.is_none();
        if is_new && !is_confirmed {
            return Turn {
                steps,
                due: Due::Nobody,
            };
        }
        let evidence = proof();
        let opened = self.opened.get_or_insert_with(|| {
            steps.push(GuardStep::Violated);
            Opened {
                mode: course.mode,
                action: course.action,
                violated_at: at,
                warned: Warned::default(),
                ended_at: None,
                simulated: BTreeMap::new(),
                was_spared: false,
                left_to: None,
                evidence: evidence.clone(),
                message: course.message.clone(),
            }
        });
        opened.evidence = evidence;
        if (opened.mode, opened.action) != (course.mode, course.action) {
            // What comes of it is another thing by now: whoever was warned is warned anew.
            (opened.mode, opened.action) = (course.mode, course.action);
            opened.warned = Warned::default();
        }
        let due = match (course.acts, course.action) {
            (Rehearsed::Enforce, GuardAction::Terminate) if is_new || held_before => Due::Anybody,
            (Rehearsed::Enforce, GuardAction::Terminate) => Due::Nobody,
            (Rehearsed::Soft, GuardAction::Terminate) => {
                let readers = opened.readers();
                if readers.is_empty() {
                    opened.warned = Warned::default();
                    steps.extend(opened.is_spared(|| UNREAD.to_owned()));
                }
                steps.extend(opened.warned.warn(course, at, &readers, snoozes));
                let over = opened.warned.over(course.grace_ms, at);
                match held_before && !over.is_empty() {
                    true => Due::Of {
                        over,
                        warned: opened.warned.readers(),
                    },
                    false => Due::Nobody,
                }
            }
            (Rehearsed::Soft | Rehearsed::Enforce, GuardAction::Warn) => {
                steps.extend(opened.warned.warn(course, at, &opened.readers(), snoozes));
                Due::Nobody
            }
        };
        Turn { steps, due }
    }

    /// It holds since then. Where that is later than before, and it has to hold without a
    /// break, it is another violation: users who were warned of the last are warned anew. The
    /// beginning of a window that moves on with the time begins no other violation.
    pub(crate) fn holds_since(&mut self, kind: RuleKind, since: Timestamp) {
        let before = self.since;
        self.since = since;
        let Some(opened) = &mut self.opened else {
            return;
        };
        if !is_unbroken(kind) {
            self.since = before.min(since);
        } else if before < since {
            opened.warned = Warned::default();
        }
    }

    /// It is known not to hold in this bucket. Whether it is over.
    pub(crate) fn holds_not(
        &mut self,
        kind: RuleKind,
        bucket: &Bucket,
        settled_after_ms: u64,
    ) -> bool {
        self.held_before = false;
        self.settled_ms = self.settled_ms.saturating_add(bucket.seen_ms);
        self.not_broken_since.get_or_insert(bucket.from);
        // Of whoever broke it somebody was ended: who breaks it then is warned anew.
        self.opened.is_none()
            || self.has_ended_somebody()
            || is_unbroken(kind)
            || self.settled_ms >= settled_after_ms
    }

    /// Whether somebody was ended for it, and not in a dry run.
    pub(crate) fn has_ended_somebody(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|it| it.ended_at.is_some() && it.mode != GuardMode::DryRun)
    }

    /// So much time went by in which nobody looked, or the clock on the wall was set
    /// forward or back: whoever was warned had no part of the grace in it.
    pub(crate) fn moves(&mut self, ms: i64) {
        if let Some(opened) = &mut self.opened {
            opened.warned.moves(ms);
            // A clock that was set back shows it as later than now.
            let ended_at = opened.ended_at.filter(|_| ms < 0);
            opened.ended_at = ended_at
                .map(|at| Timestamp(at.0.saturating_add(ms)))
                .or(opened.ended_at);
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

    /// Whoever was to be ended for it was not.
    pub(crate) fn ended_nobody(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.ended_at = None;
        }
    }

    /// Nobody can be ended for it: that is said once.
    pub(crate) fn spared(&mut self, why: impl FnOnce() -> String) -> Option<GuardStep> {
        self.looks_anew();
        self.opened.as_mut()?.is_spared(why)
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
            warned_at: opened.warned.at(),
            warnings: opened.warned.times(),
            deadline: opened.warned.deadline(),
            readers: opened.warned.told(),
            own_policy: None,
            snoozed_until: None,
            not_broken_since: self.not_broken_since,
            ended_at: opened.ended_at,
            evidence: opened.evidence.told(),
            message: opened.message.clone(),
        })
    }
}

impl Opened {
    /// When somebody was last ended for it.
    pub(crate) const fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// Those by whom it is known and who read what they are warned of: the numbers of
    /// these users.
    fn readers(&self) -> BTreeSet<u32> {
        let told = self.evidence.runs.iter();
        let people = told.filter_map(|seen| seen.about.owner.as_ref()?.uid);
        people.filter(|uid| is_read(*uid)).into_set()
    }

    /// Nobody can be ended for it: that is said once.
    fn is_spared(&mut self, why: impl FnOnce() -> String) -> Option<GuardStep> {
        let was_said = std::mem::replace(&mut self.was_spared, true);
        (!was_said).then(|| GuardStep::Spared(why()))
    }
}

/// Why nobody is ended after a warning that nobody reads.
const UNREAD: &str = "nobody can be warned: whose it is, is no person of this box";

/// What holds only after a whole time without a break: once that is broken nothing is left
/// of it to settle, and who breaks the rule again is warned anew.
const fn is_unbroken(kind: RuleKind) -> bool {
    matches!(kind, RuleKind::Idle | RuleKind::Runaway)
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
        | RuleKind::ReservedMemory
        | RuleKind::Rogue => false,
    }
}
