//! Who used the GPUs, with what, and who held them idle: small tables, side by
//! side where the width allows.

use super::super::line::{Line, Tone, cut, shown};
use super::super::look::{Look, Symbols};
use super::super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::super::whose::owner_name;
use super::number::{hours, percent, scaled};
use gpukill_proto::audit::{AuditSummary, OwnerTime, UsedBy};
use std::cmp::Reverse;

/// So many rows of each table.
const ROWS: usize = 10;

/// Between two tables.
const GAP: usize = 4;

/// The longest name of an owner, where the width is limited.
const LONGEST_OWNER: usize = 16;

/// The longest program with its script, where the width is limited: with room for
/// three tables beside each other, and with room for two or one.
const LONGEST_LABEL: [usize; 2] = [28, 18];

/// So many columns three tables take.
const ROOM_FOR_THREE: usize = 118;

/// Less idle time than is shown as a tenth of an hour is no waste.
const WORTH_SAYING_MS: u64 = 180_000;

/// All tables.
pub(super) fn lines(summary: &AuditSummary, look: &Look) -> Vec<Line> {
    let blocks = [
        users(summary, look),
        processes(summary, look),
        idle(summary, look),
    ];
    side_by_side(blocks.into_iter().flatten().collect(), look)
}

/// GiB × hours; its dot is no ASCII.
const fn gib_hours(symbols: Symbols) -> &'static str {
    match symbols {
        Symbols::Unicode => "GiB·h",
        Symbols::Ascii => "GiB-h",
    }
}

fn users(summary: &AuditSummary, look: &Look) -> Option<Vec<Line>> {
    let columns = [
        Column::left("Top Users", WhenNarrow::Stays),
        Column::right("GPU-h", WhenNarrow::Stays),
        Column::right(gib_hours(look.symbols), WhenNarrow::Stays),
        Column::right("IDLE", WhenNarrow::Stays),
    ];
    let rows = summary.owners.iter().map(|owner| {
        let used = &owner.used;
        let mut cells = vec![name(owner, look)];
        cells.extend(amounts(used).map(Cell::plain));
        cells.push(idle_share(used, look.symbols));
        cells
    });
    block(columns.into(), rows.collect(), summary.more_owners, look)
}

fn processes(summary: &AuditSummary, look: &Look) -> Option<Vec<Line>> {
    let columns = [
        Column::left("Top Processes", WhenNarrow::Stays),
        Column::right("GPU-h", WhenNarrow::Stays),
        Column::right(gib_hours(look.symbols), WhenNarrow::Stays),
    ];
    let longest = match look.width {
        Some(width) if width < ROOM_FOR_THREE => LONGEST_LABEL[1],
        Some(_) | None => LONGEST_LABEL[0],
    };
    let rows = summary.processes.iter().map(|process| {
        let label = shown(&process.label, look.symbols);
        let mut cells = vec![Cell::plain(fitted(label, longest, look))];
        cells.extend(amounts(&process.used).map(Cell::plain));
        cells
    });
    block(columns.into(), rows.collect(), summary.more_processes, look)
}

/// Who held devices and did not use them, the longest first.
fn idle(summary: &AuditSummary, look: &Look) -> Option<Vec<Line>> {
    let columns = [
        Column::left("Held Idle", WhenNarrow::Stays),
        Column::right("GPU-h", WhenNarrow::Stays),
    ];
    let mut owners: Vec<&OwnerTime> = summary.owners.iter().collect();
    owners.retain(|owner| owner.used.idle_ms >= WORTH_SAYING_MS);
    owners.sort_by_key(|owner| Reverse(owner.used.idle_ms));
    let rows = owners.iter().map(|owner| {
        let idle = hours(owner.used.idle_ms);
        vec![name(owner, look), Cell::toned(idle, Tone::Doubtful)]
    });
    block(columns.into(), rows.collect(), 0, look)
}

/// GPU-hours and GiB-hours.
fn amounts(used: &UsedBy) -> [String; 2] {
    [hours(used.all_ms()), scaled(used.memory_gib_hours())]
}

/// Of the time of which it is known.
fn idle_share(used: &UsedBy, symbols: Symbols) -> Cell {
    let known = used.busy_ms.saturating_add(used.idle_ms);
    match (known, used.unknown_ms) {
        (0, 0) => Cell::plain(symbols.none()),
        (0, _) => Cell::toned("?", Tone::Doubtful),
        (known, _) => Cell::plain(percent(used.idle_ms, known)),
    }
}

fn name(owner: &OwnerTime, look: &Look) -> Cell {
    match &owner.owner {
        Some(owner) => {
            let name = shown(&owner.name, look.symbols);
            Cell::plain(fitted(name, LONGEST_OWNER, look))
        }
        None => Cell::toned(owner_name(None, None, None, look.symbols), Tone::Faint),
    }
}

fn fitted(text: String, most: usize, look: &Look) -> String {
    match look.width {
        Some(_) => cut(&text, most, look.symbols),
        None => text,
    }
}

/// A small table as it is, however narrow the terminal; none without rows. `more`
/// are left out already.
fn block(columns: Vec<Column>, rows: Vec<Vec<Cell>>, more: u32, look: &Look) -> Option<Vec<Line>> {
    if rows.is_empty() {
        return None;
    }
    let left_out = rows.len().saturating_sub(ROWS) + usize::try_from(more).unwrap_or(usize::MAX);
    let mut table = Table::new(columns);
    for cells in rows.into_iter().take(ROWS) {
        table.push(Row::Cells(cells));
    }
    if left_out > 0 {
        let others = if left_out == 1 { "other" } else { "others" };
        let sentence = format!("and {left_out} {others}");
        table.push(Row::Cells(vec![Cell::toned(sentence, Tone::Faint)]));
    }
    let natural = Look {
        width: None,
        ..*look
    };
    Some(table.lines(&natural))
}

/// As many beside each other as there is room for, the others below.
fn side_by_side(blocks: Vec<Vec<Line>>, look: &Look) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    // Where the row of blocks begins that is being filled, and how wide it is.
    let (mut top, mut used) = (0, 0);
    for block in blocks {
        let width = block.iter().map(Line::width).max().unwrap_or(0);
        let is_beside = used > 0 && look.width.is_none_or(|most| used + GAP + width <= most);
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
        .map(|line| line.trimmed().cut(look.width, look.symbols))
        .collect()
}
