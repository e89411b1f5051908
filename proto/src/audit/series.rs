//! Usage over time, in buckets of equal length.

use super::{AuditFilter, RunGpu};
use crate::model::Owner;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// The most buckets of an answer.
pub const MAX_SERIES_BUCKETS: u32 = 2_000;

/// The most buckets of all lines of an answer: half a frame.
pub const MAX_SERIES_CELLS: usize = 16_384;

/// A query for usage over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesQuery {
    /// The filter.
    pub filter: AuditFilter,
    /// What has a line.
    pub by: SeriesBy,
    /// The most buckets, up to [`MAX_SERIES_BUCKETS`]. There may be fewer, because a bucket
    /// lasts a round time and no shorter than the records of that time.
    pub buckets: u32,
}

/// What has a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeriesBy {
    /// Each GPU; with a filter for processes, their use of it.
    Gpu,
    /// Each owner of processes.
    Owner,
    /// Each job.
    Job,
}

/// Usage over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSeries {
    /// The start of the first bucket.
    pub since: Timestamp,
    /// The length of a bucket in milliseconds.
    pub step_ms: u64,
    /// The lines: GPUs by index; owners and jobs by their time, the longest first. If owners or jobs
    /// are omitted, the last line is their sum, without an owner and a job.
    pub lines: Vec<SeriesLine>,
    /// The number of omitted lines.
    pub more_lines: u32,
}

/// The usage of one GPU, owner or job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesLine {
    /// The GPU, in a line of a GPU.
    pub gpu: Option<RunGpu>,
    /// The owner, in a line of an owner or a job, if known.
    pub owner: Option<Owner>,
    /// The job, in a line of a job, if known.
    pub job: Option<String>,
    /// A bucket for each step, the oldest first.
    pub buckets: Vec<SeriesBucket>,
}

/// The usage in one bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesBucket {
    /// The time with samples, in milliseconds. The rest of the bucket is a gap.
    pub covered_ms: u64,
    /// Time on GPUs at work, in milliseconds; on several GPUs also more than the bucket lasts.
    pub busy_ms: u64,
    /// Time on GPUs held and not at work.
    pub idle_ms: u64,
    /// Time on GPUs held, and it is unknown whether at work.
    pub unknown_ms: u64,
    /// The utilization of the GPU in percent, in a line of a whole GPU.
    pub utilization: Option<SeriesValue>,
    /// The memory held, in bytes.
    pub memory: Option<SeriesValue>,
    /// The power draw of the GPU in milliwatts, in a line of a whole GPU.
    pub power: Option<SeriesValue>,
    /// The highest temperature of the GPU in degrees Celsius, in a line of a whole GPU.
    pub hottest: Option<i32>,
}

impl AuditSeries {
    /// The start of each bucket.
    pub fn starts(&self) -> impl Iterator<Item = Timestamp> + use<> {
        let (since, step) = (self.since.0, self.step_ms);
        (0_u64..).map(move |at| {
            let offset = i64::try_from(at.saturating_mul(step)).unwrap_or(i64::MAX);
            Timestamp(since.saturating_add(offset))
        })
    }

    /// The number of omitted lines if the line at this position is their sum; `None` for a line of
    /// one GPU, owner or job.
    #[must_use]
    pub fn summed_lines(&self, position: usize) -> Option<u32> {
        let line = self.lines.get(position)?;
        let is_last = position + 1 == self.lines.len();
        let is_named = line.gpu.is_some() || line.owner.is_some() || line.job.is_some();
        (is_last && !is_named && self.more_lines > 0).then_some(self.more_lines)
    }
}

impl SeriesBucket {
    /// The time on GPUs, whether at work or not.
    #[must_use]
    pub const fn held_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }
}

/// A value over one bucket, while it was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesValue {
    /// The lowest mean of a sample, minute or hour in the bucket.
    pub min: u64,
    /// The mean.
    pub mean: u64,
    /// The highest reading; of several processes at once at least the highest reading of one, and
    /// the highest mean of all in a sample, minute or hour.
    pub max: u64,
}
