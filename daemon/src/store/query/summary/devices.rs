//! Sums up device usage: of each device, and of all devices by hour, day and week.

use super::super::super::blob::DecodedUsage;
use super::super::filter::QueryScope;
use super::local_hours::{HourSplit, combine};
use gpukill_policy::usage::{DeviceUsage, Gauge};
use gpukill_proto::audit::{DeviceTime, UsageTimes};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct DeviceSums {
    devices: BTreeMap<i64, DeviceSum>,
    hours: [UsageTimes; 24],
    days: [UsageTimes; 7],
    weeks: BTreeMap<i64, UsageTimes>,
}

#[derive(Default)]
struct DeviceSum {
    index: u32,
    times: UsageTimes,
    max_memory: Option<(u64, Timestamp)>,
    hottest: Option<i32>,
    power: Gauge,
}

pub(super) struct DeviceTimes {
    pub(super) devices: Vec<DeviceTime>,
    pub(super) hours: Vec<UsageTimes>,
    pub(super) days: Vec<UsageTimes>,
    /// By Monday.
    pub(super) weeks: BTreeMap<i64, UsageTimes>,
}

impl DeviceSums {
    pub(super) fn add(&mut self, scope: &QueryScope<'_>, row: &DecodedUsage, split: &HourSplit) {
        let mut all = UsageTimes::default();
        for (id, usage) in &row.devices {
            if scope.devices.contains(id) {
                let sum = self.devices.entry(*id).or_default();
                sum.add(usage, row.from);
                all = add_times(all, usage_times(usage));
            }
        }
        for (slot, times) in split.divide(all) {
            let sums = [
                self.hours.get_mut(slot.hour),
                self.days.get_mut(slot.day),
                Some(self.weeks.entry(slot.monday).or_default()),
            ];
            for sum in sums.into_iter().flatten() {
                *sum = add_times(*sum, times);
            }
        }
    }

    pub(super) fn finish(self, scope: &QueryScope<'_>) -> DeviceTimes {
        let sums = self.devices.into_iter();
        let mut devices: Vec<DeviceTime> = sums
            .map(|(id, sum)| sum.into_device_time(scope, id))
            .collect();
        devices.sort_indirect_by_key(|it| it.index);
        DeviceTimes {
            devices,
            hours: self.hours.to_vec(),
            days: self.days.to_vec(),
            weeks: self.weeks,
        }
    }
}

impl DeviceSum {
    fn add(&mut self, usage: &DeviceUsage, at: Timestamp) {
        self.index = usage.index;
        self.times = add_times(self.times, usage_times(usage));
        if let Some(max_memory) = usage.memory.max
            && self
                .max_memory
                .is_none_or(|(before, _)| max_memory > before)
        {
            self.max_memory = Some((max_memory, at));
        }
        self.hottest = self.hottest.max(usage.hottest);
        self.power.merge(&usage.power);
    }

    fn into_device_time(self, scope: &QueryScope<'_>, id: i64) -> DeviceTime {
        let stored = scope.all_devices.get(&id);
        let is_known = self.power.known_ms > 0;
        DeviceTime {
            device: DeviceId(stored.map_or_else(String::new, |it| it.uuid.clone())),
            index: self.index,
            name: stored.and_then(|it| it.name.clone()),
            times: self.times,
            memory_max: self.max_memory.map(|(max_memory, _)| Bytes(max_memory)),
            memory_max_at: self.max_memory.map(|(_, at)| at),
            hottest: self.hottest,
            energy_j: is_known.then(|| joules(self.power.total)),
        }
    }
}

/// Converts milliwatts × milliseconds to joules, rounded.
fn joules(total: u128) -> u64 {
    const JOULE: u128 = 1_000_000;
    u64::try_from(total.saturating_add(JOULE / 2) / JOULE).unwrap_or(u64::MAX)
}

const fn usage_times(usage: &DeviceUsage) -> UsageTimes {
    UsageTimes {
        busy_ms: usage.busy_ms,
        held_ms: usage.held_ms,
        free_ms: usage.free_ms,
        unknown_ms: usage.unknown_ms,
    }
}

fn add_times(one: UsageTimes, other: UsageTimes) -> UsageTimes {
    combine(one, other, u64::saturating_add)
}
