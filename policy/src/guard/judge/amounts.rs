//! How much: memory and processes of persons and groups, memory of one process, and
//! memory that is left on a device. What is not known counts as nothing: what is known
//! can be too much by itself.

use super::finding::{Excess, Findings, Held, Whom};
use super::scene::{Amount, Scene};
use super::scope::{Scope, of_groups, of_persons};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Measured, RuleKind};
use std::collections::BTreeSet;

pub(crate) fn judge(scene: &Scene<'_>, findings: &mut Findings) {
    for scope in of_persons(scene, RuleKind::Memory, findings) {
        memory(scene, RuleKind::Memory, scope, findings);
    }
    for scope in of_persons(scene, RuleKind::Processes, findings) {
        processes(scene, RuleKind::Processes, scope, findings);
    }
    for scope in of_groups(scene, |group| group.total_memory.map(|it| it.0)) {
        memory(scene, RuleKind::TotalMemory, scope, findings);
    }
    for scope in of_groups(scene, |group| group.total_processes.map(u64::from)) {
        processes(scene, RuleKind::TotalProcesses, scope, findings);
    }
    of_each_process(scene, findings);
    left_on_devices(scene, findings);
}

fn memory(scene: &Scene<'_>, kind: RuleKind, scope: Scope, findings: &mut Findings) {
    let runs: Vec<usize> = scope.runs(scene).collect();
    let amounts = runs.iter().map(|run| scene.runs[*run].memory);
    let (value, unknown) = sum(amounts, scope.doubtful);
    let measured = Measured {
        value,
        limit: scope.limit,
    };
    if value > scope.limit {
        let held = Held {
            measured: Some(measured),
            since: None,
            runs,
            unknown,
            excess: Excess::Bytes(value - scope.limit),
            threat: None,
        };
        findings.holds_unless((scope.policy, scope.doubt), kind, scope.whom, held);
    } else if unknown > 0 {
        let why = format!("how much memory {unknown} of its processes hold is not known");
        findings.unknown(scope.policy, kind, scope.whom, why);
    }
}

/// The sum of what is known, and of how many it is not all.
pub(crate) fn sum(amounts: impl Iterator<Item = Amount>, doubtful: u32) -> (u64, u32) {
    amounts.fold((0, doubtful), |(value, unknown): (u64, u32), amount| {
        let value = value.saturating_add(amount.value);
        (value, unknown.saturating_add(u32::from(!amount.is_known)))
    })
}

/// Who is there at the end: one that follows another is not beside it.
fn processes(scene: &Scene<'_>, kind: RuleKind, scope: Scope, findings: &mut Findings) {
    let runs: Vec<usize> = scope
        .runs(scene)
        .filter(|run| scene.runs[*run].judged.is_present)
        .collect();
    let (runs, untold): (Vec<usize>, Vec<usize>) =
        runs.into_iter().partition(|run| scene.runs[*run].is_told);
    let distinct = |runs: &[usize]| -> BTreeSet<(u32, u64)> {
        let keys = runs.iter().map(|run| scene.runs[*run].key);
        keys.map(|key| (key.pid, key.start_ticks)).into_set()
    };
    let told = distinct(&runs);
    let untold = distinct(&untold).difference(&told).count();
    let doubtful = u64::from(scope.doubtful).saturating_add(untold as u64);
    let value = told.len() as u64;
    if value > scope.limit {
        let held = Held {
            measured: Some(Measured {
                value,
                limit: scope.limit,
            }),
            since: None,
            runs,
            unknown: scope.doubtful,
            excess: Excess::Processes(value - scope.limit),
            threat: None,
        };
        findings.holds_unless((scope.policy, scope.doubt), kind, scope.whom, held);
    } else if value.saturating_add(doubtful) > scope.limit {
        let why = "how many processes count is not known";
        findings.unknown(scope.policy, kind, scope.whom, why);
    }
}

/// The most that one process may hold, of each device: the lowest first.
fn of_each_process(scene: &Scene<'_>, findings: &mut Findings) {
    let mut most: Vec<Vec<(u64, super::Policy)>> = vec![Vec::new(); scene.devices.len()];
    for (at, gpu) in scene.book.rules().gpus.iter().enumerate() {
        let Some(limit) = gpu.max_memory else {
            continue;
        };
        for (device, most) in most.iter_mut().enumerate() {
            let policy = super::Policy::Gpu(at);
            match scene.places.gpus[at].has(Some(device)) {
                Ok(true) => most.push((limit.0, policy)),
                Ok(false) => {}
                Err(why) => {
                    let whom = Whom::Device(device);
                    findings.unknown(policy, RuleKind::ProcessMemory, whom, why.to_owned());
                }
            }
        }
    }
    for most in &mut most {
        most.sort_unstable();
    }
    for (position, run) in scene.runs.iter().enumerate() {
        let most = run.device.map_or(&[][..], |device| &most[device]);
        let Amount { value, is_known } = run.memory;
        for (limit, policy) in most {
            let whom = Whom::Run(position);
            let kind = RuleKind::ProcessMemory;
            if value > *limit {
                let held = Held {
                    measured: Some(Measured {
                        value,
                        limit: *limit,
                    }),
                    since: None,
                    runs: vec![position],
                    unknown: u32::from(!is_known),
                    excess: Excess::All,
                    threat: None,
                };
                findings.holds(*policy, kind, whom, held);
            } else if is_known {
                // No limit after it is lower.
                break;
            } else {
                let why = "how much memory it holds is not known";
                findings.unknown(*policy, kind, whom, why);
            }
        }
    }
}

/// What is not in use of what a device has. Of memory that is the host's too, no part
/// can be kept.
fn left_on_devices(scene: &Scene<'_>, findings: &mut Findings) {
    let kind = RuleKind::ReservedMemory;
    for (at, gpu) in scene.book.rules().gpus.iter().enumerate() {
        let Some(reserved) = gpu.reserved_memory else {
            continue;
        };
        for (position, (_, device)) in scene.devices.iter().enumerate() {
            let policy = super::Policy::Gpu(at);
            let whom = Whom::Device(position);
            match scene.places.gpus[at].has(Some(position)) {
                Ok(true) if !device.is_unified => {}
                Ok(_) => continue,
                Err(why) => {
                    findings.unknown(policy, kind, whom, why.to_owned());
                    continue;
                }
            }
            let seen = scene.bucket.seen_ms;
            let used = Amount::of(&device.usage.memory, seen, seen);
            let Some(total) = device.memory else {
                findings.unknown(policy, kind, whom, "how much memory it has is not known");
                continue;
            };
            let left = total.0.saturating_sub(used.value);
            if left < reserved.0 {
                let on_it = |run: &usize| scene.runs[*run].device == Some(position);
                let held = Held {
                    measured: Some(Measured {
                        value: left,
                        limit: reserved.0,
                    }),
                    since: None,
                    runs: (0..scene.runs.len()).filter(on_it).collect(),
                    unknown: u32::from(!used.is_known),
                    excess: Excess::Bytes(reserved.0 - left),
                    threat: None,
                };
                findings.holds(policy, kind, whom, held);
            } else if !used.is_known {
                findings.unknown(policy, kind, whom, "how much of it is in use is not known");
            }
        }
    }
}
