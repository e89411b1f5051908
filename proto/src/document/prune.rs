//! The JSON of what is deleted from the store, and what stays.

use super::SCHEMA;
use crate::audit::{Contents, PruneReport};
use crate::units::Timestamp;
use serde::Serialize;

/// What `gpukillctl audit prune -o json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct PruneDocument {
    pub schema: u32,
    /// What is older goes.
    pub before: String,
    /// Whether it is gone, and not only counted.
    pub done: bool,
    pub deleted: ContentsDocument,
    pub left: ContentsDocument,
}

/// What a store holds, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ContentsDocument {
    pub samples: u64,
    pub minutes: u64,
    pub hours: u64,
    /// Processes, each counted for each GPU.
    pub runs: u64,
    /// Entries of the record of what was done.
    pub actions: u64,
    /// The oldest of the samples, minutes and hours.
    pub since: Option<String>,
    /// The newest of them.
    pub until: Option<String>,
}

impl PruneDocument {
    /// What was deleted of before this moment; or would be, where it is not `done`.
    #[must_use]
    pub fn new(report: &PruneReport, before: Timestamp, done: bool) -> Self {
        Self {
            schema: SCHEMA,
            before: before.to_rfc3339(),
            done,
            deleted: (&report.deleted).into(),
            left: (&report.left).into(),
        }
    }
}

impl From<&Contents> for ContentsDocument {
    fn from(contents: &Contents) -> Self {
        Self {
            samples: contents.samples,
            minutes: contents.minutes,
            hours: contents.hours,
            runs: contents.runs,
            actions: contents.actions,
            since: contents.since.map(Timestamp::to_rfc3339),
            until: contents.until.map(Timestamp::to_rfc3339),
        }
    }
}
