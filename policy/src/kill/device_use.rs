//! Determines which processes use which devices: processes that a driver lists, and
//! processes that have the file of a device open. A process that has only shared files
//! open uses none.

use super::ProcessInfo;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{DeviceHolders, Holder, ProcessState};
use gpukill_proto::model::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Returns every process that uses a device. The recheck looks up each target here, and
/// in a wider scope all targets.
#[must_use]
pub fn device_users(snapshot: &Snapshot, holders: &[DeviceHolders]) -> BTreeSet<ProcessKey> {
    device_use(snapshot, holders).into_keys().into_set()
}

#[derive(Debug, Clone, Default)]
pub(super) struct ProcessDeviceUse<'a> {
    /// Its entries in the lists of drivers.
    pub(super) listed: Vec<&'a GpuProcess>,
    /// Its open device files.
    pub(super) open: Vec<&'a Holder>,
    /// The memory that it holds on each device, in parts where the device has
    /// instances.
    pub(super) memory: BTreeMap<&'a DeviceId, Vec<&'a Reading<Bytes>>>,
}

/// Returns the device use of each process. A listed process that does not exist here
/// has no known start time and is left out.
pub(super) fn device_use<'a>(
    snapshot: &'a Snapshot,
    holders: &'a [DeviceHolders],
) -> BTreeMap<ProcessKey, ProcessDeviceUse<'a>> {
    let mut found: BTreeMap<ProcessKey, ProcessDeviceUse<'a>> = BTreeMap::new();
    for process in &snapshot.processes {
        let Some(key) = process.key() else { continue };
        let usage = found.entry(key).or_default();
        usage.listed.push(process);
        let parts = usage.memory.entry(&process.device).or_default();
        parts.push(&process.memory);
    }
    for device in holders {
        for holder in device.holders.iter().filter(|holder| uses_device(holder)) {
            let Some(start_ticks) = holder.start_ticks.known().copied() else {
                continue;
            };
            let pid = holder.pid;
            let usage = found.entry(ProcessKey { pid, start_ticks }).or_default();
            usage.open.push(holder);
            let parts = usage.memory.entry(&device.id).or_default();
            // Listed memory is in the snapshot already.
            if parts.is_empty() {
                parts.push(&holder.memory);
            }
        }
    }
    found
}

fn uses_device(holder: &Holder) -> bool {
    holder.listed || holder.holds_this_device || holder.shares_with.is_some()
}

/// Whether the whole process has ended. The kernel also reports a zombie where only the
/// first thread has ended; such a process still has files open.
pub(super) fn is_zombie(process: &ProcessInfo, usage: Option<&ProcessDeviceUse<'_>>) -> bool {
    let has_files =
        |usage: &ProcessDeviceUse<'_>| usage.open.iter().any(|holder| !holder.holds.is_empty());
    process.state == ProcessState::Zombie && !usage.is_some_and(has_files)
}
