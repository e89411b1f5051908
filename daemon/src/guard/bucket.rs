//! A sample as rules see it. What is told of a process here is stored as it is told,
//! so that a replay judges the same.

use crate::audit::{Departure, Sample};
use crate::civil::civil;
use chrono::TimeZone;
use gpukill_policy::guard::about::memory;
use gpukill_policy::guard::bucket::{Bucket, Judged, JudgedDevice, held_since};
use gpukill_policy::usage::Run;
use gpukill_proto::guard::JudgedRun;
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Since when each process has held each device, as far as was seen.
pub(crate) type FirstSeen = BTreeMap<JudgedRun, Timestamp>;

/// The sample, told in the time of this zone. What is new is remembered in `first`,
/// and what has ended is forgotten: a process that left a device and comes back is the
/// same, as it is in the store.
pub(crate) fn bucket(sample: &Sample, first: &mut FirstSeen, zone: &impl TimeZone) -> Bucket {
    let usage = &sample.usage;
    let known = processes(sample);
    let left = sample.departed.iter();
    let left: BTreeSet<Run> = left.map(|it| Run::of(&it.process)).collect();
    let runs: BTreeMap<Arc<JudgedRun>, Judged> = usage
        .runs
        .iter()
        .filter_map(|(run, used)| {
            let judged = judged_run(run)?;
            let process = known.get(run)?;
            let since = *first.entry(judged.clone()).or_insert(usage.from);
            let started_at = process.started_at.last_known().copied();
            let told = Judged {
                about: Arc::new(sample.about(process)),
                first_seen: held_since(since, started_at, usage.until),
                usage: used.clone(),
                is_present: !left.contains(run),
            };
            Some((Arc::new(judged), told))
        })
        .collect();
    for gone in &sample.departed {
        if gone.departure == Departure::Ended
            && let Some(run) = judged_run(&Run::of(&gone.process))
        {
            first.remove(&run);
        }
    }
    Bucket {
        from: usage.from,
        until: usage.until,
        seen_ms: usage.seen_ms,
        civil: civil(zone, usage.from),
        devices: devices(sample),
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

/// Every process of the sample, as it was last seen in it.
fn processes(sample: &Sample) -> BTreeMap<Run, &GpuProcess> {
    let departed = sample.departed.iter().map(|departed| &departed.process);
    let all = departed.chain(&sample.snapshot.processes);
    all.map(|process| (Run::of(process), process)).collect()
}

fn devices(sample: &Sample) -> BTreeMap<DeviceId, JudgedDevice> {
    let seen: BTreeMap<&DeviceId, &Device> = sample
        .snapshot
        .devices
        .iter()
        .map(|device| (&device.id, device))
        .collect();
    let used = sample.usage.devices.iter();
    used.map(|(id, usage)| {
        let device = seen.get(id).copied();
        let told = JudgedDevice {
            index: usage.index,
            name: device.and_then(|it| it.name.last_known().cloned()),
            pci: device.and_then(|it| it.pci.last_known().cloned()),
            memory: device.and_then(memory),
            is_unified: device.is_some_and(|it| it.memory_unified),
            usage: usage.clone(),
        };
        (id.clone(), told)
    })
    .collect()
}

#[cfg(test)]
mod tests;
