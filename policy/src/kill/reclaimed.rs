//! Calculates how much memory of ended processes is free again. The device's own sum is
//! no measure: other processes may allocate or free memory meanwhile.

use crate::memory::{noise_threshold, sum_of_known};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::DeviceHolders;
use gpukill_proto::kill::MemoryReclaim;
use gpukill_proto::model::{Device, DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// Returns the reclaimed memory of each device that the ended processes held, between
/// the snapshot before the first signal and a later one: the memory they held, minus
/// what is still listed for them, minus newly unattributed memory. Where an ended
/// process had the device open without being listed, the memory that was unattributed
/// before counts as its own. The duration is not calculated here.
#[must_use]
pub fn reclaimed_memory(
    ended: &BTreeSet<ProcessKey>,
    survivors: &BTreeSet<ProcessKey>,
    before: &Snapshot,
    open: &[DeviceHolders],
    now: &Snapshot,
) -> Vec<MemoryReclaim> {
    let devices = before.devices.iter();
    let each = devices.filter_map(|device| {
        let listed = memories(before, &device.id, |process| is_process_of(process, ended));
        let unlisted = unlisted_memory(ended, device, open).unwrap_or(Bytes(0));
        if listed.is_empty() && unlisted == Bytes(0) {
            return None;
        }
        let held = listed.into_iter().cloned();
        let held =
            sum_of_known(held.chain((unlisted > Bytes(0)).then_some(Reading::Value(unlisted))));
        Some(MemoryReclaim {
            device: device.id.clone(),
            index: device.index,
            returned: reclaimed_on_device(&held, unlisted, ended, device, now),
            held,
            after_ms: None,
            still_held_by: remaining_holders(now, &device.id, survivors),
        })
    });
    each.collect()
}

/// The unattributed memory of a device that an ended process had open without being
/// listed: it may belong to that process, and is freed with it if it does.
fn unlisted_memory(
    ended: &BTreeSet<ProcessKey>,
    device: &Device,
    open: &[DeviceHolders],
) -> Option<Bytes> {
    let held = open.iter().find(|held| held.id == device.id)?;
    let mut holders = held.holders.iter();
    let is_theirs = holders.any(|holder| {
        let start_ticks = holder.start_ticks.known().copied();
        let key = start_ticks.map(|start_ticks| ProcessKey {
            pid: holder.pid,
            start_ticks,
        });
        !holder.listed && holder.holds_this_device && key.is_some_and(|key| ended.contains(&key))
    });
    let unattributed = device.memory_unattributed.known().copied();
    unattributed.filter(|_| is_theirs)
}

/// Whether all held memory is free again, as far as known.
#[must_use]
pub fn is_reclaimed(memory: &MemoryReclaim) -> bool {
    memory.held.known().is_some() && memory.returned == memory.held
}

fn reclaimed_on_device(
    held: &Reading<Bytes>,
    unlisted: Bytes,
    ended: &BTreeSet<ProcessKey>,
    before: &Device,
    now: &Snapshot,
) -> Reading<Bytes> {
    let Some(all) = held.known() else {
        return held.as_unknown();
    };
    let Some(device) = now.devices.iter().find(|device| device.id == before.id) else {
        return Reading::Failed("the device is gone".into());
    };
    let mut missing = 0u64;
    for memory in memories(now, &device.id, |process| is_still_listed(process, ended)) {
        match memory {
            Reading::Value(bytes) => missing = missing.saturating_add(bytes.0),
            Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
                return Reading::Failed(
                    "the memory still listed for the ended processes is not known".into(),
                );
            }
        }
    }
    let unattributed = match &device.memory_unattributed {
        Reading::Value(bytes) => bytes.0,
        Reading::Stale(..) => return Reading::Failed("the device was not read again".into()),
        unknown => return unknown.as_unknown(),
    };
    // Where the earlier value is unknown, no memory counts as unattributed before.
    let before = before
        .memory_unattributed
        .known()
        .map_or(0, |bytes| bytes.0);
    let others = before.saturating_sub(unlisted.0);
    // Memory below the threshold reads 0, so that little more of another process may read as an
    // increase by all of it.
    let threshold = device.memory_total.known();
    let threshold = threshold.map_or(0, |total| noise_threshold(*total).0);
    if others == 0 && (threshold..2 * threshold).contains(&unattributed) {
        return Reading::Failed("as much may be memory of other processes".into());
    }
    missing = missing.saturating_add(unattributed.saturating_sub(others));
    Reading::Value(Bytes(all.0.saturating_sub(missing)))
}

fn memories<'a>(
    snapshot: &'a Snapshot,
    device: &DeviceId,
    is_such: impl Fn(&GpuProcess) -> bool,
) -> Vec<&'a Reading<Bytes>> {
    let listed = snapshot.processes.iter();
    let such = listed.filter(|process| process.device == *device && is_such(process));
    such.map(|process| &process.memory).collect()
}

fn is_process_of(process: &GpuProcess, keys: &BTreeSet<ProcessKey>) -> bool {
    process.key().is_some_and(|key| keys.contains(&key))
}

/// Whether a listed process is one of the ended ones. Of a listed process that no
/// longer exists, only the pid is known.
fn is_still_listed(process: &GpuProcess, ended: &BTreeSet<ProcessKey>) -> bool {
    match process.key() {
        Some(key) => ended.contains(&key),
        None => ended.iter().any(|key| key.pid == process.pid),
    }
}

/// The processes among `keys` that hold, or may hold, memory of the device.
fn remaining_holders(now: &Snapshot, device: &DeviceId, keys: &BTreeSet<ProcessKey>) -> Vec<u32> {
    let holds = |process: &&GpuProcess| {
        process.device == *device
            && process.memory.known() != Some(&Bytes(0))
            && is_process_of(process, keys)
    };
    let pids = now
        .processes
        .iter()
        .filter(holds)
        .map(|process| process.pid);
    let pids: BTreeSet<u32> = pids.into_set();
    pids.into_iter().collect()
}
