//! Records in a file, in one of three formats with the same columns; and the messages about
//! written files.

pub(crate) mod atomic_file;
pub(crate) mod parquet;

use crate::archive::ArchiveKind;
use crate::archive::manifest::ArchivedFile;
use crate::args::ExportFormat;
use crate::convert::Conversion;
use crate::exit::Error;
use crate::output::csv::{self, Header};
use crate::output::style::{OutputStyle, Symbols};
use crate::output::text::Line;
use crate::output::value::{date_and_time, disk_size, thousands};
use crate::output::{json, print};
use crate::settings::Settings;
use atomic_file::AtomicFile;
use chrono::NaiveDate;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::json::AuditDocument;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::{Bytes, Timestamp};
use parquet::ParquetWriter;
use std::path::Path;

/// The destination of records.
#[derive(Debug)]
pub(crate) enum ExportTarget {
    /// Standard output, for a text format.
    Stdout,
    File(AtomicFile),
}

/// Records that are being exported.
pub(crate) struct RecordExport {
    sink: ExportSink,
    count: u64,
}

enum ExportSink {
    Csv(ExportTarget),
    Jsonl(ExportTarget),
    Parquet(ParquetWriter, AtomicFile),
}

impl RecordExport {
    /// Starts an export; a CSV file starts with the column names.
    pub(crate) fn start(format: ExportFormat, target: ExportTarget) -> Result<Self, Error> {
        let form = match (format, target) {
            (ExportFormat::Csv, mut target) => {
                target.write(&csv::records(&[], Header::First)?)?;
                ExportSink::Csv(target)
            }
            (ExportFormat::Jsonl, target) => ExportSink::Jsonl(target),
            (ExportFormat::Parquet, ExportTarget::File(file)) => {
                let writer = ParquetWriter::start(Conversion::Parquet, file.handle()?)?;
                ExportSink::Parquet(writer, file)
            }
            (ExportFormat::Parquet, ExportTarget::Stdout) => {
                return Err(Error::Usage("parquet needs a file".into()));
            }
        };
        Ok(Self {
            sink: form,
            count: 0,
        })
    }

    /// Adds a page.
    pub(crate) fn add(&mut self, records: &[AuditRecord]) -> Result<(), Error> {
        let documents = || records.iter().map(AuditDocument::from);
        match &mut self.sink {
            ExportSink::Csv(target) => {
                let documents: Vec<_> = documents().collect();
                target.write(&csv::records(&documents, Header::Printed)?)?;
            }
            ExportSink::Jsonl(target) => {
                let lines = documents().map(|document| json::on_one_line(&document));
                target.write(&lines.collect::<Result<String, _>>()?)?;
            }
            ExportSink::Parquet(writer, _) => {
                for record in records {
                    writer.add(record)?;
                }
            }
        }
        self.count += records.len() as u64;
        Ok(())
    }

    /// The number of records so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Puts the file in its place and returns the number of records in it.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        match self.sink {
            ExportSink::Csv(target) | ExportSink::Jsonl(target) => match target {
                ExportTarget::Stdout => {}
                ExportTarget::File(file) => file.finish()?,
            },
            ExportSink::Parquet(writer, file) => {
                writer.finish()?;
                file.finish()?;
            }
        }
        Ok(self.count)
    }
}

impl ExportTarget {
    fn write(&mut self, text: &str) -> Result<(), Error> {
        match self {
            Self::Stdout => print(text),
            Self::File(file) => file.write(text.as_bytes()),
        }
    }
}

/// The progress of an export: pages go back in time.
pub(crate) fn export_progress(count: u64, at: Timestamp, settings: &Settings) -> Line {
    let style = OutputStyle::for_stdout(settings);
    let (count, at) = (thousands(count), date_and_time(at, &style));
    Line::plain(format!("{count} records, back to {at}"))
}

pub(crate) fn download_progress(done: u64, all: u64, symbols: Symbols) -> Line {
    let percent = u128::from(done) * 100 / u128::from(all.max(1));
    let size = disk_size(Bytes(all));
    Line::plain(format!("{percent}%{}{size}", symbols.separator()))
}

/// The message about a written export.
pub(crate) fn exported_message(count: u64, file: &Path) -> String {
    let word = if count == 1 { "record" } else { "records" };
    format!(
        "{} {word}, newest first, in {}\n",
        thousands(count),
        file_name(file)
    )
}

/// The progress of a day that is archived.
pub(crate) fn archive_progress(count: u64, date: NaiveDate) -> Line {
    Line::plain(format!("{date}: {} rows", thousands(count)))
}

/// The message about an archived file.
pub(crate) fn archived_message(kind: ArchiveKind, date: NaiveDate, file: &ArchivedFile) -> String {
    let word = if file.rows == 1 { "row" } else { "rows" };
    let (kind, rows) = (kind.name(), thousands(file.rows));
    format!(
        "{kind} of {date}: {rows} {word}, {}\n",
        disk_size(Bytes(file.bytes))
    )
}

/// What a run of `audit archive` did.
#[derive(Debug, Default)]
pub(crate) struct ArchiveCounts {
    pub(crate) files: u64,
    /// Days without rows, each counted once for each kind.
    pub(crate) empty: u64,
    /// Files and empty days of earlier runs.
    pub(crate) unchanged: u64,
    /// Days that a later run archives.
    pub(crate) postponed: u64,
    /// Files that are damaged, and cannot be written again.
    pub(crate) damaged: u64,
}

/// The result of `audit archive`.
pub(crate) fn archive_summary(counts: &ArchiveCounts, directory: &Path) -> String {
    let ArchiveCounts {
        files,
        empty,
        unchanged,
        postponed,
        damaged,
    } = *counts;
    let parts = [
        (files, "new"),
        (empty, "without rows"),
        (unchanged, "archived before"),
        (postponed, "postponed"),
        (damaged, "damaged"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = parts
        .map(|(count, what)| format!("{} {what}", thousands(count)))
        .collect();
    let directory = file_name(directory);
    match texts.is_empty() {
        true => format!("nothing to archive in {directory}: no day is over since the oldest row\n"),
        false => format!(
            "days in {directory}, each kind counted: {}\n",
            texts.join(", ")
        ),
    }
}

/// The message about a written copy.
pub(crate) fn backup_message(bytes: u64, file: &Path) -> String {
    format!(
        "a copy of the store, {}, in {}\n",
        disk_size(Bytes(bytes)),
        file_name(file)
    )
}

fn file_name(file: &Path) -> String {
    sanitize(file.display().to_string().as_bytes(), usize::MAX)
}

#[cfg(test)]
mod tests;
