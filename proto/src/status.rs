//! The status of the daemon, and the rights of the caller.

use crate::ProtocolVersion;
use crate::guard::GuardReport;
use crate::model::{BackendReport, DeviceId, Fault, FaultCode};
use crate::reading::Reading;
use crate::rogue::RogueReport;
use crate::units::{Bytes, Millijoules, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};

/// The answer to `gpukillctl status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// The daemon's own version.
    pub version: String,
    /// The version of the wire that the daemon speaks.
    pub protocol: ProtocolVersion,
    /// The host name.
    pub host: String,
    /// When the daemon started.
    pub started_at: Timestamp,
    /// The daemon's clock now; ages are counted from it.
    pub now: Timestamp,
    /// The caller, and what the caller may do.
    pub caller: CallerReport,
    /// True when the daemon runs for one person (`gpukilld --user`).
    pub personal: bool,
    /// Why the daemon ends no process for any caller; `None` if it may.
    pub will_not_act: Option<String>,
    /// The state of each backend.
    pub backends: Vec<BackendReport>,
    /// The current faults.
    pub faults: Vec<Fault>,
    /// The alerts, which are among the faults too.
    pub alerts: Vec<AlertValue>,
    /// The state of polling.
    pub polling: PollingReport,
    /// The state of the store.
    pub store: StoreReport,
    /// The state of the guard.
    pub guard: GuardReport,
    /// The state of rogue detection.
    pub rogue: RogueReport,
    /// The settings that differ from their default, in the order of their keys.
    pub settings: Vec<ChangedSetting>,
    /// What has happened since the daemon started.
    pub counters: CountersReport,
}

/// How often something has happened since the daemon started. No count ever falls, and the number of
/// entries is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersReport {
    /// The actions that ended, recorded or not, and those that were refused.
    pub actions: Vec<ActionCount>,
    /// The decisions of the guard; withheld from a caller who does not see other users.
    pub decisions: Reading<Vec<DecisionCount>>,
    /// The calls and connections that the daemon refused.
    pub refusals: Vec<RefusalCount>,
    /// The XID errors.
    pub xids: Vec<XidCount>,
    /// The energy that devices have drawn, of those with a driver that counts it.
    pub energy: Vec<DeviceEnergy>,
}

impl Default for CountersReport {
    /// Nothing has happened, and no driver counts energy.
    fn default() -> Self {
        Self {
            actions: Vec::new(),
            decisions: Reading::Value(Vec::new()),
            refusals: Vec::new(),
            xids: Vec::new(),
            energy: Vec::new(),
        }
    }
}

/// The number of actions of one kind with one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCount {
    /// The kind as in the record of actions, or [`GUARD_END`](Self::GUARD_END).
    pub kind: String,
    /// The result as in the record of actions.
    pub result: String,
    /// The number of actions.
    pub count: u64,
}

impl ActionCount {
    /// The kind of a kill by the guard. The record of actions has it as a kill.
    pub const GUARD_END: &'static str = "guard_end";
}

/// The number of decisions of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionCount {
    /// One of [`GuardRecord::DECISIONS`](crate::guard::GuardRecord::DECISIONS).
    pub decision: String,
    /// The number of decisions.
    pub count: u64,
}

/// The number of refusals for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalCount {
    /// One of [`Refusal::REASONS`](crate::refusal::Refusal::REASONS).
    pub reason: String,
    /// The number of refusals.
    pub count: u64,
}

/// The number of XID errors with one number on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidCount {
    /// The device; `None` if the driver did not say which.
    pub device: Option<DeviceId>,
    /// The number of the error; `None` for all errors beyond the number of entries that are kept.
    pub xid: Option<u64>,
    /// The number of errors.
    pub count: u64,
}

/// The energy that a device has drawn since its driver was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEnergy {
    /// The device.
    pub device: DeviceId,
    /// The energy.
    pub drawn: Millijoules,
}

/// A setting that differs from its default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedSetting {
    /// The key: `audit.keep_samples`.
    pub key: String,
    /// The current value.
    pub value: SettingValue,
}

/// The value of a setting that every caller may know. A text is withheld, because it may name
/// people, their home directories and their programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingValue {
    /// A boolean.
    Bool(bool),
    /// A number, in the unit of the key.
    Number(i64),
    /// A duration in milliseconds.
    Duration(u64),
    /// A text or a list, which is withheld.
    Withheld,
}

/// The current value of an alert. The text of the fault stays the same while the alert lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertValue {
    /// The part of the fault: `GPU 3`.
    pub part: String,
    /// The kind of alert.
    pub code: FaultCode,
    /// The text of the fault.
    pub what: String,
    /// When the alert began.
    pub since: Timestamp,
    /// The threshold, in `unit`.
    pub limit: i64,
    /// The current value, rounded down, in `unit`; `None` if it is unknown.
    pub value: Option<i64>,
    /// `°C`, or `%` of all memory.
    pub unit: String,
}

/// The caller, and what the caller may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerReport {
    /// The user id, from the kernel.
    pub uid: u32,
    /// The name of that user.
    pub user: Reading<String>,
    /// The rights of the caller.
    pub rights: Vec<Right>,
    /// A group with rights that lists this user although the user's session does not have it
    /// yet: a new login is needed.
    pub log_in_again_for: Option<String>,
}

words! {
    /// A right of a caller.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum Right {
        /// See devices, processes and history.
        Look = "look",
        /// End own processes.
        EndOwn = "end_own",
        /// End processes of any user, and reset devices.
        EndAny = "end_any",
        /// Change the rules.
        EditRules = "edit_rules",
    }
    /// The name in JSON.
    name(self)
}

/// The state of polling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollingReport {
    /// The time from one poll to the next, in milliseconds.
    pub interval_ms: u64,
    /// The configured time between polls: shorter than `interval_ms` while a driver answers
    /// slowly.
    pub set_interval_ms: u64,
    /// When the last poll ended.
    pub last_at: Option<Timestamp>,
    /// The number of polls since the start.
    pub polls: u64,
    /// The number of polls that began more than half an interval late, or that a driver did not
    /// answer in time.
    pub late: u64,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// The directory of its files.
    pub directory: String,
    /// The size of the samples on disk.
    pub samples: Bytes,
    /// The size of the record of actions on disk.
    pub audit: Bytes,
    /// The time of the oldest recorded event, which is never deleted: the daemon's first start.
    pub recorded_since: Option<Timestamp>,
    /// When samples were last written.
    pub written_at: Option<Timestamp>,
    /// The number of samples written since the start.
    pub written: u64,
    /// The number of samples lost since the start.
    pub dropped: u64,
}
