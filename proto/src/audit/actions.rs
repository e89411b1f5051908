//! The record of what was done.

use crate::reading::Reading;
use crate::snapshot::DeviceId;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// Which entries of the record are wanted. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionQuery {
    /// Not before this moment.
    pub since: Timestamp,
    /// Before this moment.
    pub until: Timestamp,
    /// What this user asked for, by name or number.
    pub user: Option<String>,
    /// Entries of this kind, or of these, with commas between: `kill`, `reset,xid`.
    pub kind: Option<String>,
    /// What happened to the devices this selector names.
    pub gpu: Option<String>,
    /// Entries older than this one: the `next` of the page before.
    pub before: Option<ActionPlace>,
    /// At most so many; the daemon has a maximum of its own.
    pub limit: u32,
}

/// Where an entry stands in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActionPlace {
    /// When it happened.
    pub at: Timestamp,
    /// Its [`ActionRecord::id`].
    pub id: u64,
}

/// Some of the entries, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionPage {
    /// Newest first.
    pub records: Vec<ActionRecord>,
    /// Where the next page begins; `None` when this is the last one.
    pub next: Option<ActionPlace>,
}

/// One entry: what somebody had the daemon do, or what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// Never repeats; fits in 53 bits.
    pub id: u64,
    /// When it was asked for, or happened.
    pub at: Timestamp,
    /// In a word: `kill`, `reset`, `prune`, `backup`, `xid`, `started`, `fault`.
    pub kind: String,
    /// Who asked.
    pub uid: Option<u32>,
    /// Their name, where the box knows it now.
    pub user: Option<String>,
    /// Which device.
    pub device: Option<DeviceId>,
    /// In words: what was asked for, as options of the command; or what happened.
    pub what: Option<String>,
    /// How often.
    pub times: u64,
    /// What came of it: `done`, `partly`, `failed`, `refused`, `interrupted`,
    /// `unrecorded`; `None` while it is under way, and of what only happened.
    pub word: Option<String>,
    /// When it was over.
    pub finished_at: Option<Timestamp>,
    /// Why it was refused, or is not known.
    pub why: Option<String>,
    /// What was planned, as JSON, where the caller may see it.
    pub plan: Reading<String>,
    /// What came of it, as JSON, where the caller may see it.
    pub outcome: Reading<String>,
}
