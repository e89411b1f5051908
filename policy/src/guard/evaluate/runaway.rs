//! Evaluates whether a job works without end: one of its processes works in every sample,
//! and frees no memory.

use super::super::limits::milliseconds;
use super::super::rules::RunawayParams;
use super::super::state::streak::{Streak, StreakStatus};
use super::super::state::{BehaviourState, RunawayState, retain_keys};
use super::behaviour::BehaviourCheck;
use super::context::{EvaluatedRun, EvaluationContext, is_known};
use super::findings::{Excess, Findings, SubjectIndex, ViolationDetails};
use gpukill_proto::guard::{Measurement, RuleKind};
use gpukill_proto::units::{Percent, Timestamp};
use std::sync::Arc;

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    state: &mut BehaviourState,
    check: &BehaviourCheck,
    terms: RunawayParams,
    findings: &mut Findings,
) {
    let limit = milliseconds(terms.limit).max(1);
    for (job, runs) in check.jobs() {
        let subject = SubjectIndex::Job(job);
        let mut worst: Option<(Timestamp, usize, u64)> = None;
        for position in runs {
            let run = &context.runs[*position];
            let start = run.sample.first_seen;
            let peak = state.runaway.entry(Arc::clone(run.key));
            let peak = peak.or_insert_with(|| RunawayState {
                at_work: Streak::starting_at(
                    start.min(context.sample.until).max(context.sample.from),
                ),
                bytes: 0,
            });
            update_peak(peak, context, run, terms.above);
            let through = peak.at_work.status(limit, context.sample.until, start);
            let is_meant = match (terms.orphaned, run.sample.facts.is_orphaned) {
                (false, _) | (true, Some(true)) => Some(true),
                (true, is_orphaned) => is_orphaned,
            };
            match (through, is_meant) {
                (StreakStatus::Broken, _) | (_, Some(false)) => {}
                (StreakStatus::Unknown, _) | (StreakStatus::Since(..), None) => {
                    let why = match is_meant {
                        None => "whether its parent has ended is not known",
                        Some(_) => "whether it worked all the time is not known",
                    };
                    findings.add_unknown(check.policy, RuleKind::Runaway, subject, why);
                }
                (StreakStatus::Since(since, value), Some(true)) => {
                    let candidate = (since, *position, value);
                    worst = Some(worst.map_or(candidate, |worst| worst.min(candidate)));
                }
            }
        }
        if let Some((since, position, value)) = worst {
            let held = ViolationDetails {
                measured: Some(Measurement { value, limit }),
                since: Some(since),
                runs: vec![position],
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            findings.add_violated(check.policy, RuleKind::Runaway, subject, held);
        }
    }
    let present = check.runs.iter().map(|run| context.runs[*run].key);
    retain_keys(&mut state.runaway, check.runs.len(), present);
}

/// Records whether the process worked in this sample, and whether its memory fell.
fn update_peak(
    peak: &mut RunawayState,
    context: &EvaluationContext<'_>,
    run: &EvaluatedRun<'_>,
    above: Percent,
) {
    let usage = &run.sample.usage;
    let held = if is_known(&usage.memory, usage.held_ms) {
        usage.memory.mean()
    } else {
        None
    };
    let works = is_known(&usage.utilization, usage.held_ms).then(|| {
        let all = u128::from(above.0) * u128::from(usage.utilization.known_ms);
        usage.utilization.total > all
    });
    match (works, held) {
        (Some(false), held) => {
            peak.at_work.record_broken(context.sample.until);
            peak.bytes = held.unwrap_or(0);
        }
        (None, _) | (_, None) => {
            let sample = context.sample;
            peak.at_work
                .record_unknown(sample.observed_ms, sample.until);
        }
        // Caches release and take again up to a twentieth.
        (Some(true), Some(held)) if held < peak.bytes - peak.bytes / 20 => {
            peak.at_work.record_broken(context.sample.from);
            peak.bytes = held;
        }
        (Some(true), Some(held)) => {
            peak.at_work.record_unbroken();
            peak.bytes = peak.bytes.max(held);
        }
    }
}
