//! The order of devices and processes that `--sort` requests.

use crate::output::list::view::Rows;
use crate::settings::SortKey;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{Device, GpuProcess};
use gpukill_proto::reading::Reading;
use std::cmp::Reverse;

/// Known values come first, the greatest number and the first text of the alphabet before others.
type Rank = (bool, Reverse<i64>, String);

/// Whether the rows of this table have the value.
pub(super) fn applies_to(key: SortKey, rows: Rows) -> bool {
    match key {
        SortKey::User | SortKey::Pid | SortKey::Time | SortKey::Idle | SortKey::Cpu => {
            rows == Rows::Processes
        }
        SortKey::Temp | SortKey::Power | SortKey::Procs => rows == Rows::Gpus,
        SortKey::Memory | SortKey::Util | SortKey::Name => true,
    }
}

/// Sorts devices; the order of those with equal values stays.
pub(super) fn sort_devices(devices: &mut [Device], key: SortKey) {
    devices.sort_indirect_by_key(|device| {
        let vitals = &device.vitals;
        match key {
            SortKey::Memory => number(&device.memory_used, |bytes| signed(bytes.0)),
            SortKey::Util => number(&vitals.utilization, |percent| percent.0.into()),
            SortKey::Temp => number(&vitals.temperature, |celsius| celsius.0.into()),
            SortKey::Power => number(&vitals.power, |power| signed(power.0)),
            SortKey::Procs => number(&device.process_count, |count| (*count).into()),
            SortKey::Name => text(device.name.last_known()),
            SortKey::User | SortKey::Pid | SortKey::Time | SortKey::Idle | SortKey::Cpu => {
                Rank::default()
            }
        }
    });
}

/// Sorts processes; the order of those with equal values stays.
pub(super) fn sort_processes(processes: &mut [GpuProcess], key: SortKey) {
    processes.sort_indirect_by_key(|process| match key {
        SortKey::Memory => number(&process.memory, |bytes| signed(bytes.0)),
        SortKey::Util => number(&process.utilization, |percent| percent.0.into()),
        SortKey::Cpu => number(&process.cpu, |percent| percent.0.into()),
        SortKey::Pid => rank(Some(-i64::from(process.pid))),
        // The earliest moment is the longest time.
        SortKey::Time => number(&process.first_seen, |at| -at.0),
        SortKey::Idle => {
            let first_seen = process.first_seen.last_known();
            let idle_since = process.last_active.last_known();
            let idle_since = idle_since.and_then(|at| at.as_ref().or(first_seen));
            rank(idle_since.map(|at| -at.0))
        }
        SortKey::Name => text(process.name.last_known()),
        SortKey::User => {
            let owner = process.owner.last_known().map(|owner| &owner.name);
            text(owner.or(process.user.last_known()))
        }
        SortKey::Temp | SortKey::Power | SortKey::Procs => Rank::default(),
    });
}

fn number<T>(value: &Reading<T>, number: impl FnOnce(&T) -> i64) -> Rank {
    rank(value.last_known().map(number))
}

fn rank(number: Option<i64>) -> Rank {
    let known = number.unwrap_or_default();
    (number.is_none(), Reverse(known), String::new())
}

fn text(value: Option<&String>) -> Rank {
    let known = value.cloned().unwrap_or_default();
    (value.is_none(), Reverse(0), known)
}

/// Greater numbers than `i64` has are the greatest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::snapshot;

    #[test]
    fn devices_have_the_requested_order() {
        let order = |key| {
            let mut devices = snapshot().devices;
            sort_devices(&mut devices, key);
            let indices = devices.iter().map(|device| device.index);
            indices.take(3).collect::<Vec<_>>()
        };
        assert_eq!(order(SortKey::Memory), [0, 5, 9]);
        assert_eq!(order(SortKey::Util), [0, 1, 2]);
        assert_eq!(order(SortKey::Procs), [1, 0, 8]);
        assert_eq!(order(SortKey::Pid), [0, 1, 2]);
    }

    #[test]
    fn processes_have_the_requested_order() {
        let order = |key| {
            let mut processes = snapshot().processes;
            sort_processes(&mut processes, key);
            let pids = processes.iter().map(|process| process.pid);
            pids.take(3).collect::<Vec<_>>()
        };
        assert_eq!(order(SortKey::Memory), [51_002, 1_300, 777]);
        assert_eq!(order(SortKey::Pid), [777, 909, 1_300]);
        // Processes without a known user come last.
        assert_eq!(order(SortKey::User)[..2], [48_213, 48_214]);
        assert_eq!(order(SortKey::Util), [48_214, 48_216, 48_213]);
    }
}
