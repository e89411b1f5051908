//! The table of the records of `audit`, for people.

use super::super::age::{AgeColumn, age};
use super::super::line::{Line, Tone, shown};
use super::super::look::{Look, Symbols};
use super::super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::super::value::{date_and_clock, reading, size, thousands};
use super::Span;
use gpukill_proto::audit::{AuditRecord, AuditSubject};

/// The table of records, with its heading.
pub(crate) fn lines(records: &[AuditRecord], span: Span, look: &Look) -> Vec<Line> {
    let mut lines = vec![heading(records.len(), span, look)];
    if records.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    let age_column = AgeColumn::for_ages(records.iter().flat_map(ages));
    let mut table = Table::new(columns(age_column));
    for record in records {
        table.push(row(record, age_column, look));
    }
    lines.extend(table.lines(look));
    lines.extend(age_column.legend(look));
    lines
}

fn heading(records: usize, span: Span, look: &Look) -> Line {
    let dot = look.symbols.dot();
    let records = match records {
        0 => "no records".to_owned(),
        1 => "1 record".to_owned(),
        several => {
            let several = thousands(u64::try_from(several).unwrap_or(u64::MAX));
            format!("{several} records, newest first")
        }
    };
    let [since, until] = [span.since, span.until].map(|moment| date_and_clock(moment, look));
    Line::plain(format!("{records}{dot}{since} to {until}")).cut(look.width, look.symbols)
}

fn columns(age_column: AgeColumn) -> Vec<Column> {
    let mut columns = vec![
        Column::left("TIME", WhenNarrow::Stays),
        Column::right("GPU", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Goes(3)),
        Column::left("USER", WhenNarrow::Stays),
        // The kernel's names have at most 15 bytes.
        Column::left("PROCESS", WhenNarrow::Shrinks(15)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("UTIL", WhenNarrow::Goes(2)),
    ];
    columns.extend(age_column.column());
    columns.push(Column::left("CONTAINER", WhenNarrow::Goes(1)));
    columns
}

fn row(record: &AuditRecord, age_column: AgeColumn, look: &Look) -> Row {
    let symbols = look.symbols;
    let [pid, user, process, container] = subject(&record.subject, symbols);
    let mut cells = vec![
        Cell::plain(date_and_clock(record.at, look)),
        Cell::plain(record.gpu_index.to_string()),
        pid,
        user,
        process,
        reading(&record.memory, |bytes| size(*bytes)),
        reading(&record.utilization, |percent| format!("{}%", percent.0)),
    ];
    cells.extend(age_column.cell(ages(record), symbols));
    cells.push(container);
    Row::Cells(cells)
}

/// Pid, user, process and container.
fn subject(subject: &AuditSubject, symbols: Symbols) -> [Cell; 4] {
    let none = || Cell::plain(symbols.none());
    match subject {
        AuditSubject::Device { .. } => [
            none(),
            none(),
            Cell::toned("(whole GPU)", Tone::Faint),
            none(),
        ],
        AuditSubject::Process {
            pid,
            uid,
            user,
            owner: _,
            namespace_owner: _,
            name,
            command: _,
            container,
        } => {
            let text = |text: &Option<String>, otherwise: &str| {
                let text = text.as_deref().unwrap_or(otherwise);
                Cell::plain(shown(text, symbols))
            };
            let number = uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
            [
                Cell::plain(pid.to_string()),
                text(user, &number),
                text(name, "?"),
                text(container, symbols.none()),
            ]
        }
    }
}

fn ages(record: &AuditRecord) -> [Option<u32>; 2] {
    [age(&record.memory), age(&record.utilization)]
}
