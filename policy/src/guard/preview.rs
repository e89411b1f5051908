//! What the guard decides next by other rules, if the host stays as it is: the evaluation itself, on
//! a copy of the state, with the last sample again and again.
//!
//! Grace periods count as over, and no job waits until others have been ended, so that each job
//! that would be ended is chosen within the preview. The circuit breaker, snoozes, exemptions and
//! every other condition hold as they do for the guard.

use super::enforcement::order::Enforcement;
use super::evaluate::{CompiledRules, WAITS_FOR_OTHERS, evaluate};
use super::sample::GuardSample;
use super::state::GuardState;
use gpukill_proto::guard::{OpenViolation, UnevaluatedRule};
use gpukill_proto::units::Timestamp;

/// A violation of the previewed rules, and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewedViolation {
    /// The violation, with the response of the rules to it.
    pub open: OpenViolation,
    /// The job that is ended for it, or for another rule, once its grace period is over.
    pub chosen: Option<Enforcement>,
    /// Why no job is ended for it, if the rules would end one.
    pub exempt: Option<String>,
}

/// One sample finds a violation, a second confirms it, and a third chooses the job of an owner who
/// was warned.
const EVALUATIONS: usize = 3;

/// Why no job is ended after the circuit breaker has stopped the guard.
const BREAKER_OPENS: &str = "the circuit breaker stops the guard before: too many jobs would be \
                             ended within ten minutes";

/// Why a job of a scheduler or of Kubernetes is not ended.
const LEFT_TO_SCHEDULER: &str = "it is left to its scheduler";

/// The violations of these rules in the last samples, newest first. An older sample shows only what
/// a newer one leaves unknown.
#[must_use]
pub fn preview(
    rules: &CompiledRules,
    state: &GuardState,
    samples: &[GuardSample],
) -> Vec<PreviewedViolation> {
    let rules = rules.to_preview();
    let mut found: Vec<PreviewedViolation> = Vec::new();
    let mut unknown: Option<Vec<UnevaluatedRule>> = None;
    for sample in samples {
        let (previewed, undetermined) = preview_sample(&rules, state.clone(), sample.clone());
        let is_news = |it: &PreviewedViolation| {
            unknown.as_ref().is_none_or(|unknown| {
                let is_it = |un: &UnevaluatedRule| {
                    (&un.rule, &un.subject) == (&it.open.rule, &it.open.subject)
                };
                unknown.iter().any(is_it)
            })
        };
        found.extend(previewed.into_iter().filter(is_news));
        if undetermined.is_empty() {
            break;
        }
        unknown = Some(undetermined);
    }
    found
}

/// The violations in one sample that repeats, and what it leaves unknown.
fn preview_sample(
    rules: &CompiledRules,
    mut state: GuardState,
    mut sample: GuardSample,
) -> (Vec<PreviewedViolation>, Vec<UnevaluatedRule>) {
    let length = sample.until.0.saturating_sub(sample.from.0);
    let mut chosen: Vec<Enforcement> = Vec::new();
    let mut undetermined = Vec::new();
    for _ in 0..EVALUATIONS {
        sample.from = state.until.unwrap_or(sample.until);
        sample.until = Timestamp(sample.from.0.saturating_add(length));
        let evaluation = evaluate(rules, &mut state, &sample);
        chosen.append(&mut state.enforcements(&evaluation.records));
        undetermined = evaluation.undetermined;
    }
    let is_stopped = state.tripped_at().is_some();
    let open = state.violations().into_iter();
    let open = open.filter(|open| open.not_broken_since.is_none());
    let previewed = open.map(|open| {
        let is_of_it = |it: &&Enforcement| {
            (&it.record.rule, &it.record.subject) == (&open.rule, &open.subject)
        };
        // A job that breaks several rules is ended for the first of them.
        let has_its_job = |it: &&Enforcement| {
            let mut runs = open.evidence.runs.iter();
            runs.any(|of| it.processes.contains(&(of.run.pid, of.run.start_ticks)))
        };
        let of_it = chosen.iter().find(is_of_it);
        let exempt = match of_it {
            Some(_) => None,
            None => state.exempt_reason(&open),
        };
        let of_other = || chosen.iter().find(has_its_job).filter(|_| exempt.is_none());
        let chosen = of_it.or_else(of_other).cloned();
        let stopped = is_stopped && chosen.is_none();
        let exempt = exempt.or_else(|| stopped.then(|| BREAKER_OPENS.to_owned()));
        PreviewedViolation {
            chosen,
            exempt,
            open,
        }
    });
    (previewed.collect(), undetermined)
}

impl GuardState {
    /// Why no job is ended for a violation, if that was found.
    fn exempt_reason(&self, open: &OpenViolation) -> Option<String> {
        let violations = self.violations.get(&open.rule)?;
        let opened = violations.of.get(&open.subject)?.opened.as_ref()?;
        let left = || {
            opened
                .left_to
                .as_ref()
                .map(|_| LEFT_TO_SCHEDULER.to_owned())
        };
        // A job that waits is ended later.
        let exempt = opened.exempt.clone().filter(|why| why != WAITS_FOR_OTHERS);
        exempt.or_else(left)
    }

    /// Whether this violation is open already.
    #[must_use]
    pub fn has_violation(&self, open: &OpenViolation) -> bool {
        let violations = self.violations.get(&open.rule);
        let violation = violations.and_then(|it| it.of.get(&open.subject));
        violation.is_some_and(|violation| violation.opened.is_some())
    }
}
