//! The JSON of what a stretch of the past comes to. Times on GPUs are in hours.

use super::SCHEMA;
use super::fields::document;
use super::process::owner_kind;
use crate::audit::{
    AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime, Times, UsedBy, WeekTime,
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
    /// The first moment that is told of.
    pub since: String,
    /// The last.
    pub until: String,
    /// All GPUs' time together.
    #[serde(flatten)]
    pub all: TimesDocument,
    pub used_gpus: Vec<UsedGpuDocument>,
    pub owners: Vec<OwnerTimeDocument>,
    /// How many owners are left out.
    pub more_owners: u32,
    pub processes: Vec<ProcessTimeDocument>,
    /// How many kinds of processes are left out.
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

/// Time of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct TimesDocument {
    /// All that follows.
    pub gpu_hours: f64,
    pub busy_hours: f64,
    /// Held, and not worked on.
    pub held_idle_hours: f64,
    pub free_hours: f64,
    /// Held, and whether it was worked on is not known.
    pub unknown_hours: f64,
}

impl From<&Times> for TimesDocument {
    fn from(times: &Times) -> Self {
        Self {
            gpu_hours: hours(times.all_ms()),
            busy_hours: hours(times.busy_ms),
            held_idle_hours: hours(times.held_ms),
            free_hours: hours(times.free_ms),
            unknown_hours: hours(times.unknown_ms),
        }
    }
}

/// How one GPU was used.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct UsedGpuDocument {
    pub gpu_index: u32,
    pub gpu_id: String,
    pub gpu_name: Option<String>,
    #[serde(flatten)]
    pub times: TimesDocument,
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
pub struct UsedDocument {
    /// The three that follow.
    pub gpu_hours: f64,
    pub busy_hours: f64,
    pub idle_hours: f64,
    pub unknown_hours: f64,
    /// The idle share of the time of which it is known; `null` where it is of none.
    pub idle_pct: Option<f64>,
    pub memory_gib_hours: f64,
    pub memory_most_bytes: Option<u64>,
    pub runs: u64,
}

impl From<&UsedBy> for UsedDocument {
    fn from(used: &UsedBy) -> Self {
        Self {
            gpu_hours: hours(used.all_ms()),
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

/// What one owner used.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct OwnerTimeDocument {
    /// Whom; `null` for those of whom it was not known.
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    pub owner_kind: Option<&'static str>,
    #[serde(flatten)]
    pub used: UsedDocument,
}

/// What one kind of process used.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ProcessTimeDocument {
    pub label: String,
    #[serde(flatten)]
    pub used: UsedDocument,
}

/// One hour of the day, on all days together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct HourDocument {
    /// From 0.
    pub hour: usize,
    #[serde(flatten)]
    pub times: TimesDocument,
}

/// One day of the week, in all weeks together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct DayDocument {
    /// `Mon` to `Sun`.
    pub day: &'static str,
    #[serde(flatten)]
    pub times: TimesDocument,
}

document! {
    /// One week, of `gpukillctl audit --weekly`.
    WeekDocument(week: &WeekTime) {
        /// `2026-11-16`
        monday: String = week.monday.clone(),
        gpu_hours: f64 = hours(week.times.all_ms()),
        busy_hours: f64 = hours(week.times.busy_ms),
        held_idle_hours: f64 = hours(week.times.held_ms),
        free_hours: f64 = hours(week.times.free_ms),
        unknown_hours: f64 = hours(week.times.unknown_ms),
        /// Who held GPUs longest, and how long.
        most_owner: Option<String> = week.most.as_ref().map(|(owner, _)| owner.clone()),
        most_hours: Option<f64> = week.most.as_ref().map(|(_, held_ms)| hours(*held_ms)),
    }
}

impl From<&WeekTime> for WeekDocument {
    fn from(week: &WeekTime) -> Self {
        Self::new(week)
    }
}

/// A time of which nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct GapDocument {
    pub from: String,
    pub until: String,
}

/// The days of the week as they are numbered in a summary.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl From<&AuditSummary> for SummaryDocument {
    fn from(summary: &AuditSummary) -> Self {
        let hours_of_day = summary.hours.iter().enumerate();
        let days_of_week = summary.days.iter().zip(DAYS);
        Self {
            schema: SCHEMA,
            since: summary.since.to_rfc3339(),
            until: summary.until.to_rfc3339(),
            all: TimesDocument::from(&summary.all()),
            used_gpus: summary.devices.iter().map(UsedGpuDocument::from).collect(),
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

impl From<&DeviceTime> for UsedGpuDocument {
    fn from(used: &DeviceTime) -> Self {
        Self {
            gpu_index: used.index,
            gpu_id: used.device.0.clone(),
            gpu_name: used.name.clone(),
            times: TimesDocument::from(&used.times),
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
            owner_kind: owner.map(|owner| owner_kind(owner.kind)),
            used: UsedDocument::from(&time.used),
        }
    }
}

impl From<&ProcessTime> for ProcessTimeDocument {
    fn from(time: &ProcessTime) -> Self {
        Self {
            label: time.label.clone(),
            used: UsedDocument::from(&time.used),
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
