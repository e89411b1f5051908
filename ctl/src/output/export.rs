//! Records in a file, in any of three forms with the same columns; and what is
//! said while files are written.

pub(crate) mod partial;

mod parquet;

use super::csv::{self, Header};
use super::line::Line;
use super::look::{Look, Symbols};
use super::value::{date_and_clock, disk_size, thousands};
use super::{json, print};
use crate::args::ExportFormat;
use crate::exit::Failure;
use crate::settings::Settings;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::document::AuditDocument;
use gpukill_proto::text::visible;
use gpukill_proto::units::{Bytes, Timestamp};
use parquet::Writer;
use partial::Partial;
use std::path::Path;

/// Where records go.
#[derive(Debug)]
pub(crate) enum Target {
    /// To standard output, in a form that is text.
    Stdout,
    /// Into a file.
    File(Partial),
}

/// Records on their way to a file.
pub(crate) struct Exported {
    form: Form,
    count: u64,
}

enum Form {
    Csv(Target),
    Jsonl(Target),
    Parquet(Writer, Partial),
}

impl Exported {
    /// Begins one; of rows, the names of the columns are written.
    pub(crate) fn begin(format: ExportFormat, target: Target) -> Result<Self, Failure> {
        let form = match (format, target) {
            (ExportFormat::Csv, mut target) => {
                target.write(&csv::records(&[], Header::First)?)?;
                Form::Csv(target)
            }
            (ExportFormat::Jsonl, target) => Form::Jsonl(target),
            (ExportFormat::Parquet, Target::File(file)) => {
                Form::Parquet(Writer::begin(file.handle()?)?, file)
            }
            (ExportFormat::Parquet, Target::Stdout) => {
                return Err(Failure::Usage("parquet needs a file".into()));
            }
        };
        Ok(Self { form, count: 0 })
    }

    /// Takes the next page.
    pub(crate) fn add(&mut self, records: &[AuditRecord]) -> Result<(), Failure> {
        let documents = || records.iter().map(AuditDocument::from);
        match &mut self.form {
            Form::Csv(target) => {
                let documents: Vec<_> = documents().collect();
                target.write(&csv::records(&documents, Header::Printed)?)?;
            }
            Form::Jsonl(target) => {
                let lines = documents().map(|document| json::on_one_line(&document));
                target.write(&lines.collect::<Result<String, _>>()?)?;
            }
            Form::Parquet(writer, _) => {
                for record in records {
                    writer.add(record)?;
                }
            }
        }
        self.count += records.len() as u64;
        Ok(())
    }

    /// How many there are so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Puts the file in its place, and says how many records are in it.
    pub(crate) fn finish(self) -> Result<u64, Failure> {
        match self.form {
            Form::Csv(target) | Form::Jsonl(target) => match target {
                Target::Stdout => {}
                Target::File(file) => file.finish()?,
            },
            Form::Parquet(writer, file) => {
                writer.finish()?;
                file.finish()?;
            }
        }
        Ok(self.count)
    }
}

impl Target {
    fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => print(text),
            Self::File(file) => file.write(text.as_bytes()),
        }
    }
}

/// How far an export is: pages go back in time.
pub(crate) fn reached(count: u64, at: Timestamp, settings: &Settings) -> Line {
    let look = Look::of_stdout(settings);
    let (count, at) = (thousands(count), date_and_clock(at, &look));
    Line::plain(format!("{count} records, back to {at}"))
}

/// How far a copy is.
pub(crate) fn progress(done: u64, all: u64, symbols: Symbols) -> Line {
    let percent = u128::from(done) * 100 / u128::from(all.max(1));
    let size = disk_size(Bytes(all));
    Line::plain(format!("{percent}%{}{size}", symbols.dot()))
}

/// What is in a file now.
pub(crate) fn exported(count: u64, file: &Path) -> String {
    let word = if count == 1 { "record" } else { "records" };
    format!(
        "{} {word}, newest first, in {}\n",
        thousands(count),
        name(file)
    )
}

/// The same of a copy.
pub(crate) fn fetched(bytes: u64, file: &Path) -> String {
    format!(
        "a copy of the store, {}, in {}\n",
        disk_size(Bytes(bytes)),
        name(file)
    )
}

fn name(file: &Path) -> String {
    visible(file.display().to_string().as_bytes(), usize::MAX)
}

#[cfg(test)]
mod tests;
