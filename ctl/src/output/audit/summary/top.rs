//! The people and programs that used the GPUs, and the people who were idle on them: small tables,
//! side by side if the width allows.

use super::number::{compact_number, hours, percent};
use crate::output::owner_cells::owner_name;
use crate::output::style::{OutputStyle, Symbols};
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, cut, escaped};
use gpukill_proto::audit::{AuditSummary, OwnerTime, UsageTotals};
use gpukill_proto::collect::SortIndirect as _;
use std::cmp::Reverse;

/// Maximum number of rows of each table.
const MAX_ROWS: usize = 10;

/// Columns between two tables.
const GAP: usize = 4;

/// Maximum width of an owner's name, when the width is limited.
const MAX_OWNER_WIDTH: usize = 16;

/// Maximum width of a program with its script, when the width is limited: with three tables
/// side by side, and with two or one.
const MAX_LABEL_WIDTHS: [usize; 2] = [28, 18];

/// The columns that three tables take.
const ROOM_FOR_THREE: usize = 118;

/// Less idle time rounds to zero tenths of an hour and is not worth a row.
const MIN_IDLE_MS: u64 = 180_000;

/// All tables.
pub(super) fn lines(summary: &AuditSummary, style: &OutputStyle) -> Vec<Line> {
    let blocks = [
        users(summary, style),
        processes(summary, style),
        idle(summary, style),
    ];
    side_by_side(blocks.into_iter().flatten().collect(), style)
}

/// GiB × hours; the unit's dot is not ASCII.
const fn gib_hours(symbols: Symbols) -> &'static str {
    match symbols {
        Symbols::Unicode => "GiB·h",
        Symbols::Ascii => "GiB-h",
    }
}

fn users(summary: &AuditSummary, style: &OutputStyle) -> Option<Vec<Line>> {
    let columns = [
        Column::left("Top Users", WhenNarrow::Stays),
        Column::right("GPU-h", WhenNarrow::Stays),
        Column::right(gib_hours(style.symbols), WhenNarrow::Stays),
        Column::right("IDLE", WhenNarrow::Stays),
    ];
    let rows = summary.owners.iter().map(|owner| {
        let used = &owner.used;
        let mut cells = vec![name(owner, style)];
        cells.extend(amounts(used).map(Cell::plain));
        cells.push(idle_share(used, style.symbols));
        cells
    });
    block(columns.into(), rows.collect(), summary.more_owners, style)
}

fn processes(summary: &AuditSummary, style: &OutputStyle) -> Option<Vec<Line>> {
    let columns = [
        Column::left("Top Processes", WhenNarrow::Stays),
        Column::right("GPU-h", WhenNarrow::Stays),
        Column::right(gib_hours(style.symbols), WhenNarrow::Stays),
    ];
    let longest = match style.width {
        Some(width) if width < ROOM_FOR_THREE => MAX_LABEL_WIDTHS[1],
        Some(_) | None => MAX_LABEL_WIDTHS[0],
    };
    let rows = summary.processes.iter().map(|process| {
        let label = escaped(&process.label, style.symbols);
        let mut cells = vec![Cell::plain(cut_to_fit(label, longest, style))];
        cells.extend(amounts(&process.used).map(Cell::plain));
        cells
    });
    block(
        columns.into(),
        rows.collect(),
        summary.more_processes,
        style,
    )
}

/// The owners who held devices without using them, the longest first. Not titled as the time in
/// which a device as a whole was held idle: another owner may have used the device meanwhile.
fn idle(summary: &AuditSummary, style: &OutputStyle) -> Option<Vec<Line>> {
    let columns = [
        Column::left("Most Idle", WhenNarrow::Stays),
        Column::right("GPU-h", WhenNarrow::Stays),
    ];
    let mut owners: Vec<&OwnerTime> = summary.owners.iter().collect();
    owners.retain(|owner| owner.used.idle_ms >= MIN_IDLE_MS);
    owners.sort_indirect_by_key(|owner| Reverse(owner.used.idle_ms));
    let rows = owners.iter().map(|owner| {
        let idle = hours(owner.used.idle_ms);
        vec![name(owner, style), Cell::with_tone(idle, Tone::Doubtful)]
    });
    block(columns.into(), rows.collect(), 0, style)
}

/// GPU-hours and GiB-hours.
fn amounts(used: &UsageTotals) -> [String; 2] {
    [
        hours(used.total_ms()),
        compact_number(used.memory_gib_hours()),
    ]
}

/// The idle share of the time that is known.
fn idle_share(used: &UsageTotals, symbols: Symbols) -> Cell {
    let known = used.busy_ms.saturating_add(used.idle_ms);
    match (known, used.unknown_ms) {
        (0, 0) => Cell::plain(symbols.placeholder()),
        (0, _) => Cell::with_tone("?", Tone::Doubtful),
        (known, _) => Cell::plain(percent(used.idle_ms, known)),
    }
}

fn name(owner: &OwnerTime, style: &OutputStyle) -> Cell {
    match &owner.owner {
        Some(owner) => {
            let name = escaped(&owner.name, style.symbols);
            Cell::plain(cut_to_fit(name, MAX_OWNER_WIDTH, style))
        }
        None => Cell::with_tone(owner_name(None, None, None, style.symbols), Tone::Faint),
    }
}

fn cut_to_fit(text: String, max_width: usize, style: &OutputStyle) -> String {
    match style.width {
        Some(_) => cut(&text, max_width, style.symbols),
        None => text,
    }
}

/// A small table of full width, however narrow the terminal; none without rows. `more` rows are
/// left out already.
fn block(
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    more: u32,
    style: &OutputStyle,
) -> Option<Vec<Line>> {
    if rows.is_empty() {
        return None;
    }
    let left_out =
        rows.len().saturating_sub(MAX_ROWS) + usize::try_from(more).unwrap_or(usize::MAX);
    let mut table = Table::new(columns);
    for cells in rows.into_iter().take(MAX_ROWS) {
        table.push(Row::Cells(cells));
    }
    if left_out > 0 {
        let others = if left_out == 1 { "other" } else { "others" };
        let message = format!("and {left_out} {others}");
        table.push(Row::Cells(vec![Cell::with_tone(message, Tone::Faint)]));
    }
    let natural = OutputStyle {
        width: None,
        ..*style
    };
    Some(table.lines(&natural))
}

/// As many tables side by side as fit, the others below.
fn side_by_side(blocks: Vec<Vec<Line>>, style: &OutputStyle) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    // Where the current row of tables begins, and its width.
    let (mut top, mut used) = (0, 0);
    for block in blocks {
        let width = block.iter().map(Line::width).max().unwrap_or(0);
        let is_beside = used > 0
            && style
                .width
                .is_none_or(|max_width| used + GAP + width <= max_width);
        if is_beside {
            used += GAP;
        } else {
            if used > 0 {
                lines.push(Line::default());
            }
            (top, used) = (lines.len(), 0);
        }
        for (at, addition) in block.into_iter().enumerate() {
            if lines.len() == top + at {
                lines.push(Line::default());
            }
            let line = &mut lines[top + at];
            line.push(" ".repeat(used - line.width()), Tone::Plain);
            line.append(addition);
        }
        used += width;
    }
    let lines = lines.into_iter();
    lines
        .map(|line| line.trimmed().cut(style.width, style.symbols))
        .collect()
}
