//! Recovery of files that cannot be used: how they are opened again, and what happens meanwhile.

use super::super::database::{
    AUDIT, DatabaseKind, LONG_CHECK_TIMEOUT, OpenDatabase, SAMPLES, open, open_checked,
};
use super::super::disk_space::{DiskSpace, MIN_FREE_BYTES};
use super::super::error::{StoreError, StoreErrorKind};
use super::super::sample_writer::SampleWriter;
use super::super::{RecordedEvent, lock, quarantine, restore};
use super::{MAX_PENDING, PendingEntry, RETRY_INTERVAL, Writer};
use crate::fault::FaultCause;
use crate::log_events::event;
use gpukill_proto::model::FaultCode;
use gpukill_proto::units::{Bytes, Timestamp};
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The interval between two checks of the directory: its files and the free space.
const DIRECTORY_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The interval between two long checks of a file that a query could not read: mostly there was
/// another reason.
const LONG_CHECK_INTERVAL: Duration = Duration::from_secs(600);

impl Writer {
    /// Closes files that an admin moved or deleted, so that new ones are created at once.
    pub(super) fn close_moved_files(&mut self) {
        for (opened, kind) in [(&mut self.samples, &SAMPLES), (&mut self.audit, &AUDIT)] {
            if opened.take_if(|opened| !opened.is_in_place()).is_some() {
                event!(StoreMoved, file = kind.file);
                self.retry_at = Instant::now();
            }
            // The contents of a deleted log are written into the file before the file gets another
            // log. While the file is being read, this is retried later.
            let has_lost_log = |opened: &mut OpenDatabase| !opened.is_log_in_place();
            if let Some(lost) = opened.take_if(has_lost_log) {
                match lost.empty_log() {
                    Ok(true) => {
                        tracing::warn!(file = kind.file, "its log was deleted: reopened");
                        self.retry_at = Instant::now();
                    }
                    Ok(false) => *opened = Some(lost),
                    Err(error) => {
                        tracing::error!(file = kind.file, %error, "its log was deleted");
                        self.retry_at = Instant::now();
                    }
                }
            }
        }
    }

    /// Closes files that a query could not read. They are checked when they are opened again.
    pub(super) fn close_suspected_files(&mut self) {
        let suspected = std::mem::take(&mut lock(&self.status).suspected);
        let now = Instant::now();
        if suspected.is_empty() || self.next_suspect_check.is_some_and(|at| now < at) {
            return;
        }
        self.next_suspect_check = Some(now + LONG_CHECK_INTERVAL);
        self.retry_at = now;
        for file in suspected {
            tracing::warn!(file, "could not be read: checking it");
            self.is_long_check_due = true;
            if file == SAMPLES.file {
                self.samples = None;
            } else {
                self.audit = None;
            }
        }
    }

    pub(super) fn open_closed_files(&mut self) {
        if (self.samples.is_some() && self.audit.is_some()) || Instant::now() < self.retry_at {
            return;
        }
        self.retry_at = Instant::now() + RETRY_INTERVAL;
        if self.samples.is_none()
            && self.audit.is_none()
            && let Err(why) = restore::finish_restore(&self.directory)
        {
            // The files may be of two stores.
            (self.samples_fault, self.audit_fault) = (Some(why.clone()), Some(why));
            return;
        }
        if self.samples.is_none() {
            (self.samples, self.samples_fault) = split_result(self.open_samples());
            // The file may be another one, with other ids.
            self.sample_writer = SampleWriter::default();
        }
        if self.audit.is_none() {
            (self.audit, self.audit_fault) = split_result(self.open_audit());
        }
        self.is_long_check_due = false;
    }

    fn open_file(&self, kind: &DatabaseKind) -> Result<OpenDatabase, StoreError> {
        if self.is_long_check_due {
            return open_checked(LONG_CHECK_TIMEOUT, &self.directory, kind);
        }
        open(&self.directory, kind)
    }

    fn open_samples(&mut self) -> Result<OpenDatabase, String> {
        loop {
            match self.open_file(&SAMPLES) {
                Ok(opened) => return Ok(opened),
                Err(unusable) => self.repair(&SAMPLES, &unusable)?,
            }
        }
    }

    fn open_audit(&mut self) -> Result<OpenDatabase, String> {
        loop {
            match self.open_and_adopt() {
                Ok(opened) => return Ok(opened),
                Err(unusable) => self.repair(&AUDIT, &unusable)?,
            }
        }
    }

    fn open_and_adopt(&mut self) -> Result<OpenDatabase, StoreError> {
        let mut opened = self.open_file(&AUDIT)?;
        let adopted = self
            .open_actions
            .adopt(&mut opened.connection, SystemTime::now().into());
        adopted.map_err(|error| sqlite_error(&self.directory, &AUDIT, &error))?;
        Ok(opened)
    }

    /// Repairs what can be repaired, so that a closed file can be retried at once. The reserve is
    /// released once, and a few files are quarantined in a day.
    ///
    /// # Errors
    /// The reason why only waiting helps.
    fn repair(&mut self, kind: &DatabaseKind, unusable: &StoreError) -> Result<(), String> {
        match unusable.kind {
            StoreErrorKind::Corrupt => self.quarantine(kind, &unusable.why),
            StoreErrorKind::DiskFull if kind.file == AUDIT.file => {
                let log = self.directory.join(format!("{}-wal", AUDIT.file));
                if self.reserve.release(&log) {
                    Ok(())
                } else {
                    Err(unusable.why.clone())
                }
            }
            StoreErrorKind::DiskFull | StoreErrorKind::Other => Err(unusable.why.clone()),
        }
    }

    fn quarantine(&mut self, kind: &DatabaseKind, why: &str) -> Result<(), String> {
        // The times of files come from the clock of their file system, which may differ.
        self.quarantined_at
            .retain(|at| at.elapsed() < quarantine::DAY);
        if self.quarantined_at.len() >= 2 * quarantine::MAX_PER_DAY {
            return Err(format!(
                "{why}; too many files were quarantined: move it away"
            ));
        }
        let now = Timestamp::from(SystemTime::now());
        let name = quarantine::quarantine(&self.directory, kind, why, now)?;
        self.quarantined_at.push(Instant::now());
        event!(StoreCorrupt, file = kind.file, name, why);
        // Written as soon as there is a working record.
        if self.pending.len() < MAX_PENDING {
            let event = RecordedEvent::Quarantined(name, why.to_owned());
            self.pending.push_back(PendingEntry::Event(now, event));
        }
        Ok(())
    }

    pub(super) fn close_samples(&mut self, error: &rusqlite::Error) {
        self.samples = None;
        self.retry_at = Instant::now() + RETRY_INTERVAL;
        let unusable = sqlite_error(&self.directory, &SAMPLES, error);
        match self.repair(&SAMPLES, &unusable) {
            Ok(()) => self.retry_at = Instant::now(),
            Err(why) => self.samples_fault = Some(why),
        }
    }

    /// Runs `work` on the record; after a failure that can be repaired, once more. Returns `None`
    /// while the record is not open.
    pub(super) fn with_audit<T>(
        &mut self,
        mut work: impl FnMut(&mut Self, &Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        loop {
            let opened = self.audit.take()?;
            match work(self, &opened.connection) {
                Ok(done) => {
                    self.audit = Some(opened);
                    return Some(done);
                }
                Err(error) => {
                    drop(opened);
                    self.reopen_audit(&error);
                }
            }
        }
    }

    /// Reopens the record if the cause of the error was repaired.
    fn reopen_audit(&mut self, error: &rusqlite::Error) {
        self.retry_at = Instant::now() + RETRY_INTERVAL;
        let unusable = sqlite_error(&self.directory, &AUDIT, error);
        let repaired = self.repair(&AUDIT, &unusable);
        let opened = repaired.and_then(|()| self.open_audit());
        (self.audit, self.audit_fault) = split_result(opened);
    }

    /// Checks the free space; called at intervals and before each sample.
    pub(super) fn check_space(&mut self) {
        self.apply_space(DiskSpace::read(&self.directory));
    }

    pub(super) fn apply_space(&mut self, space: DiskSpace) {
        self.are_paused = !space.allows_samples(!self.are_paused);
        self.may_delete = space.allows_deleting();
        // While the record cannot be written, the reserve is of no use.
        if self.audit.is_some() {
            self.reserve.ensure(space);
        }
    }

    /// Checks the directory if that is due.
    pub(super) fn check_directory(&mut self) {
        if Instant::now() < self.check_directory_at {
            return;
        }
        self.check_directory_at = Instant::now() + DIRECTORY_CHECK_INTERVAL;
        self.check_space();
    }

    /// When the directory must be checked again without a command.
    pub(super) fn next_directory_check(&self) -> Option<Instant> {
        let has_reserve = self.audit.is_none() || self.reserve.is_present();
        let is_well = !self.are_paused && has_reserve && self.quarantine_faults.is_empty();
        (!is_well).then_some(self.check_directory_at)
    }

    pub(super) fn publish_status(&mut self) {
        self.quarantine_faults = [&SAMPLES, &AUDIT]
            .into_iter()
            .filter_map(|kind| quarantine::quarantine_fault(&self.directory, kind))
            .collect();
        let paused = self.are_paused.then(|| {
            format!(
                "{}: too little disk space is free (less than {} MiB, or an eighth): samples are \
                 paused",
                self.directory.join(SAMPLES.file).display(),
                MIN_FREE_BYTES >> 20
            )
        });
        let files = [
            (FaultCode::SamplesUnusable, self.samples_fault.clone()),
            (FaultCode::AuditUnusable, self.audit_fault.clone()),
            (FaultCode::SamplesPaused, paused),
        ];
        let files = files.into_iter();
        let files = files.filter_map(|(code, what)| Some(FaultCause::new(code, what?)));
        let reserve = self.reserve.fault().filter(|_| self.audit.is_some());
        let mut faults: Vec<FaultCause> = files.chain(reserve).collect();
        // Both files may lack the same directory.
        faults.dedup_by(|one, other| one.what == other.what);
        let quarantined = self.quarantine_faults.iter();
        faults.extend(quarantined.map(|what| FaultCause::new(FaultCode::FileQuarantined, what)));
        let recorded_since = self.audit.as_ref().and_then(first_event);
        let mut status = lock(&self.status);
        status.recorded_since = recorded_since;
        status.faults = faults;
        status.samples = file_bytes(&self.directory, &SAMPLES);
        status.audit = file_bytes(&self.directory, &AUDIT);
    }
}

/// The time of the oldest event; `None` without events.
fn first_event(audit: &OpenDatabase) -> Option<Timestamp> {
    // Once for each sample.
    let mut select = audit
        .connection
        .prepare_cached("SELECT min(at) FROM event")
        .ok()?;
    let first = select.query_row([], |row| row.get(0));
    first.ok().flatten().map(Timestamp)
}

fn split_result<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(fault) => (None, Some(fault)),
    }
}

fn sqlite_error(directory: &Path, kind: &DatabaseKind, error: &rusqlite::Error) -> StoreError {
    StoreError::from_sqlite(&directory.join(kind.file), error)
}

/// The size of the file and its write-ahead log.
fn file_bytes(directory: &Path, kind: &DatabaseKind) -> Bytes {
    let of =
        |name: String| std::fs::metadata(directory.join(name)).map_or(0, |metadata| metadata.len());
    Bytes(of(kind.file.to_owned()) + of(format!("{}-wal", kind.file)))
}
