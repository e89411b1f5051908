//! The records of `audit` and the entries of `audit actions` in every format: a table at the
//! end, documents page by page.

mod rows;

use super::csv::{self, Header};
use super::style::OutputStyle;
use super::text::Line;
use super::value::{date_and_time, thousands};
use super::{json, print, print_lines};
use crate::exit::Error;
use crate::settings::Format;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::json::{AuditDocument, SCHEMA};
use gpukill_proto::units::Timestamp;
use serde::Serialize;

/// A time range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeSpan {
    /// The first moment.
    pub since: Timestamp,
    /// The first moment after the range.
    pub until: Timestamp,
}

/// Whether there are more records than were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// No more records.
    None,
    /// More records exist.
    More,
}

/// The output for a table without records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyOutput {
    /// A heading that states it, with the time range.
    Heading,
    /// Nothing, because an error states it.
    Nothing,
}

/// An entry of a paged list, newest first.
pub(crate) trait PagedEntry: Sized {
    /// The document of an entry, for programs.
    type Document: Serialize;

    /// The key of the list in the whole document.
    const NAME: &'static str;

    /// The document of this entry.
    fn document(&self) -> Self::Document;

    /// A CSV row for each entry.
    fn csv(documents: &[Self::Document], header: Header) -> Result<String, Error>;

    /// Drops what a table does not show.
    fn trim_for_table(self) -> Self;

    /// The table of all entries, for people.
    fn lines(entries: &[Self], span: TimeSpan, style: &OutputStyle) -> Vec<Line>;
}

impl PagedEntry for AuditRecord {
    type Document = AuditDocument;

    const NAME: &'static str = "records";

    fn document(&self) -> AuditDocument {
        AuditDocument::from(self)
    }

    fn csv(documents: &[AuditDocument], header: Header) -> Result<String, Error> {
        csv::records(documents, header)
    }

    fn trim_for_table(self) -> Self {
        self
    }

    fn lines(records: &[Self], span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
        rows::lines(records, span, style)
    }
}

/// The heading of a table: the number of entries and the time range. `one` and `several` name
/// the entries.
pub(super) fn heading(
    count: usize,
    [one, several]: [&str; 2],
    span: TimeSpan,
    style: &OutputStyle,
) -> Line {
    let dot = style.symbols.separator();
    let count = match count {
        0 => format!("no {several}"),
        1 => format!("1 {one}"),
        count => {
            let count = thousands(u64::try_from(count).unwrap_or(u64::MAX));
            format!("{count} {several}, newest first")
        }
    };
    let [since, until] = [span.since, span.until].map(|moment| date_and_time(moment, style));
    Line::plain(format!("{count}{dot}{since} to {until}")).cut(style.width, style.symbols)
}

/// Entries that are printed to standard output. A table needs all of them to compute its
/// widths; the other formats are printed page by page.
pub(crate) struct RecordPrinter<R> {
    format: Format,
    span: TimeSpan,
    style: OutputStyle,
    table_entries: Vec<R>,
    count: usize,
    is_begun: bool,
}

impl<R: PagedEntry> RecordPrinter<R> {
    /// Starts without entries.
    pub(crate) fn new(format: Format, span: TimeSpan, style: OutputStyle) -> Self {
        Self {
            format,
            span,
            style,
            table_entries: Vec::new(),
            count: 0,
            is_begun: false,
        }
    }

    /// Adds a page.
    pub(crate) fn add(&mut self, records: Vec<R>) -> Result<(), Error> {
        let text = self.page(&records)?;
        self.is_begun = true;
        self.count += records.len();
        match self.format {
            Format::Table => self
                .table_entries
                .extend(records.into_iter().map(R::trim_for_table)),
            Format::Json | Format::Ndjson | Format::Csv => print(&text)?,
        }
        Ok(())
    }

    fn page(&self, records: &[R]) -> Result<String, Error> {
        let documents = records.iter().map(R::document);
        match self.format {
            Format::Table => Ok(String::new()),
            Format::Ndjson => documents.map(|record| json::on_one_line(&record)).collect(),
            Format::Csv => {
                let header = if self.is_begun {
                    Header::Printed
                } else {
                    Header::First
                };
                R::csv(&documents.collect::<Vec<_>>(), header)
            }
            Format::Json => {
                let mut text = String::new();
                if !self.is_begun {
                    text = format!(
                        "{{\"schema\":{SCHEMA},\"since\":\"{}\",\"until\":\"{}\",\"{}\":[\n",
                        self.span.since.to_rfc3339(),
                        self.span.until.to_rfc3339(),
                        R::NAME,
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

    /// Finishes the output and returns the number of entries.
    pub(crate) fn finish(self, rest: Remaining, if_empty: EmptyOutput) -> Result<usize, Error> {
        match self.format {
            Format::Table if self.count == 0 && if_empty == EmptyOutput::Nothing => {}
            Format::Table if self.is_begun => {
                print_lines(
                    &R::lines(&self.table_entries, self.span, &self.style),
                    &self.style,
                )?;
            }
            Format::Json if self.is_begun => {
                let more = rest == Remaining::More;
                print(&format!("\n],\"more\":{more}}}\n"))?;
            }
            Format::Table | Format::Json | Format::Ndjson | Format::Csv => {}
        }
        Ok(self.count)
    }
}
