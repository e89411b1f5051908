//! How much of the memory of ended processes is free again. The device's own sum
//! does not say: others may take or free memory meanwhile.

use crate::memory::held_at_least;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::HeldDevice;
use gpukill_proto::kill::MemoryReturn;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// What came back of each device that the ended ones held, between the snapshot
/// before the first signal and a later one: what they held, without what is still
/// listed as theirs and without what is unattributed now and was not before. Of a
/// device that one of them had open without being listed, what nobody explained
/// before counts as theirs. How long that took is not said here.
#[must_use]
pub fn returned(
    ended: &BTreeSet<ProcessKey>,
    survivors: &BTreeSet<ProcessKey>,
    before: &Snapshot,
    open: &[HeldDevice],
    now: &Snapshot,
) -> Vec<MemoryReturn> {
    let devices = before.devices.iter();
    let each = devices.filter_map(|device| {
        let listed = memories(before, &device.id, |process| is_one_of(process, ended));
        let unlisted = unlisted(ended, device, open).unwrap_or(Bytes(0));
        if listed.is_empty() && unlisted == Bytes(0) {
            return None;
        }
        let held = listed.into_iter().cloned();
        let held =
            held_at_least(held.chain((unlisted > Bytes(0)).then_some(Reading::Value(unlisted))));
        Some(MemoryReturn {
            device: device.id.clone(),
            index: device.index,
            returned: of_device(&held, unlisted, ended, device, now),
            held,
            after_ms: None,
            still_held_by: holders(now, &device.id, survivors),
        })
    });
    each.collect()
}

/// What nobody explained of a device that one of the ended had open without being
/// listed: it may have been theirs, and comes back if it was.
fn unlisted(ended: &BTreeSet<ProcessKey>, device: &Device, open: &[HeldDevice]) -> Option<Bytes> {
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

/// Whether all that was held is free again, as far as that is known.
#[must_use]
pub fn is_back(memory: &MemoryReturn) -> bool {
    memory.held.known().is_some() && memory.returned == memory.held
}

fn of_device(
    held: &Reading<Bytes>,
    unlisted: Bytes,
    ended: &BTreeSet<ProcessKey>,
    before: &Device,
    now: &Snapshot,
) -> Reading<Bytes> {
    let Some(all) = held.known() else {
        return held.because();
    };
    let Some(device) = now.devices.iter().find(|device| device.id == before.id) else {
        return Reading::Failed("the device is not there".into());
    };
    let mut missing = 0u64;
    for memory in memories(now, &device.id, |process| is_still(process, ended)) {
        match memory {
            Reading::Value(bytes) => missing = missing.saturating_add(bytes.0),
            Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
                return Reading::Failed("what is still listed as theirs is not known".into());
            }
        }
    }
    let unattributed = match &device.memory_unattributed {
        Reading::Value(bytes) => bytes.0,
        Reading::Stale(..) => return Reading::Failed("the device was not read since".into()),
        unknown => return unknown.because(),
    };
    // Where it was not known, none of it is taken for having been there.
    let before = before
        .memory_unattributed
        .known()
        .map_or(0, |bytes| bytes.0);
    let others = before.saturating_sub(unlisted.0);
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

fn is_one_of(process: &GpuProcess, keys: &BTreeSet<ProcessKey>) -> bool {
    process.key().is_some_and(|key| keys.contains(&key))
}

/// Whether what a driver lists is one of these, ended or not: of one that is no
/// process any more only the pid is known.
fn is_still(process: &GpuProcess, ended: &BTreeSet<ProcessKey>) -> bool {
    match process.key() {
        Some(key) => ended.contains(&key),
        None => ended.iter().any(|key| key.pid == process.pid),
    }
}

/// Those of these that hold memory of the device, or may.
fn holders(now: &Snapshot, device: &DeviceId, keys: &BTreeSet<ProcessKey>) -> Vec<u32> {
    let holds = |process: &&GpuProcess| {
        process.device == *device
            && process.memory.known() != Some(&Bytes(0))
            && is_one_of(process, keys)
    };
    let pids = now
        .processes
        .iter()
        .filter(holds)
        .map(|process| process.pid);
    let pids: BTreeSet<u32> = pids.into_set();
    pids.into_iter().collect()
}
