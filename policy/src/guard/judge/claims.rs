//! Notes since when each job has claimed what it holds of each device.

use super::super::memory::JobMemory;
use super::super::memory::claim::Claim;
use super::scene::{Job, Scene, is_known};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What a job holds of a device at the end of a bucket.
struct Holding {
    bytes: u64,
    processes: BTreeSet<(u32, u64)>,
    /// All of it was read.
    is_known: bool,
    first_seen: Timestamp,
}

pub(super) fn remember(known: &mut JobMemory, scene: &Scene<'_>, job: &Job) {
    let mut holdings: BTreeMap<&DeviceId, Holding> = BTreeMap::new();
    for run in &job.runs {
        let run = &scene.runs[*run];
        let usage = &run.judged.usage;
        if !run.judged.is_present {
            continue;
        }
        let holding = holdings.entry(&run.key.device).or_insert(Holding {
            bytes: 0,
            processes: BTreeSet::new(),
            is_known: true,
            first_seen: run.judged.first_seen,
        });
        // Over the time that it was there: one that came within the bucket did not grow.
        let bytes = usage.memory.mean().unwrap_or(0);
        holding.bytes = holding.bytes.saturating_add(bytes);
        holding.processes.insert((run.key.pid, run.key.start_ticks));
        holding.is_known &= is_known(&usage.memory, usage.held_ms);
        holding.first_seen = holding.first_seen.min(run.judged.first_seen);
    }
    let is_left = |device: &DeviceId| {
        let is_there = scene.bucket.devices.contains_key(device);
        is_there && !holdings.contains_key(device)
    };
    for (device, claim) in &mut known.claims {
        if is_left(device) {
            claim.update(0, 0, scene.bucket.until);
        }
    }
    for (device, holding) in holdings {
        // What is not read is no less, and no more.
        if !holding.is_known {
            continue;
        }
        let processes = holding.processes.len() as u64;
        match known.claims.get_mut(device) {
            Some(claim) => claim.update(holding.bytes, processes, scene.bucket.until),
            None => {
                // One that was away has nothing left of what it claimed before.
                let since = holding.first_seen.max(scene.bucket.from);
                let claim = Claim::starting(holding.bytes, processes, since);
                known.claims.insert(device.clone(), claim);
            }
        }
    }
}
