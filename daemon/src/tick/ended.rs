//! What each device remembers of a short past: who held it and has ended, and
//! since when it works for nobody.

use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::EndedHolder;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, ProcessKey, Snapshot};
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So long whoever has ended is remembered. Their children may hold the memory
/// for much longer; that these are orphans shows by their relatives.
const KEEP: Duration = Duration::from_secs(600);

/// So many are remembered of one device.
const MOST: usize = 32;

/// A reading that came late is so many seconds old at most, and tells what was there
/// just before the end as well as one that came in time.
const JUST_BEFORE: u32 = 5;

/// From here on a device counts as busy.
const BUSY: u32 = 90;

/// The memory of devices.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) ended: BTreeMap<DeviceId, Vec<EndedHolder>>,
    pub(super) busy_alone: BTreeMap<DeviceId, Timestamp>,
}

impl Past {
    /// Takes what is different in this snapshot from the one before.
    pub(super) fn follow(&mut self, before: &Snapshot, snapshot: &Snapshot, now: Timestamp) {
        let here: BTreeSet<(&DeviceId, ProcessKey)> = snapshot
            .processes
            .iter()
            .filter_map(|row| Some((&row.device, row.key()?)))
            .into_set();
        // Only a list that came says who is gone.
        let told: BTreeSet<&DeviceId> = snapshot
            .devices
            .iter()
            .filter(|device| device.process_count.known().is_some())
            .map(|device| &device.id)
            .into_set();
        for row in &before.processes {
            let Some(key) = row.key() else { continue };
            if !told.contains(&row.device) || here.contains(&(&row.device, key)) {
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
                    memory: just_before(&row.memory),
                    unexplained_before: unexplained(before, &row.device),
                    at: now,
                },
            );
            ended.truncate(MOST);
        }
        self.ended.retain(|_, ended| {
            ended.retain(|it| now.since(it.at) < KEEP);
            !ended.is_empty()
        });
        let alone = snapshot.devices.iter().filter(|device| {
            let is_busy = device
                .vitals
                .utilization
                .known()
                .is_some_and(|it| it.0 >= BUSY);
            is_busy && device.process_count.known() == Some(&0)
        });
        let alone = alone.map(|device| {
            let since = self.busy_alone.get(&device.id).copied();
            (device.id.clone(), since.unwrap_or(now))
        });
        self.busy_alone = alone.collect();
    }
}

fn unexplained(before: &Snapshot, device: &DeviceId) -> Reading<Bytes> {
    let mut devices = before.devices.iter();
    let device = devices.find(|known| known.id == *device);
    device.map_or(Reading::Unsupported, |known| {
        just_before(&known.memory_unattributed)
    })
}

/// What was known just before somebody ended.
fn just_before(reading: &Reading<Bytes>) -> Reading<Bytes> {
    match reading {
        Reading::Stale(bytes, seconds) if *seconds <= JUST_BEFORE => Reading::Value(*bytes),
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
    use gpukill_proto::snapshot::{Device, GpuProcess, Vendor};
    use gpukill_proto::units::Percent;

    /// One device that works so much, with these processes of 5 bytes each.
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
            tick: 1,
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

    fn ended(past: &Past) -> Vec<(u32, i64)> {
        let all = past.ended.values().flatten();
        all.map(|it| (it.key.pid, it.at.0)).collect()
    }

    #[test]
    fn whoever_has_ended_is_remembered_for_a_while() {
        let mut past = Past::default();
        past.follow(&listed(&[1, 2]), &listed(&[2]), Timestamp(1_000));
        past.follow(&listed(&[2]), &listed(&[]), Timestamp(2_000));
        assert_eq!(ended(&past), [(2, 2_000), (1, 1_000)]);
        past.follow(&listed(&[]), &listed(&[]), Timestamp(601_500));
        assert_eq!(ended(&past), [(2, 2_000)]);
    }

    #[test]
    fn whoever_leaves_a_device_twice_is_remembered_once_as_of_the_last_time() {
        let mut past = Past::default();
        past.follow(&listed(&[1]), &listed(&[]), Timestamp(1_000));
        past.follow(&listed(&[2]), &listed(&[]), Timestamp(2_000));
        past.follow(&listed(&[1]), &listed(&[]), Timestamp(3_000));
        assert_eq!(ended(&past), [(1, 3_000), (2, 2_000)]);
    }

    #[test]
    fn of_many_who_have_ended_the_last_are_remembered() {
        let mut past = Past::default();
        let last = u32::try_from(MOST).unwrap() + 5;
        for pid in 1..=last {
            past.follow(&listed(&[pid]), &listed(&[]), Timestamp(pid.into()));
        }
        let newest: Vec<(u32, i64)> = (6..=last).rev().map(|pid| (pid, pid.into())).collect();
        assert_eq!(ended(&past), newest);
        // The same when they end all at once.
        let all: Vec<u32> = (1_001..=1_000 + last).collect();
        past.follow(&listed(&all), &listed(&[]), Timestamp(1_000));
        let pids: Vec<u32> = ended(&past).into_iter().map(|(pid, _)| pid).collect();
        let kept: Vec<u32> = all.into_iter().rev().take(MOST).collect();
        assert_eq!(pids, kept);
    }

    #[test]
    fn a_list_that_failed_says_of_nobody_that_they_ended() {
        let mut past = Past::default();
        let failed = snapshot(0, &[], Reading::Failed("999".into()));
        past.follow(&listed(&[1]), &failed, Timestamp(1_000));
        assert_eq!(ended(&past), []);
    }

    #[test]
    fn what_was_read_just_before_an_end_is_what_was_there() {
        let left = |seconds| {
            let mut before = listed(&[1]);
            before.processes[0].memory = Reading::Stale(Bytes(5), seconds);
            before.devices[0].memory_unattributed = Reading::Stale(Bytes(3), seconds);
            let mut past = Past::default();
            past.follow(&before, &listed(&[]), Timestamp(1_000));
            let ended = past.ended.values().flatten().next().unwrap().clone();
            (ended.memory, ended.unexplained_before)
        };
        assert_eq!(
            left(5),
            (Reading::Value(Bytes(5)), Reading::Value(Bytes(3)))
        );
        let old = (Reading::Stale(Bytes(5), 6), Reading::Stale(Bytes(3), 6));
        assert_eq!(left(6), old);
    }

    #[test]
    fn busy_alone_counts_from_its_beginning_and_ends_with_a_process_or_a_pause() {
        let mut past = Past::default();
        let before = listed(&[]);
        let mut since = |snapshot: Snapshot, now| {
            past.follow(&before, &snapshot, Timestamp(now));
            past.busy_alone.values().next().map(|at| at.0)
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
