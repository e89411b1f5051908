//! Evaluates whether a job holds much memory for long, and does little with it.

use super::super::limits::milliseconds;
use super::super::rules::WasteParams;
use super::super::state::window::{Merge as _, UtilizationSum, WasteSum, Window};
use super::super::state::{BehaviourState, retain_keys};
use super::behaviour::BehaviourCheck;
use super::context::EvaluationContext;
use super::findings::{Excess, Findings, SubjectIndex, ViolationDetails};
use super::idle::SERVICE_UNKNOWN;
use gpukill_proto::guard::{Measurement, RuleKind};
use gpukill_proto::units::Timestamp;
use std::sync::Arc;

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    state: &mut BehaviourState,
    check: &BehaviourCheck,
    terms: WasteParams,
    findings: &mut Findings,
) {
    let sample = context.sample;
    let length = milliseconds(terms.hours).max(1);
    for (job, runs) in check.jobs() {
        let subject = SubjectIndex::Job(job);
        let key = &context.jobs[job].key;
        let window = state.waste.entry(Arc::clone(key));
        let window = window.or_insert_with(|| Window::starting_at(sample.from));
        let part = job_usage(context, runs);
        let is_fresh = part.is_known();
        window.add(length, sample.from, sample.until, part);
        let first_seen = runs.iter().map(|run| context.runs[*run].sample.first_seen);
        let start = first_seen.min().unwrap_or(sample.from);
        let is_service = context.is_service(&context.jobs[job].runs) == Some(true);
        match evaluate_window(window, terms, length, sample.until, start) {
            WasteResult::No => {}
            WasteResult::Unknown(why) => {
                findings.add_unknown(check.policy, RuleKind::Waste, subject, why);
            }
            WasteResult::Below(_) if !is_fresh => {
                let why = "whether it works now is not known";
                findings.add_unknown(check.policy, RuleKind::Waste, subject, why);
            }
            WasteResult::Below(_)
                if context.is_service(&context.jobs[job].runs).is_none()
                    && !context.compiled_rules.ends_services(check.policy) =>
            {
                findings.add_unknown(check.policy, RuleKind::Waste, subject, SERVICE_UNKNOWN);
            }
            // A client of the service within the window speaks against waste.
            WasteResult::Below(_) if is_service && has_served(window) == Some(true) => {}
            WasteResult::Below(_) if is_service && has_served(window).is_none() => {
                let why = "whether a client used the service is not known";
                findings.add_unknown(check.policy, RuleKind::Waste, subject, why);
            }
            WasteResult::Below(value) => {
                let limit = u64::from(terms.below.0);
                let length = i64::try_from(length).unwrap_or(i64::MAX);
                let held = ViolationDetails {
                    measured: Some(Measurement { value, limit }),
                    since: Some(Timestamp(sample.until.0.saturating_sub(length))),
                    runs: runs.to_vec(),
                    unknown: 0,
                    excess: Excess::All,
                    threat: None,
                };
                findings.add_violated(check.policy, RuleKind::Waste, subject, held);
            }
        }
    }
    let present = check.jobs().map(|(job, _)| &context.jobs[job].key);
    retain_keys(&mut state.waste, check.jobs().count(), present);
}

fn job_usage(context: &EvaluationContext<'_>, runs: &[usize]) -> WasteSum {
    let mut part = WasteSum::default();
    for run in runs {
        let run = &context.runs[*run];
        let usage = &run.sample.usage;
        let load = UtilizationSum::from_gauge(
            &usage.utilization,
            context.sample.observed_ms,
            usage.held_ms,
        );
        part.held_ms = part.held_ms.saturating_add(load.held_ms);
        part.known_ms = part.known_ms.saturating_add(load.known_ms);
        part.total = part.total.saturating_add(load.total);
        part.min = part.min.saturating_add(run.memory.value);
        part.is_memory_unknown |= !run.memory.is_known;
        part.has_served |= usage.connections.max.is_some_and(|max| max > 0);
        part.may_have_served |= usage.connections.is_failed;
    }
    part
}

/// Whether a client was connected within the window; `None` if that is unknown.
fn has_served(window: &Window<WasteSum>) -> Option<bool> {
    let parts = || window.slots().map(|slot| &slot.part);
    match (
        parts().any(|it| it.has_served),
        parts().any(|it| it.may_have_served),
    ) {
        (true, _) => Some(true),
        (false, true) => None,
        (false, false) => Some(false),
    }
}

enum WasteResult {
    No,
    Unknown(&'static str),
    /// Mean utilization in percent.
    Below(u64),
}

fn evaluate_window(
    window: &Window<WasteSum>,
    terms: WasteParams,
    length: u64,
    until: Timestamp,
    start: Timestamp,
) -> WasteResult {
    let covers = window.covers(length, until, start);
    if covers == Some(false) {
        return WasteResult::No;
    }
    let mut load = UtilizationSum::default();
    let mut may_have_held_less = false;
    for WasteSum {
        held_ms,
        total: worked,
        known_ms,
        min,
        is_memory_unknown,
        has_served: _,
        may_have_served: _,
    } in window.slots().map(|slot| &slot.part)
    {
        let has_held_less = *min < terms.min_memory.0;
        if has_held_less && !is_memory_unknown {
            return WasteResult::No;
        }
        may_have_held_less |= has_held_less;
        load.merge(UtilizationSum {
            seen_ms: *held_ms,
            held_ms: *held_ms,
            known_ms: *known_ms,
            total: *worked,
        });
    }
    let held = load.held_ms;
    if load.estimate() >= u64::from(terms.below.0).saturating_mul(held) {
        return WasteResult::No;
    }
    if covers.is_none() {
        return WasteResult::Unknown("what it did before the first sample is not known");
    }
    // Without readings it may have worked as hard as possible.
    if load.upper_bound() >= u64::from(terms.below.0).saturating_mul(held) {
        return WasteResult::Unknown("whether it worked all the time is not known");
    }
    if may_have_held_less {
        return WasteResult::Unknown("how much memory it held all the time is not known");
    }
    WasteResult::Below(load.total.checked_div(load.known_ms).unwrap_or(0))
}
