//! How the store stands, for whoever asks: what its threads share with the rest.

use crate::faults::FaultCause;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the store stands.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) faults: Vec<FaultCause>,
    pub(super) samples: Bytes,
    pub(super) audit: Bytes,
    pub(super) written_at: Option<Timestamp>,
    pub(super) written: u64,
    pub(super) dropped: u64,
    /// The files that somebody could not read, to be looked over.
    pub(super) suspected: BTreeSet<&'static str>,
}

pub(super) fn lock(shared: &Mutex<Standing>) -> MutexGuard<'_, Standing> {
    // Nothing panics while it holds this lock; if something did, the values in
    // it are whole all the same.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
