//! Questions to the history, and its answers.

mod actions;

mod copy;

mod summary;

pub use actions::{ActionPage, ActionPlace, ActionQuery, ActionRecord};
pub use copy::{Backup, Contents, CopyId, PruneReport};
pub use summary::{AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime, Times, UsedBy, WeekTime};

use crate::reading::Reading;
use crate::snapshot::{DeviceId, InstanceId, Owner};
use crate::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use serde::{Deserialize, Serialize};

/// What of the past is asked for. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Records of this moment and later. The time of a record is the end of what it
    /// tells of.
    pub since: Timestamp,
    /// Records before this moment.
    pub until: Timestamp,
    /// This user's processes, by name or number: those they run and those they
    /// own.
    pub user: Option<String>,
    /// Processes whose name matches this unanchored regex.
    pub process: Option<String>,
    /// The devices this selector names.
    pub gpu: Option<String>,
    /// Processes in the container of this name or id, or of an id that begins so.
    pub container: Option<String>,
    /// Processes of this job, as `list` shows it.
    pub job: Option<String>,
}

/// Which records are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditQuery {
    /// Of what.
    pub filter: AuditFilter,
    /// Records older than this one: the `next` of the page before.
    pub before: Option<u64>,
    /// At most so many records; the daemon has a maximum of its own.
    pub limit: u32,
}

/// Some of the records, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// Newest first.
    pub records: Vec<AuditRecord>,
    /// Where the next page begins; `None` when this is the last one.
    pub next: Option<u64>,
}

/// What one sample says of a device, or of a process on it. What is older than
/// samples are kept is told by the minute, and then by the hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Grows with time, never repeats, fits in 53 bits.
    pub id: u64,
    /// When the sample ended.
    pub at: Timestamp,
    /// How much time it tells of, in milliseconds; 0 of the first one after a
    /// gap, which tells of its moment only.
    pub covers_ms: u64,
    /// The device.
    pub device: DeviceId,
    /// The device's index at that time.
    pub gpu_index: u32,
    /// The device's name.
    pub gpu_name: Option<String>,
    /// The most device memory that was held, by the process or in all.
    pub memory: Reading<Bytes>,
    /// Mean utilisation, of the process or of the device.
    pub utilization: Reading<Percent>,
    /// Of the device, or of the process on it.
    pub subject: AuditSubject,
}

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditSubject {
    /// The device as a whole.
    Device {
        /// The highest of the GPU die.
        temperature: Reading<Celsius>,
        /// The mean of what was drawn.
        power: Reading<Milliwatts>,
    },
    /// One process on the device.
    Process {
        /// Its pid.
        pid: u32,
        /// The part of the device, where it was divided.
        instance: Option<InstanceId>,
        /// The real user id, as the daemon's user namespace has it.
        uid: Option<u32>,
        /// The name of that user.
        user: Option<String>,
        /// Whose it was: whom to ask.
        owner: Option<Owner>,
        /// Who made its user namespace; `None` when it had the daemon's own, or
        /// when that is not known.
        namespace_owner: Option<u32>,
        /// The kernel's name for it.
        name: Option<String>,
        /// Its command line, where the caller may see it.
        command: Reading<String>,
        /// Its container.
        container: Option<String>,
        /// Its job, as `list` shows it.
        job: Option<String>,
        /// How long it held the device within the sample, in milliseconds.
        held_ms: u64,
        /// The most connections of clients to the ports it listened on.
        connections: Reading<u32>,
    },
}
