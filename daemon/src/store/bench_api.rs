//! The sample writer and the decoder of samples, as benches and fuzzing run them; not an interface.

pub use super::restore::copy;

use super::blob::decode;
use super::database::{OpenDatabase, SAMPLES, open};
use super::retention::{Retention, delete_before, delete_unused, release_pages};
use super::sample::Sample;
use super::sample_writer::SampleWriter;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Writes samples into a store and deletes old ones, as the writing thread does.
pub(crate) struct BenchRecorder {
    opened: OpenDatabase,
    written: SampleWriter,
    keep: Retention,
    deleted_at: Timestamp,
    tidied_at: Timestamp,
}

/// The defaults of the configuration.
const DEFAULT_RETENTION: Retention = Retention {
    samples: Duration::from_secs(7 * 86_400),
    minutes: Duration::from_secs(90 * 86_400),
    hours: Duration::from_secs(730 * 86_400),
};

impl BenchRecorder {
    /// Opens the store in this directory.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        Ok(Self {
            opened: open(directory, &SAMPLES).map_err(|unusable| unusable.why)?,
            written: SampleWriter::default(),
            keep: DEFAULT_RETENTION,
            deleted_at: Timestamp(0),
            tidied_at: Timestamp(0),
        })
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// The error of SQLite.
    pub(crate) fn write(&mut self, sample: &Sample) -> Result<(), String> {
        let text = |error: rusqlite::Error| error.to_string();
        let now = sample.snapshot.taken_at;
        let connection = &mut self.opened.connection;
        self.written
            .write(connection, "boot", sample)
            .map_err(text)?;
        if now.since(self.deleted_at) >= Duration::from_secs(60) {
            self.deleted_at = now;
            while delete_before(connection, self.keep.oldest(now)).map_err(text)? {}
        }
        if now.since(self.tidied_at) >= Duration::from_secs(3_600) {
            self.tidied_at = now;
            while delete_unused(connection).map_err(text)? {}
            release_pages(connection).map_err(text)?;
            self.written.forget();
        }
        Ok(())
    }
}

/// How long each run held its device, and its shares of its owner's time: busy, idle and unknown,
/// in milliseconds. `None` if the bytes are not a sample.
#[must_use]
pub fn times(sample: &[u8]) -> Option<BTreeMap<i64, [u64; 4]>> {
    let stored = decode(sample, Timestamp(0)).ok()?;
    let runs = stored.runs.into_iter();
    let times = runs.map(|(run, it)| (run, [it.held_ms, it.busy_ms, it.idle_ms, it.unknown_ms]));
    Some(times.collect())
}
