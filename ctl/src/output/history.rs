//! The records of `audit`, in every form: a table at the end, documents page by
//! page.

mod rows;

pub(crate) use rows::lines;

use super::csv::{self, Header};
use super::look::Look;
use super::{json, print, print_lines};
use crate::exit::Failure;
use crate::settings::Format;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::document::{AuditDocument, SCHEMA};
use gpukill_proto::units::Timestamp;

/// A time from one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first moment.
    pub since: Timestamp,
    /// The first moment after it.
    pub until: Timestamp,
}

/// Whether there are more records than were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// These are all.
    None,
    /// There are.
    More,
}

/// What is printed of a table without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfEmpty {
    /// That there is none, and of which time.
    Heading,
    /// Nothing: a failure says it.
    Nothing,
}

/// Records on their way to standard output. A table needs all of them to know
/// its widths; the other forms are printed page by page.
pub(crate) struct Records {
    format: Format,
    span: Span,
    look: Look,
    kept: Vec<AuditRecord>,
    count: usize,
    is_begun: bool,
}

impl Records {
    /// None yet.
    pub(crate) fn begin(format: Format, span: Span, look: Look) -> Self {
        Self {
            format,
            span,
            look,
            kept: Vec::new(),
            count: 0,
            is_begun: false,
        }
    }

    /// Takes the next page.
    pub(crate) fn add(&mut self, records: Vec<AuditRecord>) -> Result<(), Failure> {
        let text = self.page(&records)?;
        self.is_begun = true;
        self.count += records.len();
        match self.format {
            Format::Table => self.kept.extend(records),
            Format::Json | Format::Ndjson | Format::Csv => print(&text)?,
        }
        Ok(())
    }

    fn page(&self, records: &[AuditRecord]) -> Result<String, Failure> {
        let documents = records.iter().map(AuditDocument::from);
        match self.format {
            Format::Table => Ok(String::new()),
            Format::Ndjson => documents.map(|record| json::on_one_line(&record)).collect(),
            Format::Csv => {
                let header = if self.is_begun {
                    Header::Printed
                } else {
                    Header::First
                };
                csv::records(&documents.collect::<Vec<_>>(), header)
            }
            Format::Json => {
                let mut text = String::new();
                if !self.is_begun {
                    text = format!(
                        "{{\"schema\":{SCHEMA},\"since\":\"{}\",\"until\":\"{}\",\"records\":[\n",
                        self.span.since.to_rfc3339(),
                        self.span.until.to_rfc3339(),
                    );
                }
                for (at, record) in documents.enumerate() {
                    text.push_str(if self.count + at > 0 { ",\n" } else { "" });
                    text.push_str(json::on_one_line(&record)?.trim_end());
                }
                Ok(text)
            }
        }
    }

    /// Ends what was begun, and says how many records there were.
    pub(crate) fn end(self, rest: Rest, if_empty: IfEmpty) -> Result<usize, Failure> {
        match self.format {
            Format::Table if self.count == 0 && if_empty == IfEmpty::Nothing => {}
            Format::Table if self.is_begun => {
                print_lines(&lines(&self.kept, self.span, &self.look), &self.look)?;
            }
            Format::Json if self.is_begun => {
                let more = rest == Rest::More;
                print(&format!("\n],\"more\":{more}}}\n"))?;
            }
            Format::Table | Format::Json | Format::Ndjson | Format::Csv => {}
        }
        Ok(self.count)
    }
}
