//! What a stretch of the past comes to, in sums.

use crate::snapshot::{DeviceId, Owner};
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

/// What a stretch of the past comes to. Hours and days are the box's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSummary {
    /// The first moment that is told of: that asked for, or the first sample
    /// after it.
    pub since: Timestamp,
    /// The last.
    pub until: Timestamp,
    /// How each device was used, by its index.
    pub devices: Vec<DeviceTime>,
    /// Whose processes held the devices, those who held them longest first. Time
    /// of theirs on one device counts once, however many processes they had.
    pub owners: Vec<OwnerTime>,
    /// How many owners are left out.
    pub more_owners: u32,
    /// What ran, the longest first.
    pub processes: Vec<ProcessTime>,
    /// How many kinds of processes are left out.
    pub more_processes: u32,
    /// The hours of the day from midnight on: 24.
    pub hours: Vec<Times>,
    /// The days of the week from Monday on: 7.
    pub days: Vec<Times>,
    /// Week by week, the oldest first.
    pub weeks: Vec<WeekTime>,
    /// When nothing was seen, the oldest first; the longest hundred.
    pub gaps: Vec<Gap>,
}

/// Device time in milliseconds, of one device or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Worked on.
    pub busy_ms: u64,
    /// Held, and not worked on.
    pub held_ms: u64,
    /// Held by nobody.
    pub free_ms: u64,
    /// Held, and whether it was worked on is not known.
    pub unknown_ms: u64,
}

impl Times {
    /// All of it.
    #[must_use]
    pub const fn all_ms(&self) -> u64 {
        let held = self.busy_ms.saturating_add(self.held_ms);
        held.saturating_add(self.free_ms)
            .saturating_add(self.unknown_ms)
    }

    /// Both together.
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
    /// All devices' time together.
    #[must_use]
    pub fn all(&self) -> Times {
        let times = self.devices.iter().map(|device| device.times);
        times.fold(Times::default(), Times::plus)
    }
}

/// How one device was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTime {
    /// The device.
    pub device: DeviceId,
    /// Its index when it was last seen.
    pub index: u32,
    /// Its name.
    pub name: Option<String>,
    /// Its time.
    pub times: Times,
    /// The most memory that was held of it.
    pub memory_most: Option<Bytes>,
    /// The hour, minute or sample in which that was.
    pub memory_most_at: Option<Timestamp>,
    /// The highest temperature, in degrees Celsius.
    pub hottest: Option<i32>,
    /// Energy drawn, in joules; `None` where power was never known.
    pub energy_j: Option<u64>,
}

/// Time on devices and memory held, of one owner or of one kind of process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedBy {
    /// Device time in milliseconds while they worked.
    pub busy_ms: u64,
    /// While they held it and did not work: the waste.
    pub idle_ms: u64,
    /// While that is not known.
    pub unknown_ms: u64,
    /// Memory over time, in MiB × seconds.
    pub memory_mib_s: u64,
    /// The most memory that one process held of one device.
    pub memory_most: Option<Bytes>,
    /// Processes, each counted once for each device.
    pub runs: u64,
}

impl UsedBy {
    /// All of its time.
    #[must_use]
    pub const fn all_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }

    /// Which part of the time of which it is known was idle, from 0 to 1; `None`
    /// where it is known of none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
    pub fn idle_share(&self) -> Option<f64> {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        (known > 0).then(|| self.idle_ms as f64 / known as f64)
    }

    /// Memory over time, in GiB × hours.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "2^53 MiB·s are 2 million TiB·h")]
    pub fn memory_gib_hours(&self) -> f64 {
        self.memory_mib_s as f64 / (1024.0 * 3600.0)
    }
}

/// What one owner used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerTime {
    /// Whom; `None` for those of whom it was not known.
    pub owner: Option<Owner>,
    /// How much.
    pub used: UsedBy,
}

/// What one kind of process used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTime {
    /// Program and script, or the process's name where the caller may not see
    /// command lines: `python train.py`.
    pub label: String,
    /// How much.
    pub used: UsedBy,
}

/// One week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeekTime {
    /// Its Monday: `2026-11-16`.
    pub monday: String,
    /// All devices' time.
    pub times: Times,
    /// Who held them longest, and how long in milliseconds.
    pub most: Option<(String, u64)>,
}

/// A time of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// From the last sample before it.
    pub from: Timestamp,
    /// To the first one after it.
    pub until: Timestamp,
}
