//! The store as a whole: copied, made smaller.

use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// Names a copy that is on its way, for as long as its connection lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CopyId(pub u64);

/// A copy that is ready to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// Names it.
    pub id: CopyId,
    /// How long it is, in bytes.
    pub bytes: u64,
}

/// What a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Samples.
    pub samples: u64,
    /// Minutes.
    pub minutes: u64,
    /// Hours.
    pub hours: u64,
    /// Processes on devices.
    pub runs: u64,
    /// Entries of the record of what was done.
    pub actions: u64,
    /// The oldest of all.
    pub since: Option<Timestamp>,
    /// The newest.
    pub until: Option<Timestamp>,
}

/// What was deleted, or would be. The record of what was done is never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReport {
    /// What is older than the moment asked for.
    pub deleted: Contents,
    /// What stays.
    pub left: Contents,
}
