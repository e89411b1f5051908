//! Which processes use which devices: those that a driver lists, and those that
//! have a device's own file open. Who has only files open that all devices share
//! uses none.

use super::Candidate;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{HeldDevice, Holder, ProcessState};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Everybody who uses a device. A second look asks this of each target, and in a
/// wider scope of all of them.
#[must_use]
pub fn users(snapshot: &Snapshot, holders: &[HeldDevice]) -> BTreeSet<ProcessKey> {
    usage(snapshot, holders).into_keys().into_set()
}

/// What one process does with devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage<'a> {
    /// What drivers list of it.
    pub(super) listed: Vec<&'a GpuProcess>,
    /// What it has open.
    pub(super) open: Vec<&'a Holder>,
    /// The memory that it holds of each device, in parts where the device has
    /// some.
    pub(super) memory: BTreeMap<&'a DeviceId, Vec<&'a Reading<Bytes>>>,
}

/// What each process does with devices. Of one that is listed and is no process
/// here, the start is not known: it is not among them.
pub(super) fn usage<'a>(
    snapshot: &'a Snapshot,
    holders: &'a [HeldDevice],
) -> BTreeMap<ProcessKey, Usage<'a>> {
    let mut found: BTreeMap<ProcessKey, Usage<'a>> = BTreeMap::new();
    for process in &snapshot.processes {
        let Some(key) = process.key() else { continue };
        let usage = found.entry(key).or_default();
        usage.listed.push(process);
        let parts = usage.memory.entry(&process.device).or_default();
        parts.push(&process.memory);
    }
    for device in holders {
        for holder in device.holders.iter().filter(|holder| uses(holder)) {
            let Some(start_ticks) = holder.start_ticks.known().copied() else {
                continue;
            };
            let pid = holder.pid;
            let usage = found.entry(ProcessKey { pid, start_ticks }).or_default();
            usage.open.push(holder);
            let parts = usage.memory.entry(&device.id).or_default();
            // What the driver lists is in the snapshot too.
            if parts.is_empty() {
                parts.push(&holder.memory);
            }
        }
    }
    found
}

fn uses(holder: &Holder) -> bool {
    holder.listed || holder.holds_this_device || holder.shares_with.is_some()
}

/// Whether it has ended as a whole. One whose first thread alone has ended is
/// called a zombie by the kernel too, and still has files open.
pub(super) fn is_zombie(process: &Candidate, usage: Option<&Usage<'_>>) -> bool {
    let has_files = |usage: &Usage<'_>| usage.open.iter().any(|holder| !holder.holds.is_empty());
    process.state == ProcessState::Zombie && !usage.is_some_and(has_files)
}
