//! Queries of the history, and their results; backup and pruning of the whole store.

mod actions;
mod runs;
mod series;
mod summary;
mod timeline;

pub use actions::{ActionCursor, ActionPage, ActionQuery, ActionRecord, GUARD_REQUEST, GUARD_USER};
pub use runs::{
    MAX_RUN_PIDS, RunCursor, RunEnd, RunExtent, RunGpu, RunPage, RunQuery, RunRecord, RunUnit,
};
pub use series::{
    AuditSeries, MAX_SERIES_BUCKETS, MAX_SERIES_CELLS, SeriesBucket, SeriesBy, SeriesLine,
    SeriesQuery, SeriesValue,
};
pub use summary::{
    AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime, UsageTimes, UsageTotals, WeekTime,
};
pub use timeline::{
    MAX_STRETCH_MEANS, TimelineCursor, TimelineEnd, TimelineEntry, TimelineEvent, TimelinePage,
    TimelineProcess, TimelineQuery, TimelineSource, UsageState, UsageStretch,
};

use crate::model::{DeviceId, InstanceId, Owner};
use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use serde::{Deserialize, Serialize};

/// Selects records of the past. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Records of this time and later. The time of a record is the end of its period.
    pub since: Timestamp,
    /// Records before this time.
    pub until: Timestamp,
    /// Processes of this user, or of one of these users with commas between, by name or number:
    /// those that the user runs and those that the user owns.
    pub user: Option<String>,
    /// Processes with a name, or a label as in [`AuditSummary::processes`], that matches this
    /// unanchored regular expression.
    pub process: Option<String>,
    /// Processes with a command line that the caller may see and that matches this unanchored
    /// regular expression.
    pub command: Option<String>,
    /// The devices that this selector selects.
    pub gpu: Option<String>,
    /// Processes in the container with this name, or with an id that starts with this text.
    pub container: Option<String>,
    /// Processes of this job, as `list` shows it.
    pub job: Option<String>,
    /// Processes with an owner who was a member of this group, or of one of these groups with
    /// commas between, when the process was last observed.
    pub group: Option<String>,
}

impl AuditFilter {
    /// The filter that selects everything from `since` to before `until`.
    #[must_use]
    pub const fn for_period(since: Timestamp, until: Timestamp) -> Self {
        Self {
            since,
            until,
            user: None,
            process: None,
            command: None,
            gpu: None,
            container: None,
            job: None,
            group: None,
        }
    }
}

/// A query for records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditQuery {
    /// The filter.
    pub filter: AuditFilter,
    /// Records older than this one: the `next` of the page before.
    pub before: Option<u64>,
    /// The most records to return; the daemon has its own maximum.
    pub limit: u32,
}

/// One page of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The records, newest first.
    pub records: Vec<AuditRecord>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<u64>,
    /// The first rows that cover the period: a sample, a minute and an hour, as far as these are
    /// read. If they are others than on the page before, old rows were deleted meanwhile, and both
    /// pages together may lack records.
    pub first_rows: Vec<u64>,
}

/// One sample of a device, or of a process on a device. Beyond the retention of samples,
/// records cover a minute each, and then an hour each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Grows with time, never repeats, fits in 53 bits.
    pub id: u64,
    /// When the sample ended.
    pub at: Timestamp,
    /// The length of the period in milliseconds; 0 for the first record after a gap, which
    /// covers only its moment.
    pub covers_ms: u64,
    /// The device.
    pub device: DeviceId,
    /// The index of the device at that time.
    pub gpu_index: u32,
    /// The name of the device.
    pub gpu_name: Option<String>,
    /// The largest amount of device memory that was held, by the process or in total.
    pub memory: Reading<Bytes>,
    /// The mean utilization, of the process or of the device.
    pub utilization: Reading<Percent>,
    /// The device, or the process on it.
    pub subject: AuditSubject,
}

/// The subject of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditSubject {
    /// The device as a whole.
    Device {
        /// The highest temperature of the GPU die.
        temperature: Reading<Celsius>,
        /// The mean power draw.
        power: Reading<Milliwatts>,
    },
    /// One process on the device.
    Process {
        /// The pid.
        pid: u32,
        /// The instance, if the device was divided.
        instance: Option<InstanceId>,
        /// The real user id, in the daemon's user namespace.
        uid: Option<u32>,
        /// The name of that user.
        user: Option<String>,
        /// The owner: the person to ask.
        owner: Option<Owner>,
        /// The creator of its user namespace; `None` if it was the daemon's own, or unknown.
        namespace_owner: Option<u32>,
        /// The kernel's name of the process.
        name: Option<String>,
        /// The command line, if the caller may see it.
        command: Reading<String>,
        /// Its container.
        container: Option<String>,
        /// Its job, as `list` shows it.
        job: Option<String>,
        /// The time for which it held the device within the period, in milliseconds.
        held_ms: u64,
        /// The largest number of client connections to its listening ports.
        connections: Reading<u32>,
    },
}

/// Identifies a copy that is being transferred, for the lifetime of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CopyId(pub u64);

/// A copy that is ready for transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// The id.
    pub id: CopyId,
    /// The size in bytes.
    pub bytes: u64,
}

/// The number of rows in a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreContents {
    /// Samples.
    pub samples: u64,
    /// Minutes.
    pub minutes: u64,
    /// Hours.
    pub hours: u64,
    /// Processes, each counted once for each device.
    pub runs: u64,
    /// Recorded actions.
    pub actions: u64,
    /// The oldest time.
    pub since: Option<Timestamp>,
    /// The newest time.
    pub until: Option<Timestamp>,
}

/// The samples that a pruning deleted, or would delete. Recorded actions are never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReport {
    /// The rows older than the requested time.
    pub deleted: StoreContents,
    /// The rows that remain.
    pub left: StoreContents,
}
