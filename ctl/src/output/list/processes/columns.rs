//! The columns of the table of processes, in the order in which they stand by default.

use super::{ProcessRow, ages, command_cell, container, location_cell, utilization};
use crate::output::list::columns::NamedColumn;
use crate::output::list::gpus::{idle_time, time_since_use};
use crate::output::owner_cells::{location, process_owner};
use crate::output::style::{Density, Symbols};
use crate::output::table::{Cell, Column, WhenNarrow};
use crate::output::text::{Tone, escaped};
use crate::output::value::{gpu, past_time, percent_cell, reading, size_cell};
use crate::settings::SortKey;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::format_duration;

#[derive(Debug, Clone)]
pub(crate) struct ProcessColumn {
    /// The name in `--columns` and in the settings.
    name: &'static str,
    column: Column,
    pub(super) cell: fn(&ProcessRow<'_>) -> Cell,
}

impl NamedColumn for ProcessColumn {
    const ALL: &'static [Self] = COLUMNS;
    const DEFAULT: &'static [Self] = COLUMNS.split_at(DEFAULT_COLUMNS).0;

    fn name(&self) -> &'static str {
        self.name
    }
}

impl ProcessColumn {
    /// The column, for a table with this number of columns of marks.
    pub(super) fn column(&self, density: Density, markers: usize) -> Column {
        let when_narrow = match (self.name, density, markers) {
            // Enough for a program and the beginning of its arguments; on a narrow terminal
            // beside marks, for the program alone. With both marks, the pid has to do there.
            ("command", Density::Compact, 2..) => WhenNarrow::ShrinksThenGoes(8, 5),
            ("command", Density::Compact, 1) => WhenNarrow::Shrinks(12),
            ("command", Density::Compact, 0) | ("command", Density::Full, 1..) => {
                WhenNarrow::Shrinks(26)
            }
            // `memory, 1 would end 14:03`
            ("rule", Density::Full, 2..) => WhenNarrow::Shrinks(25),
            ("user", Density::Full, 2..) => WhenNarrow::Shrinks(7),
            // `critical crypto miner`; when the rule needs the room, `critical`.
            ("rogue", Density::Full, 0 | 1) => WhenNarrow::Shrinks(21),
            _ => self.column.when_narrow,
        };
        Column {
            when_narrow,
            ..self.column
        }
    }
}

const fn right(
    name: &'static str,
    title: &'static str,
    when_narrow: WhenNarrow,
    cell: fn(&ProcessRow<'_>) -> Cell,
) -> ProcessColumn {
    ProcessColumn {
        name,
        column: Column::right(title, when_narrow),
        cell,
    }
}

const fn left(
    name: &'static str,
    title: &'static str,
    when_narrow: WhenNarrow,
    cell: fn(&ProcessRow<'_>) -> Cell,
) -> ProcessColumn {
    ProcessColumn {
        column: Column::left(title, when_narrow),
        ..right(name, title, when_narrow, cell)
    }
}

/// The first columns of the registry stand in the table by default.
const DEFAULT_COLUMNS: usize = 13;

/// All columns: the default ones, then those that must be requested.
const COLUMNS: &[ProcessColumn] = &[
    right("gpu", "GPU", WhenNarrow::Stays, |row| {
        Cell::plain(gpu(row.device.index, row.process.instance))
    }),
    right("pid", "PID", WhenNarrow::Stays, |row| {
        Cell::plain(row.process.pid.to_string())
    }),
    // User names are short; names from labels may have any length.
    left("user", "USER", WhenNarrow::Shrinks(8), |row| {
        Cell::plain(process_owner(row.process, row.style.symbols))
    }),
    right("memory", "MEMORY", WhenNarrow::Stays, |row| {
        size_cell(&row.process.memory)
    }),
    right("sm", "SM", WhenNarrow::Goes(4), |row| {
        utilization(row.process)
    }),
    right("time", "ON GPU", WhenNarrow::Goes(3), |row| {
        reading(&row.process.first_seen, |first| {
            format_duration(row.taken_at.since(*first))
        })
    }),
    right("idle", "IDLE", WhenNarrow::Goes(2), idle),
    right("age", "AGE", WhenNarrow::Stays, |row| {
        let ages = ages(row.process, row.view);
        or_placeholder(
            row.markers.age.cell(ages, row.style.symbols),
            row.style.symbols,
        )
    }),
    // Wide enough for `memory, would have ended 12:32`.
    left("rule", "RULE", WhenNarrow::Shrinks(30), |row| {
        let rules = row.markers.rule;
        rules.cell(row.process, row.taken_at, row.style)
    }),
    left("rogue", "ROGUE", WhenNarrow::Shrinks(9), |row| {
        let rogue = row.markers.rogue;
        rogue.cell(row.process, row.style.symbols)
    }),
    // Enough for a scheduler's job, and for the beginning of other names.
    left(
        "where",
        "WHERE",
        WhenNarrow::ShrinksThenGoes(14, 1),
        |row| location_cell(&location(&row.process.location), row.style.symbols),
    ),
    left("container", "CONTAINER", WhenNarrow::Stays, |row| {
        location_cell(&container(row.process), row.style.symbols)
    }),
    left("command", "COMMAND", WhenNarrow::Shrinks(24), command_cell),
    right("uid", "UID", WhenNarrow::Stays, |row| {
        reading(&row.process.uid, ToString::to_string)
    }),
    left("name", "NAME", WhenNarrow::Stays, |row| {
        text(row, &row.process.name)
    }),
    right("cpu", "CPU", WhenNarrow::Stays, |row| {
        percent_cell(&row.process.cpu)
    }),
    right("host_mem", "HOST MEM", WhenNarrow::Stays, |row| {
        size_cell(&row.process.host_memory)
    }),
    right("mem_util", "MEM UTIL", WhenNarrow::Stays, |row| {
        percent_cell(&row.process.memory_utilization)
    }),
    right("encoder", "ENCODER", WhenNarrow::Stays, |row| {
        percent_cell(&row.process.encoder)
    }),
    right("decoder", "DECODER", WhenNarrow::Stays, |row| {
        percent_cell(&row.process.decoder)
    }),
    left("started", "STARTED", WhenNarrow::Stays, |row| {
        reading(&row.process.started_at, |at| {
            past_time(*at, row.taken_at, row.style)
        })
    }),
    left("job", "JOB", WhenNarrow::Stays, |row| {
        reading(&row.process.job, |job| {
            escaped(&job.to_string(), row.style.symbols)
        })
    }),
    left("role", "ROLE", WhenNarrow::Stays, |row| {
        reading(&row.process.network_role, |role| role.name().to_owned())
    }),
    right("connections", "CONNECTIONS", WhenNarrow::Stays, |row| {
        reading(&row.process.connections, ToString::to_string)
    }),
    left("executable", "EXECUTABLE", WhenNarrow::Stays, |row| {
        text(row, &row.process.executable)
    }),
];

/// The cell of a column that has no marks, if it was requested.
fn or_placeholder(cell: Option<Cell>, symbols: Symbols) -> Cell {
    cell.unwrap_or_else(|| Cell::plain(symbols.placeholder()))
}

fn text(row: &ProcessRow<'_>, value: &Reading<String>) -> Cell {
    reading(value, |text| escaped(text, row.style.symbols))
}

/// How long the process has not used the device, from ten minutes on; any time when the rows are
/// in its order.
fn idle(row: &ProcessRow<'_>) -> Cell {
    if let Some(length) = idle_time(row.process, row.taken_at) {
        return Cell::with_tone(format_duration(length), Tone::Doubtful);
    }
    let is_order = row.view.sort == Some(SortKey::Idle);
    let length = time_since_use(row.process, row.taken_at).filter(|_| is_order);
    let text = length.map(format_duration);
    Cell::plain(text.unwrap_or_else(|| row.style.symbols.placeholder().to_owned()))
}
