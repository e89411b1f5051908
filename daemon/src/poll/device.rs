//! Builds one device of a snapshot from its backend's readings.

use super::assemble::aged;
use crate::backend::{DeviceReadings, MemoryReadings};
use gpukill_policy::memory::{combined_memory, unattributed_memory};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::{Device, GpuEvent, GpuProcess, Instance, Loss, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// The facts that earlier polls know of a device.
pub(super) struct DeviceHistory {
    pub(super) host_memory: Option<Bytes>,
    pub(super) loss: Option<Loss>,
    pub(super) last_xid: Option<GpuEvent>,
}

/// The device with its processes, `age` seconds after it was read.
pub(super) fn build_device(
    read: &DeviceReadings,
    index: u32,
    rows: &[GpuProcess],
    age: Option<u32>,
    remembered: DeviceHistory,
) -> Device {
    let memory = device_memory(read, remembered.host_memory);
    let instances = read.instances.iter().map(|part| Instance {
        id: part.id,
        uuid: part.uuid.clone(),
        profile: part.profile.clone(),
        memory_total: aged(&part.memory.total, age),
        memory_used: aged(&part.memory.used, age),
        process_count: {
            let here = rows.iter().filter(|row| row.instance == Some(part.id));
            aged(&count_processes(read, here), age)
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
        memory_unattributed: aged(&device_unattributed(read, &memory), age),
        memory_unified: memory.unified,
        vitals: match age {
            Some(seconds @ 1..) => read.vitals.clone().aged(seconds),
            Some(0) | None => read.vitals.clone(),
        },
        instances: instances.collect(),
        process_count: aged(&count_processes(read, rows), age),
        last_xid: remembered.last_xid,
        lost: remembered.loss,
    }
}

/// The memory of a device. A device that shares the host's memory and reports no size has the size
/// of the host's memory, and uses what its processes hold. Reported values are never replaced.
fn device_memory(read: &DeviceReadings, host: Option<Bytes>) -> MemoryReadings {
    let own = &read.memory;
    let tells = own.total != Reading::Unsupported || own.used != Reading::Unsupported;
    if !own.unified || tells {
        return own.clone();
    }
    MemoryReadings {
        total: host.map_or_else(
            || Reading::Failed("the size of the host's memory is not known".into()),
            Reading::Value,
        ),
        used: match (&read.processes, &read.incomplete_reason) {
            // The sum over an incomplete list would be too small, and without a list it would be a
            // false zero.
            (Reading::Value(_), Some(incomplete)) => Reading::Failed(incomplete.clone()),
            (Reading::Value(listed), None) => combined_memory(read.held_memory(listed)),
            (unknown, _) => unknown.as_unknown(),
        },
        ..own.clone()
    }
}

/// The used memory that no process explains.
fn device_unattributed(read: &DeviceReadings, memory: &MemoryReadings) -> Reading<Bytes> {
    // In memory that is shared with the host, the driver's own use is not reported apart. An NVIDIA
    // driver that does not report reserved memory counts it as used.
    let reserved_is_used = read.vendor == Vendor::Nvidia && memory.reserved == Reading::Unsupported;
    if memory.unified || reserved_is_used {
        return memory.used.as_unknown();
    }
    if let Some(incomplete) = &read.incomplete_reason {
        return Reading::Failed(incomplete.clone());
    }
    match &read.processes {
        // The list as it was read, with processes that have ended since: the device's used memory
        // is from the same moment.
        Reading::Value(listed) => {
            unattributed_memory(&memory.used, &memory.total, read.held_memory(listed))
        }
        Reading::Unsupported => Reading::Unsupported,
        Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
            Reading::Failed("the list of processes failed".into())
        }
    }
}

/// Counts processes. A failed list is not an empty one. A process may be in several parts of a
/// device.
fn count_processes<'a>(
    read: &DeviceReadings,
    rows: impl IntoIterator<Item = &'a GpuProcess>,
) -> Reading<u32> {
    if let Some(incomplete) = &read.incomplete_reason {
        return Reading::Failed(incomplete.clone());
    }
    let pids: BTreeSet<u32> = rows.into_iter().map(|row| row.pid).into_set();
    let count = u32::try_from(pids.len()).unwrap_or(u32::MAX);
    match &read.processes {
        Reading::Value(_) => Reading::Value(count),
        unknown => unknown.as_unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::DeviceId;

    const GIB: u64 = 1 << 30;

    /// A device with 60 of 80 GiB used and no listed process.
    fn read(incomplete: Option<&str>) -> DeviceReadings {
        let id = DeviceId("0000:03:00.0".into());
        DeviceReadings {
            memory: MemoryReadings {
                total: Reading::Value(Bytes(80 * GIB)),
                used: Reading::Value(Bytes(60 * GIB)),
                reserved: Reading::Value(Bytes(0)),
                unified: false,
            },
            processes: Reading::Value(Vec::new()),
            incomplete_reason: incomplete.map(str::to_owned),
            ..DeviceReadings::unknown(id, 0, Vendor::Amd, &Reading::Unsupported)
        }
    }

    fn shown(read: &DeviceReadings) -> (Reading<Bytes>, Reading<u32>) {
        let remembered = DeviceHistory {
            host_memory: None,
            loss: None,
            last_xid: None,
        };
        let device = build_device(read, 0, &[], None, remembered);
        (device.memory_unattributed, device.process_count)
    }

    #[test]
    fn incomplete_list_leaves_unattributed_unknown() {
        let nobodys = (Reading::Value(Bytes(60 * GIB)), Reading::Value(0));
        assert_eq!(shown(&read(None)), nobodys);
        let why = "not permitted";
        let unknown = (Reading::Failed(why.into()), Reading::Failed(why.into()));
        assert_eq!(shown(&read(Some(why))), unknown);
    }

    #[test]
    fn shared_memory_falls_back_to_processes() {
        let memory_of = |used, processes, incomplete: Option<&str>| {
            let read = DeviceReadings {
                memory: MemoryReadings {
                    used,
                    ..MemoryReadings::shared_with_host()
                },
                processes,
                ..read(incomplete)
            };
            let memory = device_memory(&read, Some(Bytes(16 * GIB)));
            (memory.used, memory.total)
        };
        let no_processes = || Reading::Value(Vec::new());
        let failed = || Reading::Failed("999".to_owned());
        let hosts = || Reading::Value(Bytes(16 * GIB));
        // It reports its used memory although no process is listed, but not its total.
        let held = || Reading::Value(Bytes(GIB));
        let own = memory_of(held(), no_processes(), None);
        assert_eq!(own, (held(), Reading::Unsupported));
        let failing = memory_of(Reading::Failed("999".into()), no_processes(), None);
        assert_eq!(
            failing,
            (Reading::Failed("999".into()), Reading::Unsupported)
        );
        let silent = |processes, incomplete| memory_of(Reading::Unsupported, processes, incomplete);
        let sum = |used| (used, hosts());
        assert_eq!(silent(no_processes(), None), sum(Reading::Value(Bytes(0))));
        assert_eq!(silent(failed(), None), sum(Reading::Failed("999".into())));
        let unsure = Reading::Failed("not permitted".into());
        assert_eq!(silent(no_processes(), Some("not permitted")), sum(unsure));
        let unlisted = silent(Reading::Unsupported, None);
        assert_eq!(unlisted, sum(Reading::Unsupported));
    }

    #[test]
    fn without_list_unattributed_is_unknown() {
        let failed = DeviceReadings {
            processes: Reading::Failed("999".into()),
            ..read(None)
        };
        let unknown = Reading::Failed("the list of processes failed".into());
        assert_eq!(shown(&failed), (unknown, Reading::Failed("999".into())));
    }
}
