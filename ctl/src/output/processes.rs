//! The table with a row for each process on each GPU.

use super::age::{AgeColumn, age};
use super::line::{Line, Tone, shown};
use super::look::{Look, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{clock, reading, size};
use super::view::{View, has_a_row};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, GpuProcess, Snapshot};
use gpukill_proto::text::duration;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;

/// The table of the processes.
pub(super) fn table(snapshot: &Snapshot, view: &View, now: Timestamp, look: &Look) -> Vec<Line> {
    let age_column = AgeColumn::for_ages(snapshot.processes.iter().flat_map(ages));
    let mut table = Table::new(columns(view, age_column));
    let mut is_empty = true;
    let devices = snapshot.devices.iter();
    for device in devices.filter(|device| has_a_row(snapshot, device, view)) {
        for row in rows_of(snapshot, device, view, age_column, now, look) {
            table.push(row);
            is_empty = false;
        }
    }
    if is_empty {
        let sentence = Cell::plain("no process uses a GPU");
        table.push(Row::Sentence(Vec::new(), sentence));
    }
    let mut lines = table.lines(look);
    lines.extend(age_column.legend(look));
    lines
}

fn columns(view: &View, age_column: AgeColumn) -> Vec<Column> {
    let place = if view.containers {
        Column::left("CONTAINER", WhenNarrow::Stays)
    } else {
        Column::left("WHERE", WhenNarrow::Goes(1))
    };
    let mut columns = vec![
        Column::right("GPU", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Stays),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("SM", WhenNarrow::Goes(3)),
        Column::right("ON GPU", WhenNarrow::Goes(2)),
    ];
    columns.extend(age_column.column());
    columns.push(place);
    // Enough for a program and the beginning of its arguments.
    columns.push(Column::left("COMMAND", WhenNarrow::Shrinks(24)));
    columns
}

fn rows_of(
    snapshot: &Snapshot,
    device: &Device,
    view: &View,
    age_column: AgeColumn,
    now: Timestamp,
    look: &Look,
) -> Vec<Row> {
    let symbols = look.symbols;
    let index = || Cell::plain(device.index.to_string());
    let mut rows = Vec::new();
    if let Some(loss) = &device.lost {
        let since = clock(loss.since, now, look);
        let reason = shown(&loss.reason, symbols);
        let sentence = format!("lost since {since} ({reason}): needs a reset or a reboot");
        rows.push(Row::Sentence(
            vec![index()],
            Cell::toned(sentence, Tone::Broken),
        ));
    }
    let mut processes: Vec<&GpuProcess> = snapshot
        .processes
        .iter()
        .filter(|process| process.device == device.id)
        .collect();
    processes.sort_by_key(|process| (Reverse(process.memory.last_known().copied()), process.pid));
    let shown_here = match view.max_processes {
        0 => processes.len(),
        most => most.min(processes.len()),
    };
    let row = |process| row(device, process, snapshot.taken_at, age_column, symbols);
    rows.extend(processes[..shown_here].iter().copied().map(row));
    let more = processes.len() - shown_here;
    if more > 0 {
        let ellipsis = symbols.ellipsis();
        let sentence = format!("{ellipsis} {more} more here: --max-processes 0 shows all");
        rows.push(Row::Sentence(
            vec![index()],
            Cell::toned(sentence, Tone::Faint),
        ));
    }
    // It is nobody's, so it is not part of one user's or one program's share.
    if view.only.is_none() {
        rows.extend(unattributed(device, age_column, symbols));
    }
    rows
}

fn row(
    device: &Device,
    process: &GpuProcess,
    taken_at: Timestamp,
    age_column: AgeColumn,
    symbols: Symbols,
) -> Row {
    let mut cells = vec![
        Cell::plain(device.index.to_string()),
        Cell::plain(process.pid.to_string()),
        Cell::plain(user(process, symbols)),
        reading(&process.memory, |bytes| size(*bytes)),
        utilization(process),
        Cell::plain(duration(taken_at.since(process.first_seen))),
    ];
    cells.extend(age_column.cell(ages(process), symbols));
    cells.push(reading(&process.container, |container| {
        container.as_ref().map_or_else(
            || symbols.none().to_owned(),
            |container| shown(&container.to_string(), symbols),
        )
    }));
    cells.push(Cell::plain(command(process, symbols)));
    Row::Cells(cells)
}

/// The row for memory that no listed process explains, where there is some.
fn unattributed(device: &Device, age_column: AgeColumn, symbols: Symbols) -> Option<Row> {
    let memory = &device.memory_unattributed;
    memory.last_known().filter(|bytes| bytes.0 > 0)?;
    let none = || Cell::plain(symbols.none());
    let mut cells = vec![
        Cell::plain(device.index.to_string()),
        none(),
        none(),
        reading(memory, |bytes| size(*bytes)),
        none(),
        none(),
    ];
    cells.extend(age_column.cell([age(memory)], symbols));
    cells.push(Cell::toned("unattributed", Tone::Doubtful));
    cells.push(Cell::toned(
        "held by no process that the driver lists",
        Tone::Doubtful,
    ));
    Some(Row::Cells(cells))
}

fn ages(process: &GpuProcess) -> [Option<u32>; 2] {
    [age(&process.memory), age(&process.utilization)]
}

fn utilization(process: &GpuProcess) -> Cell {
    let cell = reading(&process.utilization, |percent| format!("{}%", percent.0));
    match process.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::toned(cell.text, Tone::Busy),
        Some(_) => Cell::toned(cell.text, Tone::Doubtful),
        None => cell,
    }
}

/// The owner's name, else the number.
pub(super) fn user(process: &GpuProcess, symbols: Symbols) -> String {
    match (process.user.last_known(), process.uid.last_known()) {
        (Some(name), _) => shown(name, symbols),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => reading(&process.uid, ToString::to_string).text,
    }
}

/// The command line; where there is none to show, the name and why.
fn command(process: &GpuProcess, symbols: Symbols) -> String {
    let name = process.name.last_known().map(|name| shown(name, symbols));
    match (&process.command, name) {
        (Reading::Value(command) | Reading::Stale(command, _), _) if !command.is_empty() => {
            shown(command, symbols)
        }
        // As ps shows those that have no arguments: kernel threads and zombies.
        (Reading::Value(_) | Reading::Stale(..) | Reading::Unsupported, Some(name)) => {
            format!("[{name}]")
        }
        (Reading::Withheld, Some(name)) => format!("{name} (arguments hidden)"),
        (Reading::Failed(_), Some(name)) => format!("{name} ?"),
        (command, None) => reading(command, |_| symbols.none().to_owned()).text,
    }
}
