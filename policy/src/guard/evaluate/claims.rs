//! Tracks since when each job has claimed what it holds of each device.

use super::super::state::JobState;
use super::super::state::claim::Claim;
use super::context::{EvaluatedJob, EvaluationContext, is_known};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The share of a device that a job holds at the end of a sample.
struct DeviceHolding {
    bytes: u64,
    processes: BTreeSet<(u32, u64)>,
    /// Whether all of its memory was read.
    is_known: bool,
    first_seen: Timestamp,
}

pub(super) fn update_claims(
    known: &mut JobState,
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
) {
    let mut holdings: BTreeMap<&DeviceId, DeviceHolding> = BTreeMap::new();
    for run in &job.runs {
        let run = &context.runs[*run];
        let usage = &run.sample.usage;
        if !run.sample.is_present {
            continue;
        }
        let holding = holdings.entry(&run.key.device).or_insert(DeviceHolding {
            bytes: 0,
            processes: BTreeSet::new(),
            is_known: true,
            first_seen: run.sample.first_seen,
        });
        // The mean over the time that the process was present: a process that started
        // within the sample did not grow.
        let bytes = usage.memory.mean().unwrap_or(0);
        holding.bytes = holding.bytes.saturating_add(bytes);
        holding.processes.insert((run.key.pid, run.key.start_ticks));
        holding.is_known &= is_known(&usage.memory, usage.held_ms);
        holding.first_seen = holding.first_seen.min(run.sample.first_seen);
    }
    let is_left = |device: &DeviceId| {
        let is_there = context.sample.devices.contains_key(device);
        is_there && !holdings.contains_key(device)
    };
    for (device, claim) in &mut known.claims {
        if is_left(device) {
            claim.update(0, 0, context.sample.until);
        }
    }
    for (device, holding) in holdings {
        // An unread amount is neither less nor more.
        if !holding.is_known {
            continue;
        }
        let processes = holding.processes.len() as u64;
        match known.claims.get_mut(device) {
            Some(claim) => claim.update(holding.bytes, processes, context.sample.until),
            None => {
                // A job that was away keeps nothing of its earlier claim.
                let since = holding.first_seen.max(context.sample.from);
                let claim = Claim::new(holding.bytes, processes, since);
                known.claims.insert(device.clone(), claim);
            }
        }
    }
}
