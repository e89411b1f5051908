//! The columns of the table of processes, in the order in which they stand by default.

use super::{ProcessRow, ages, command_cell, container, location_cell, utilization};
use crate::output::list::columns::NamedColumn;
use crate::output::list::gpus::{idle_time, time_since_use};
use crate::output::owner_cells::{location, process_owner};
use crate::output::style::{Density, OutputStyle, Symbols};
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

/// The columns of marks in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkLayout {
    Unmarked,
    Rule,
    Rogue,
    Both,
    /// Both in the column of rules.
    Merged,
}

impl ProcessColumn {
    /// The column, for a table with these columns of marks. COMMAND has thirty letters from 80
    /// columns on.
    pub(super) fn column(&self, style: &OutputStyle, marks: MarkLayout) -> Column {
        use MarkLayout::{Both, Merged, Rogue, Rule, Unmarked};
        // Less than the usual width of a terminal.
        let is_tiny = matches!(style.width, Some(..80));
        let when_narrow = match (self.name, style.density(), marks) {
            // Both were requested: the pid has to do.
            ("command", Density::Compact, Both) => WhenNarrow::ShrinksThenGoes(8, 5),
            ("command", _, Rule | Rogue | Merged) if is_tiny => WhenNarrow::Shrinks(12),
            ("command", _, Unmarked) if is_tiny => WhenNarrow::Shrinks(26),
            // `rogue, waste`
            ("rule", _, Merged) => WhenNarrow::Shrinks(12),
            // `1 would end 14:03`
            ("rule", Density::Compact, _) => WhenNarrow::Shrinks(17),
            // `memory, 1 would end 14:03`
            ("rule", Density::Full, Both) => WhenNarrow::Shrinks(25),
            ("user", Density::Full, Both) => WhenNarrow::Shrinks(7),
            ("user", Density::Compact, Rule | Merged) => WhenNarrow::Shrinks(6),
            // `critical crypto miner`; when the rule needs the room, `critical`.
            ("rogue", Density::Full, Rogue) => WhenNarrow::Shrinks(21),
            // The sign ~ before the value stays.
            ("age", _, Rule | Rogue | Both | Merged) => WhenNarrow::Goes(5),
            _ => self.column.when_narrow,
        };
        let title = match (self.name, marks) {
            ("rule", Merged) => "MARKS",
            _ => self.column.title,
        };
        Column {
            title,
            when_narrow,
            ..self.column
        }
    }
}

/// Defines the columns: alignment, name, title, how it gives way, and the cell.
macro_rules! columns {
    ($($align:ident $name:literal $title:literal $narrow:ident $(($($width:literal),+))?
        => $cell:expr;)*) => {
        /// All columns: the default ones, then those that must be requested.
        const COLUMNS: &[ProcessColumn] = &[$(ProcessColumn {
            name: $name,
            column: Column::$align($title, WhenNarrow::$narrow $(($($width),+))?),
            cell: $cell,
        }),*];
    };
}

/// The first columns of the registry stand in the table by default.
const DEFAULT_COLUMNS: usize = 13;

columns! {
    right "gpu" "GPU" Stays => |row| Cell::plain(gpu(row.device.index, row.process.instance));
    right "pid" "PID" Stays => |row| Cell::plain(row.process.pid.to_string());
    // User names are short; names from labels may have any length.
    left "user" "USER" Shrinks(8) =>
        |row| Cell::plain(process_owner(row.process, row.style.symbols));
    right "memory" "MEMORY" Stays => |row| size_cell(&row.process.memory);
    right "sm" "SM" Goes(4) => |row| utilization(row.process);
    right "time" "ON GPU" Goes(3) =>
        |row| reading(&row.process.first_seen, |first| format_duration(row.taken_at.since(*first)));
    right "idle" "IDLE" Goes(2) => idle;
    right "age" "AGE" Stays => |row| {
        let ages = ages(row.process, row.view);
        let symbols = row.style.symbols;
        or_placeholder(row.markers.age.cell(ages, symbols), symbols)
    };
    // Wide enough for `memory, would have ended 12:32`.
    left "rule" "RULE" Shrinks(30) => |row| match row.markers.are_merged {
        true => merged_marks(row),
        false => row.markers.rule.cell(row.process, row.taken_at, row.style),
    };
    left "rogue" "ROGUE" Shrinks(9) =>
        |row| row.markers.rogue.cell(row.process, row.style.symbols);
    // Enough for a scheduler's job, and for the beginning of other names.
    left "where" "WHERE" ShrinksThenGoes(14, 1) =>
        |row| location_cell(&location(&row.process.location), row.style.symbols);
    left "container" "CONTAINER" Stays =>
        |row| location_cell(&container(row.process), row.style.symbols);
    // Enough for a program and the beginning of its arguments.
    left "command" "COMMAND" Shrinks(30) => command_cell;
    right "uid" "UID" Stays => |row| reading(&row.process.uid, ToString::to_string);
    left "name" "NAME" Stays => |row| text(row, &row.process.name);
    right "cpu" "CPU" Stays => |row| percent_cell(&row.process.cpu);
    right "host_mem" "HOST MEM" Stays => |row| size_cell(&row.process.host_memory);
    right "mem_util" "MEM UTIL" Stays => |row| percent_cell(&row.process.memory_utilization);
    right "encoder" "ENCODER" Stays => |row| percent_cell(&row.process.encoder);
    right "decoder" "DECODER" Stays => |row| percent_cell(&row.process.decoder);
    left "started" "STARTED" Stays =>
        |row| reading(&row.process.started_at, |at| past_time(*at, row.taken_at, row.style));
    left "job" "JOB" Stays =>
        |row| reading(&row.process.job, |job| escaped(&job.to_string(), row.style.symbols));
    left "role" "ROLE" Stays =>
        |row| reading(&row.process.network_role, |role| role.name().to_owned());
    right "connections" "CONNECTIONS" Stays =>
        |row| reading(&row.process.connections, ToString::to_string);
    left "executable" "EXECUTABLE" Stays => |row| text(row, &row.process.executable);
}

/// What is wrong with a process in few letters: `rogue`, `idle`, `rogue, memory`.
fn merged_marks(row: &ProcessRow<'_>) -> Cell {
    let rogue = row.markers.rogue.cell(row.process, row.style.symbols);
    let rules = row.markers.rule.kinds(row.process);
    match (row.markers.rogue.is_marked(row.process), rules) {
        (false, None) => rogue,
        (false, Some(rules)) => Cell::with_tone(rules, Tone::Doubtful),
        (true, Some(rules)) if !rules.starts_with(ROGUE) => {
            Cell::with_tone(format!("{ROGUE}, {rules}"), rogue.tone)
        }
        (true, _) => Cell::with_tone(ROGUE, rogue.tone),
    }
}

/// Stands for a suspicious process; a rule against such processes has the same name.
const ROGUE: &str = "rogue";

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
