//! The table with a row for each process on each GPU.

use super::age::{AgeColumn, age};
use super::gpus::is_asleep;
use super::line::{Line, Tone, shown};
use super::look::{Look, Symbols};
use super::loss::lost;
use super::mark::RuleColumn;
use super::rogue::RogueColumn;
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{gpu, reading, size};
use super::view::{View, has_a_row};
use super::whose::{owner, place};
use crate::connect::Sight;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, GpuProcess, Place, Snapshot};
use gpukill_proto::text::{self, duration};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::time::Duration;

/// The table of the processes.
pub(super) fn table(sight: &Sight, view: &View, now: Timestamp, look: &Look) -> Vec<Line> {
    let Sight {
        snapshot, guard, ..
    } = sight;
    let processes = snapshot.processes.iter();
    let age_column = AgeColumn::for_ages(processes.flat_map(|process| ages(process, view)));
    let rule_column = RuleColumn::of(guard, &snapshot.processes);
    let columns_besides = (age_column, rule_column, RogueColumn::of(sight));
    let mut table = Table::new(columns(view, columns_besides));
    let mut is_empty = true;
    for device in &snapshot.devices {
        let mut rows = Vec::new();
        if has_a_row(snapshot, device, view) {
            rows = rows_of(snapshot, device, view, columns_besides, now, look);
        }
        rows.extend(unlisted(snapshot, device, look.symbols));
        for row in rows {
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

/// The columns that are there only where they say something.
type Besides<'a> = (AgeColumn, RuleColumn<'a>, RogueColumn<'a>);

fn columns(view: &View, (age_column, rule_column, rogue_column): Besides<'_>) -> Vec<Column> {
    let place = if view.containers {
        Column::left("CONTAINER", WhenNarrow::Stays)
    } else {
        // Room for a scheduler's job, and for the beginning of other names.
        Column::left("WHERE", WhenNarrow::ShrinksThenGoes(14, 3))
    };
    let mut columns = vec![
        Column::right("GPU", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Stays),
        // Names of users are short; those that labels give may be of any length.
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("SM", WhenNarrow::Goes(2)),
        Column::right("ON GPU", WhenNarrow::Goes(1)),
    ];
    columns.extend(age_column.column());
    columns.extend(rule_column.column());
    columns.extend(rogue_column.column(rule_column));
    columns.push(place);
    // Enough for a program and the beginning of its arguments; for the program alone
    // where marks need the room. Where both do, a pid has to be enough.
    let when_narrow = match (rule_column.is_needed(), rogue_column.is_needed()) {
        (true, true) => WhenNarrow::ShrinksThenGoes(8, 4),
        (true, false) | (false, true) => WhenNarrow::Shrinks(12),
        (false, false) => WhenNarrow::Shrinks(20),
    };
    columns.push(Column::left("COMMAND", when_narrow));
    columns
}

fn rows_of(
    snapshot: &Snapshot,
    device: &Device,
    view: &View,
    besides: Besides<'_>,
    now: Timestamp,
    look: &Look,
) -> Vec<Row> {
    let symbols = look.symbols;
    let index = || Cell::plain(device.index.to_string());
    let mut rows = Vec::new();
    if let Some(loss) = &device.lost {
        let sentence = Cell::toned(
            lost(device, &snapshot.devices, loss, now, look),
            Tone::Broken,
        );
        rows.push(Row::Sentence(vec![index()], sentence));
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
    let mut processes = greatest(here, most, besides);
    let more = all - processes.len();
    // Those of one part stand together.
    processes.sort_by_key(|process| process.instance);
    let row = |process| row(device, process, view, besides, snapshot.taken_at, look);
    rows.extend(processes.into_iter().map(row));
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
        rows.extend(unattributed(device, besides, symbols));
    }
    rows
}

/// So many of these, by their memory; whoever is marked is never among those that go.
fn greatest<'a>(
    processes: Vec<&'a GpuProcess>,
    most: usize,
    (_, rule_column, rogue_column): Besides<'_>,
) -> Vec<&'a GpuProcess> {
    let by_size =
        |process: &&GpuProcess| (Reverse(process.memory.last_known().copied()), process.pid);
    let is_marked =
        |process: &&GpuProcess| rule_column.marks(process) || rogue_column.marks(process);
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
    (age_column, rule_column, rogue_column): Besides<'_>,
    taken_at: Timestamp,
    look: &Look,
) -> Row {
    let symbols = look.symbols;
    let place = shown_place(process, view);
    let mut cells = vec![
        Cell::plain(gpu(device.index, process.instance)),
        Cell::plain(process.pid.to_string()),
        Cell::plain(owner(process, symbols)),
        reading(&process.memory, |bytes| size(*bytes)),
        utilization(process),
        reading(&process.first_seen, |first| {
            duration(taken_at.since(*first))
        }),
    ];
    cells.extend(age_column.cell(ages(process, view), symbols));
    cells.extend(rule_column.cell(process, taken_at, look));
    cells.extend(rogue_column.cell(process, symbols));
    cells.push(reading(&place, |place| {
        let place = place.as_deref().map(|place| shown(place, symbols));
        place.unwrap_or_else(|| symbols.none().to_owned())
    }));
    let command = match process.last_key() {
        Some(_) => {
            let command = command(&process.command, &process.name, symbols);
            marked_ended(process, command)
        }
        None => text::NO_PROCESS.to_owned(),
    };
    cells.push(Cell::plain(command));
    Row::Cells(cells)
}

/// The row for memory that no listed process explains, where there is some.
fn unattributed(
    device: &Device,
    (age_column, rule_column, rogue_column): Besides<'_>,
    symbols: Symbols,
) -> Option<Row> {
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
    cells.extend(rule_column.none(symbols));
    cells.extend(rogue_column.none(symbols));
    cells.push(Cell::toned("unattributed", Tone::Doubtful));
    let who = format!("holders --gpu {}", device.index);
    cells.push(Cell::toned(who, Tone::Doubtful));
    Some(Row::Cells(cells))
}

/// The row that says why there may be processes that have none.
fn unlisted(snapshot: &Snapshot, device: &Device, symbols: Symbols) -> Option<Row> {
    // A lost one has said so already, and nobody uses it.
    if device.lost.is_some() {
        return None;
    }
    let mut processes = snapshot.processes.iter();
    let is_listed = processes.any(|process| process.device == device.id);
    let why = match &device.process_count {
        Reading::Value(_) => return None,
        // Each row has its age.
        Reading::Stale(..) if is_listed => return None,
        Reading::Stale(_, seconds) => format!("last listed {seconds} s ago"),
        Reading::Failed(_) if is_asleep(device) => "asleep".to_owned(),
        Reading::Failed(why) => shown(why, symbols),
        Reading::Unsupported => "its driver does not tell".to_owned(),
        Reading::Withheld => "hidden".to_owned(),
    };
    let what = if is_listed {
        "others may use it"
    } else {
        "who uses it is not known"
    };
    let sentence = Cell::toned(format!("{what}: {why}"), Tone::Doubtful);
    let index = Cell::plain(device.index.to_string());
    Some(Row::Sentence(vec![index], sentence))
}

/// What the column of places shows.
fn shown_place(process: &GpuProcess, view: &View) -> Reading<Option<String>> {
    let Place { container, .. } = &process.place;
    if view.containers {
        let container = container.clone();
        container.map(|container| container.map(|container| container.to_string()))
    } else {
        place(&process.place)
    }
}

fn ages(process: &GpuProcess, view: &View) -> [Option<u32>; 3] {
    [
        age(&process.memory),
        age(&process.utilization),
        age(&shown_place(process, view)),
    ]
}

fn utilization(process: &GpuProcess) -> Cell {
    let cell = reading(&process.utilization, |percent| format!("{}%", percent.0));
    match process.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::toned(cell.text, Tone::Busy),
        Some(_) => Cell::toned(cell.text, Tone::Doubtful),
        None => cell,
    }
}

/// What a process is called, with since when it has ended where its driver lists it still.
pub(super) fn marked_ended(process: &GpuProcess, called: String) -> String {
    match process.ended_ago() {
        Some(seconds) => format!("({}) {called}", ended(seconds)),
        None => called,
    }
}

/// `ended 6s ago`
pub(super) fn ended(seconds: u32) -> String {
    let ago = duration(Duration::from_secs(u64::from(seconds)));
    format!("ended {ago} ago")
}

/// The command line; where there is none to show, the name and why.
pub(super) fn command(
    command: &Reading<String>,
    name: &Reading<String>,
    symbols: Symbols,
) -> String {
    let name = name.last_known().map(|name| shown(name, symbols));
    match (command, name) {
        (Reading::Value(command) | Reading::Stale(command, _), _) if !command.is_empty() => {
            shown(text::without_directory(command), symbols)
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
