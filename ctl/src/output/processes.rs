//! The table with a row for each process on each GPU.

use super::age::{AgeColumn, age};
use super::gpus::is_suspended;
use super::loss::loss_text;
use super::markers::RuleColumn;
use super::owner_cells::{location, process_owner};
use super::rogue::RogueColumn;
use super::style::{OutputStyle, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::text::{Line, Tone, escaped};
use super::value::{gpu, reading, size};
use super::view::{View, has_a_row};
use crate::connect::AnnotatedSnapshot;
use gpukill_proto::model::{Device, GpuProcess, ProcessLocation, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{self, format_duration};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::time::Duration;

/// The table of the processes.
pub(super) fn table(
    annotated: &AnnotatedSnapshot,
    view: &View,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let AnnotatedSnapshot {
        snapshot, guard, ..
    } = annotated;
    let processes = snapshot.processes.iter();
    let age_column = AgeColumn::for_ages(processes.flat_map(|process| ages(process, view)));
    let rule_column = RuleColumn::new(guard, &snapshot.processes);
    let columns_besides = (age_column, rule_column, RogueColumn::new(annotated));
    let mut table = Table::new(columns(view, columns_besides));
    let mut is_empty = true;
    for device in &snapshot.devices {
        let mut rows = Vec::new();
        if has_a_row(snapshot, device, view) {
            rows = device_rows(snapshot, device, view, columns_besides, now, style);
        }
        rows.extend(unlisted_row(snapshot, device, style.symbols));
        for row in rows {
            table.push(row);
            is_empty = false;
        }
    }
    if is_empty {
        let message = Cell::plain("no process uses a GPU");
        table.push(Row::Spanning(Vec::new(), message));
    }
    let mut lines = table.lines(style);
    lines.extend(age_column.legend(style));
    lines
}

/// The columns that appear only when they have content.
type MarkerColumns<'a> = (AgeColumn, RuleColumn<'a>, RogueColumn<'a>);

fn columns(view: &View, (age_column, rule_column, rogue_column): MarkerColumns<'_>) -> Vec<Column> {
    let location_column = if view.containers {
        Column::left("CONTAINER", WhenNarrow::Stays)
    } else {
        // Enough for a scheduler's job, and for the beginning of other names.
        Column::left("WHERE", WhenNarrow::ShrinksThenGoes(14, 3))
    };
    let mut columns = vec![
        Column::right("GPU", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Stays),
        // User names are short; names from labels may have any length.
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("SM", WhenNarrow::Goes(2)),
        Column::right("ON GPU", WhenNarrow::Goes(1)),
    ];
    columns.extend(age_column.column());
    columns.extend(rule_column.column());
    columns.extend(rogue_column.column(rule_column));
    columns.push(location_column);
    // Enough for a program and the beginning of its arguments; with one marker column, for the
    // program alone. With both, the pid has to do.
    let when_narrow = match (rule_column.is_needed(), rogue_column.is_needed()) {
        (true, true) => WhenNarrow::ShrinksThenGoes(8, 4),
        (true, false) | (false, true) => WhenNarrow::Shrinks(12),
        (false, false) => WhenNarrow::Shrinks(20),
    };
    columns.push(Column::left("COMMAND", when_narrow));
    columns
}

fn device_rows(
    snapshot: &Snapshot,
    device: &Device,
    view: &View,
    besides: MarkerColumns<'_>,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Row> {
    let symbols = style.symbols;
    let index = || Cell::plain(device.index.to_string());
    let mut rows = Vec::new();
    if let Some(loss) = &device.lost {
        let message = Cell::with_tone(
            loss_text(device, &snapshot.devices, loss, now, style),
            Tone::Broken,
        );
        rows.push(Row::Spanning(vec![index()], message));
    }
    let here: Vec<&GpuProcess> = snapshot
        .processes
        .iter()
        .filter(|process| process.device == device.id)
        .collect();
    let all = here.len();
    let most = match view.max_processes {
        0 => all,
        most => most,
    };
    let mut processes = largest_processes(here, most, besides);
    let more = all - processes.len();
    // Processes of one instance stand together.
    processes.sort_by_key(|process| process.instance);
    let row = |process| row(device, process, view, besides, snapshot.taken_at, style);
    rows.extend(processes.into_iter().map(row));
    if more > 0 {
        let ellipsis = symbols.ellipsis();
        let message = format!("{ellipsis} {more} more here: --max-processes 0 shows all");
        rows.push(Row::Spanning(
            vec![index()],
            Cell::with_tone(message, Tone::Faint),
        ));
    }
    // Unexplained memory is not part of one user's or one program's share.
    if view.only.is_none() {
        rows.extend(unattributed_row(device, besides, symbols));
    }
    rows
}

/// The processes with the most memory. Marked processes are always included.
fn largest_processes<'a>(
    processes: Vec<&'a GpuProcess>,
    most: usize,
    (_, rule_column, rogue_column): MarkerColumns<'_>,
) -> Vec<&'a GpuProcess> {
    let by_size =
        |process: &&GpuProcess| (Reverse(process.memory.last_known().copied()), process.pid);
    let is_marked =
        |process: &&GpuProcess| rule_column.is_marked(process) || rogue_column.is_marked(process);
    let (mut kept, mut others): (Vec<_>, Vec<_>) = processes.into_iter().partition(is_marked);
    others.sort_by_key(by_size);
    others.truncate(most.saturating_sub(kept.len()));
    kept.append(&mut others);
    kept.sort_by_key(by_size);
    kept
}

fn row(
    device: &Device,
    process: &GpuProcess,
    view: &View,
    (age_column, rule_column, rogue_column): MarkerColumns<'_>,
    taken_at: Timestamp,
    style: &OutputStyle,
) -> Row {
    let symbols = style.symbols;
    let location = location_reading(process, view);
    let mut cells = vec![
        Cell::plain(gpu(device.index, process.instance)),
        Cell::plain(process.pid.to_string()),
        Cell::plain(process_owner(process, symbols)),
        reading(&process.memory, |bytes| size(*bytes)),
        utilization(process),
        reading(&process.first_seen, |first| {
            format_duration(taken_at.since(*first))
        }),
    ];
    cells.extend(age_column.cell(ages(process, view), symbols));
    cells.extend(rule_column.cell(process, taken_at, style));
    cells.extend(rogue_column.cell(process, symbols));
    cells.push(reading(&location, |location| {
        let location = location
            .as_deref()
            .map(|location| escaped(location, symbols));
        location.unwrap_or_else(|| symbols.placeholder().to_owned())
    }));
    let command = match process.last_known_key() {
        Some(_) => {
            let command = command_line(&process.command, &process.name, symbols);
            with_end_time(process, command)
        }
        None => text::NO_PROCESS.to_owned(),
    };
    cells.push(Cell::plain(command));
    Row::Cells(cells)
}

/// The row for memory that no listed process explains, if any.
fn unattributed_row(
    device: &Device,
    (age_column, rule_column, rogue_column): MarkerColumns<'_>,
    symbols: Symbols,
) -> Option<Row> {
    let memory = &device.memory_unattributed;
    memory.last_known().filter(|bytes| bytes.0 > 0)?;
    let none = || Cell::plain(symbols.placeholder());
    let mut cells = vec![
        Cell::plain(device.index.to_string()),
        none(),
        none(),
        reading(memory, |bytes| size(*bytes)),
        none(),
        none(),
    ];
    cells.extend(age_column.cell([age(memory)], symbols));
    cells.extend(rule_column.empty_cell(symbols));
    cells.extend(rogue_column.empty_cell(symbols));
    cells.push(Cell::with_tone("unattributed", Tone::Doubtful));
    let who = format!("holders --gpu {}", device.index);
    cells.push(Cell::with_tone(who, Tone::Doubtful));
    Some(Row::Cells(cells))
}

/// The row that states why processes may be missing.
fn unlisted_row(snapshot: &Snapshot, device: &Device, symbols: Symbols) -> Option<Row> {
    // A lost device has a row already, and no process uses it.
    if device.lost.is_some() {
        return None;
    }
    let mut processes = snapshot.processes.iter();
    let is_listed = processes.any(|process| process.device == device.id);
    let why = match &device.process_count {
        Reading::Value(_) => return None,
        // Each row has an age.
        Reading::Stale(..) if is_listed => return None,
        Reading::Stale(_, seconds) => format!("last listed {seconds} s ago"),
        Reading::Failed(_) if is_suspended(device) => "asleep".to_owned(),
        Reading::Failed(why) => escaped(why, symbols),
        Reading::Unsupported => "not reported by its driver".to_owned(),
        Reading::Withheld => "hidden".to_owned(),
    };
    let what = if is_listed {
        "incomplete"
    } else {
        "users unknown"
    };
    let message = Cell::with_tone(format!("{what}: {why}"), Tone::Doubtful);
    let index = Cell::plain(device.index.to_string());
    Some(Row::Spanning(vec![index], message))
}

/// The content of the location column.
fn location_reading(process: &GpuProcess, view: &View) -> Reading<Option<String>> {
    let ProcessLocation { container, .. } = &process.location;
    if view.containers {
        let container = container.clone();
        container.map(|container| container.map(|container| container.to_string()))
    } else {
        location(&process.location)
    }
}

fn ages(process: &GpuProcess, view: &View) -> [Option<u32>; 3] {
    [
        age(&process.memory),
        age(&process.utilization),
        age(&location_reading(process, view)),
    ]
}

fn utilization(process: &GpuProcess) -> Cell {
    let cell = reading(&process.utilization, |percent| format!("{}%", percent.0));
    match process.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::with_tone(cell.text, Tone::Busy),
        Some(_) => Cell::with_tone(cell.text, Tone::Doubtful),
        None => cell,
    }
}

/// The name of a process, with the time since its end when its driver still lists it.
pub(super) fn with_end_time(process: &GpuProcess, called: String) -> String {
    match process.seconds_since_end() {
        Some(seconds) => format!("({}) {called}", ended_text(seconds)),
        None => called,
    }
}

/// `ended 6s ago`
pub(super) fn ended_text(seconds: u32) -> String {
    let ago = format_duration(Duration::from_secs(u64::from(seconds)));
    format!("ended {ago} ago")
}

/// The command line; without one, the name and the reason.
pub(super) fn command_line(
    command: &Reading<String>,
    name: &Reading<String>,
    symbols: Symbols,
) -> String {
    let name = name.last_known().map(|name| escaped(name, symbols));
    match (command, name) {
        (Reading::Value(command) | Reading::Stale(command, _), _) if !command.is_empty() => {
            escaped(text::strip_directory(command), symbols)
        }
        // As ps(1) shows kernel threads and zombies, which have no arguments.
        (Reading::Value(_) | Reading::Stale(..) | Reading::Unsupported, Some(name)) => {
            format!("[{name}]")
        }
        (Reading::Withheld, Some(name)) => format!("{name} (arguments hidden)"),
        (Reading::Failed(_), Some(name)) => format!("{name} ?"),
        (command, None) => reading(command, |_| symbols.placeholder().to_owned()).text,
    }
}
