//! The writers of the store and the decoder of samples, as benches, tests and fuzzing run them; not
//! an interface.

pub use super::restore::copy;

use super::actions::{self, ActionEnd};
use super::blob::decode;
use super::database::{AUDIT, OpenDatabase, SAMPLES, open};
use super::killed_runs::{KilledRuns, ended_processes};
use super::retention::{Retention, delete_before, delete_unused, release_pages};
use super::sample::Sample;
use super::sample_writer::SampleWriter;
use super::{Action, RecordedEvent, event_row, verdicts};
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes samples into a store and deletes old ones, as the writing thread does.
pub(crate) struct BenchRecorder {
    boot: String,
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
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        Self::open_in_boot(directory, "boot")
    }

    /// Opens the store in this directory, in this boot of the host.
    fn open_in_boot(directory: &Path, boot: &str) -> Result<Self, String> {
        Ok(Self {
            boot: boot.to_owned(),
            opened: open(directory, &SAMPLES).map_err(|unusable| unusable.why)?,
            written: SampleWriter::default(),
            keep: DEFAULT_RETENTION,
            deleted_at: Timestamp(0),
            tidied_at: Timestamp(0),
        })
    }

    /// Writes a sample.
    pub(crate) fn write(&mut self, sample: &Sample) -> Result<(), String> {
        let now = sample.snapshot.taken_at;
        let connection = &mut self.opened.connection;
        self.written
            .write(connection, &self.boot, sample)
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

/// Writes a store at given times, as one run of the daemon does: its samples, its record, and which
/// runs its kills ended.
pub(crate) struct BenchStore {
    samples: BenchRecorder,
    audit: OpenDatabase,
    killed: KilledRuns,
    /// The run of the daemon, as the record names it.
    daemon_run: String,
    started_at: Timestamp,
    /// `started_at` by the monotonic clock.
    started: Instant,
}

impl BenchStore {
    /// Opens the store in this directory, and records that the daemon started at this time in
    /// this boot of the host.
    pub(crate) fn start(directory: &Path, boot: &str, at: Timestamp) -> Result<Self, String> {
        let store = Self {
            samples: BenchRecorder::open_in_boot(directory, boot)?,
            audit: open(directory, &AUDIT).map_err(|unusable| unusable.why)?,
            killed: KilledRuns::default(),
            daemon_run: format!("{boot}/{}", at.0),
            started_at: at,
            started: Instant::now(),
        };
        store.record(at, &RecordedEvent::Started(env!("CARGO_PKG_VERSION")))?;
        Ok(store)
    }

    /// Writes a sample.
    pub(crate) fn write(&mut self, sample: &Sample) -> Result<(), String> {
        self.samples.write(sample)?;
        self.mark_killed_runs()?;
        let now = self.monotonic(sample.snapshot.taken_at);
        self.killed.count_sample(now);
        Ok(())
    }

    /// Records an event.
    pub(crate) fn record(&self, at: Timestamp, event: &RecordedEvent) -> Result<(), String> {
        let boot = &self.samples.boot;
        event_row::insert(&self.audit.connection, at, event, boot).map_err(text)
    }

    /// Records a decision of the guard.
    pub(crate) fn decide(&self, record: &GuardRecord) -> Result<(), String> {
        let records = std::slice::from_ref(record);
        verdicts::insert(&self.audit.connection, records).map_err(text)
    }

    /// Records an action that was requested and finished at these times.
    pub(crate) fn act(
        &mut self,
        action: &Action,
        (at, finished_at): (Timestamp, Timestamp),
        (result, outcome): (&'static str, String),
    ) -> Result<(), String> {
        let end = ActionEnd {
            at: finished_at,
            result,
            ended: ended_processes(&outcome),
            outcome: Some(outcome),
            why: None,
        };
        let connection = &self.audit.connection;
        let row = actions::insert(connection, &self.daemon_run, action, at, Some(&end));
        let (row, now) = (row.map_err(text)?, self.monotonic(finished_at));
        self.killed.add(row, at, &end.ended, now);
        self.mark_killed_runs()
    }

    fn mark_killed_runs(&mut self) -> Result<(), String> {
        let BenchRecorder { opened, boot, .. } = &mut self.samples;
        let connection = &mut opened.connection;
        self.killed.mark_runs(connection, boot).map_err(text)
    }

    fn monotonic(&self, at: Timestamp) -> Instant {
        self.started + at.since(self.started_at)
    }
}

fn text(error: rusqlite::Error) -> String {
    error.to_string()
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
