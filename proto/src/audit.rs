//! Questions to the history, and its answers.

use crate::reading::Reading;
use crate::snapshot::{DeviceId, Owner};
use crate::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use serde::{Deserialize, Serialize};

/// Which records are wanted. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditQuery {
    /// Not before this moment.
    pub since: Timestamp,
    /// Before this moment.
    pub until: Timestamp,
    /// Records of this user's processes, by name or number: those they run and
    /// those they own.
    pub user: Option<String>,
    /// Records of processes whose name matches this unanchored regex.
    pub process: Option<String>,
    /// Records of the devices this selector names.
    pub gpu: Option<String>,
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

/// What one sample says of a device, or of a process on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Grows with time, never repeats, fits in 53 bits.
    pub id: u64,
    /// When the sample was taken.
    pub at: Timestamp,
    /// The device.
    pub device: DeviceId,
    /// The device's index at that time.
    pub gpu_index: u32,
    /// The device's name.
    pub gpu_name: Option<String>,
    /// Device memory held, by the process or in all.
    pub memory: Reading<Bytes>,
    /// Utilisation, of the process or of the device.
    pub utilization: Reading<Percent>,
    /// Of the device, or of the process on it.
    pub subject: AuditSubject,
}

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditSubject {
    /// The device as a whole.
    Device {
        /// Of the GPU die.
        temperature: Reading<Celsius>,
        /// Drawn then.
        power: Reading<Milliwatts>,
    },
    /// One process on the device.
    Process {
        /// Its pid.
        pid: u32,
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
    },
}
