//! The JSON of a pruning: the deleted rows and the remaining ones.

use super::SCHEMA;
use crate::audit::{PruneReport, StoreContents};
use crate::units::Timestamp;
use serde::Serialize;

/// What `gpukillctl audit prune -o json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct PruneDocument {
    pub schema: u32,
    /// Older rows are deleted.
    pub before: String,
    /// Whether the rows are deleted, and not only counted.
    pub done: bool,
    pub deleted: StoreContentsDocument,
    pub left: StoreContentsDocument,
}

/// The number of rows in a store, or in a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct StoreContentsDocument {
    pub samples: u64,
    pub minutes: u64,
    pub hours: u64,
    /// Processes, each counted once for each GPU.
    pub runs: u64,
    /// Recorded actions.
    pub actions: u64,
    /// The oldest of the samples, minutes and hours.
    pub since: Option<String>,
    /// The newest of them.
    pub until: Option<String>,
}

impl PruneDocument {
    /// The result of a pruning up to this time; without `done`, of a dry run.
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

impl From<&StoreContents> for StoreContentsDocument {
    fn from(contents: &StoreContents) -> Self {
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
