//! The status of the store, shared between its threads and its callers.

use crate::fault::FaultCause;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct StoreStatus {
    pub(super) faults: Vec<FaultCause>,
    pub(super) samples: Bytes,
    pub(super) audit: Bytes,
    pub(super) written_at: Option<Timestamp>,
    pub(super) samples_written: u64,
    pub(super) samples_dropped: u64,
    /// The files that a query could not read; the writer checks them.
    pub(super) suspected: BTreeSet<&'static str>,
}

pub(super) fn lock(shared: &Mutex<StoreStatus>) -> MutexGuard<'_, StoreStatus> {
    // No code panics while it holds this lock; even then the values would be consistent.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
