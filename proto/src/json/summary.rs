//! The JSON of sums over a period. Times on GPUs are in hours.

use super::SCHEMA;
use super::fields::document;
use super::process::owner_kind_name;
use crate::audit::{
    AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime, UsageTimes, UsageTotals, WeekTime,
};
use crate::units::Timestamp;
use serde::Serialize;

/// What `gpukillctl audit --summary -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct SummaryDocument {
    pub schema: u32,
    /// The start of the period.
    pub since: String,
    /// The end of the period.
    pub until: String,
    /// The time of all GPUs.
    #[serde(flatten)]
    pub all: UsageTimesDocument,
    pub used_gpus: Vec<DeviceTimeDocument>,
    pub owners: Vec<OwnerTimeDocument>,
    /// The number of omitted owners.
    pub more_owners: u32,
    pub processes: Vec<ProcessTimeDocument>,
    /// The number of omitted kinds of processes.
    pub more_processes: u32,
    pub hours_of_day: Vec<HourDocument>,
    pub days_of_week: Vec<DayDocument>,
    pub weeks: Vec<WeekDocument>,
    pub gaps: Vec<GapDocument>,
}

/// What `gpukillctl audit --weekly -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct WeeklyDocument {
    pub schema: u32,
    pub since: String,
    pub until: String,
    pub weeks: Vec<WeekDocument>,
}

/// GPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct UsageTimesDocument {
    /// The sum of the other four.
    pub gpu_hours: f64,
    pub busy_hours: f64,
    /// Held and not at work.
    pub held_idle_hours: f64,
    pub free_hours: f64,
    /// Held, and it is unknown whether at work.
    pub unknown_hours: f64,
}

impl From<&UsageTimes> for UsageTimesDocument {
    fn from(times: &UsageTimes) -> Self {
        Self {
            gpu_hours: hours(times.total_ms()),
            busy_hours: hours(times.busy_ms),
            held_idle_hours: hours(times.held_ms),
            free_hours: hours(times.free_ms),
            unknown_hours: hours(times.unknown_ms),
        }
    }
}

/// The usage of one GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct DeviceTimeDocument {
    pub gpu_index: u32,
    pub gpu_id: String,
    pub gpu_name: Option<String>,
    #[serde(flatten)]
    pub times: UsageTimesDocument,
    pub memory_most_bytes: Option<u64>,
    pub memory_most_at: Option<String>,
    pub hottest_c: Option<i32>,
    pub energy_j: Option<u64>,
}

/// Time on GPUs and memory held, of one owner or of one kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct UsageTotalsDocument {
    /// The sum of the other three.
    pub gpu_hours: f64,
    pub busy_hours: f64,
    pub idle_hours: f64,
    pub unknown_hours: f64,
    /// The idle share of the time with a known state; `null` if there is none.
    pub idle_pct: Option<f64>,
    pub memory_gib_hours: f64,
    pub memory_most_bytes: Option<u64>,
    pub runs: u64,
}

impl From<&UsageTotals> for UsageTotalsDocument {
    fn from(used: &UsageTotals) -> Self {
        Self {
            gpu_hours: hours(used.total_ms()),
            busy_hours: hours(used.busy_ms),
            idle_hours: hours(used.idle_ms),
            unknown_hours: hours(used.unknown_ms),
            idle_pct: used.idle_share().map(|share| share * 100.0),
            memory_gib_hours: used.memory_gib_hours(),
            memory_most_bytes: used.memory_most.map(|bytes| bytes.0),
            runs: used.runs,
        }
    }
}

/// The usage of one owner.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct OwnerTimeDocument {
    /// `null` for processes with an unknown owner.
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    pub owner_kind: Option<&'static str>,
    #[serde(flatten)]
    pub used: UsageTotalsDocument,
}

/// The usage of one kind of process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ProcessTimeDocument {
    pub label: String,
    #[serde(flatten)]
    pub used: UsageTotalsDocument,
}

/// One hour of the day, summed over all days.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct HourDocument {
    /// From 0.
    pub hour: usize,
    #[serde(flatten)]
    pub times: UsageTimesDocument,
}

/// One day of the week, summed over all weeks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct DayDocument {
    /// `Mon` to `Sun`.
    pub day: &'static str,
    #[serde(flatten)]
    pub times: UsageTimesDocument,
}

document! {
    /// One week, of `gpukillctl audit --weekly`.
    WeekDocument(week: &WeekTime) {
        /// `2026-11-16`
        monday: String = week.monday.clone(),
        gpu_hours: f64 = hours(week.times.total_ms()),
        busy_hours: f64 = hours(week.times.busy_ms),
        held_idle_hours: f64 = hours(week.times.held_ms),
        free_hours: f64 = hours(week.times.free_ms),
        unknown_hours: f64 = hours(week.times.unknown_ms),
        /// The owner with the longest time, and that time.
        most_owner: Option<String> = week.most.as_ref().map(|(owner, _)| owner.clone()),
        most_hours: Option<f64> = week.most.as_ref().map(|(_, held_ms)| hours(*held_ms)),
    }
}

impl From<&WeekTime> for WeekDocument {
    fn from(week: &WeekTime) -> Self {
        Self::new(week)
    }
}

/// A period without samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct GapDocument {
    pub from: String,
    pub until: String,
}

/// The days of the week in the order of a summary.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl From<&AuditSummary> for SummaryDocument {
    fn from(summary: &AuditSummary) -> Self {
        let hours_of_day = summary.hours.iter().enumerate();
        let days_of_week = summary.days.iter().zip(DAYS);
        Self {
            schema: SCHEMA,
            since: summary.since.to_rfc3339(),
            until: summary.until.to_rfc3339(),
            all: UsageTimesDocument::from(&summary.total_times()),
            used_gpus: summary
                .devices
                .iter()
                .map(DeviceTimeDocument::from)
                .collect(),
            owners: summary.owners.iter().map(OwnerTimeDocument::from).collect(),
            more_owners: summary.more_owners,
            processes: summary
                .processes
                .iter()
                .map(ProcessTimeDocument::from)
                .collect(),
            more_processes: summary.more_processes,
            hours_of_day: hours_of_day
                .map(|(hour, times)| HourDocument {
                    hour,
                    times: times.into(),
                })
                .collect(),
            days_of_week: days_of_week
                .map(|(times, day)| DayDocument {
                    day,
                    times: times.into(),
                })
                .collect(),
            weeks: summary.weeks.iter().map(WeekDocument::from).collect(),
            gaps: summary.gaps.iter().map(GapDocument::from).collect(),
        }
    }
}

impl From<&AuditSummary> for WeeklyDocument {
    fn from(summary: &AuditSummary) -> Self {
        Self {
            schema: SCHEMA,
            since: summary.since.to_rfc3339(),
            until: summary.until.to_rfc3339(),
            weeks: summary.weeks.iter().map(WeekDocument::from).collect(),
        }
    }
}

impl From<&DeviceTime> for DeviceTimeDocument {
    fn from(used: &DeviceTime) -> Self {
        Self {
            gpu_index: used.index,
            gpu_id: used.device.0.clone(),
            gpu_name: used.name.clone(),
            times: UsageTimesDocument::from(&used.times),
            memory_most_bytes: used.memory_most.map(|bytes| bytes.0),
            memory_most_at: used.memory_most_at.map(Timestamp::to_rfc3339),
            hottest_c: used.hottest,
            energy_j: used.energy_j,
        }
    }
}

impl From<&OwnerTime> for OwnerTimeDocument {
    fn from(time: &OwnerTime) -> Self {
        let owner = time.owner.as_ref();
        Self {
            owner: owner.map(|owner| owner.name.clone()),
            owner_uid: owner.and_then(|owner| owner.uid),
            owner_kind: owner.map(|owner| owner_kind_name(owner.kind)),
            used: UsageTotalsDocument::from(&time.used),
        }
    }
}

impl From<&ProcessTime> for ProcessTimeDocument {
    fn from(time: &ProcessTime) -> Self {
        Self {
            label: time.label.clone(),
            used: UsageTotalsDocument::from(&time.used),
        }
    }
}

impl From<&Gap> for GapDocument {
    fn from(gap: &Gap) -> Self {
        Self {
            from: gap.from.to_rfc3339(),
            until: gap.until.to_rfc3339(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn hours(milliseconds: u64) -> f64 {
    milliseconds as f64 / 3_600_000.0
}
