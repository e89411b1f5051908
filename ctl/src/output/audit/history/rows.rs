//! The table of the samples of `audit`, for people.

use super::{TimeSpan, heading};
use crate::output::age::{AgeColumn, age};
use crate::output::owner_cells::owner_name;
use crate::output::style::{OutputStyle, Symbols};
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped};
use crate::output::value::{date_and_time, reading, size};
use gpukill_proto::audit::{AuditRecord, AuditSubject};
use gpukill_proto::text::NO_PROCESS;

/// The table of samples, with its heading.
pub(crate) fn lines(records: &[AuditRecord], span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let mut lines = vec![heading(
        records.len(),
        ["sample", "samples"],
        ", newest first",
        span,
        style,
    )];
    if records.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    let age_column = AgeColumn::for_ages(records.iter().flat_map(ages));
    let length_column = SpanColumn::for_records(records);
    let mut table = Table::new(columns(length_column, age_column));
    for record in records {
        table.push(row(record, length_column, age_column, style));
    }
    lines.extend(table.lines(style));
    lines.extend(age_column.legend(style));
    lines
}

/// Whether the table shows the time that each record covers: needed when a record is older than
/// samples are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanColumn {
    Needed,
    Needless,
}

/// The shortest time that a rollup covers.
const MINUTE_MS: u64 = 60_000;

impl SpanColumn {
    fn for_records(records: &[AuditRecord]) -> Self {
        // A minute counts as a minute even if its polls started a little late.
        let is_long = |record: &AuditRecord| record.covers_ms > MINUTE_MS * 3 / 4;
        if records.iter().any(is_long) {
            Self::Needed
        } else {
            Self::Needless
        }
    }

    fn column(self) -> Option<Column> {
        match self {
            Self::Needed => Some(Column::right("SPAN", WhenNarrow::Stays)),
            Self::Needless => None,
        }
    }

    /// Minimum width of a process name. The kernel's names have at most 15 bytes; beside one
    /// more column they may be cut to half of that.
    const fn min_name_width(self) -> usize {
        match self {
            Self::Needed => 8,
            Self::Needless => 15,
        }
    }

    fn cell(self, covers_ms: u64, symbols: Symbols) -> Option<Cell> {
        match self {
            Self::Needed => Some(Cell::plain(length_text(covers_ms, symbols))),
            Self::Needless => None,
        }
    }
}

/// A length of time in whole units: `10 s`, `1 min`, `1 h`.
fn length_text(milliseconds: u64, symbols: Symbols) -> String {
    let seconds = milliseconds.saturating_add(500) / 1000;
    match seconds {
        0 => symbols.placeholder().to_owned(),
        1..45 => format!("{seconds} s"),
        45..2700 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h", seconds.saturating_add(1800) / 3600),
    }
}

fn columns(length_column: SpanColumn, age_column: AgeColumn) -> Vec<Column> {
    let mut columns = vec![Column::left("TIME", WhenNarrow::Stays)];
    columns.extend(length_column.column());
    columns.extend([
        Column::right("GPU", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Goes(3)),
        Column::left("USER", WhenNarrow::Stays),
        Column::left(
            "PROCESS",
            WhenNarrow::Shrinks(length_column.min_name_width()),
        ),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("UTIL", WhenNarrow::Goes(2)),
    ]);
    columns.extend(age_column.column());
    columns.push(Column::left("CONTAINER", WhenNarrow::Goes(1)));
    columns
}

fn row(
    record: &AuditRecord,
    length_column: SpanColumn,
    age_column: AgeColumn,
    style: &OutputStyle,
) -> Row {
    let symbols = style.symbols;
    let [pid, user, process, container] = subject(&record.subject, symbols);
    let mut cells = vec![Cell::plain(date_and_time(record.at, style))];
    cells.extend(length_column.cell(record.covers_ms, symbols));
    cells.extend([
        Cell::plain(record.gpu_index.to_string()),
        pid,
        user,
        process,
        reading(&record.memory, |bytes| size(*bytes)),
        reading(&record.utilization, |percent| format!("{}%", percent.0)),
    ]);
    cells.extend(age_column.cell(ages(record), symbols));
    cells.push(container);
    Row::Cells(cells)
}

/// Pid, user, process and container.
fn subject(subject: &AuditSubject, symbols: Symbols) -> [Cell; 4] {
    let none = || Cell::plain(symbols.placeholder());
    match subject {
        AuditSubject::Device { .. } => [
            none(),
            none(),
            Cell::with_tone("(whole GPU)", Tone::Faint),
            none(),
        ],
        AuditSubject::Process {
            pid,
            instance: _,
            uid,
            user,
            owner,
            namespace_owner: _,
            name,
            command: _,
            container,
            job: _,
            held_ms: _,
            connections: _,
        } => {
            let text = |text: &Option<String>, otherwise: &str| {
                let text = text.as_deref().unwrap_or(otherwise);
                Cell::plain(escaped(text, symbols))
            };
            let owner = owner.as_ref().map(|owner| owner.name.as_str());
            [
                Cell::plain(pid.to_string()),
                Cell::plain(owner_name(owner, user.as_deref(), *uid, symbols)),
                text(name, if uid.is_some() { "?" } else { NO_PROCESS }),
                text(container, symbols.placeholder()),
            ]
        }
    }
}

fn ages(record: &AuditRecord) -> [Option<u32>; 2] {
    [age(&record.memory), age(&record.utilization)]
}
