//! Operations on the whole store: backup and pruning.

use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

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

/// What a pruning deleted, or would delete. Recorded actions are never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReport {
    /// The rows older than the requested time.
    pub deleted: StoreContents,
    /// The rows that remain.
    pub left: StoreContents,
}
