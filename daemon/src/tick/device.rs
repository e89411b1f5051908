//! One device of a snapshot, from what its backend read.

use super::assemble::aged;
use crate::backend::{DeviceReadings, MemoryReadings};
use gpukill_policy::memory::{held, unattributed};
use gpukill_proto::collect::IntoSet as _;
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
            Some(seconds @ 1..) => read.vitals.clone().aged(seconds),
            Some(0) | None => read.vitals.clone(),
        },
        instances: instances.collect(),
        process_count: aged(&count(read, rows), age),
        last_xid: remembered.last_xid,
        lost: remembered.lost,
    }
}

/// A device that shares the host's memory, and tells nothing of it, has the host's
/// size, and holds what its processes hold. What one tells is never replaced.
fn memory(read: &DeviceReadings, host: Option<Bytes>) -> MemoryReadings {
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
        used: match (&read.processes, &read.unseen) {
            // Of a part of them the sum is too small, and of none it is no zero.
            (Reading::Value(_), Some(unseen)) => Reading::Failed(unseen.clone()),
            (Reading::Value(listed), None) => held(read.held(listed)),
            (unknown, _) => unknown.because(),
        },
        ..own.clone()
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
    let pids: BTreeSet<u32> = rows.into_iter().map(|row| row.pid).into_set();
    let count = u32::try_from(pids.len()).unwrap_or(u32::MAX);
    match &read.processes {
        Reading::Value(_) => Reading::Value(count),
        unknown => unknown.because(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::snapshot::DeviceId;

    const GIB: u64 = 1 << 30;

    /// A device of which 60 of 80 GiB are used, and nobody is listed.
    fn read(unseen: Option<&str>) -> DeviceReadings {
        let id = DeviceId("0000:03:00.0".into());
        DeviceReadings {
            memory: MemoryReadings {
                total: Reading::Value(Bytes(80 * GIB)),
                used: Reading::Value(Bytes(60 * GIB)),
                reserved: Reading::Value(Bytes(0)),
                unified: false,
            },
            processes: Reading::Value(Vec::new()),
            unseen: unseen.map(str::to_owned),
            ..DeviceReadings::unknown(id, 0, Vendor::Amd, &Reading::Unsupported)
        }
    }

    fn shown(read: &DeviceReadings) -> (Reading<Bytes>, Reading<u32>) {
        let remembered = Remembered {
            host_memory: None,
            lost: None,
            last_xid: None,
        };
        let device = device(read, 0, &[], None, remembered);
        (device.memory_unattributed, device.process_count)
    }

    #[test]
    fn while_not_everybody_could_be_looked_at_nobody_knows_what_is_nobodys() {
        let nobodys = (Reading::Value(Bytes(60 * GIB)), Reading::Value(0));
        assert_eq!(shown(&read(None)), nobodys);
        let why = "not permitted";
        let unknown = (Reading::Failed(why.into()), Reading::Failed(why.into()));
        assert_eq!(shown(&read(Some(why))), unknown);
    }

    #[test]
    fn what_a_device_tells_of_a_shared_memory_stands_and_else_its_processes_tell() {
        let told = |used, processes, unseen: Option<&str>| {
            let read = DeviceReadings {
                memory: MemoryReadings {
                    used,
                    ..MemoryReadings::shared_with_host()
                },
                processes,
                ..read(unseen)
            };
            let memory = memory(&read, Some(Bytes(16 * GIB)));
            (memory.used, memory.total)
        };
        let nobody = || Reading::Value(Vec::new());
        let failed = || Reading::Failed("999".to_owned());
        let hosts = || Reading::Value(Bytes(16 * GIB));
        // What it holds it tells, though nobody is listed, and how much it may
        // hold it does not.
        let held = || Reading::Value(Bytes(GIB));
        let own = told(held(), nobody(), None);
        assert_eq!(own, (held(), Reading::Unsupported));
        let asked = told(Reading::Failed("999".into()), nobody(), None);
        assert_eq!(asked, (Reading::Failed("999".into()), Reading::Unsupported));
        let silent = |processes, unseen| told(Reading::Unsupported, processes, unseen);
        let sum = |used| (used, hosts());
        assert_eq!(silent(nobody(), None), sum(Reading::Value(Bytes(0))));
        assert_eq!(silent(failed(), None), sum(Reading::Failed("999".into())));
        let unsure = Reading::Failed("not permitted".into());
        assert_eq!(silent(nobody(), Some("not permitted")), sum(unsure));
        let unlisted = silent(Reading::Unsupported, None);
        assert_eq!(unlisted, sum(Reading::Unsupported));
    }

    #[test]
    fn without_a_list_nothing_is_nobodys() {
        let failed = DeviceReadings {
            processes: Reading::Failed("999".into()),
            ..read(None)
        };
        let unknown = Reading::Failed("the list of processes failed".into());
        assert_eq!(shown(&failed), (unknown, Reading::Failed("999".into())));
    }
}
