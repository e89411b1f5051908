//! What polls leave in the store, as its benchmark has it; no interface.

use super::{Gatherer, Poll};
use crate::audit::Recording;
use gpukill_proto::snapshot::Snapshot;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Gathers polls and writes samples, without a daemon.
pub struct Measured {
    gatherer: Gatherer,
    recording: Recording,
}

impl Measured {
    /// Writes into this directory.
    ///
    /// # Errors
    /// When the store cannot be opened, in words.
    pub fn open(directory: &Path) -> Result<Self, String> {
        Ok(Self {
            // There are no such processes: all that leave have ended.
            gatherer: Gatherer::new("/nonexistent".into()),
            recording: Recording::open(directory)?,
        })
    }

    /// Takes a poll that was so long after the first one, and two seconds after
    /// the one before.
    ///
    /// # Errors
    /// What the store says.
    pub fn poll(&mut self, snapshot: &Arc<Snapshot>, at: Duration) -> Result<(), String> {
        let poll = Poll {
            snapshot,
            groups: &Arc::default(),
            accounts: &Arc::default(),
            suspected: &Arc::default(),
            at,
            interval: Duration::from_secs(2),
            sample_interval: Duration::from_secs(10),
        };
        let samples = self.gatherer.add(&poll);
        samples
            .iter()
            .try_for_each(|sample| self.recording.write(sample))
    }
}
