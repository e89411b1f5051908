//! Sums over a period.

use crate::model::{DeviceId, Owner};
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

/// Sums over a period. Hours and days are local time of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSummary {
    /// The start of the period: the requested time, or the first sample after it.
    pub since: Timestamp,
    /// The end of the period.
    pub until: Timestamp,
    /// The usage of each device, by index.
    pub devices: Vec<DeviceTime>,
    /// The usage of each owner, the longest holders first. The time on one device counts once,
    /// however many processes the owner had.
    pub owners: Vec<OwnerTime>,
    /// The number of omitted owners.
    pub more_owners: u32,
    /// The usage of each kind of process, the longest first.
    pub processes: Vec<ProcessTime>,
    /// The number of omitted kinds of processes.
    pub more_processes: u32,
    /// The hours of the day from midnight on: 24 entries.
    pub hours: Vec<UsageTimes>,
    /// The days of the week from Monday on: 7 entries.
    pub days: Vec<UsageTimes>,
    /// The weeks, the oldest first.
    pub weeks: Vec<WeekTime>,
    /// Periods without samples, the oldest first; the longest hundred.
    pub gaps: Vec<Gap>,
}

/// Device time in milliseconds, of one device or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTimes {
    /// Held and at work.
    pub busy_ms: u64,
    /// Held and not at work.
    pub held_ms: u64,
    /// Held by no process.
    pub free_ms: u64,
    /// Held, and it is unknown whether at work.
    pub unknown_ms: u64,
}

impl UsageTimes {
    /// The sum of all four.
    #[must_use]
    pub const fn total_ms(&self) -> u64 {
        let held = self.busy_ms.saturating_add(self.held_ms);
        held.saturating_add(self.free_ms)
            .saturating_add(self.unknown_ms)
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            busy_ms: self.busy_ms.saturating_add(other.busy_ms),
            held_ms: self.held_ms.saturating_add(other.held_ms),
            free_ms: self.free_ms.saturating_add(other.free_ms),
            unknown_ms: self.unknown_ms.saturating_add(other.unknown_ms),
        }
    }
}

impl AuditSummary {
    /// The time of all devices.
    #[must_use]
    pub fn total_times(&self) -> UsageTimes {
        let times = self.devices.iter().map(|device| device.times);
        times.fold(UsageTimes::default(), UsageTimes::plus)
    }
}

/// The usage of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTime {
    /// The device.
    pub device: DeviceId,
    /// The last known index.
    pub index: u32,
    /// The name.
    pub name: Option<String>,
    /// The device time.
    pub times: UsageTimes,
    /// The largest amount of its memory that was held.
    pub memory_max: Option<Bytes>,
    /// The time of the hour, minute or sample with that amount.
    pub memory_max_at: Option<Timestamp>,
    /// The highest temperature in degrees Celsius.
    pub hottest: Option<i32>,
    /// The energy used, in joules; `None` if power was never known.
    pub energy_j: Option<u64>,
}

/// Time on devices and memory held, of one owner or one kind of process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Device time at work, in milliseconds.
    pub busy_ms: u64,
    /// Device time held and not at work: waste.
    pub idle_ms: u64,
    /// Device time held, and it is unknown whether at work.
    pub unknown_ms: u64,
    /// Memory over time in MiB × seconds.
    pub memory_mib_s: u64,
    /// The largest amount of memory that one process held on one device.
    pub memory_max: Option<Bytes>,
    /// The number of processes, each counted once for each device.
    pub runs: u64,
}

impl UsageTotals {
    /// The sum of all three.
    #[must_use]
    pub const fn total_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }

    /// The idle share of the time with a known state, from 0 to 1; `None` if there is none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
    pub fn idle_share(&self) -> Option<f64> {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        (known > 0).then(|| self.idle_ms as f64 / known as f64)
    }

    /// Memory over time in GiB × hours.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "2^53 MiB·s are 2 million TiB·h")]
    pub fn memory_gib_hours(&self) -> f64 {
        self.memory_mib_s as f64 / (1024.0 * 3600.0)
    }
}

/// The usage of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerTime {
    /// The owner; `None` for processes with an unknown owner.
    pub owner: Option<Owner>,
    /// The usage.
    pub used: UsageTotals,
}

/// The usage of one kind of process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTime {
    /// The program and script, or the name of the process if the caller may not see command
    /// lines: `python train.py`.
    pub label: String,
    /// The usage.
    pub used: UsageTotals,
}

/// The usage of one week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeekTime {
    /// The Monday of the week: `2026-11-16`.
    pub monday: String,
    /// The time of all devices.
    pub times: UsageTimes,
    /// The owner with the longest time, and that time in milliseconds.
    pub top_owner: Option<(String, u64)>,
}

/// A period without samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The time of the last sample before it.
    pub from: Timestamp,
    /// The time of the first sample after it.
    pub until: Timestamp,
}
