//! The JSON of usage over time.

use super::SCHEMA;
use super::fields::document;
use super::summary::hours;
use crate::audit::{AuditSeries, SeriesBucket, SeriesLine, SeriesValue};
use crate::model::OwnerKind;
use crate::units::Timestamp;

document! {
    /// The document that `gpukillctl audit series -o json` prints.
    plain SeriesDocument(series: &AuditSeries) {
        schema: u32 = SCHEMA,
        since: String as Timestamp = series.since.to_rfc3339(),
        step_secs: f64 = seconds(series.step_ms),
        series: Vec<SeriesLineDocument> = lines(series),
        /// The number of omitted GPUs, or of owners or jobs that the last line is the sum of.
        more: u32 = series.more_lines,
    }
}

document! {
    /// The usage of one GPU, owner or job, or of all others.
    plain SeriesLineDocument(
        line: &SeriesLine,
        summed_lines: Option<u32>,
        buckets: Vec<SeriesBucketDocument>
    ) {
        gpu_index: Option<u32> = line.gpu.as_ref().map(|gpu| gpu.index),
        gpu_id: Option<String> = line.gpu.as_ref().map(|gpu| gpu.device.0.clone()),
        owner: Option<String> = line.owner.as_ref().map(|owner| owner.name.clone()),
        owner_uid: Option<u32> = line.owner.as_ref().and_then(|owner| owner.uid),
        owner_kind: Option<&'static str> as Option<OwnerKind> = line.owner.as_ref().map(|owner| owner.kind.name()),
        job: Option<String> = line.job.clone(),
        /// The number of other owners or jobs that this line is the sum of.
        summed_lines: Option<u32> = summed_lines,
        buckets: Vec<SeriesBucketDocument> = buckets,
    }
}

document! {
    /// The usage in one bucket.
    plain SeriesBucketDocument(bucket: &SeriesBucket, timestamp: Timestamp, step_ms: u64) {
        /// The start of the bucket.
        timestamp: String as Timestamp = timestamp.to_rfc3339(),
        /// The share of its time with samples, from 0 to 1; 0 in a gap.
        known_share: f64 = known_share(bucket, step_ms),
        gpu_hours: f64 = hours(bucket.held_ms()),
        busy_hours: f64 = hours(bucket.busy_ms),
        idle_hours: f64 = hours(bucket.idle_ms),
        unknown_hours: f64 = hours(bucket.unknown_ms),
        utilization_pct_min: Option<u64> = bucket.utilization.map(|value| value.min),
        utilization_pct: Option<u64> = bucket.utilization.map(|value| value.mean),
        utilization_pct_max: Option<u64> = bucket.utilization.map(|value| value.max),
        memory_used_bytes_min: Option<u64> = bucket.memory.map(|value| value.min),
        memory_used_bytes: Option<u64> = bucket.memory.map(|value| value.mean),
        memory_used_bytes_max: Option<u64> = bucket.memory.map(|value| value.max),
        power_w_min: Option<f64> = watts(bucket, |value| value.min),
        power_w: Option<f64> = watts(bucket, |value| value.mean),
        power_w_max: Option<f64> = watts(bucket, |value| value.max),
        /// The highest reading.
        temperature_c_max: Option<i32> = bucket.hottest,
    }
}

document! {
    /// One bucket of one GPU, owner or job: a row of `-o csv`, and a line of `-o ndjson`.
    SeriesRowDocument(line: &SeriesLineDocument, bucket: &SeriesBucketDocument) {
        timestamp: String as Timestamp = bucket.timestamp.clone(),
        gpu_index: Option<u32> = line.gpu_index,
        gpu_id: Option<String> = line.gpu_id.clone(),
        owner: Option<String> = line.owner.clone(),
        owner_uid: Option<u32> = line.owner_uid,
        owner_kind: Option<&'static str> as Option<OwnerKind> = line.owner_kind,
        job: Option<String> = line.job.clone(),
        summed_lines: Option<u32> = line.summed_lines,
        known_share: f64 = bucket.known_share,
        gpu_hours: f64 = bucket.gpu_hours,
        busy_hours: f64 = bucket.busy_hours,
        idle_hours: f64 = bucket.idle_hours,
        unknown_hours: f64 = bucket.unknown_hours,
        utilization_pct_min: Option<u64> = bucket.utilization_pct_min,
        utilization_pct: Option<u64> = bucket.utilization_pct,
        utilization_pct_max: Option<u64> = bucket.utilization_pct_max,
        memory_used_bytes_min: Option<u64> = bucket.memory_used_bytes_min,
        memory_used_bytes: Option<u64> = bucket.memory_used_bytes,
        memory_used_bytes_max: Option<u64> = bucket.memory_used_bytes_max,
        power_w_min: Option<f64> = bucket.power_w_min,
        power_w: Option<f64> = bucket.power_w,
        power_w_max: Option<f64> = bucket.power_w_max,
        temperature_c_max: Option<i32> = bucket.temperature_c_max,
    }
}

impl SeriesDocument {
    /// Each bucket of each line as one row.
    #[must_use]
    pub fn rows(&self) -> Vec<SeriesRowDocument> {
        let rows = self.series.iter().flat_map(|line| {
            let buckets = line.buckets.iter();
            buckets.map(move |bucket| SeriesRowDocument::new(line, bucket))
        });
        rows.collect()
    }
}

fn lines(series: &AuditSeries) -> Vec<SeriesLineDocument> {
    let lines = series.lines.iter().enumerate().map(|(position, line)| {
        let buckets = line.buckets.iter().zip(series.starts());
        let buckets =
            buckets.map(|(bucket, start)| SeriesBucketDocument::new(bucket, start, series.step_ms));
        SeriesLineDocument::new(line, series.summed_lines(position), buckets.collect())
    });
    lines.collect()
}

/// Milliwatts as watts.
fn watts(bucket: &SeriesBucket, part: fn(SeriesValue) -> u64) -> Option<f64> {
    bucket.power.map(|value| seconds(part(value)))
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn known_share(bucket: &SeriesBucket, step_ms: u64) -> f64 {
    (seconds(bucket.covered_ms) / seconds(step_ms.max(1))).min(1.0)
}
