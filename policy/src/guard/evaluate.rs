//! Evaluates one sample against the rules.
//!
//! The sample is put in order ([`context`]) and added to the state. Each kind of rule is
//! evaluated in a file of its own. Then each violation state takes one step
//! ([`super::violation_state`]), and a violation that is due selects a job to end
//! ([`super::victims`]).

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
pub(crate) use context::{EvaluatedJob, EvaluationContext};
pub(crate) use findings::{Excess, ViolationDetails, observed_runs};
use gpukill_proto::collect::IntoSet as _;
pub(crate) use idle::is_busy;
pub(crate) use overflow::EvaluationBounds;
pub use overflow::Overflow;
pub(crate) use owner_match::OWNER_NAME_UNKNOWN;
pub(crate) use policy_devices::{DeviceNames, PolicyDevices, device_names, has_device_names};
pub(crate) use policy_match::{PolicyMatch, describe_protection};

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
    /// What could not be evaluated: at most [`MAX_UNJUDGED`].
    pub unjudged: Vec<UnevaluatedRule>,
    /// The number of further subjects that could not be evaluated.
    pub unjudged_omitted: usize,
    /// What exceeded the bounds.
    pub overflow: Overflow,
}

/// How many unevaluated subjects of one sample are reported: one for each process of a
/// crowded host.
pub const MAX_UNJUDGED: usize = 10_000;

/// Evaluates a sample by these rules and the state of the samples before it.
pub fn evaluate(book: &CompiledRules, memory: &mut GuardState, bucket: &GuardSample) -> Evaluation {
    evaluate_within(&EvaluationBounds::LIVE, book, memory, bucket)
}

/// As [`evaluate`], with bounds on what is kept. Existing violations go on; what exceeds
/// the bounds is only counted.
pub(crate) fn evaluate_within(
    bounds: &EvaluationBounds,
    book: &CompiledRules,
    memory: &mut GuardState,
    bucket: &GuardSample,
) -> Evaluation {
    if book.rules().mode == GuardMode::Disabled {
        *memory = std::mem::take(memory).into_paused();
        return Evaluation::default();
    }
    let bucket = &*bucket.attributed_to(book.rules().person);
    let follows = memory.prepare_for(book, bucket);
    let mut context = context::build_context(book, memory, bucket);
    let mut findings = Findings::with_room(bounds.findings);
    let mut beyond = Overflow::default();
    access::evaluate(&context, &mut findings);
    idle::update_jobs(memory, &mut context);
    // The first sample after a gap describes a moment, not an interval.
    let is_seen = bucket.observed_ms > 0;
    if is_seen {
        utilization::update_windows(memory, &mut context);
        limits::evaluate(&context, &mut findings);
        utilization::evaluate(&context, memory, &mut findings);
        let concerns = behaviour::collect_checks(&context, &mut findings);
        let mut room = bounds.lookback_windows;
        for concern in &concerns {
            // The first rules take the room, so that it does not pass from rule to rule.
            match room.checked_sub(concern.lookback_windows()) {
                Some(left) => {
                    room = left;
                    evaluate_behaviour(&context, memory, concern, &mut findings);
                }
                None => {
                    beyond.lookback_windows += concern.lookback_windows();
                    let kind = concern.behaviour.kind();
                    memory.conduct.remove(&book.rule_name(concern.policy, kind));
                    for (job, _) in concern.jobs() {
                        let why = "the rules look back over too many jobs and processes";
                        findings.add_unknown(concern.policy, kind, SubjectIndex::Job(job), why);
                    }
                }
            }
        }
        // Rules that apply to no process any more lose their state.
        let names = concerns.iter();
        let names = names.map(|it| book.rule_name(it.policy, it.behaviour.kind()));
        let names: BTreeSet<_> = names.into_set();
        memory.conduct.retain(|rule, _| names.contains(rule));
    }
    let (unjudged, unjudged_besides) = list_unjudged(&context, &findings);
    let when = (is_seen, follows);
    let records = transitions::apply(&context, memory, &findings, when, bounds, &mut beyond);
    beyond.findings = findings.dropped;
    Evaluation {
        records,
        unjudged,
        unjudged_omitted: unjudged_besides,
        overflow: beyond,
    }
}

fn evaluate_behaviour(
    context: &EvaluationContext<'_>,
    memory: &mut GuardState,
    concern: &BehaviourCheck,
    findings: &mut Findings,
) {
    match concern.behaviour.clone() {
        ForbiddenBehaviour::Duration(limit) => {
            evaluate_duration(context, concern, limit, findings);
        }
        ForbiddenBehaviour::Idle {
            limit,
            min_memory,
            with_connections,
            cpu_below,
        } => {
            let terms = idle::IdleParams {
                limit,
                min_memory,
                with_connections,
                cpu_below,
            };
            let memory = behaviour_state(context, memory, concern);
            idle::evaluate(context, memory, concern, terms, findings);
        }
        ForbiddenBehaviour::Waste {
            below,
            min_memory,
            hours,
        } => {
            let terms = waste::WasteParams {
                below,
                min_memory,
                hours,
            };
            let memory = behaviour_state(context, memory, concern);
            waste::evaluate(context, memory, concern, terms, findings);
        }
        ForbiddenBehaviour::Runaway {
            above,
            limit,
            orphaned,
        } => {
            let terms = runaway::RunawayParams {
                above,
                limit,
                orphaned,
            };
            let memory = behaviour_state(context, memory, concern);
            runaway::evaluate(context, memory, concern, terms, findings);
        }
        ForbiddenBehaviour::Growth { by, within } => {
            let terms = growth::GrowthParams { by, within };
            let memory = behaviour_state(context, memory, concern);
            growth::evaluate(context, memory, concern, terms, findings);
        }
        ForbiddenBehaviour::Rogue { from, threats } => {
            let terms = rogue::RogueParams {
                from,
                threats: &threats,
            };
            rogue::evaluate(context, concern, terms, findings);
        }
    }
}

/// Evaluates how long a job has held a device, by the process that has held one the longest.
fn evaluate_duration(
    context: &EvaluationContext<'_>,
    concern: &BehaviourCheck,
    limit: Duration,
    findings: &mut Findings,
) {
    let limit = milliseconds(limit);
    let is_over = |since| milliseconds(context.sample.until.since(since)) > limit;
    for (job, runs) in concern.jobs() {
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
            let rule = (concern.policy, concern.doubt);
            findings.add_violated_unless(rule, RuleKind::Duration, subject, held);
        } else if !unreported.is_empty() {
            findings.add_unknown(concern.policy, RuleKind::Duration, subject, NOT_REPORTED);
        }
    }
}

/// The state of one behaviour rule.
fn behaviour_state<'m>(
    context: &EvaluationContext<'_>,
    memory: &'m mut GuardState,
    concern: &BehaviourCheck,
) -> &'m mut BehaviourState {
    let rule = context
        .compiled_rules
        .rule_name(concern.policy, concern.behaviour.kind());
    let digest = context.compiled_rules.measured_digest(concern.policy);
    let memory = memory.conduct.entry(rule).or_default();
    memory.digest = digest;
    memory
}

/// Lists what could not be evaluated, by rule and subject.
fn list_unjudged(
    context: &EvaluationContext<'_>,
    findings: &Findings,
) -> (Vec<UnevaluatedRule>, usize) {
    let book = context.compiled_rules;
    let mut unjudged = Vec::new();
    let mut besides = 0;
    for ((policy, kind), of_rule) in &findings.by_rule {
        if book.response(*policy, *kind).is_none() {
            continue;
        }
        let unknown = of_rule.iter().filter_map(|(index, finding)| match finding {
            Finding::Holds(_) | Finding::Stale => None,
            Finding::Unknown(why) => Some((context.subject(*index), why)),
        });
        let mut unknown: Vec<_> = unknown.collect();
        unknown.sort_unstable();
        let room = MAX_UNJUDGED - unjudged.len();
        besides += unknown.len().saturating_sub(room);
        unjudged.extend(
            unknown
                .into_iter()
                .take(room)
                .map(|(subject, why)| UnevaluatedRule {
                    rule: book.rule_name(*policy, *kind),
                    subject,
                    why: why.clone().into_owned(),
                }),
        );
    }
    (unjudged, besides)
}
