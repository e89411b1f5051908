//! Evaluates utilization: of people and groups on each device, and of whole devices, by the
//! mean over the window that the rules set. Time in which a process was not present counts
//! as zero; time without a reading counts like the rest, as long as it is short.

use super::super::limits::milliseconds;
use super::super::state::window::{Merge as _, UtilizationSum, Window};
use super::super::state::{GuardState, retain_keys};
use super::compiled_rules::PolicyIndex;
use super::context::{Amount, EvaluationContext};
use super::findings::{Excess, Findings, SubjectIndex, ViolationDetails};
use super::limits::sum;
use super::scope::{LimitScope, group_scopes, person_scopes};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Measurement, RuleKind};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Adds a sample to the windows of each process and device, and gives the context their
/// means. Windows that no rule asks for are not kept.
pub(crate) fn update_windows(state: &mut GuardState, context: &mut EvaluationContext<'_>) {
    let rules = context.compiled_rules.rules();
    let is_asked = rules.defaults.utilization.is_some()
        || rules.users.iter().any(|user| {
            let of_times = user.overrides.iter().map(|user| &user.limits);
            let mut limits = of_times.chain([&user.limits]);
            limits.any(|user| user.utilization.is_some())
        })
        || rules
            .groups
            .iter()
            .any(|it| it.limits.utilization.is_some() || it.total_utilization.is_some())
        || rules.times.iter().any(|it| it.limits.utilization.is_some())
        // A device limit needs the utilization of each process, to select the job to end.
        || rules.gpus.iter().any(|it| it.max_utilization.is_some());
    let length = state.by.1;
    let sample = context.sample;
    let leaving = devices_with_ending_jobs(state, context);
    state.clear_utilization(|device| leaving.contains(device));
    if is_asked {
        for run in &mut context.runs {
            if leaving.contains(&run.key.device) {
                continue;
            }
            let window = state.loads.entry(Arc::clone(run.key));
            let window = window.or_insert_with(|| Window::starting_at(sample.from));
            let usage = &run.sample.usage;
            let load =
                UtilizationSum::from_gauge(&usage.utilization, sample.observed_ms, usage.held_ms);
            window.add(length, sample.from, sample.until, load);
            run.past_load = window_mean(window, length, sample.until, run.sample.first_seen);
            if load.is_known() {
                run.load = run.past_load;
            }
        }
        let present = context.runs.iter().map(|run| run.key);
        let present = present.filter(|key| !leaving.contains(&key.device));
        retain_keys(&mut state.loads, present.clone().count(), present);
    } else {
        state.loads.clear();
    }
    let is_asked = rules.gpus.iter().any(|it| it.max_utilization.is_some());
    let mut old = std::mem::take(&mut state.devices);
    if is_asked {
        for (id, device) in &context.devices {
            if leaving.contains(*id) {
                continue;
            }
            let window = old.remove(*id);
            let mut window = window.unwrap_or_else(|| Window::starting_at(sample.from));
            let load = UtilizationSum::from_gauge(
                &device.usage.utilization,
                sample.observed_ms,
                sample.observed_ms,
            );
            window.add(length, sample.from, sample.until, load);
            state.devices.insert((*id).clone(), window);
        }
    }
}

/// Devices with a job that is being ended: until it is gone, its work is part of all that
/// the device reports.
fn devices_with_ending_jobs(
    state: &GuardState,
    context: &EvaluationContext<'_>,
) -> BTreeSet<DeviceId> {
    if state.ended.is_empty() {
        return BTreeSet::new();
    }
    let runs = context.runs.iter().filter(|run| {
        let job = run.job.map(|job| context.jobs[job].key.as_ref());
        let ended = job.and_then(|key| state.ended.get(key));
        ended.is_some_and(|it| it.is_ending(context.sample.until))
    });
    runs.map(|run| run.key.device.clone()).into_set()
}

/// The mean over the whole window: time that the window does not cover yet counts as zero.
fn window_mean(
    window: &Window<UtilizationSum>,
    length: u64,
    until: Timestamp,
    start: Timestamp,
) -> Amount {
    let mut load = UtilizationSum::default();
    for slot in window.slots() {
        load.merge(slot.part);
    }
    let over = load.seen_ms.max(length).max(1);
    let covers = window.covers(length, until, start);
    Amount {
        value: load.estimate().saturating_add(over / 2) / over,
        is_known: load.is_known() && covers.is_some(),
    }
}

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    state: &GuardState,
    findings: &mut Findings,
) {
    for scope in person_scopes(context, RuleKind::Utilization, findings) {
        evaluate_on_devices(context, RuleKind::Utilization, &scope, findings);
    }
    for scope in group_scopes(context, |group| {
        group.total_utilization.map(|it| u64::from(it.0))
    }) {
        evaluate_on_devices(context, RuleKind::TotalUtilization, &scope, findings);
    }
    evaluate_device_totals(context, state, findings);
}

fn evaluate_on_devices(
    context: &EvaluationContext<'_>,
    kind: RuleKind,
    scope: &LimitScope,
    findings: &mut Findings,
) {
    let mut devices: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cell in &scope.cells {
        let cell = &context.cells[*cell];
        if let Some(device) = cell.device {
            devices.entry(device).or_default().extend(&cell.runs);
        }
    }
    for (device, runs) in devices {
        let subject = match scope.subject {
            SubjectIndex::Person(person) => SubjectIndex::PersonOn(person, device),
            SubjectIndex::Group(group) => SubjectIndex::GroupOn(group, device),
            SubjectIndex::PersonOn(..)
            | SubjectIndex::GroupOn(..)
            | SubjectIndex::Device(_)
            | SubjectIndex::Job(_)
            | SubjectIndex::Run(_) => continue,
        };
        let amounts = runs.iter().map(|run| context.runs[*run].load);
        let (value, unknown) = sum(amounts, scope.doubtful);
        let past = runs.iter().map(|run| context.runs[*run].past_load);
        let (past_value, past_unknown) = sum(past, scope.doubtful);
        if value > scope.limit {
            let held = over_limit(value, scope.limit, runs, unknown);
            findings.add_violated_unless((scope.policy, scope.doubt), kind, subject, held);
        } else if past_value > scope.limit {
            findings.add_stale(scope.policy, kind, subject);
        } else if past_unknown > 0 {
            let why = format!("the utilization of {past_unknown} of the processes is not known");
            findings.add_unknown(scope.policy, kind, subject, why);
        }
    }
}

const fn over_limit(value: u64, limit: u64, runs: Vec<usize>, unknown: u32) -> ViolationDetails {
    ViolationDetails {
        measured: Some(Measurement { value, limit }),
        since: None,
        runs,
        unknown,
        excess: Excess::Percent(value.saturating_sub(limit)),
        threat: None,
    }
}

fn evaluate_device_totals(
    context: &EvaluationContext<'_>,
    state: &GuardState,
    findings: &mut Findings,
) {
    let kind = RuleKind::GpuUtilization;
    let length = milliseconds(
        context
            .compiled_rules
            .rules()
            .enforcement
            .utilization_window,
    );
    for (at, gpu) in context.compiled_rules.rules().gpus.iter().enumerate() {
        let Some(limit) = gpu.max_utilization.map(|it| u64::from(it.0)) else {
            continue;
        };
        for (position, (id, device)) in context.devices.iter().enumerate() {
            let (policy, subject) = (PolicyIndex::Gpu(at), SubjectIndex::Device(position));
            match context.policy_devices.gpus[at].contains(Some(position)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    findings.add_unknown(policy, kind, subject, why.to_owned());
                    continue;
                }
            }
            // A device existed before it was observed.
            let start = Timestamp(i64::MIN);
            let seen_ms = context.sample.observed_ms;
            let now = UtilizationSum::from_gauge(&device.usage.utilization, seen_ms, seen_ms);
            let load = state.devices.get(*id).map_or(Amount::UNKNOWN, |window| {
                window_mean(window, length, context.sample.until, start)
            });
            if load.value > limit && !now.is_known() {
                findings.add_stale(policy, kind, subject);
            } else if load.value > limit {
                let on_it = |run: &usize| context.runs[*run].device == Some(position);
                let runs = (0..context.runs.len()).filter(on_it).collect();
                let held = over_limit(load.value, limit, runs, u32::from(!load.is_known));
                findings.add_violated(policy, kind, subject, held);
            } else if !load.is_known {
                findings.add_unknown(policy, kind, subject, "how busy it was is not known");
            }
        }
    }
}
