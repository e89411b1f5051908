//! The runs and the samples of `audit`, and the entries of `audit actions` and `audit timeline`, in
//! every format: a table at the end, documents page by page.

mod rows;
mod runs;

use crate::exit::Error;
use crate::output::audit::summary::gap_lines;
use crate::output::csv::{self, Header};
use crate::output::style::OutputStyle;
use crate::output::text::{Line, Tone};
use crate::output::value::{date_and_time, thousands};
use crate::output::{json, print, print_lines};
use crate::settings::Format;
use gpukill_proto::audit::{AuditRecord, Gap, RunRecord};
use gpukill_proto::json::{AuditDocument, GapDocument, RunDocument, SCHEMA};
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

/// What the daemon recorded of a time range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// The periods without samples, the oldest first; `None` if unknown.
    pub gaps: Option<Vec<Gap>>,
    /// The oldest record that is kept.
    pub recorded_since: Option<Timestamp>,
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
    /// The times without samples only, because an error states it.
    Coverage,
}

/// An entry of a paged list.
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
    fn trim_for_table(self) -> Self {
        self
    }

    /// The table of all entries, for people.
    fn lines(
        entries: &[Self],
        span: TimeSpan,
        coverage: &Coverage,
        style: &OutputStyle,
    ) -> Vec<Line>;
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

    fn lines(records: &[Self], span: TimeSpan, _: &Coverage, style: &OutputStyle) -> Vec<Line> {
        rows::lines(records, span, style)
    }
}

impl PagedEntry for RunRecord {
    type Document = RunDocument;

    const NAME: &'static str = "runs";

    fn document(&self) -> RunDocument {
        RunDocument::from(self)
    }

    fn csv(documents: &[RunDocument], header: Header) -> Result<String, Error> {
        csv::documents(RunDocument::FIELDS, documents, header)
    }

    fn lines(runs: &[Self], span: TimeSpan, coverage: &Coverage, style: &OutputStyle) -> Vec<Line> {
        runs::lines(runs, span, coverage, style)
    }
}

/// The table of entries, with the times without samples and whether there are more entries.
pub(in crate::output) fn table_lines<R: PagedEntry>(
    entries: &[R],
    span: TimeSpan,
    coverage: &Coverage,
    rest: Remaining,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = R::lines(entries, span, coverage, style);
    lines.extend(coverage_lines(coverage, span, style));
    if rest == Remaining::More {
        let text = "there are more: --limit 0 shows all";
        let line = Line::with_tone(text, Tone::Doubtful);
        lines.push(line.cut(style.width, style.symbols));
    }
    lines
}

/// The parts of a time range that are not recorded: a table without entries is otherwise taken for
/// a time in which nobody used a GPU.
fn coverage_lines(coverage: &Coverage, span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let gaps = coverage.gaps.as_deref().unwrap_or_default();
    let mut lines = gap_lines(gaps, span.until, style);
    let oldest = coverage.recorded_since;
    if let Some(oldest) = oldest.filter(|oldest| *oldest > span.since) {
        let oldest = date_and_time(oldest, style);
        let text = format!("Not seen: nothing is recorded before {oldest}");
        let line = Line::with_tone(text, Tone::Doubtful);
        lines.push(line.cut(style.width, style.symbols));
    }
    lines
}

/// The heading of a table: the number of entries, their order and the time range. `one` and
/// `several` name the entries.
pub(in crate::output) fn heading(
    count: usize,
    [one, several]: [&str; 2],
    order: &str,
    span: TimeSpan,
    style: &OutputStyle,
) -> Line {
    let dot = style.symbols.separator();
    let count = match count {
        0 => format!("no {several}"),
        1 => format!("1 {one}"),
        count => {
            let count = thousands(u64::try_from(count).unwrap_or(u64::MAX));
            format!("{count} {several}{order}")
        }
    };
    let [since, until] = [span.since, span.until].map(|moment| date_and_time(moment, style));
    Line::plain(format!("{count}{dot}{since} to {until}")).cut(style.width, style.symbols)
}

/// The line below a table without entries, when its time range starts before anything was
/// recorded.
pub(crate) fn beginning_line(
    span: TimeSpan,
    recorded_since: Option<Timestamp>,
    style: &OutputStyle,
) -> Option<Line> {
    let began = recorded_since.filter(|began| *began > span.since)?;
    let began = date_and_time(began, style);
    let line = Line::plain(format!("recording began {began}"));
    Some(line.cut(style.width, style.symbols))
}

/// Entries that are printed to standard output. A table needs all of them to compute its
/// widths; the other formats are printed page by page.
pub(crate) struct RecordPrinter<R> {
    format: Format,
    span: TimeSpan,
    style: OutputStyle,
    table_entries: Vec<R>,
    /// Lists of actions and timelines have none in documents.
    coverage: Option<Coverage>,
    /// Whether busy and idle stretches are left out; only of a timeline.
    stretches_omitted: Option<bool>,
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
            coverage: None,
            stretches_omitted: None,
            count: 0,
            is_begun: false,
        }
    }

    /// Sets what was recorded of the time range.
    pub(crate) fn set_coverage(&mut self, coverage: Coverage) {
        self.coverage = Some(coverage);
    }

    /// Whether the output has room for what was recorded of the time range, and this is not set.
    /// Rows have none.
    pub(crate) fn lacks_coverage(&self) -> bool {
        matches!(self.format, Format::Table | Format::Json) && self.coverage.is_none()
    }

    /// Whether this is a table without entries.
    pub(crate) fn is_empty_table(&self) -> bool {
        self.format == Format::Table && self.count == 0
    }

    /// Sets whether busy and idle stretches are left out of a timeline.
    pub(crate) fn set_stretches_omitted(&mut self, omitted: bool) {
        self.stretches_omitted = Some(omitted);
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
            Format::Table if self.is_begun => {
                let (entries, span, style) = (&self.table_entries, self.span, &self.style);
                let coverage = self.coverage.unwrap_or_default();
                let lines = match if_empty {
                    EmptyOutput::Coverage if self.count == 0 => {
                        coverage_lines(&coverage, span, style)
                    }
                    EmptyOutput::Coverage | EmptyOutput::Heading => {
                        table_lines(entries, span, &coverage, rest, style)
                    }
                };
                print_lines(&lines, style)?;
            }
            Format::Json if self.is_begun => {
                let more = rest == Remaining::More;
                let coverage = coverage_fields(self.coverage.as_ref())?;
                let stretches = match self.stretches_omitted {
                    None => String::new(),
                    Some(omitted) => format!("\"stretches_omitted\":{omitted},"),
                };
                print(&format!("\n],{coverage}{stretches}\"more\":{more}}}\n"))?;
            }
            Format::Table | Format::Json | Format::Ndjson | Format::Csv => {}
        }
        Ok(self.count)
    }
}

/// The fields of a document about the recorded time.
fn coverage_fields(coverage: Option<&Coverage>) -> Result<String, Error> {
    let Some(coverage) = coverage else {
        return Ok(String::new());
    };
    let gaps = coverage.gaps.as_ref();
    let gaps = gaps.map(|gaps| gaps.iter().map(GapDocument::from).collect::<Vec<_>>());
    let since = coverage.recorded_since.map(Timestamp::to_rfc3339);
    let (gaps, since) = (json::on_one_line(&gaps)?, json::on_one_line(&since)?);
    Ok(format!(
        "\"gaps\":{},\"recorded_since\":{},",
        gaps.trim_end(),
        since.trim_end()
    ))
}
