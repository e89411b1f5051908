//! The store as a whole: copied, put back, made smaller.

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

/// What a restore puts in the place of what, or would put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// What there is now, and is set aside; `None` where it cannot be counted.
    pub now: Option<Contents>,
    /// What the copy holds.
    pub then: Contents,
    /// The box that the copy was made on, as it calls itself.
    pub host: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// So many entries of the record of what was done are not in the copy, and are
    /// carried over into it.
    pub carried: u64,
    /// The directory in which what there was now lies; `None` of a dry run.
    pub set_aside: Option<String>,
}

/// What was deleted, or would be. The record of what was done is never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReport {
    /// What is older than the moment asked for.
    pub deleted: Contents,
    /// What stays.
    pub left: Contents,
}
