//! The JSON of sums over a period. Times on GPUs are in hours.

use super::SCHEMA;
use super::fields::{document, documents};
use crate::audit::{
    AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime, UsageTimes, UsageTotals, WeekTime,
};
use crate::model::OwnerKind;
use crate::units::Timestamp;

document! {
    /// The document that `gpukillctl audit --summary -o json` prints.
    plain SummaryDocument(summary: &AuditSummary) {
        schema: u32 = SCHEMA,
        /// The start of the period.
        since: String as Timestamp = summary.since.to_rfc3339(),
        /// The end of the period.
        until: String as Timestamp = summary.until.to_rfc3339(),
        /// The time of all GPUs.
        #[serde(flatten)]
        all: UsageTimesDocument = UsageTimesDocument::from(&summary.total_times()),
        used_gpus: Vec<DeviceTimeDocument> = documents(&summary.devices),
        owners: Vec<OwnerTimeDocument> = documents(&summary.owners),
        /// The number of omitted owners.
        more_owners: u32 = summary.more_owners,
        processes: Vec<ProcessTimeDocument> = documents(&summary.processes),
        /// The number of omitted kinds of processes.
        more_processes: u32 = summary.more_processes,
        hours_of_day: Vec<HourDocument> = summary
            .hours
            .iter()
            .enumerate()
            .map(|(hour, times)| HourDocument::new(hour, times))
            .collect(),
        days_of_week: Vec<DayDocument> = summary
            .days
            .iter()
            .zip(DAYS)
            .map(|(times, day)| DayDocument::new(day, times))
            .collect(),
        weeks: Vec<WeekDocument> = documents(&summary.weeks),
        gaps: Vec<GapDocument> = documents(&summary.gaps),
    }
}

document! {
    /// The document that `gpukillctl audit --weekly -o json` prints.
    plain WeeklyDocument(summary: &AuditSummary) {
        schema: u32 = SCHEMA,
        since: String as Timestamp = summary.since.to_rfc3339(),
        until: String as Timestamp = summary.until.to_rfc3339(),
        weeks: Vec<WeekDocument> = documents(&summary.weeks),
        gaps: Vec<GapDocument> = documents(&summary.gaps),
    }
}

document! {
    /// GPU time.
    plain UsageTimesDocument(times: &UsageTimes) {
        /// The sum of the other four.
        gpu_hours: f64 = hours(times.total_ms()),
        busy_hours: f64 = hours(times.busy_ms),
        /// Held and not at work.
        held_idle_hours: f64 = hours(times.held_ms),
        free_hours: f64 = hours(times.free_ms),
        /// Held, and it is unknown whether at work.
        unknown_hours: f64 = hours(times.unknown_ms),
    }
}

document! {
    /// The usage of one GPU.
    plain DeviceTimeDocument(used: &DeviceTime) {
        gpu_index: u32 = used.index,
        gpu_id: String = used.device.0.clone(),
        gpu_name: Option<String> = used.name.clone(),
        #[serde(flatten)]
        times: UsageTimesDocument = UsageTimesDocument::from(&used.times),
        memory_max_bytes: Option<u64> = used.memory_max.map(|bytes| bytes.0),
        memory_max_at: Option<String> as Option<Timestamp> = used.memory_max_at.map(Timestamp::to_rfc3339),
        hottest_c: Option<i32> = used.hottest,
        energy_j: Option<u64> = used.energy_j,
    }
}

document! {
    /// Time on GPUs and memory held, of one owner or of one kind of process.
    plain UsageTotalsDocument(used: &UsageTotals) {
        /// The sum of the other three.
        gpu_hours: f64 = hours(used.total_ms()),
        busy_hours: f64 = hours(used.busy_ms),
        idle_hours: f64 = hours(used.idle_ms),
        unknown_hours: f64 = hours(used.unknown_ms),
        /// The idle share of the time with a known state; `null` if there is none.
        idle_pct: Option<f64> = used.idle_share().map(|share| share * 100.0),
        memory_gib_hours: f64 = used.memory_gib_hours(),
        memory_max_bytes: Option<u64> = used.memory_max.map(|bytes| bytes.0),
        runs: u64 = used.runs,
    }
}

document! {
    /// The usage of one owner.
    plain OwnerTimeDocument(time: &OwnerTime) {
        /// `null` for processes with an unknown owner.
        owner: Option<String> = time.owner.as_ref().map(|owner| owner.name.clone()),
        owner_uid: Option<u32> = time.owner.as_ref().and_then(|owner| owner.uid),
        owner_kind: Option<&'static str> as Option<OwnerKind> = time.owner.as_ref().map(|owner| owner.kind.name()),
        #[serde(flatten)]
        used: UsageTotalsDocument = UsageTotalsDocument::from(&time.used),
    }
}

document! {
    /// The usage of one kind of process.
    plain ProcessTimeDocument(time: &ProcessTime) {
        label: String = time.label.clone(),
        #[serde(flatten)]
        used: UsageTotalsDocument = UsageTotalsDocument::from(&time.used),
    }
}

document! {
    /// One hour of the day, summed over all days.
    plain HourDocument(index: usize, times: &UsageTimes) {
        /// From 0.
        hour: usize = index,
        #[serde(flatten)]
        times: UsageTimesDocument = UsageTimesDocument::from(times),
    }
}

document! {
    /// One day of the week, summed over all weeks.
    plain DayDocument(name: &'static str, times: &UsageTimes) {
        /// `Mon` to `Sun`.
        day: &'static str = name,
        #[serde(flatten)]
        times: UsageTimesDocument = UsageTimesDocument::from(times),
    }
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
        top_owner: Option<String> = week.top_owner.as_ref().map(|(owner, _)| owner.clone()),
        top_owner_hours: Option<f64> = week.top_owner.as_ref().map(|(_, held_ms)| hours(*held_ms)),
    }
}

document! {
    /// A period without samples.
    plain GapDocument(gap: &Gap) {
        from: String as Timestamp = gap.from.to_rfc3339(),
        until: String as Timestamp = gap.until.to_rfc3339(),
    }
}

/// The days of the week in the order of a summary.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
pub(super) fn hours(milliseconds: u64) -> f64 {
    milliseconds as f64 / 3_600_000.0
}
