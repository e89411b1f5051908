//! How much work: of persons and groups on each device, and of all on it, by the mean
//! over the window that the rules set. The time that a process was not there counts as
//! none; the time without a reading counts as the rest does, as long as it is little.

use super::super::limits::milliseconds;
use super::super::memory::window::{Load, Part as _, Window};
use super::super::memory::{Memory, keep};
use super::amounts::sum;
use super::book::Policy;
use super::finding::{Excess, Findings, Held, Whom};
use super::scene::{Amount, Scene};
use super::scope::{Scope, of_groups, of_persons};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Measured, RuleKind};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Adds a bucket to what is remembered of each process and device, and tells the
/// scene what that comes to. What no rule asks for is not remembered.
pub(crate) fn remember(memory: &mut Memory, scene: &mut Scene<'_>) {
    let rules = scene.book.rules();
    let is_asked = rules.defaults.utilization.is_some()
        || rules.users.iter().any(|it| {
            let of_times = it.overrides.iter().map(|it| &it.limits);
            let mut limits = of_times.chain([&it.limits]);
            limits.any(|it| it.utilization.is_some())
        })
        || rules
            .groups
            .iter()
            .any(|it| it.limits.utilization.is_some() || it.total_utilization.is_some())
        || rules.times.iter().any(|it| it.limits.utilization.is_some())
        // Whom a device would be rid of is known by what they do.
        || rules.gpus.iter().any(|it| it.max_utilization.is_some());
    let length = memory.by.1;
    let bucket = scene.bucket;
    let leaving = leaving(memory, scene);
    memory.begins_anew(|device| leaving.contains(device));
    if is_asked {
        for run in &mut scene.runs {
            if leaving.contains(&run.key.device) {
                continue;
            }
            let window = memory.loads.entry(Arc::clone(run.key));
            let window = window.or_insert_with(|| Window::from(bucket.from));
            let usage = &run.judged.usage;
            let load = Load::of(&usage.utilization, bucket.seen_ms, usage.held_ms);
            window.add(length, bucket.from, bucket.until, load);
            run.past_load = mean(window, length, bucket.until, run.judged.first_seen);
            if load.is_known() {
                run.load = run.past_load;
            }
        }
        let there = scene.runs.iter().map(|run| run.key);
        let there = there.filter(|key| !leaving.contains(&key.device));
        keep(&mut memory.loads, there.clone().count(), there);
    } else {
        memory.loads.clear();
    }
    let is_asked = rules.gpus.iter().any(|it| it.max_utilization.is_some());
    let mut old = std::mem::take(&mut memory.devices);
    if is_asked {
        for (id, device) in &scene.devices {
            if leaving.contains(*id) {
                continue;
            }
            let window = old.remove(*id);
            let mut window = window.unwrap_or_else(|| Window::from(bucket.from));
            let load = Load::of(&device.usage.utilization, bucket.seen_ms, bucket.seen_ms);
            window.add(length, bucket.from, bucket.until, load);
            memory.devices.insert((*id).clone(), window);
        }
    }
}

/// Devices of which somebody is going who was ended there: until they have gone, what
/// they do is in all that the device tells.
fn leaving(memory: &Memory, scene: &Scene<'_>) -> BTreeSet<DeviceId> {
    if memory.ended.is_empty() {
        return BTreeSet::new();
    }
    let runs = scene.runs.iter().filter(|run| {
        let job = run.job.map(|job| scene.jobs[job].key.as_ref());
        let ended = job.and_then(|key| memory.ended.get(key));
        ended.is_some_and(|it| it.is_going(scene.bucket.until))
    });
    runs.map(|run| run.key.device.clone()).into_set()
}

/// The mean over the whole window: what is not in it yet counts as none.
fn mean(window: &Window<Load>, length: u64, until: Timestamp, began: Timestamp) -> Amount {
    let mut load = Load::default();
    for slot in window.slots() {
        load.merge(slot.part);
    }
    let over = load.seen_ms.max(length).max(1);
    let covers = window.covers(length, until, began);
    Amount {
        value: load.worked().saturating_add(over / 2) / over,
        is_known: load.is_known() && covers.is_some(),
    }
}

pub(crate) fn judge(scene: &Scene<'_>, memory: &Memory, findings: &mut Findings) {
    for scope in of_persons(scene, RuleKind::Utilization, findings) {
        on_each_device(scene, RuleKind::Utilization, &scope, findings);
    }
    for scope in of_groups(scene, |group| {
        group.total_utilization.map(|it| u64::from(it.0))
    }) {
        on_each_device(scene, RuleKind::TotalUtilization, &scope, findings);
    }
    of_devices(scene, memory, findings);
}

fn on_each_device(scene: &Scene<'_>, kind: RuleKind, scope: &Scope, findings: &mut Findings) {
    let mut devices: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cell in &scope.cells {
        let cell = &scene.cells[*cell];
        if let Some(device) = cell.device {
            devices.entry(device).or_default().extend(&cell.runs);
        }
    }
    for (device, runs) in devices {
        let whom = match scope.whom {
            Whom::Person(person) => Whom::PersonOn(person, device),
            Whom::Group(group) => Whom::GroupOn(group, device),
            Whom::PersonOn(..)
            | Whom::GroupOn(..)
            | Whom::Device(_)
            | Whom::Job(_)
            | Whom::Run(_) => continue,
        };
        let amounts = runs.iter().map(|run| scene.runs[*run].load);
        let (value, unknown) = sum(amounts, scope.doubtful);
        let past = runs.iter().map(|run| scene.runs[*run].past_load);
        let (past_value, past_unknown) = sum(past, scope.doubtful);
        if value > scope.limit {
            let held = too_busy(value, scope.limit, runs, unknown);
            findings.holds_unless((scope.policy, scope.doubt), kind, whom, held);
        } else if past_value > scope.limit {
            findings.stale(scope.policy, kind, whom);
        } else if past_unknown > 0 {
            let why = format!("how much {past_unknown} of the processes work is not known");
            findings.unknown(scope.policy, kind, whom, why);
        }
    }
}

const fn too_busy(value: u64, limit: u64, runs: Vec<usize>, unknown: u32) -> Held {
    Held {
        measured: Some(Measured { value, limit }),
        since: None,
        runs,
        unknown,
        excess: Excess::Percent(value.saturating_sub(limit)),
        threat: None,
    }
}

fn of_devices(scene: &Scene<'_>, memory: &Memory, findings: &mut Findings) {
    let kind = RuleKind::GpuUtilization;
    let length = milliseconds(scene.book.rules().enforcement.utilization_window);
    for (at, gpu) in scene.book.rules().gpus.iter().enumerate() {
        let Some(limit) = gpu.max_utilization.map(|it| u64::from(it.0)) else {
            continue;
        };
        for (position, (id, device)) in scene.devices.iter().enumerate() {
            let (policy, whom) = (Policy::Gpu(at), Whom::Device(position));
            match scene.places.gpus[at].has(Some(position)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    findings.unknown(policy, kind, whom, why.to_owned());
                    continue;
                }
            }
            // A device was there before it was looked at.
            let began = Timestamp(i64::MIN);
            let seen_ms = scene.bucket.seen_ms;
            let now = Load::of(&device.usage.utilization, seen_ms, seen_ms);
            let load = memory.devices.get(*id).map_or(Amount::UNKNOWN, |window| {
                mean(window, length, scene.bucket.until, began)
            });
            if load.value > limit && !now.is_known() {
                findings.stale(policy, kind, whom);
            } else if load.value > limit {
                let on_it = |run: &usize| scene.runs[*run].device == Some(position);
                let runs = (0..scene.runs.len()).filter(on_it).collect();
                let held = too_busy(load.value, limit, runs, u32::from(!load.is_known));
                findings.holds(policy, kind, whom, held);
            } else if !load.is_known {
                findings.unknown(policy, kind, whom, "how busy it was is not known");
            }
        }
    }
}
