//! The record of actions.

use crate::model::DeviceId;
use crate::reading::Reading;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// The request of a kill of the guard is this text and the rule. Requests of people are PIDs and
/// options of the command.
pub const GUARD_REQUEST: &str = "guard: ";

/// The name that selects the kills of the guard in [`ActionQuery::user`]. They are no actions of the
/// user of the daemon.
pub const GUARD_USER: &str = "guard";

/// A query for recorded actions. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionQuery {
    /// The earliest time.
    pub since: Timestamp,
    /// The end of the period, exclusive.
    pub until: Timestamp,
    /// Actions that this user requested, by name or number, or several with commas between;
    /// [`GUARD_USER`] for the kills of the guard.
    pub user: Option<String>,
    /// The kind, or several separated by commas: `kill`, `reset,xid`.
    pub kind: Option<String>,
    /// Actions on the devices that this selector selects.
    pub gpu: Option<String>,
    /// Entries older than this one: the `next` of the page before.
    pub before: Option<ActionCursor>,
    /// The most entries to return; the daemon has its own maximum.
    pub limit: u32,
}

/// The position of an entry in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActionCursor {
    /// The time of the entry.
    pub at: Timestamp,
    /// Its [`ActionRecord::id`].
    pub id: u64,
}

/// One page of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionPage {
    /// The entries, newest first.
    pub records: Vec<ActionRecord>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<ActionCursor>,
}

/// One entry: a requested action, or an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// A unique id that fits in 53 bits.
    pub id: u64,
    /// The time of the request or event.
    pub at: Timestamp,
    /// The kind in one word: `kill`, `reset`, `prune`, `backup`, `xid`, `started`, `fault`.
    pub kind: String,
    /// The uid of the requester.
    pub uid: Option<u32>,
    /// The name of the requester, if this host knows it now.
    pub user: Option<String>,
    /// The device.
    pub device: Option<DeviceId>,
    /// The request as options of the command, or the event in words.
    pub what: Option<String>,
    /// The number of occurrences.
    pub times: u64,
    /// The result: `done`, `partly`, `failed`, `refused`, `interrupted`, `unrecorded`; `None`
    /// for an action in progress and for an event.
    pub result: Option<String>,
    /// The end of the action.
    pub finished_at: Option<Timestamp>,
    /// Why it was refused, or why its result is unknown.
    pub why: Option<String>,
    /// The plan as JSON, if the caller may see it.
    pub plan: Reading<String>,
    /// The outcome as JSON, if the caller may see it.
    pub outcome: Reading<String>,
}

impl ActionRecord {
    /// The rule by which the guard ended a job, if this is a kill of the guard.
    #[must_use]
    pub fn guard_rule(&self) -> Option<&str> {
        let what = self.what.as_deref().filter(|_| self.kind == "kill");
        what?.strip_prefix(GUARD_REQUEST)
    }
}
