//! A sample as rules see it. What is told of a process here is stored as it is told,
//! so that a replay judges the same.

use crate::audit::{DeviceProcess, Sample};
use crate::civil::civil;
use chrono::TimeZone;
use gpukill_policy::guard::about::memory;
use gpukill_policy::guard::bucket::{Bucket, Judged, JudgedDevice, held_since};
use gpukill_policy::usage::Run;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::JudgedRun;
use gpukill_proto::snapshot::{Device, DeviceId};
use gpukill_proto::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many who are not there any more are looked at once a minute only.
const MANY: usize = 128;

/// What samples said that later ones need not say again. The store has it too.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Since when each process has held each device, as far as was seen. One that left
    /// a device and comes back is the same.
    pub(crate) first: BTreeMap<JudgedRun, Timestamp>,
    pub(crate) devices: BTreeMap<DeviceId, Facts>,
}

/// What is known of a device and hardly ever changes: it is true of one that does not
/// answer, or is away, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    name: Option<String>,
    pci: Option<String>,
    memory: Option<Bytes>,
    is_unified: bool,
}

impl Seen {
    /// Since when each process has held each device, whatever part of it.
    pub(crate) fn by_process(&self) -> BTreeMap<DeviceProcess, Timestamp> {
        let mut earliest = BTreeMap::new();
        for (run, first) in &self.first {
            let on = (run.device.clone(), run.process());
            let known = earliest.entry(on).or_insert(*first);
            *known = (*known).min(*first);
        }
        earliest
    }

    /// Whether many of those who held devices are not in this bucket.
    pub(crate) fn has_many_gone(&self, bucket: &Bucket) -> bool {
        self.first.len() > bucket.runs.len().saturating_mul(2).saturating_add(MANY)
    }

    /// Forgets since when those held devices who are not in this bucket and have ended:
    /// `lives` tells of a pid, and when in ticks it began, whether that process lives.
    pub(crate) fn forget(&mut self, bucket: &Bucket, lives: &dyn Fn(u32, u64) -> bool) {
        let first = &mut self.first;
        first.retain(|run, _| bucket.runs.contains_key(run) || lives(run.pid, run.start_ticks));
    }
}

/// The sample, told in the time of this zone. What is new is remembered in `seen`.
pub(crate) fn bucket(sample: &Sample, seen: &mut Seen, zone: &impl TimeZone) -> Bucket {
    let usage = &sample.usage;
    let (known, abouts) = (sample.processes(), sample.abouts());
    let left: BTreeSet<Run> = sample.left().into_set();
    let runs: BTreeMap<Arc<JudgedRun>, Judged> = usage
        .runs
        .iter()
        .filter_map(|(run, used)| {
            let judged = judged_run(run)?;
            let process = known.get(run)?;
            let first = process.first_seen.known().copied();
            let since = seen.first.entry(judged.clone());
            let since = since.or_insert_with(|| first.unwrap_or(usage.from));
            // The store may have told of it since.
            *since = (*since).min(first.unwrap_or(*since));
            let started_at = process.started_at.last_known().copied();
            let told = Judged {
                about: Arc::clone(abouts.get(&process.key()?)?),
                first_seen: held_since(*since, started_at, usage.until),
                usage: used.clone(),
                is_present: !left.contains(run),
            };
            Some((Arc::new(judged), told))
        })
        .into_map();
    Bucket {
        from: usage.from,
        until: usage.until,
        seen_ms: usage.seen_ms,
        civil: civil(zone, usage.from),
        devices: devices(sample, &mut seen.devices),
        runs,
    }
}

/// What names it beyond doubt; `None` of a pid that no process has.
pub(crate) fn judged_run(run: &Run) -> Option<JudgedRun> {
    Some(JudgedRun {
        pid: run.pid,
        start_ticks: run.start_ticks?,
        device: run.device.clone(),
        instance: run.instance,
    })
}

fn devices(
    sample: &Sample,
    facts: &mut BTreeMap<DeviceId, Facts>,
) -> BTreeMap<DeviceId, JudgedDevice> {
    for device in &sample.snapshot.devices {
        facts.entry(device.id.clone()).or_default().learn(device);
    }
    let used = sample.usage.devices.iter();
    used.map(|(id, usage)| {
        let Facts {
            name,
            pci,
            memory,
            is_unified,
        } = facts.get(id).cloned().unwrap_or_default();
        let told = JudgedDevice {
            index: usage.index,
            name,
            pci,
            memory,
            is_unified,
            usage: usage.clone(),
        };
        (id.clone(), told)
    })
    .into_map()
}

impl Facts {
    fn learn(&mut self, device: &Device) {
        let learn = |known: &mut Option<String>, now: Option<&String>| {
            if let Some(now) = now
                && known.as_ref() != Some(now)
            {
                *known = Some(now.clone());
            }
        };
        learn(&mut self.name, device.name.last_known());
        learn(&mut self.pci, device.pci.last_known());
        self.memory = memory(device).or(self.memory);
        self.is_unified = device.memory_unified;
    }
}

#[cfg(test)]
mod tests;
