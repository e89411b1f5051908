//! Evaluates whether the memory of a job keeps growing: the mean of one process rises from
//! each quarter of the window to the next, and by enough in total.

use super::super::limits::milliseconds;
use super::super::rules::GrowthParams;
use super::super::state::window::{MemorySum as Memory, Window};
use super::super::state::{BehaviourState, retain_keys};
use super::behaviour::BehaviourCheck;
use super::context::{EvaluatedRun, EvaluationContext, is_known};
use super::findings::{Excess, Findings, SubjectIndex, ViolationDetails};
use gpukill_proto::guard::{Measurement, RuleKind};
use gpukill_proto::units::{Bytes, Timestamp};
use std::sync::Arc;

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    state: &mut BehaviourState,
    check: &BehaviourCheck,
    terms: GrowthParams,
    findings: &mut Findings,
) {
    let sample = context.sample;
    let length = milliseconds(terms.within).max(1);
    let start = i64::try_from(length).unwrap_or(i64::MAX);
    let start = Timestamp(sample.until.0.saturating_sub(start));
    for (job, runs) in check.jobs() {
        let subject = SubjectIndex::Job(job);
        let mut worst: Option<(u64, usize)> = None;
        for position in runs {
            let run = &context.runs[*position];
            let window = state.growth.entry(Arc::clone(run.key));
            let window = window.or_insert_with(|| Window::starting_at(sample.from));
            window.add(length, sample.from, sample.until, held_memory(run));
            match window.covers(length, sample.until, run.sample.first_seen) {
                Some(false) => {}
                None => {
                    let why = "how much memory it held before the first sample is not known";
                    findings.add_unknown(check.policy, RuleKind::Growth, subject, why);
                }
                Some(true) if window.slots().any(|slot| slot.part.is_unknown) => {
                    let why = "how much memory it held all the time is not known";
                    findings.add_unknown(check.policy, RuleKind::Growth, subject, why);
                }
                Some(true) => {
                    let grown = growth(window, start, length, terms.by);
                    let candidate = grown.map(|grown| (grown, *position));
                    worst = worst.max(candidate);
                }
            }
        }
        if let Some((value, position)) = worst {
            let held = ViolationDetails {
                measured: Some(Measurement {
                    value,
                    limit: terms.by.0,
                }),
                since: Some(start),
                runs: vec![position],
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            findings.add_violated(check.policy, RuleKind::Growth, subject, held);
        }
    }
    let present = check.runs.iter().map(|run| context.runs[*run].key);
    retain_keys(&mut state.growth, check.runs.len(), present);
}

fn held_memory(run: &EvaluatedRun<'_>) -> Memory {
    let usage = &run.sample.usage;
    let mean = usage.memory.mean().unwrap_or(0);
    Memory {
        total: (mean >> 10).saturating_mul(usage.held_ms),
        known_ms: usage.held_ms,
        is_unknown: !is_known(&usage.memory, usage.held_ms),
    }
}

/// The growth in bytes over the whole window, if it is at least `by` and every quarter has
/// a share. Single samples do not count: a service takes and returns memory with each
/// request.
fn growth(window: &Window<Memory>, start: Timestamp, length: u64, by: Bytes) -> Option<u64> {
    let mut quarters = [(0_u64, 0_u64); 4];
    for slot in window.slots() {
        let middle = slot.from.0.midpoint(slot.until.0);
        let into = milliseconds(Timestamp(middle).since(start));
        let quarter = into.saturating_mul(4) / length;
        let quarter = usize::try_from(quarter).unwrap_or(3).min(3);
        let (total, known) = &mut quarters[quarter];
        *total = total.saturating_add(slot.part.total);
        *known = known.saturating_add(slot.part.known_ms);
    }
    // A quarter without observations has no mean, and counts as no growth.
    let mean = |(total, known): (u64, u64)| total.checked_div(known).map(|kib| kib << 10);
    let [first, second, third, last] = quarters.map(mean);
    let means = [first?, second?, third?, last?];
    let min_step = by.0 / MIN_STEP_DIVISOR;
    let steps = means.windows(2);
    let grows = steps
        .map(|two| two[1].checked_sub(two[0]))
        .all(|step| step.is_some_and(|step| step > 0 && step >= min_step));
    // The middles of the first and the last quarter are three quarters of the window apart.
    let grown = (means[3].saturating_sub(means[0]) / 3).saturating_mul(4);
    (grows && grown >= by.0).then_some(grown)
}

/// Divisor of the least step: each quarter must have a quarter of its part of an even
/// growth, so that noise in one quarter does not count as growth.
const MIN_STEP_DIVISOR: u64 = 16;
