//! The recent past of each device: holders that have ended, and since when it is busy without a
//! holder.

use gpukill_proto::collect::{IntoMap as _, IntoSet as _, RetainEntries as _};
use gpukill_proto::holders::EndedHolder;
use gpukill_proto::model::{DeviceId, ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an ended holder is remembered. Its children may hold the memory for much longer; their
/// parents show that they are orphans.
const RETENTION: Duration = Duration::from_secs(600);

/// How many ended holders are remembered per device.
const MAX_PER_DEVICE: usize = 32;

/// A late reading up to this many seconds old shows the state just before the end as well as a
/// reading in time.
const MAX_AGE_BEFORE_END: u32 = 5;

/// The utilization in percent from which a device counts as busy.
const BUSY_PERCENT: u32 = 90;

#[derive(Debug, Default)]
pub(super) struct RecentlyEnded {
    pub(super) ended: BTreeMap<DeviceId, Vec<EndedHolder>>,
    pub(super) busy_without_holder: BTreeMap<DeviceId, Timestamp>,
}

impl RecentlyEnded {
    /// Compares this snapshot with the previous one.
    pub(super) fn update(&mut self, before: &Snapshot, snapshot: &Snapshot, now: Timestamp) {
        let present: BTreeSet<(&DeviceId, ProcessKey)> = snapshot
            .processes
            .iter()
            .filter_map(|row| Some((&row.device, row.key()?)))
            .into_set();
        // Only a fresh list shows that a process has left.
        let reported: BTreeSet<&DeviceId> = snapshot
            .devices
            .iter()
            .filter(|device| device.process_count.known().is_some())
            .map(|device| &device.id)
            .into_set();
        for row in &before.processes {
            let Some(key) = row.key() else { continue };
            if !reported.contains(&row.device) || present.contains(&(&row.device, key)) {
                continue;
            }
            let ended = self.ended.entry(row.device.clone()).or_default();
            ended.retain(|it| it.key != key);
            ended.insert(
                0,
                EndedHolder {
                    key,
                    name: row.name.clone(),
                    user: row.user.clone(),
                    memory: recent_value(&row.memory),
                    unattributed_before: unattributed_before(before, &row.device),
                    at: now,
                },
            );
            ended.truncate(MAX_PER_DEVICE);
        }
        self.ended.retain_entries(|_, ended| {
            ended.retain(|it| now.since(it.at) < RETENTION);
            !ended.is_empty()
        });
        let alone = snapshot.devices.iter().filter(|device| {
            let is_busy = device
                .vitals
                .utilization
                .known()
                .is_some_and(|it| it.0 >= BUSY_PERCENT);
            is_busy && device.process_count.known() == Some(&0)
        });
        let alone = alone.map(|device| {
            let since = self.busy_without_holder.get(&device.id).copied();
            (device.id.clone(), since.unwrap_or(now))
        });
        self.busy_without_holder = alone.into_map();
    }
}

fn unattributed_before(before: &Snapshot, device: &DeviceId) -> Reading<Bytes> {
    let mut devices = before.devices.iter();
    let device = devices.find(|known| known.id == *device);
    device.map_or(Reading::Unsupported, |known| {
        recent_value(&known.memory_unattributed)
    })
}

/// The value just before a process ended.
fn recent_value(reading: &Reading<Bytes>) -> Reading<Bytes> {
    match reading {
        Reading::Stale(bytes, seconds) if *seconds <= MAX_AGE_BEFORE_END => Reading::Value(*bytes),
        Reading::Value(_)
        | Reading::Stale(..)
        | Reading::Unsupported
        | Reading::Failed(_)
        | Reading::Withheld => reading.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{Device, GpuProcess, Vendor};
    use gpukill_proto::units::Percent;

    /// One device with this utilization and these processes of 5 bytes each.
    fn snapshot(utilization: u32, pids: &[u32], count: Reading<u32>) -> Snapshot {
        let id = DeviceId("GPU-0".into());
        let why = Reading::Unsupported;
        let mut device = Device::unknown(id.clone(), 0, Vendor::Nvidia, &why);
        device.vitals.utilization = Reading::Value(Percent(utilization));
        device.process_count = count;
        let row = |pid: &u32| GpuProcess {
            start_ticks: Reading::Value(7),
            memory: Reading::Value(Bytes(5)),
            ..GpuProcess::unknown(id.clone(), *pid, Timestamp(0), &why)
        };
        Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            polls: 1,
            devices: vec![device],
            processes: pids.iter().map(row).collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn listed(pids: &[u32]) -> Snapshot {
        let count = u32::try_from(pids.len()).unwrap();
        snapshot(0, pids, Reading::Value(count))
    }

    fn ended(past: &RecentlyEnded) -> Vec<(u32, i64)> {
        let all = past.ended.values().flatten();
        all.map(|it| (it.key.pid, it.at.0)).collect()
    }

    #[test]
    fn ended_holder_is_remembered_for_a_while() {
        let mut past = RecentlyEnded::default();
        past.update(&listed(&[1, 2]), &listed(&[2]), Timestamp(1_000));
        past.update(&listed(&[2]), &listed(&[]), Timestamp(2_000));
        assert_eq!(ended(&past), [(2, 2_000), (1, 1_000)]);
        past.update(&listed(&[]), &listed(&[]), Timestamp(601_500));
        assert_eq!(ended(&past), [(2, 2_000)]);
    }

    #[test]
    fn leaving_twice_is_remembered_once() {
        let mut past = RecentlyEnded::default();
        past.update(&listed(&[1]), &listed(&[]), Timestamp(1_000));
        past.update(&listed(&[2]), &listed(&[]), Timestamp(2_000));
        past.update(&listed(&[1]), &listed(&[]), Timestamp(3_000));
        assert_eq!(ended(&past), [(1, 3_000), (2, 2_000)]);
    }

    #[test]
    fn keeps_the_last_of_many() {
        let mut past = RecentlyEnded::default();
        let last = u32::try_from(MAX_PER_DEVICE).unwrap() + 5;
        for pid in 1..=last {
            past.update(&listed(&[pid]), &listed(&[]), Timestamp(pid.into()));
        }
        let newest: Vec<(u32, i64)> = (6..=last).rev().map(|pid| (pid, pid.into())).collect();
        assert_eq!(ended(&past), newest);
        // The same when all end at once.
        let all: Vec<u32> = (1_001..=1_000 + last).collect();
        past.update(&listed(&all), &listed(&[]), Timestamp(1_000));
        let pids: Vec<u32> = ended(&past).into_iter().map(|(pid, _)| pid).collect();
        let kept: Vec<u32> = all.into_iter().rev().take(MAX_PER_DEVICE).collect();
        assert_eq!(pids, kept);
    }

    #[test]
    fn failed_list_ends_no_holder() {
        let mut past = RecentlyEnded::default();
        let failed = snapshot(0, &[], Reading::Failed("999".into()));
        past.update(&listed(&[1]), &failed, Timestamp(1_000));
        assert_eq!(ended(&past), []);
    }

    #[test]
    fn slightly_stale_reading_counts() {
        let left = |seconds| {
            let mut before = listed(&[1]);
            before.processes[0].memory = Reading::Stale(Bytes(5), seconds);
            before.devices[0].memory_unattributed = Reading::Stale(Bytes(3), seconds);
            let mut past = RecentlyEnded::default();
            past.update(&before, &listed(&[]), Timestamp(1_000));
            let ended = past.ended.values().flatten().next().unwrap().clone();
            (ended.memory, ended.unattributed_before)
        };
        assert_eq!(
            left(5),
            (Reading::Value(Bytes(5)), Reading::Value(Bytes(3)))
        );
        let old = (Reading::Stale(Bytes(5), 6), Reading::Stale(Bytes(3), 6));
        assert_eq!(left(6), old);
    }

    #[test]
    fn busy_without_holder_restarts_after_a_pause() {
        let mut past = RecentlyEnded::default();
        let before = listed(&[]);
        let mut since = |snapshot: Snapshot, now| {
            past.update(&before, &snapshot, Timestamp(now));
            past.busy_without_holder.values().next().map(|at| at.0)
        };
        let alone = || snapshot(100, &[], Reading::Value(0));
        assert_eq!(since(alone(), 1), Some(1));
        assert_eq!(since(alone(), 2), Some(1));
        assert_eq!(since(snapshot(100, &[9], Reading::Value(1)), 3), None);
        assert_eq!(since(alone(), 4), Some(4));
        assert_eq!(since(snapshot(5, &[], Reading::Value(0)), 5), None);
        assert_eq!(since(snapshot(100, &[], Reading::Unsupported), 6), None);
    }
}
