//! The state machine of a violation, from the first sample to the last.
//!
//! ```text
//! holds ──► holds again ──► violated ──► warned … warned ──► ended ──► over
//! ```
//!
//! The first sample confirms a violation of an access rule, and a condition that was
//! measured over a whole window; all others need a second sample in a row. A sample in
//! which nothing is known neither confirms nor closes a violation.

use super::enforcement::ended_jobs::{JobPart, SimulatedEnd};
use super::evaluate::RuleResponse;
use super::rules::EnforcementMode;
use super::sample::GuardSample;
use super::snoozes::SnoozeGrant;
use super::state::JobKey;
use super::state::evidence::LazyEvidence;
use super::state::pairs;
use super::warning_state::{WarningState, can_read_warnings};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardStep, OpenViolation, RuleKind, RuleName, ViolationSubject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The state of one rule and one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViolationState {
    /// Since when the condition holds.
    pub(crate) since: Timestamp,
    /// The condition held in the last sample, and no job was ended for it then.
    held_before: bool,
    /// For how long the condition did not hold, as far as known: also the time without samples
    /// since it last held.
    settled_ms: u64,
    /// Since when it has been known not to hold.
    not_broken_since: Option<Timestamp>,
    pub(crate) opened: Option<ConfirmedViolation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfirmedViolation {
    pub(crate) mode: GuardMode,
    pub(crate) action: GuardAction,
    violated_at: Timestamp,
    pub(crate) warned: WarningState,
    ended_at: Option<Timestamp>,
    /// In a dry run: the jobs that would have been ended and are still present.
    #[serde(with = "pairs")]
    pub(crate) simulated: BTreeMap<JobPart, SimulatedEnd>,
    /// Whether it was recorded that no job can be ended.
    was_exempt: bool,
    /// A chosen job that the guard leaves to others, once this was recorded.
    pub(crate) left_to: Option<JobKey>,
    pub(crate) evidence: LazyEvidence,
    pub(crate) message: Option<String>,
}

/// The consequence of a sample in which the condition held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) steps: Vec<GuardStep>,
    pub(crate) due: DueOwners,
}

/// The owners of jobs that may be ended now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DueOwners {
    Nobody,
    Anybody,
    /// Jobs of users after their grace period. If a user in `warned` owns the job to end,
    /// the guard waits for that user's grace period.
    Owners {
        past_grace: BTreeSet<u32>,
        warned: BTreeSet<u32>,
    },
}

impl ViolationState {
    pub(crate) const fn new(since: Timestamp) -> Self {
        Self {
            since,
            held_before: false,
            settled_ms: 0,
            not_broken_since: None,
            opened: None,
        }
    }

    /// The condition holds. `proof` makes the evidence once the violation is confirmed; its
    /// owners read a warning.
    pub(crate) fn record_violated(
        &mut self,
        kind: RuleKind,
        response: &RuleResponse,
        (at, snoozes): (Timestamp, &BTreeMap<u32, SnoozeGrant>),
        proof: impl FnOnce() -> LazyEvidence,
    ) -> Transition {
        let mut steps = Vec::new();
        self.settled_ms = 0;
        self.not_broken_since = None;
        let is_confirmed = self.held_before || is_confirmed_at_once(kind);
        let held_before = std::mem::replace(&mut self.held_before, true);
        let is_new = self.opened.is_none();
        if is_new && !is_confirmed {
            return Transition {
                steps,
                due: DueOwners::Nobody,
            };
        }
        let evidence = proof();
        let opened = self.opened.get_or_insert_with(|| {
            steps.push(GuardStep::Violated);
            ConfirmedViolation {
                mode: response.mode,
                action: response.action,
                violated_at: at,
                warned: WarningState::default(),
                ended_at: None,
                simulated: BTreeMap::new(),
                was_exempt: false,
                left_to: None,
                evidence: evidence.clone(),
                message: response.message.clone(),
            }
        });
        opened.evidence = evidence;
        if (opened.mode, opened.action) != (response.mode, response.action) {
            // The response has changed: warned users are warned again from the start.
            (opened.mode, opened.action) = (response.mode, response.action);
            opened.warned = WarningState::default();
        }
        let due = match (response.acting_mode, response.action) {
            (EnforcementMode::Enforce, GuardAction::Terminate) if is_new || held_before => {
                DueOwners::Anybody
            }
            (EnforcementMode::Enforce, GuardAction::Terminate) => DueOwners::Nobody,
            (EnforcementMode::Soft, GuardAction::Terminate) => {
                let readers = opened.readers();
                if readers.is_empty() {
                    opened.warned = WarningState::default();
                    steps.extend(opened.record_exempt(|| NO_READER.to_owned()));
                }
                steps.extend(opened.warned.warn(response, at, &readers, snoozes));
                let past_grace = opened.warned.users_past_grace(response.grace_ms, at);
                match held_before && !past_grace.is_empty() {
                    true => DueOwners::Owners {
                        past_grace,
                        warned: opened.warned.warned_users(),
                    },
                    false => DueOwners::Nobody,
                }
            }
            (EnforcementMode::Soft | EnforcementMode::Enforce, GuardAction::Warn) => {
                steps.extend(opened.warned.warn(response, at, &opened.readers(), snoozes));
                DueOwners::Nobody
            }
        };
        Transition { steps, due }
    }

    /// The condition holds since then. If it must hold without a break and that moment is
    /// later than before, it is another violation, and warned users are warned again. A
    /// window that moves on with the time begins no other violation.
    pub(crate) fn set_since(&mut self, kind: RuleKind, since: Timestamp) {
        let before = self.since;
        self.since = since;
        let Some(opened) = &mut self.opened else {
            return;
        };
        if !requires_unbroken_time(kind) {
            self.since = before.min(since);
        } else if before < since {
            opened.warned = WarningState::default();
        }
    }

    /// The condition is known not to hold in this sample. Returns whether the violation is
    /// over.
    pub(crate) fn record_not_violated(
        &mut self,
        kind: RuleKind,
        sample: &GuardSample,
        settled_after_ms: u64,
    ) -> bool {
        self.held_before = false;
        self.settled_ms = self.settled_ms.saturating_add(sample.observed_ms);
        self.not_broken_since.get_or_insert(sample.from);
        // A job was ended for it: the next violation is warned of again.
        self.opened.is_none()
            || self.has_ended_job()
            || requires_unbroken_time(kind)
            || self.settled_ms >= settled_after_ms
    }

    /// Whether the condition may not have held for long enough, because nothing was observed.
    pub(crate) const fn may_be_settled(&self, settled_after_ms: u64) -> bool {
        self.settled_ms > 0 && self.settled_ms >= settled_after_ms
    }

    /// Whether a job was ended for it outside a dry run.
    pub(crate) fn has_ended_job(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|it| it.ended_at.is_some() && it.mode != GuardMode::DryRun)
    }

    /// Whether a job may be ended for it outside a dry run.
    pub(crate) fn may_end_job(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|it| it.mode > GuardMode::DryRun && it.action == GuardAction::Terminate)
    }

    /// Shifts the times by unobserved milliseconds, or by those that the wall clock was set
    /// forward or back: they are no part of a grace period.
    pub(crate) fn shift_time(&mut self, ms: i64) {
        let unobserved = u64::try_from(ms).unwrap_or(0);
        self.settled_ms = self.settled_ms.saturating_add(unobserved);
        if let Some(opened) = &mut self.opened {
            opened.warned.shift_time(ms);
            // A clock that was set back would show it later than now.
            let ended_at = opened.ended_at.filter(|_| ms < 0);
            opened.ended_at = ended_at
                .map(|at| Timestamp(at.0.saturating_add(ms)))
                .or(opened.ended_at);
        }
    }

    /// It is unknown whether the condition holds.
    pub(crate) fn record_unknown(&mut self) {
        self.held_before = false;
    }

    /// A job was ended for it, or is about to be: the next two samples show whether that
    /// was enough.
    pub(crate) fn require_confirmation(&mut self) {
        self.held_before = false;
    }

    pub(crate) fn record_ended(&mut self, at: Timestamp) {
        self.require_confirmation();
        if let Some(opened) = &mut self.opened {
            opened.ended_at = Some(at);
        }
    }

    /// The job that was to be ended for it was not.
    pub(crate) fn clear_ended(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.ended_at = None;
        }
    }

    /// No job can be ended for it: this is recorded once.
    pub(crate) fn record_exempt(&mut self, why: impl FnOnce() -> String) -> Option<GuardStep> {
        self.require_confirmation();
        self.opened.as_mut()?.record_exempt(why)
    }

    /// The violation as it is reported; `None` before it is confirmed.
    pub(crate) fn to_open_violation(
        &self,
        rule: &RuleName,
        subject: &ViolationSubject,
    ) -> Option<OpenViolation> {
        let opened = self.opened.as_ref()?;
        Some(OpenViolation {
            rule: rule.clone(),
            subject: subject.clone(),
            mode: opened.mode,
            action: opened.action,
            violated_at: opened.violated_at,
            warned_at: opened.warned.first_warned_at(),
            warnings: opened.warned.warning_count(),
            deadline: opened.warned.deadline(),
            readers: opened.warned.to_readers(),
            own_policy: None,
            snoozed_until: None,
            not_broken_since: self.not_broken_since,
            ended_at: opened.ended_at,
            evidence: opened.evidence.to_evidence(),
            message: opened.message.clone(),
        })
    }
}

impl ConfirmedViolation {
    /// When a job was last ended for it.
    pub(crate) const fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// The uids in the evidence that can read a warning.
    fn readers(&self) -> BTreeSet<u32> {
        let runs = self.evidence.runs.iter();
        let people = runs.filter_map(|run| run.facts.owner.as_ref()?.uid);
        people.filter(|uid| can_read_warnings(*uid)).into_set()
    }

    fn record_exempt(&mut self, why: impl FnOnce() -> String) -> Option<GuardStep> {
        let was_said = std::mem::replace(&mut self.was_exempt, true);
        (!was_said).then(|| GuardStep::Exempt(why()))
    }
}

/// Why no job is ended after a warning that no person can read.
const NO_READER: &str = "no warning is possible: its owner is not a person of this host";

/// Whether a condition of this kind must hold for a whole time without a break: after a
/// break nothing is left to settle, and the next violation is warned of again.
const fn requires_unbroken_time(kind: RuleKind) -> bool {
    matches!(kind, RuleKind::Idle | RuleKind::Runaway)
}

/// Whether one sample confirms a violation of this kind: of an access rule, or measured
/// over a whole window.
const fn is_confirmed_at_once(kind: RuleKind) -> bool {
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
