//! Evaluates one sample against the rules.
//!
//! The sample is put in order ([`context`]) and added to the state. Each kind of rule is
//! evaluated in a file of its own. Then each violation state takes one step
//! ([`super::violation_state`]), and a violation that is due selects a job to end
//! ([`super::enforcement::victims`]).

mod access;
mod behaviour;
mod claims;
mod compiled_rules;
mod context;
mod findings;
mod growth;
mod idle;
mod index;
mod limits;
mod overflow;
mod owner_match;
mod policy_devices;
mod policy_match;
mod rogue;
mod runaway;
mod scope;
mod transitions;
mod utilization;
mod waste;

pub use compiled_rules::CompiledRules;
pub(crate) use compiled_rules::{PolicyIndex, RuleResponse, has_grace};
#[cfg(test)]
pub(crate) use context::INSPECTED_RUNS;
pub(crate) use context::{EvaluatedJob, EvaluationContext};
pub(crate) use findings::{Excess, ViolationDetails, observed_runs};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::collect::SortIndirect as _;
pub(crate) use idle::is_busy;
pub(crate) use overflow::EvaluationBounds;
pub use overflow::Overflow;
pub(crate) use owner_match::OWNER_NAME_UNKNOWN;
pub(crate) use policy_devices::{DeviceNames, PolicyDevices, device_names, has_device_names};
pub(crate) use policy_match::{PolicyMatch, describe_protection};
pub(crate) use transitions::WAITS_FOR_OTHERS;

use super::limits::milliseconds;
use super::rules::ForbiddenBehaviour;
use super::sample::GuardSample;
use super::state::{BehaviourState, GuardState};
use behaviour::BehaviourCheck;
use findings::{Finding, Findings, NOT_REPORTED, SubjectIndex};
use gpukill_proto::guard::{GuardMode, GuardRecord, Measurement, RuleKind, UnevaluatedRule};
use std::collections::BTreeSet;
use std::time::Duration;

/// The result of evaluating one sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Evaluation {
    /// The guard's decisions, by rule and subject.
    pub records: Vec<GuardRecord>,
    /// The subjects that could not be evaluated: at most [`MAX_UNEVALUATED`].
    pub undetermined: Vec<UnevaluatedRule>,
    /// The number of further subjects that could not be evaluated.
    pub undetermined_omitted: usize,
    /// The amounts beyond the bounds.
    pub overflow: Overflow,
}

/// How many unevaluated subjects of one sample are reported: one for each process of a
/// busy host.
pub const MAX_UNEVALUATED: usize = 10_000;

/// Evaluates a sample by these rules and the state of the samples before it.
pub fn evaluate(
    compiled_rules: &CompiledRules,
    state: &mut GuardState,
    sample: &GuardSample,
) -> Evaluation {
    evaluate_within(&EvaluationBounds::LIVE, compiled_rules, state, sample)
}

/// As [`evaluate`], with bounds on what is kept. Existing violations go on; what exceeds
/// the bounds is only counted.
pub(crate) fn evaluate_within(
    bounds: &EvaluationBounds,
    compiled_rules: &CompiledRules,
    state: &mut GuardState,
    sample: &GuardSample,
) -> Evaluation {
    if compiled_rules.rules().mode == GuardMode::Disabled {
        *state = std::mem::take(state).into_paused();
        return Evaluation::default();
    }
    let follows = state.prepare_for(compiled_rules, sample);
    let mut context = context::build_context(compiled_rules, state, sample);
    let mut findings = Findings::new(&context, bounds.findings);
    let mut overflow = Overflow::default();
    access::evaluate(&context, &mut findings);
    idle::update_jobs(state, &mut context);
    // The first sample after a gap describes a moment, not an interval.
    let is_seen = sample.observed_ms > 0;
    if is_seen {
        utilization::update_windows(state, &mut context);
        limits::evaluate(&context, &mut findings);
        utilization::evaluate(&context, state, &mut findings);
        let mut checks = behaviour::collect_checks(&context, &mut findings);
        let bound = bounds.lookback_windows;
        overflow.lookback_windows =
            behaviour::limit_lookback(&context, &mut checks, bound, &mut findings);
        for check in &checks {
            evaluate_behaviour(&context, state, check, &mut findings);
        }
        // Rules that apply to no process any more lose their state.
        let names = checks.iter();
        let names = names.map(|it| compiled_rules.rule_name(it.policy, it.behaviour.kind()));
        let names: BTreeSet<_> = names.into_set();
        state.conduct.retain_entries(|rule, _| names.contains(rule));
    }
    let (undetermined, omitted) = list_undetermined(&context, &findings);
    let when = (is_seen, follows);
    let records = transitions::apply(&context, state, &findings, when, bounds, &mut overflow);
    overflow.findings = findings.dropped;
    Evaluation {
        records,
        undetermined,
        undetermined_omitted: omitted,
        overflow,
    }
}

fn evaluate_behaviour(
    context: &EvaluationContext<'_>,
    state: &mut GuardState,
    check: &BehaviourCheck,
    findings: &mut Findings,
) {
    match &check.behaviour {
        ForbiddenBehaviour::Duration(limit) => {
            evaluate_duration(context, check, *limit, findings);
        }
        ForbiddenBehaviour::Idle(terms) => {
            let state = behaviour_state(context, state, check);
            idle::evaluate(context, state, check, *terms, findings);
        }
        ForbiddenBehaviour::Waste(terms) => {
            let state = behaviour_state(context, state, check);
            waste::evaluate(context, state, check, *terms, findings);
        }
        ForbiddenBehaviour::Runaway(terms) => {
            let state = behaviour_state(context, state, check);
            runaway::evaluate(context, state, check, *terms, findings);
        }
        ForbiddenBehaviour::Growth(terms) => {
            let state = behaviour_state(context, state, check);
            growth::evaluate(context, state, check, *terms, findings);
        }
        ForbiddenBehaviour::Rogue(terms) => rogue::evaluate(context, check, terms, findings),
    }
}

/// Evaluates how long a job has held a device, by the process that has held one the longest.
fn evaluate_duration(
    context: &EvaluationContext<'_>,
    check: &BehaviourCheck,
    limit: Duration,
    findings: &mut Findings,
) {
    let limit = milliseconds(limit);
    let is_over = |since| milliseconds(context.sample.until.since(since)) > limit;
    for (job, runs) in check.jobs() {
        let subject = SubjectIndex::Job(job);
        let present = runs.iter().map(|run| &context.runs[*run]);
        let present = present.filter(|run| run.sample.is_present);
        let over = present.filter(|run| is_over(run.sample.first_seen));
        let (reported, unreported): (Vec<_>, Vec<_>) = over.partition(|run| run.is_reported);
        // A device that does not report its processes decides nothing.
        let longest = reported.iter().map(|run| run.sample.first_seen).min();
        if let Some(since) = longest {
            let value = milliseconds(context.sample.until.since(since));
            let held = ViolationDetails {
                measured: Some(Measurement { value, limit }),
                since: Some(since),
                runs: runs.to_vec(),
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            let rule = (check.policy, check.doubt);
            findings.add_violated_unless(rule, RuleKind::Duration, subject, held);
        } else if !unreported.is_empty() {
            findings.add_unknown(check.policy, RuleKind::Duration, subject, NOT_REPORTED);
        }
    }
}

/// The state of one behaviour rule.
fn behaviour_state<'m>(
    context: &EvaluationContext<'_>,
    state: &'m mut GuardState,
    check: &BehaviourCheck,
) -> &'m mut BehaviourState {
    let rule = context
        .compiled_rules
        .rule_name(check.policy, check.behaviour.kind());
    let digest = context.compiled_rules.measured_digest(check.policy);
    let state = state.conduct.entry(rule).or_default();
    state.digest = digest;
    state
}

/// Lists what could not be evaluated, by rule and subject.
fn list_undetermined(
    context: &EvaluationContext<'_>,
    findings: &Findings,
) -> (Vec<UnevaluatedRule>, usize) {
    let compiled_rules = context.compiled_rules;
    let mut undetermined = Vec::new();
    let mut omitted = 0;
    for ((policy, kind), of_rule) in &findings.by_rule {
        if compiled_rules.response(*policy, *kind).is_none() {
            continue;
        }
        let unknown = of_rule.iter().filter_map(|(index, finding)| match finding {
            Finding::Holds(_) | Finding::Stale => None,
            Finding::Unknown(why) => Some((context.subject(*index), why)),
        });
        let mut unknown: Vec<_> = unknown.collect();
        unknown.sort_indirect();
        let room = MAX_UNEVALUATED - undetermined.len();
        omitted += unknown.len().saturating_sub(room);
        undetermined.extend(
            unknown
                .into_iter()
                .take(room)
                .map(|(subject, why)| UnevaluatedRule {
                    rule: compiled_rules.rule_name(*policy, *kind),
                    subject,
                    why: why.clone().into_owned(),
                }),
        );
    }
    (undetermined, omitted)
}
