//! A sample as rules see it. The facts of a process are stored in the same form, so that a replay
//! evaluates the same.

use crate::local_time::to_civil_time;
use crate::store::{DeviceProcess, Sample};
use chrono::TimeZone;
use gpukill_policy::guard::facts::usable_memory;
use gpukill_policy::guard::sample::{DeviceSample, GuardSample, RunSample, held_since};
use gpukill_policy::usage::DeviceRun;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::RunKey;
use gpukill_proto::model::{Device, DeviceId};
use gpukill_proto::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// If more ended processes than this are remembered, they are removed at once, otherwise once a
/// minute.
const MANY_ENDED: usize = 128;

/// Facts of earlier samples that later samples need not repeat. The store has them too.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleHistory {
    /// Since when each process has held each device, as far as observed. A process that leaves a
    /// device and returns keeps its time.
    pub(crate) first_seen: BTreeMap<RunKey, Timestamp>,
    pub(crate) devices: BTreeMap<DeviceId, DeviceFacts>,
}

/// The nearly constant facts of a device. They also apply while it does not answer or is away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    name: Option<String>,
    pci: Option<String>,
    memory: Option<Bytes>,
    is_unified: bool,
}

impl SampleHistory {
    /// Since when each process has held each device, regardless of the instance.
    pub(crate) fn first_seen_by_process(&self) -> BTreeMap<DeviceProcess, Timestamp> {
        let mut earliest = BTreeMap::new();
        for (run, first) in &self.first_seen {
            let on = (run.device.clone(), run.process());
            let known = earliest.entry(on).or_insert(*first);
            *known = (*known).min(*first);
        }
        earliest
    }

    /// Whether many processes in the history are not in this sample.
    pub(crate) fn has_many_gone(&self, sample: &GuardSample) -> bool {
        self.first_seen.len()
            > sample
                .runs
                .len()
                .saturating_mul(2)
                .saturating_add(MANY_ENDED)
    }

    /// Removes ended processes from the history unless they are in this sample; `lives` tells
    /// whether the process with this pid and start in ticks is alive.
    pub(crate) fn forget(&mut self, sample: &GuardSample, lives: &dyn Fn(u32, u64) -> bool) {
        let first = &mut self.first_seen;
        first.retain_entries(|run, _| {
            sample.runs.contains_key(run) || lives(run.pid, run.start_ticks)
        });
    }
}

/// Converts the sample, with times in this zone. New facts are added to `history`.
pub(crate) fn to_guard_sample(
    sample: &Sample,
    history: &mut SampleHistory,
    zone: &impl TimeZone,
) -> GuardSample {
    let usage = &sample.usage;
    let (known, facts) = (sample.processes(), sample.process_facts());
    let left: BTreeSet<DeviceRun> = sample.departed_runs().into_set();
    let runs: BTreeMap<Arc<RunKey>, RunSample> = usage
        .runs
        .iter()
        .filter_map(|(run, used)| {
            let key = run_key(run)?;
            let process = known.get(run)?;
            let first = process.first_seen.known().copied();
            let since = history.first_seen.entry(key.clone());
            let since = since.or_insert_with(|| first.unwrap_or(usage.from));
            // The store may have reported an earlier time since.
            *since = (*since).min(first.unwrap_or(*since));
            let started_at = process.started_at.last_known().copied();
            let run_sample = RunSample {
                facts: Arc::clone(facts.get(&process.key()?)?),
                first_seen: held_since(*since, started_at, usage.until),
                usage: used.clone(),
                is_present: !left.contains(run),
            };
            Some((Arc::new(key), run_sample))
        })
        .into_map();
    GuardSample {
        from: usage.from,
        until: usage.until,
        observed_ms: usage.seen_ms,
        local_time: to_civil_time(zone, usage.from),
        devices: device_samples(sample, &mut history.devices),
        runs,
    }
}

/// The unique name of a run; `None` for a pid without a process.
pub(crate) fn run_key(run: &DeviceRun) -> Option<RunKey> {
    Some(RunKey {
        pid: run.pid,
        start_ticks: run.start_ticks?,
        device: run.device.clone(),
        instance: run.instance,
    })
}

fn device_samples(
    sample: &Sample,
    facts: &mut BTreeMap<DeviceId, DeviceFacts>,
) -> BTreeMap<DeviceId, DeviceSample> {
    for device in &sample.snapshot.devices {
        facts.entry(device.id.clone()).or_default().update(device);
    }
    let used = sample.usage.devices.iter();
    used.map(|(id, usage)| {
        let DeviceFacts {
            name,
            pci,
            memory,
            is_unified,
        } = facts.get(id).cloned().unwrap_or_default();
        let device_sample = DeviceSample {
            index: usage.index,
            name,
            pci,
            memory,
            is_unified,
            usage: usage.clone(),
        };
        (id.clone(), device_sample)
    })
    .into_map()
}

impl DeviceFacts {
    fn update(&mut self, device: &Device) {
        let update = |known: &mut Option<String>, now: Option<&String>| {
            if let Some(now) = now
                && known.as_ref() != Some(now)
            {
                *known = Some(now.clone());
            }
        };
        update(&mut self.name, device.name.last_known());
        update(&mut self.pci, device.pci.last_known());
        self.memory = usable_memory(device).or(self.memory);
        self.is_unified = device.memory_unified;
    }
}

#[cfg(test)]
mod tests;
