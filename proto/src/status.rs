//! How the daemon stands, and what the caller may do.

use crate::ProtocolVersion;
use crate::guard::GuardReport;
use crate::reading::Reading;
use crate::rogue::RogueReport;
use crate::snapshot::{BackendReport, Fault};
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

/// The answer to `gpukillctl status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's own version.
    pub version: String,
    /// The wire it speaks.
    pub protocol: ProtocolVersion,
    /// The host name of the box.
    pub host: String,
    /// When the daemon started.
    pub started_at: Timestamp,
    /// The daemon's clock now; ages are counted from it.
    pub now: Timestamp,
    /// Who asks.
    pub caller: CallerReport,
    /// True when the daemon runs for one person (`gpukilld --user`).
    pub personal: bool,
    /// Why the daemon ends no process, whoever asks; `None` when it may.
    pub will_not_act: Option<String>,
    /// How each backend stands.
    pub backends: Vec<BackendReport>,
    /// What is broken now.
    pub faults: Vec<Fault>,
    /// How far those of the faults that are alerts are above their thresholds.
    pub alerts: Vec<AlertValue>,
    /// How polling goes.
    pub polling: PollingReport,
    /// How the store stands.
    pub store: StoreReport,
    /// How the guard stands.
    pub guard: GuardReport,
    /// How the watch for rogues stands.
    pub rogue: RogueReport,
    /// The settings that are not what they are by default, in the order of their keys.
    pub settings: Vec<ChangedSetting>,
}

/// A setting that is not what it is by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedSetting {
    /// `audit.keep_samples`
    pub key: String,
    /// What it is.
    pub value: SettingValue,
}

/// What a setting is, as far as everybody may know it: no text, for a text may name
/// people, their homes and their programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingValue {
    /// Whether.
    Truth(bool),
    /// How many, in the unit of the key.
    Number(i64),
    /// How long, in milliseconds.
    Length(u64),
    /// A text or a list.
    NotTold,
}

/// What a device tells now of which there is an alert. A fault's own words stay the same
/// while it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertValue {
    /// The fault's part: `GPU 3`.
    pub part: String,
    /// The fault's words.
    pub what: String,
    /// The threshold, in `unit`.
    pub limit: i64,
    /// What is told now, rounded down, in `unit`; `None` where that is not known.
    pub value: Option<i64>,
    /// `°C`, or `%` of all memory.
    pub unit: String,
}

/// Who asks, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerReport {
    /// From the kernel.
    pub uid: u32,
    /// The name of that user.
    pub user: Reading<String>,
    /// What they may do.
    pub rights: Vec<Right>,
    /// A group with rights that lists this user, though their session does not
    /// have it yet: they must log in again.
    pub log_in_again_for: Option<String>,
}

/// Something a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Right {
    /// See devices, processes and history.
    Look,
    /// End processes of their own.
    EndOwn,
    /// End anybody's processes and reset devices.
    EndAny,
    /// Change the rules.
    EditRules,
}

/// How polling goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollingReport {
    /// The time from one poll to the next, in milliseconds.
    pub interval_ms: u64,
    /// The one that is set: shorter while a driver answers slowly.
    pub set_interval_ms: u64,
    /// When the last poll ended.
    pub last_at: Option<Timestamp>,
    /// Polls since start.
    pub ticks: u64,
    /// Polls that began more than half an interval late, or that a driver did not answer in time.
    pub late: u64,
}

/// How the store stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// The directory of its files.
    pub directory: String,
    /// The size of the samples on disk.
    pub samples: Bytes,
    /// The size of the record of actions on disk.
    pub audit: Bytes,
    /// When samples were last written.
    pub written_at: Option<Timestamp>,
    /// Samples that were written since start.
    pub written: u64,
    /// Samples that could not be kept since start.
    pub dropped: u64,
}
