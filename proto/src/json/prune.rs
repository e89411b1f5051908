//! The JSON of a pruning: the deleted rows and the remaining ones.

use super::SCHEMA;
use super::fields::document;
use super::schema::described;
use crate::audit::{PruneReport, StoreContents};
use crate::units::Timestamp;

described! {
    /// The document that `gpukillctl audit prune -o json` prints.
    pub struct PruneDocument {
        pub schema: u32,
        /// Older rows are deleted.
        pub before: String as Timestamp,
        /// Whether the rows are deleted, and not only counted.
        pub done: bool,
        pub deleted: StoreContentsDocument,
        pub left: StoreContentsDocument,
    }
}

document! {
    /// The number of rows in a store, or in a part of it.
    plain StoreContentsDocument(contents: &StoreContents) {
        samples: u64 = contents.samples,
        minutes: u64 = contents.minutes,
        hours: u64 = contents.hours,
        /// Processes, each counted once for each GPU.
        runs: u64 = contents.runs,
        /// Recorded actions.
        actions: u64 = contents.actions,
        /// The oldest of the samples, minutes and hours.
        since: Option<String> as Option<Timestamp> = contents.since.map(Timestamp::to_rfc3339),
        /// The newest of them.
        until: Option<String> as Option<Timestamp> = contents.until.map(Timestamp::to_rfc3339),
    }
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
