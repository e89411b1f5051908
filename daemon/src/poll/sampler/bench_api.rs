//! The sampler as the store's benchmark uses it; no stable interface.

use super::{Sampler, SamplerInput};
use crate::store::BenchRecorder;
use gpukill_proto::model::Snapshot;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Samples polls and writes the samples without a daemon.
pub struct SamplerBench {
    sampler: Sampler,
    recording: BenchRecorder,
}

impl SamplerBench {
    /// Opens the store in this directory.
    ///
    /// # Errors
    /// When the store cannot be opened; the text has the reason.
    pub fn open(directory: &Path) -> Result<Self, String> {
        Ok(Self {
            // No such processes exist: all processes that leave have ended.
            sampler: Sampler::new("/nonexistent".into()),
            recording: BenchRecorder::open(directory)?,
        })
    }

    /// Takes a poll that was this long after the first one, and two seconds after the previous one.
    ///
    /// # Errors
    /// The error of the store.
    pub fn poll(&mut self, snapshot: &Arc<Snapshot>, at: Duration) -> Result<(), String> {
        let poll = SamplerInput {
            snapshot,
            groups: &Arc::default(),
            accounts: &Arc::default(),
            suspected: &Arc::default(),
            at,
            interval: Duration::from_secs(2),
            sample_interval: Duration::from_secs(10),
        };
        let samples = self.sampler.add(&poll);
        samples
            .iter()
            .try_for_each(|sample| self.recording.write(sample))
    }
}
