//! One device of a snapshot, from what its backend read.

use super::assemble::aged;
use crate::backend::{DeviceReadings, MemoryReadings};
use gpukill_policy::memory::{held, unattributed};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, GpuEvent, GpuProcess, Instance, Loss, Vendor};
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// What is known of a device besides its readings.
pub(super) struct Remembered {
    /// How much the box has.
    pub(super) host_memory: Option<Bytes>,
    pub(super) lost: Option<Loss>,
    pub(super) last_xid: Option<GpuEvent>,
}

/// The device, `age` seconds after it was read, with its processes.
pub(super) fn device(
    read: &DeviceReadings,
    index: u32,
    rows: &[GpuProcess],
    age: Option<u32>,
    remembered: Remembered,
) -> Device {
    let memory = memory(read, remembered.host_memory);
    let instances = read.instances.iter().map(|part| Instance {
        id: part.id,
        uuid: part.uuid.clone(),
        profile: part.profile.clone(),
        memory_total: aged(&part.memory.total, age),
        memory_used: aged(&part.memory.used, age),
        process_count: {
            let here = rows.iter().filter(|row| row.instance == Some(part.id));
            aged(&count(read, here), age)
        },
    });
    Device {
        id: read.id.clone(),
        index,
        vendor: read.vendor,
        name: read.name.clone(),
        pci: read.pci.clone(),
        memory_total: aged(&memory.total, age),
        memory_used: aged(&memory.used, age),
        memory_reserved: aged(&memory.reserved, age),
        memory_unattributed: aged(&unexplained(read, &memory), age),
        memory_unified: memory.unified,
        vitals: match age {
            Some(seconds) => read.vitals.clone().aged(seconds),
            None => read.vitals.clone(),
        },
        instances: instances.collect(),
        process_count: aged(&count(read, rows), age),
        last_xid: remembered.last_xid,
        lost: remembered.lost,
    }
}

/// A device that shares the host's memory, and does not tell how much of it, has
/// the host's size, and holds what its processes hold.
fn memory(read: &DeviceReadings, host: Option<Bytes>) -> MemoryReadings {
    if !read.memory.unified || read.memory.total != Reading::Unsupported {
        return read.memory.clone();
    }
    MemoryReadings {
        total: host.map_or_else(
            || Reading::Failed("the size of the host's memory is not known".into()),
            Reading::Value,
        ),
        used: match &read.processes {
            Reading::Value(listed) => held(read.held(listed)),
            unknown => unknown.because(),
        },
        ..read.memory.clone()
    }
}

/// What no process explains of a device's memory.
fn unexplained(read: &DeviceReadings, memory: &MemoryReadings) -> Reading<Bytes> {
    // Of a memory that is shared with the host, what the driver uses itself is
    // not told apart; and an NVIDIA driver that does not tell what it reserves
    // counts that as used.
    let reserved_is_used = read.vendor == Vendor::Nvidia && memory.reserved == Reading::Unsupported;
    if memory.unified || reserved_is_used {
        return memory.used.because();
    }
    if let Some(unseen) = &read.unseen {
        return Reading::Failed(unseen.clone());
    }
    match &read.processes {
        // The list as it was taken, with those that have ended since: the
        // device's used memory is as old.
        Reading::Value(listed) => unattributed(&memory.used, &memory.total, read.held(listed)),
        Reading::Unsupported => Reading::Unsupported,
        Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
            Reading::Failed("the list of processes failed".into())
        }
    }
}

/// A list that could not be had is not an empty one. One process may be in
/// several parts of a device.
fn count<'a>(
    read: &DeviceReadings,
    rows: impl IntoIterator<Item = &'a GpuProcess>,
) -> Reading<u32> {
    if let Some(unseen) = &read.unseen {
        return Reading::Failed(unseen.clone());
    }
    let pids: BTreeSet<u32> = rows.into_iter().map(|row| row.pid).collect();
    let count = u32::try_from(pids.len()).unwrap_or(u32::MAX);
    match &read.processes {
        Reading::Value(_) => Reading::Value(count),
        unknown => unknown.because(),
    }
}
