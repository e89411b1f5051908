//! The records of `audit` and the entries of `audit actions`, in every form: a
//! table at the end, documents page by page.

mod rows;

use super::csv::{self, Header};
use super::line::Line;
use super::look::Look;
use super::value::{date_and_clock, thousands};
use super::{json, print, print_lines};
use crate::exit::Failure;
use crate::settings::Format;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::document::{AuditDocument, SCHEMA};
use gpukill_proto::units::Timestamp;
use serde::Serialize;

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

/// Something of which there are pages, newest first.
pub(crate) trait Entry: Sized {
    /// It, for programs.
    type Document: Serialize;

    /// What the document of all calls them.
    const NAME: &'static str;

    /// It, for programs.
    fn document(&self) -> Self::Document;

    /// A row for each.
    fn csv(documents: &[Self::Document], header: Header) -> Result<String, Failure>;

    /// As much of it as a table shows.
    fn for_a_table(self) -> Self;

    /// All of them, for people.
    fn lines(entries: &[Self], span: Span, look: &Look) -> Vec<Line>;
}

impl Entry for AuditRecord {
    type Document = AuditDocument;

    const NAME: &'static str = "records";

    fn document(&self) -> AuditDocument {
        AuditDocument::from(self)
    }

    fn csv(documents: &[AuditDocument], header: Header) -> Result<String, Failure> {
        csv::records(documents, header)
    }

    fn for_a_table(self) -> Self {
        self
    }

    fn lines(records: &[Self], span: Span, look: &Look) -> Vec<Line> {
        rows::lines(records, span, look)
    }
}

/// How many there are, of which time: the heading of a table of them. `one` and
/// `several` are what they are called.
pub(super) fn heading(count: usize, [one, several]: [&str; 2], span: Span, look: &Look) -> Line {
    let dot = look.symbols.dot();
    let count = match count {
        0 => format!("no {several}"),
        1 => format!("1 {one}"),
        count => {
            let count = thousands(u64::try_from(count).unwrap_or(u64::MAX));
            format!("{count} {several}, newest first")
        }
    };
    let [since, until] = [span.since, span.until].map(|moment| date_and_clock(moment, look));
    Line::plain(format!("{count}{dot}{since} to {until}")).cut(look.width, look.symbols)
}

/// Records on their way to standard output. A table needs all of them to know
/// its widths; the other forms are printed page by page.
pub(crate) struct Records<R> {
    format: Format,
    span: Span,
    look: Look,
    kept: Vec<R>,
    count: usize,
    is_begun: bool,
}

impl<R: Entry> Records<R> {
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
    pub(crate) fn add(&mut self, records: Vec<R>) -> Result<(), Failure> {
        let text = self.page(&records)?;
        self.is_begun = true;
        self.count += records.len();
        match self.format {
            Format::Table => self.kept.extend(records.into_iter().map(R::for_a_table)),
            Format::Json | Format::Ndjson | Format::Csv => print(&text)?,
        }
        Ok(())
    }

    fn page(&self, records: &[R]) -> Result<String, Failure> {
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

    /// Ends what was begun, and says how many records there were.
    pub(crate) fn end(self, rest: Rest, if_empty: IfEmpty) -> Result<usize, Failure> {
        match self.format {
            Format::Table if self.count == 0 && if_empty == IfEmpty::Nothing => {}
            Format::Table if self.is_begun => {
                print_lines(&R::lines(&self.kept, self.span, &self.look), &self.look)?;
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
