//! `audit archive`: writes the closed days of the store into Parquet files, each once. It deletes
//! nothing.
//!
//! The steps for each file are in an order in which the manifest never names a file that is not
//! complete: the file is written under a hidden name, synced, read back, renamed, its directory
//! synced, and then it is entered in the manifest. A run that was killed is repeated from there.

mod coverage;
mod directory;
mod rows;

pub(super) use coverage::archived_history;
pub(super) use directory::ArchiveDirectory;

use super::connect;
use crate::archive::civil_day::{day_of, day_start, next_day};
use crate::archive::manifest::{ArchivedFile, Manifest, ManifestEntry};
use crate::archive::{ArchiveKind, CommandLines, check_host};
use crate::args::Archive;
use crate::connect::{Daemon, call};
use crate::convert::Conversion;
use crate::convert_program::count_checked_rows;
use crate::exit::{Error, Exit};
use crate::output::audit::export::atomic_file::{AtomicFile, io_failure, sync_parent};
use crate::output::audit::export::parquet::ParquetWriter;
use crate::output::audit::export::{
    ArchiveCounts, archive_progress, archive_summary, archived_message,
};
use crate::output::audit::history::TimeSpan;
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::settings::Settings;
use chrono::{Local, NaiveDate};
use directory::FileCheck;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::DaemonStatus;
use gpukill_proto::units::Timestamp;
use rows::{ArchiveRow, RowSource, RowsRead, for_each_row, recorded_since};
use std::path::PathBuf;

/// A new line of progress after so many rows, which take some milliseconds.
const PROGRESS_ROWS: u64 = 1_000;

/// How often a day is read while the daemon deletes its samples, which it does once a minute.
const MAX_READS: u32 = 3;

/// Why a day is not archived after that.
const DELETED_MEANWHILE: &str = "their samples were deleted from the store while they were read";

pub(super) fn run(wanted: &Archive, settings: &Settings) -> Result<Exit, Error> {
    let status = request_status(settings)?;
    let host = check_host(&status.host).map_err(Error::Usage)?;
    let directory = ArchiveDirectory::open(&wanted.directory, host)?;
    let _lock = directory.lock()?;
    let mut archiver = Archiver {
        manifest: directory.read_manifest()?,
        directory,
        commands: match wanted.with_commands {
            true => CommandLines::Kept,
            false => CommandLines::Removed,
        },
        settings,
        counts: ArchiveCounts::default(),
    };
    archiver.check_files(match wanted.verify {
        true => FileCheck::Hash,
        false => FileCheck::Size,
    })?;
    let samples_since = recorded_since(&archiver.connect()?, settings)?;
    for source in RowSource::ALL {
        let oldest = match source {
            RowSource::Samples | RowSource::Runs => samples_since,
            RowSource::Actions => status.store.recorded_since,
        };
        if let Some(oldest) = oldest {
            archiver.archive_source(source, oldest, closed_until(&status, source))?;
        }
    }
    archiver.directory.write_manifest(&archiver.manifest)?;
    print(&archive_summary(&archiver.counts, &wanted.directory))?;
    Ok(match archiver.counts.damaged + archiver.counts.postponed {
        0 => Exit::Done,
        _ => Exit::PartlyDone,
    })
}

/// The daemon's status, with its host name.
pub(super) fn request_status(settings: &Settings) -> Result<DaemonStatus, Error> {
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    call!(daemon, timeout, Status {})
}

/// The end of the time for which this source gets no more rows. Samples are written in the order of
/// time, so the newest one closes all days before it, but not days of the future, which a clock
/// that was wrong has left.
fn closed_until(status: &DaemonStatus, source: RowSource) -> Timestamp {
    let newest = status.store.written_at.unwrap_or_default();
    let newest = newest.min(status.now);
    newest.plus_seconds(-source.close_delay_seconds())
}

struct Archiver<'a> {
    directory: ArchiveDirectory,
    manifest: Manifest,
    commands: CommandLines,
    settings: &'a Settings,
    counts: ArchiveCounts,
}

impl Archiver<'_> {
    fn connect(&self) -> Result<Daemon, Error> {
        connect(self.settings, self.settings.request_timeout())
    }

    /// Checks the files of the manifest, and writes damaged ones again if the store still has
    /// their rows.
    fn check_files(&mut self, check: FileCheck) -> Result<(), Error> {
        for entry in self.manifest.entries().to_vec() {
            match self.directory.check_file(&entry, check) {
                Ok(()) => self.counts.unchanged += 1,
                Err(why) => self.repair(&entry, &why)?,
            }
        }
        Ok(())
    }

    fn repair(&mut self, entry: &ManifestEntry, why: &str) -> Result<(), Error> {
        let span = TimeSpan {
            since: entry.since,
            until: entry.until,
        };
        let Some(mut files) = self.read_day(&[entry.kind], entry.date, span)? else {
            return Ok(());
        };
        let path = self.directory.path(entry.kind, entry.date);
        let messages = self.settings.messages();
        match files.pop() {
            Some(file) if file.count >= entry.rows() => {
                messages.warn(&format!("{} {why}", path.display()));
                let entry = file.finish(entry.date, span)?;
                self.enter(entry)?;
                self.directory.write_manifest(&self.manifest)
            }
            incomplete => {
                let left = incomplete.map_or(0, |file| file.count);
                messages.warn(&format!(
                    "{} {why}, and the store has only {left} of its {} rows",
                    path.display(),
                    entry.rows()
                ));
                self.counts.damaged += 1;
                Ok(())
            }
        }
    }

    /// Archives the days of a source that are closed and not in the manifest, from the day of its
    /// oldest row on.
    fn archive_source(
        &mut self,
        source: RowSource,
        oldest: Timestamp,
        closed_until: Timestamp,
    ) -> Result<(), Error> {
        // Nothing was recorded before 1970.
        let mut date = find_date(oldest.max(Timestamp(0)))?;
        loop {
            let next = next_day(date).ok_or_else(no_calendar)?;
            let start = |date| day_start(date, &Local).ok_or_else(no_calendar);
            let (since, until) = (start(date)?, start(next)?);
            if until > closed_until {
                return Ok(());
            }
            self.archive_day(source, date, TimeSpan { since, until })?;
            date = next;
        }
    }

    fn archive_day(
        &mut self,
        source: RowSource,
        date: NaiveDate,
        span: TimeSpan,
    ) -> Result<(), Error> {
        let is_missing = |kind: &ArchiveKind| self.manifest.get(*kind, date).is_none();
        let mut kinds = source.kinds();
        kinds.retain(is_missing);
        // The kinds of a source have the same days, unless one of them is new.
        while let Some(first) = kinds.first() {
            let first_span = self.span_of_day(*first, date, span);
            let (same, others): (Vec<_>, Vec<_>) = kinds
                .iter()
                .partition(|kind| self.span_of_day(**kind, date, span) == first_span);
            self.write_day(&same, date, first_span)?;
            kinds = others;
        }
        Ok(())
    }

    /// The time span of a day: from the end of the day before to the start of the day after, if
    /// these are archived. If the host's time zone was changed between, that is not midnight.
    fn span_of_day(&self, kind: ArchiveKind, date: NaiveDate, span: TimeSpan) -> TimeSpan {
        let archived = |date: Option<NaiveDate>| self.manifest.get(kind, date?);
        let since = archived(date.pred_opt()).map_or(span.since, |day| day.until);
        let until = archived(next_day(date)).map_or(span.until, |day| day.since);
        TimeSpan {
            since,
            until: until.max(since),
        }
    }

    fn write_day(
        &mut self,
        kinds: &[ArchiveKind],
        date: NaiveDate,
        span: TimeSpan,
    ) -> Result<(), Error> {
        let Some(mut files) = self.read_day(kinds, date, span)? else {
            return Ok(());
        };
        let has_files = !files.is_empty();
        for &kind in kinds {
            let position = files.iter().position(|file| file.kind == kind);
            let entry = match position.map(|position| files.swap_remove(position)) {
                Some(file) => file.finish(date, span)?,
                None => ManifestEntry {
                    kind,
                    date,
                    since: span.since,
                    until: span.until,
                    file: None,
                },
            };
            self.enter(entry)?;
        }
        // Days without rows are entered with the next file, or at the end: there may be many.
        match has_files {
            true => self.directory.write_manifest(&self.manifest),
            false => Ok(()),
        }
    }

    /// Reads the rows of these kinds into files that are not complete yet. A kind without rows has
    /// no file. `None` if the daemon cannot read the day, or deleted samples of it during each
    /// attempt.
    fn read_day(
        &mut self,
        kinds: &[ArchiveKind],
        date: NaiveDate,
        span: TimeSpan,
    ) -> Result<Option<Vec<DayFile>>, Error> {
        let mut why = DELETED_MEANWHILE.to_owned();
        for _ in 0..MAX_READS {
            let mut files = Vec::new();
            match self.read_rows(kinds, date, span, &mut files) {
                Ok(RowsRead::All) => return Ok(Some(files)),
                Ok(RowsRead::Changed) => {}
                // That is so for this day only: any user may start that many processes in a day.
                Err(Error::Refused(refusal @ (Refusal::TooSlow(_) | Refusal::Internal))) => {
                    why = refusal.to_string();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        for kind in kinds {
            let kind = kind.name();
            let messages = self.settings.messages();
            messages.warn(&format!("{kind} of {date} are not archived yet: {why}"));
            self.counts.postponed += 1;
        }
        Ok(None)
    }

    fn read_rows(
        &self,
        kinds: &[ArchiveKind],
        date: NaiveDate,
        span: TimeSpan,
        files: &mut Vec<DayFile>,
    ) -> Result<RowsRead, Error> {
        let source = kinds.first().map(|kind| RowSource::of_kind(*kind));
        let Some(source) = source.filter(|_| span.since < span.until) else {
            return Ok(RowsRead::All);
        };
        let mut line = Spinner::on_stderr(self.settings);
        let mut count = 0;
        let daemon = self.connect()?;
        for_each_row(&daemon, source, span, self.settings, &mut |row| {
            let kind = row.kind();
            if !kinds.contains(&kind) {
                return Ok(());
            }
            if !files.iter().any(|file| file.kind == kind) {
                files.push(self.start_file(kind, date)?);
            }
            count += 1;
            if let Some(line) = &mut line
                && count % PROGRESS_ROWS == 0
            {
                line.set_text(archive_progress(count, date));
            }
            let file = files.iter_mut().find(|file| file.kind == kind);
            file.map_or(Ok(()), |file| file.add(&row, span))
        })
    }

    fn start_file(&self, kind: ArchiveKind, date: NaiveDate) -> Result<DayFile, Error> {
        let file = self.directory.create_file(kind, date)?;
        let form = Conversion::Archive(kind, self.commands);
        Ok(DayFile {
            kind,
            path: self.directory.path(kind, date),
            writer: ParquetWriter::start(form, file.handle()?)?,
            file,
            count: 0,
            oldest: Timestamp(i64::MAX),
            newest: Timestamp(i64::MIN),
            commands: self.commands,
        })
    }

    /// Enters a file or an empty day in the manifest.
    fn enter(&mut self, entry: ManifestEntry) -> Result<(), Error> {
        match &entry.file {
            Some(file) => {
                self.counts.files += 1;
                print(&archived_message(entry.kind, entry.date, file))?;
            }
            None => self.counts.empty += 1,
        }
        self.manifest.insert(entry);
        Ok(())
    }
}

/// The civil day of this moment.
pub(super) fn find_date(at: Timestamp) -> Result<NaiveDate, Error> {
    day_of(at, &Local).ok_or_else(no_calendar)
}

/// The daemon's clock shows no date.
fn no_calendar() -> Error {
    Error::ConnectionLost("its times are outside of the calendar".into())
}

/// A file that is being written.
struct DayFile {
    kind: ArchiveKind,
    path: PathBuf,
    file: AtomicFile,
    writer: ParquetWriter,
    count: u64,
    oldest: Timestamp,
    newest: Timestamp,
    commands: CommandLines,
}

impl DayFile {
    fn add(&mut self, row: &ArchiveRow, span: TimeSpan) -> Result<(), Error> {
        let at = row.at();
        if at < span.since || at >= span.until {
            return Err(Error::ConnectionLost("its rows are of another time".into()));
        }
        self.count += 1;
        self.oldest = self.oldest.min(at);
        self.newest = self.newest.max(at);
        match row {
            ArchiveRow::Record(record) => self.writer.add(record),
            ArchiveRow::Action(action) => self.writer.add(action),
            ArchiveRow::Run(run) => self.writer.add(run),
        }
    }

    /// Reads the file back and gives it its name.
    fn finish(self, date: NaiveDate, span: TimeSpan) -> Result<ManifestEntry, Error> {
        self.writer.finish()?;
        self.file.sync()?;
        let failed = |error| io_failure(&self.path, &error);
        let written = self.file.handle()?;
        directory::drop_cache(&written);
        let rows = count_checked_rows(self.file.handle()?)?;
        if rows != self.count {
            let why = format!("it has {rows} of {} rows", self.count);
            return Err(failed(std::io::Error::other(why)));
        }
        let (bytes, sha256) = directory::hash_file(written).map_err(failed)?;
        self.file.finish()?;
        sync_parent(&self.path).map_err(failed)?;
        Ok(ManifestEntry {
            kind: self.kind,
            date,
            since: span.since,
            until: span.until,
            file: Some(ArchivedFile {
                rows,
                bytes,
                sha256,
                oldest: self.oldest,
                newest: self.newest,
                with_commands: self.commands == CommandLines::Kept,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures;

    #[test]
    fn day_is_closed_by_a_later_sample_and_not_in_the_future() {
        let mut status = fixtures::status();
        let at = |seconds| Timestamp(0).plus_seconds(seconds);
        for (source, written, now, closed) in [
            (RowSource::Samples, None, 5_000, -600),
            (RowSource::Samples, Some(4_000), 5_000, 3_400),
            // The clock was set back after the last sample.
            (RowSource::Samples, Some(9_000), 5_000, 4_400),
            (RowSource::Runs, Some(9_000), 9_000, 1_800),
            (RowSource::Actions, Some(9_000), 9_000, 1_800),
        ] {
            status.store.written_at = written.map(at);
            status.now = at(now);
            assert_eq!(closed_until(&status, source), at(closed));
        }
    }
}
