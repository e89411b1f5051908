//! Evaluates amounts: memory and processes of people and groups, memory of one process, and
//! free memory on a device. An unknown amount counts as zero: the known part can exceed a
//! limit by itself.

use super::context::{Amount, EvaluationContext};
use super::findings::{Excess, Findings, SubjectIndex, ViolationDetails};
use super::scope::{LimitScope, group_scopes, person_scopes};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{Measurement, RuleKind};
use std::collections::BTreeSet;

pub(crate) fn evaluate(context: &EvaluationContext<'_>, findings: &mut Findings) {
    for scope in person_scopes(context, RuleKind::Memory, findings) {
        evaluate_memory(context, RuleKind::Memory, scope, findings);
    }
    for scope in person_scopes(context, RuleKind::Processes, findings) {
        evaluate_processes(context, RuleKind::Processes, scope, findings);
    }
    for scope in group_scopes(context, |group| group.total_memory.map(|it| it.0)) {
        evaluate_memory(context, RuleKind::TotalMemory, scope, findings);
    }
    for scope in group_scopes(context, |group| group.total_processes.map(u64::from)) {
        evaluate_processes(context, RuleKind::TotalProcesses, scope, findings);
    }
    evaluate_process_memory(context, findings);
    evaluate_free_memory(context, findings);
}

fn evaluate_memory(
    context: &EvaluationContext<'_>,
    kind: RuleKind,
    scope: LimitScope,
    findings: &mut Findings,
) {
    let runs: Vec<usize> = scope.runs(context).collect();
    let amounts = runs.iter().map(|run| context.runs[*run].memory);
    let (value, unknown) = sum(amounts, scope.doubtful);
    let measured = Measurement {
        value,
        limit: scope.limit,
    };
    if value > scope.limit {
        let held = ViolationDetails {
            measured: Some(measured),
            since: None,
            runs,
            unknown,
            excess: Excess::Bytes(value - scope.limit),
            threat: None,
        };
        findings.add_violated_unless((scope.policy, scope.doubt), kind, scope.subject, held);
    } else if unknown > 0 {
        let why = format!("how much memory {unknown} of its processes hold is not known");
        findings.add_unknown(scope.policy, kind, scope.subject, why);
    }
}

/// Returns the known sum, and the number of amounts that are not fully known.
pub(crate) fn sum(amounts: impl Iterator<Item = Amount>, doubtful: u32) -> (u64, u32) {
    amounts.fold((0, doubtful), |(value, unknown): (u64, u32), amount| {
        let value = value.saturating_add(amount.value);
        (value, unknown.saturating_add(u32::from(!amount.is_known)))
    })
}

/// Counts the processes that are present at the end: a process and its successor do not
/// count together.
fn evaluate_processes(
    context: &EvaluationContext<'_>,
    kind: RuleKind,
    scope: LimitScope,
    findings: &mut Findings,
) {
    let runs: Vec<usize> = scope
        .runs(context)
        .filter(|run| context.runs[*run].sample.is_present)
        .collect();
    let (runs, unknown): (Vec<usize>, Vec<usize>) = runs
        .into_iter()
        .partition(|run| context.runs[*run].is_reported);
    let distinct = |runs: &[usize]| -> BTreeSet<(u32, u64)> {
        let keys = runs.iter().map(|run| context.runs[*run].key);
        keys.map(|key| (key.pid, key.start_ticks)).into_set()
    };
    let known = distinct(&runs);
    let unknown = distinct(&unknown).difference(&known).count();
    let doubtful = u64::from(scope.doubtful).saturating_add(unknown as u64);
    let value = known.len() as u64;
    if value > scope.limit {
        let held = ViolationDetails {
            measured: Some(Measurement {
                value,
                limit: scope.limit,
            }),
            since: None,
            runs,
            unknown: scope.doubtful,
            excess: Excess::Processes(value - scope.limit),
            threat: None,
        };
        findings.add_violated_unless((scope.policy, scope.doubt), kind, scope.subject, held);
    } else if value.saturating_add(doubtful) > scope.limit {
        let why = "how many processes count is not known";
        findings.add_unknown(scope.policy, kind, scope.subject, why);
    }
}

/// Evaluates the memory limits for single processes, for each device the lowest first.
fn evaluate_process_memory(context: &EvaluationContext<'_>, findings: &mut Findings) {
    let mut max_by_device: Vec<Vec<(u64, super::PolicyIndex)>> =
        vec![Vec::new(); context.devices.len()];
    for (at, gpu) in context.compiled_rules.rules().gpus.iter().enumerate() {
        let Some(limit) = gpu.max_memory else {
            continue;
        };
        for (device, max_by_device) in max_by_device.iter_mut().enumerate() {
            let policy = super::PolicyIndex::Gpu(at);
            match context.policy_devices.gpus[at].contains(Some(device)) {
                Ok(true) => max_by_device.push((limit.0, policy)),
                Ok(false) => {}
                Err(why) => {
                    let subject = SubjectIndex::Device(device);
                    findings.add_unknown(policy, RuleKind::ProcessMemory, subject, why.to_owned());
                }
            }
        }
    }
    for max_by_device in &mut max_by_device {
        max_by_device.sort_indirect();
    }
    for (position, run) in context.runs.iter().enumerate() {
        let max_by_device = run.device.map_or(&[][..], |device| &max_by_device[device]);
        let Amount { value, is_known } = run.memory;
        for (limit, policy) in max_by_device {
            let subject = SubjectIndex::Run(position);
            let kind = RuleKind::ProcessMemory;
            if value > *limit {
                let held = ViolationDetails {
                    measured: Some(Measurement {
                        value,
                        limit: *limit,
                    }),
                    since: None,
                    runs: vec![position],
                    unknown: u32::from(!is_known),
                    excess: Excess::All,
                    threat: None,
                };
                findings.add_violated(*policy, kind, subject, held);
            } else if is_known {
                // The limits after it are not lower.
                break;
            } else {
                let why = "how much memory it holds is not known";
                findings.add_unknown(*policy, kind, subject, why);
            }
        }
    }
}

/// Evaluates the free memory of each device. Unified memory is skipped: it is the host's
/// too, and no part of it can be reserved.
fn evaluate_free_memory(context: &EvaluationContext<'_>, findings: &mut Findings) {
    let kind = RuleKind::ReservedMemory;
    for (at, gpu) in context.compiled_rules.rules().gpus.iter().enumerate() {
        let Some(reserved) = gpu.reserved_memory else {
            continue;
        };
        for (position, (_, device)) in context.devices.iter().enumerate() {
            let policy = super::PolicyIndex::Gpu(at);
            let subject = SubjectIndex::Device(position);
            match context.policy_devices.gpus[at].contains(Some(position)) {
                Ok(true) if !device.is_unified => {}
                Ok(_) => continue,
                Err(why) => {
                    findings.add_unknown(policy, kind, subject, why.to_owned());
                    continue;
                }
            }
            let observed_ms = context.sample.observed_ms;
            let used = Amount::from_gauge(&device.usage.memory, observed_ms, observed_ms);
            let Some(total) = device.memory else {
                findings.add_unknown(policy, kind, subject, "how much memory it has is not known");
                continue;
            };
            let left = total.0.saturating_sub(used.value);
            if left < reserved.0 {
                let on_it = |run: &usize| context.runs[*run].device == Some(position);
                let held = ViolationDetails {
                    measured: Some(Measurement {
                        value: left,
                        limit: reserved.0,
                    }),
                    since: None,
                    runs: (0..context.runs.len()).filter(on_it).collect(),
                    unknown: u32::from(!used.is_known),
                    excess: Excess::Bytes(reserved.0 - left),
                    threat: None,
                };
                findings.add_violated(policy, kind, subject, held);
            } else if !used.is_known {
                findings.add_unknown(
                    policy,
                    kind,
                    subject,
                    "how much of it is in use is not known",
                );
            }
        }
    }
}
