//! What becomes of a file that cannot be used: how it is opened again, and what
//! the daemon does meanwhile.

use super::super::database::{AUDIT, Kind, LONG_LOOK, Opened, SAMPLES, open, open_after};
use super::super::samples::Written;
use super::super::space::{FLOOR, Space};
use super::super::trouble::{Trouble, Unusable};
use super::super::{Event, aside, lock, restore};
use super::{MOST_PENDING, Pending, RETRY, Writer};
use crate::catalogue::tell;
use crate::faults::FaultCause;
use gpukill_proto::snapshot::FaultCode;
use gpukill_proto::units::{Bytes, Timestamp};
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The time between two looks at the directory: what lies there, and what room
/// there is.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The time between two long looks at a file that somebody could not read: as a
/// rule that had another reason.
const SUSPECT_EVERY: Duration = Duration::from_secs(600);

impl Writer {
    /// A file that an admin moved or deleted gets a successor at once.
    pub(super) fn close_what_was_taken_away(&mut self) {
        for (opened, kind) in [(&mut self.samples, &SAMPLES), (&mut self.audit, &AUDIT)] {
            if opened.take_if(|opened| !opened.is_in_place()).is_some() {
                tell!(StoreTaken, file = kind.file);
                self.retry_at = Instant::now();
            }
            // Whatever is in a log that was taken away is in the file before that
            // gets another one. Where somebody reads it now, a moment later.
            let has_lost_log = |opened: &mut Opened| !opened.has_its_log();
            if let Some(lost) = opened.take_if(has_lost_log) {
                match lost.empty_log() {
                    Ok(true) => {
                        tracing::warn!(file = kind.file, "its log was deleted: opened anew");
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

    /// A file that somebody could not read is closed, and looked over as it is
    /// opened again.
    pub(super) fn close_what_is_suspected(&mut self) {
        let suspected = std::mem::take(&mut lock(&self.shared).suspected);
        let now = Instant::now();
        if suspected.is_empty() || self.suspect_at.is_some_and(|at| now < at) {
            return;
        }
        self.suspect_at = Some(now + SUSPECT_EVERY);
        self.retry_at = now;
        for file in suspected {
            tracing::warn!(file, "could not be read: it is looked over");
            self.look_long = true;
            if file == SAMPLES.file {
                self.samples = None;
            } else {
                self.audit = None;
            }
        }
    }

    pub(super) fn open_what_is_closed(&mut self) {
        if (self.samples.is_some() && self.audit.is_some()) || Instant::now() < self.retry_at {
            return;
        }
        self.retry_at = Instant::now() + RETRY;
        if self.samples.is_none()
            && self.audit.is_none()
            && let Err(why) = restore::finish(&self.directory)
        {
            // What is in place may be half of one store and half of another.
            (self.samples_fault, self.audit_fault) = (Some(why.clone()), Some(why));
            return;
        }
        if self.samples.is_none() {
            (self.samples, self.samples_fault) = split(self.open_samples());
            // It may be another file, with other ids.
            self.written = Written::default();
        }
        if self.audit.is_none() {
            (self.audit, self.audit_fault) = split(self.open_audit());
        }
        self.look_long = false;
    }

    fn open(&self, kind: &Kind) -> Result<Opened, Unusable> {
        if self.look_long {
            return open_after(LONG_LOOK, &self.directory, kind);
        }
        open(&self.directory, kind)
    }

    fn open_samples(&mut self) -> Result<Opened, String> {
        loop {
            match self.open(&SAMPLES) {
                Ok(opened) => return Ok(opened),
                Err(unusable) => self.mend(&SAMPLES, &unusable)?,
            }
        }
    }

    fn open_audit(&mut self) -> Result<Opened, String> {
        loop {
            match self.open_and_adopt() {
                Ok(opened) => return Ok(opened),
                Err(unusable) => self.mend(&AUDIT, &unusable)?,
            }
        }
    }

    fn open_and_adopt(&mut self) -> Result<Opened, Unusable> {
        let mut opened = self.open(&AUDIT)?;
        let adopted = self
            .acts
            .adopt(&mut opened.connection, SystemTime::now().into());
        adopted.map_err(|error| unusable(&self.directory, &AUDIT, &error))?;
        Ok(opened)
    }

    /// Does what can be done so that a closed file can be tried again at once. A
    /// reserve is given up once, and a few files are set aside in a day.
    ///
    /// # Errors
    /// Why there is nothing to be done but to wait.
    fn mend(&mut self, kind: &Kind, unusable: &Unusable) -> Result<(), String> {
        match unusable.trouble {
            Trouble::Broken => self.set_aside(kind, &unusable.why),
            Trouble::NoRoom if kind.file == AUDIT.file => {
                let log = self.directory.join(format!("{}-wal", AUDIT.file));
                if self.reserve.give_up(&log) {
                    Ok(())
                } else {
                    Err(unusable.why.clone())
                }
            }
            Trouble::NoRoom | Trouble::Other => Err(unusable.why.clone()),
        }
    }

    fn set_aside(&mut self, kind: &Kind, why: &str) -> Result<(), String> {
        // Times of files are told by their file system, whose clock may be any.
        self.set_aside_at.retain(|at| at.elapsed() < aside::DAY);
        if self.set_aside_at.len() >= 2 * aside::MOST_A_DAY {
            return Err(format!("{why}; too many were set aside: move it away"));
        }
        let now = Timestamp::from(SystemTime::now());
        let name = aside::set_aside(&self.directory, kind, why, now)?;
        self.set_aside_at.push(Instant::now());
        tell!(StoreBroken, file = kind.file, name, why);
        // It is written as soon as there is a record that can be.
        if self.pending.len() < MOST_PENDING {
            let event = Event::SetAside(name, why.to_owned());
            self.pending.push_back(Pending::Event(now, event));
        }
        Ok(())
    }

    pub(super) fn close_samples(&mut self, error: &rusqlite::Error) {
        self.samples = None;
        self.retry_at = Instant::now() + RETRY;
        let unusable = unusable(&self.directory, &SAMPLES, error);
        match self.mend(&SAMPLES, &unusable) {
            Ok(()) => self.retry_at = Instant::now(),
            Err(why) => self.samples_fault = Some(why),
        }
    }

    /// Does something with the record; where that fails for a reason that can be
    /// mended, once more. `None` while it is not open.
    pub(super) fn on_audit<T>(
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

    /// After this it is open only where the reason was mended.
    fn reopen_audit(&mut self, error: &rusqlite::Error) {
        self.retry_at = Instant::now() + RETRY;
        let unusable = unusable(&self.directory, &AUDIT, error);
        let mended = self.mend(&AUDIT, &unusable);
        let opened = mended.and_then(|()| self.open_audit());
        (self.audit, self.audit_fault) = split(opened);
    }

    /// Looks at what room there is, now and then, and before each sample.
    pub(super) fn look_at_room(&mut self) {
        self.heed(Space::of(&self.directory));
    }

    pub(super) fn heed(&mut self, space: Space) {
        self.are_paused = !space.is_enough(!self.are_paused);
        self.may_delete = space.allows_deleting();
        // Where the record cannot be written, room is of no use to it.
        if self.audit.is_some() {
            self.reserve.keep(space);
        }
    }

    /// Looks at the directory, where that is due.
    pub(super) fn look_around(&mut self) {
        if Instant::now() < self.look_at {
            return;
        }
        self.look_at = Instant::now() + LOOK_EVERY;
        self.look_at_room();
    }

    /// When it must look around again, though nobody wants anything.
    pub(super) fn looks_again_at(&self) -> Option<Instant> {
        let has_reserve = self.audit.is_none() || self.reserve.is_kept();
        let is_well = !self.are_paused && has_reserve && self.told_aside.is_empty();
        (!is_well).then_some(self.look_at)
    }

    /// Makes the store's standing known.
    pub(super) fn tell(&mut self) {
        self.told_aside = [&SAMPLES, &AUDIT]
            .into_iter()
            .filter_map(|kind| aside::fault(&self.directory, kind))
            .collect();
        let paused = self.are_paused.then(|| {
            format!(
                "{}: too little of the disk is free (less than {} MiB, or an eighth): samples pause",
                self.directory.join(SAMPLES.file).display(),
                FLOOR >> 20
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
        let quarantined = self.told_aside.iter();
        faults.extend(quarantined.map(|what| FaultCause::new(FaultCode::FileQuarantined, what)));
        let mut standing = lock(&self.shared);
        standing.faults = faults;
        standing.samples = size(&self.directory, &SAMPLES);
        standing.audit = size(&self.directory, &AUDIT);
    }
}

fn split<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(fault) => (None, Some(fault)),
    }
}

fn unusable(directory: &Path, kind: &Kind, error: &rusqlite::Error) -> Unusable {
    Unusable::by_sqlite(&directory.join(kind.file), error)
}

/// The file and its write-ahead log.
fn size(directory: &Path, kind: &Kind) -> Bytes {
    let of =
        |name: String| std::fs::metadata(directory.join(name)).map_or(0, |metadata| metadata.len());
    Bytes(of(kind.file.to_owned()) + of(format!("{}-wal", kind.file)))
}
