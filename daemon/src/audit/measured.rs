//! The writer of samples as its benchmark runs it; no interface.

use super::database::{Opened, SAMPLES, open};
use super::retention::{Keep, delete_before, delete_unused, give_back};
use super::sample::Sample;
use super::samples::Written;
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Writes samples into a store, and deletes what is too old, as the writing
/// thread does.
pub(crate) struct Recording {
    opened: Opened,
    written: Written,
    keep: Keep,
    deleted_at: Timestamp,
    tidied_at: Timestamp,
}

/// As by default.
const KEEP: Keep = Keep {
    samples: Duration::from_secs(7 * 86_400),
    minutes: Duration::from_secs(90 * 86_400),
    hours: Duration::from_secs(730 * 86_400),
};

impl Recording {
    /// # Errors
    /// When the store cannot be opened, in words.
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        Ok(Self {
            opened: open(directory, &SAMPLES).map_err(|unusable| unusable.why)?,
            written: Written::default(),
            keep: KEEP,
            deleted_at: Timestamp(0),
            tidied_at: Timestamp(0),
        })
    }

    /// # Errors
    /// What SQLite says.
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
            give_back(connection).map_err(text)?;
            self.written.forget();
        }
        Ok(())
    }
}
