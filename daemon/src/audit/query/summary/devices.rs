//! How devices were used: each one, and all by hour, day and week.

use super::super::super::packed::Unpacked;
use super::super::filter::Scope;
use super::civil::{Split, each};
use gpukill_policy::usage::{DeviceUsage, Gauge};
use gpukill_proto::audit::{DeviceTime, Times};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeMap;

/// What is added up.
#[derive(Default)]
pub(super) struct Devices {
    devices: BTreeMap<i64, Sum>,
    hours: [Times; 24],
    days: [Times; 7],
    weeks: BTreeMap<i64, Times>,
}

#[derive(Default)]
struct Sum {
    index: u32,
    times: Times,
    most: Option<(u64, Timestamp)>,
    hottest: Option<i32>,
    power: Gauge,
}

/// What it comes to.
pub(super) struct DeviceTimes {
    pub(super) devices: Vec<DeviceTime>,
    pub(super) hours: Vec<Times>,
    pub(super) days: Vec<Times>,
    /// By their Mondays.
    pub(super) weeks: BTreeMap<i64, Times>,
}

impl Devices {
    /// Adds a row's devices that are asked for.
    pub(super) fn add(&mut self, scope: &Scope<'_>, row: &Unpacked, split: &Split) {
        let mut all = Times::default();
        for (id, usage) in &row.devices {
            if scope.devices.contains(id) {
                let sum = self.devices.entry(*id).or_default();
                sum.add(usage, row.from);
                all = plus(all, times(usage));
            }
        }
        for (slot, times) in split.share(all) {
            let sums = [
                self.hours.get_mut(slot.hour),
                self.days.get_mut(slot.day),
                Some(self.weeks.entry(slot.monday).or_default()),
            ];
            for sum in sums.into_iter().flatten() {
                *sum = plus(*sum, times);
            }
        }
    }

    pub(super) fn finish(self, scope: &Scope<'_>) -> DeviceTimes {
        let told = self.devices.into_iter();
        let mut devices: Vec<DeviceTime> = told.map(|(id, sum)| sum.told(scope, id)).collect();
        devices.sort_indirect_by_key(|it| it.index);
        DeviceTimes {
            devices,
            hours: self.hours.to_vec(),
            days: self.days.to_vec(),
            weeks: self.weeks,
        }
    }
}

impl Sum {
    fn add(&mut self, usage: &DeviceUsage, at: Timestamp) {
        self.index = usage.index;
        self.times = plus(self.times, times(usage));
        if let Some(most) = usage.memory.most
            && self.most.is_none_or(|(before, _)| most > before)
        {
            self.most = Some((most, at));
        }
        self.hottest = self.hottest.max(usage.hottest);
        self.power.merge(&usage.power);
    }

    fn told(self, scope: &Scope<'_>, id: i64) -> DeviceTime {
        let stored = scope.all_devices.get(&id);
        let is_known = self.power.known_ms > 0;
        DeviceTime {
            device: DeviceId(stored.map_or_else(String::new, |it| it.uuid.clone())),
            index: self.index,
            name: stored.and_then(|it| it.name.clone()),
            times: self.times,
            memory_most: self.most.map(|(most, _)| Bytes(most)),
            memory_most_at: self.most.map(|(_, at)| at),
            hottest: self.hottest,
            energy_j: is_known.then(|| joules(self.power.total)),
        }
    }
}

/// Milliwatts × milliseconds in joules, rounded.
fn joules(total: u128) -> u64 {
    const JOULE: u128 = 1_000_000;
    u64::try_from(total.saturating_add(JOULE / 2) / JOULE).unwrap_or(u64::MAX)
}

const fn times(usage: &DeviceUsage) -> Times {
    Times {
        busy_ms: usage.busy_ms,
        held_ms: usage.held_ms,
        free_ms: usage.free_ms,
        unknown_ms: usage.unknown_ms,
    }
}

fn plus(one: Times, other: Times) -> Times {
    each(one, other, u64::saturating_add)
}
