//! The table with a row for each process on each GPU.

pub(crate) mod columns;

use crate::connect::AnnotatedSnapshot;
use crate::output::age::{AgeColumn, age};
use crate::output::list::columns::NamedColumn as _;
use crate::output::list::gpus::is_suspended;
use crate::output::list::view::{View, has_a_row};
use crate::output::loss::loss_text;
use crate::output::markers::RuleColumn;
use crate::output::owner_cells::location;
use crate::output::rogue::RogueColumn;
use crate::output::style::{Density, OutputStyle, Symbols};
use crate::output::table::{Cell, Row, Table};
use crate::output::text::{Line, Tone, escaped};
use crate::output::value::{percent_cell, reading, size_cell};
use columns::{MarkLayout, ProcessColumn};
use gpukill_proto::collect::{IntoMap as _, SortIndirect as _};
use gpukill_proto::model::{Device, DeviceId, GpuProcess, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{self, format_duration};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

pub(in crate::output) fn table(
    annotated: &AnnotatedSnapshot,
    view: &View,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let AnnotatedSnapshot {
        snapshot, guard, ..
    } = annotated;
    let processes = snapshot.processes.iter();
    let choice = &view.process_columns;
    let mut markers = MarkerColumns {
        age: AgeColumn::for_ages(processes.flat_map(|process| ages(process, view))),
        rule: RuleColumn::new(guard, &snapshot.processes),
        rogue: RogueColumn::new(annotated),
        are_merged: false,
    };
    markers.are_merged = style.density() == Density::Compact
        && markers.rule.is_needed()
        && markers.rogue.is_needed()
        && !choice.has_requested("rule")
        && !choice.has_requested("rogue");
    let shown = ProcessTable {
        snapshot,
        view,
        columns: choice.shown(|column| match column {
            "age" => markers.age == AgeColumn::Needed,
            "rule" => markers.rule.is_needed(),
            "rogue" => markers.rogue.is_needed() && !markers.are_merged,
            "where" => !view.containers,
            "container" => view.containers,
            _ => true,
        }),
        markers,
        now,
        style,
    };
    let marks = match (shown.has("rule"), shown.has("rogue")) {
        (true, _) if markers.are_merged => MarkLayout::Merged,
        (true, true) => MarkLayout::Both,
        (true, false) => MarkLayout::Rule,
        (false, true) => MarkLayout::Rogue,
        (false, false) => MarkLayout::Unmarked,
    };
    let columns = shown.columns.iter().enumerate().map(|(at, it)| {
        let column = it.column(style, marks);
        match choice.has_requested(it.name()) {
            true => column.as_requested(at),
            false => column,
        }
    });
    let mut table = Table::new(columns.collect());
    if choice.is_request() {
        table = table.with_empty_columns();
    }
    let rows = match view.sort {
        None => shown.rows_by_device(),
        Some(_) => shown.sorted_rows(),
    };
    if rows.is_empty() {
        let message = Cell::plain("no process uses a GPU");
        table.push(Row::Spanning(Vec::new(), message));
    }
    for row in rows {
        table.push(row);
    }
    let mut lines = table.lines(style);
    let mut columns = shown.columns.iter();
    if let Some(at) = columns.position(|column| column.name() == "age") {
        lines.extend(match table.dropped_columns(style).contains(&at) {
            true => markers.age.legend_without_column(style),
            false => markers.age.legend(style),
        });
    }
    lines.extend(choice.dropped_lines(&table, &shown.columns, style));
    lines
}

/// The columns that appear only when they have content.
#[derive(Clone, Copy)]
struct MarkerColumns<'a> {
    age: AgeColumn,
    rule: RuleColumn<'a>,
    rogue: RogueColumn<'a>,
    /// Whether a narrow table shows rules and rogues in one column.
    are_merged: bool,
}

impl MarkerColumns<'_> {
    /// Whether a process is shown however many others there are.
    fn is_marked(self, process: &GpuProcess) -> bool {
        self.rule.is_marked(process) || self.rogue.is_marked(process)
    }
}

/// All that the rows of the table are made of.
struct ProcessTable<'a> {
    snapshot: &'a Snapshot,
    view: &'a View,
    columns: Vec<&'static ProcessColumn>,
    markers: MarkerColumns<'a>,
    now: Timestamp,
    style: &'a OutputStyle,
}

struct ProcessRow<'a> {
    device: &'a Device,
    process: &'a GpuProcess,
    view: &'a View,
    markers: MarkerColumns<'a>,
    taken_at: Timestamp,
    style: &'a OutputStyle,
}

impl<'a> ProcessTable<'a> {
    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name() == name)
    }

    /// The rows of each device, the processes with the most memory first.
    fn rows_by_device(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for device in &self.snapshot.devices {
            if has_a_row(self.snapshot, device, self.view) {
                rows.extend(self.loss_row(device));
                let here: Vec<&GpuProcess> = self
                    .snapshot
                    .processes
                    .iter()
                    .filter(|process| process.device == device.id)
                    .collect();
                let all = here.len();
                let mut processes = largest_processes(here, self.most(all), self.markers);
                let more = all - processes.len();
                // Processes of one instance stand together.
                processes.sort_indirect_by_key(|process| process.instance);
                rows.extend(processes.into_iter().map(|it| self.process_row(device, it)));
                rows.extend(
                    self.more_message(more)
                        .map(|it| self.message_row(device, it)),
                );
                rows.extend(self.unattributed_row(device));
            }
            let unlisted = unlisted_reason(self.snapshot, device, self.style.symbols);
            rows.extend(unlisted.map(|message| self.message_row(device, message)));
        }
        rows
    }

    /// The processes of all devices in the order of the snapshot, then the rows of devices.
    fn sorted_rows(&self) -> Vec<Row> {
        let devices = self.snapshot.devices.iter();
        let devices: BTreeMap<&DeviceId, &Device> = devices.map(|it| (&it.id, it)).into_map();
        let mut left: BTreeMap<&DeviceId, usize> = BTreeMap::new();
        let mut rows = Vec::new();
        let mut more = 0;
        for process in &self.snapshot.processes {
            let Some(device) = devices.get(&process.device) else {
                continue;
            };
            let left = left.entry(&process.device).or_insert(self.most(usize::MAX));
            if *left == 0 && !self.markers.is_marked(process) {
                more += 1;
                continue;
            }
            *left = left.saturating_sub(1);
            rows.push(self.process_row(device, process));
        }
        rows.extend(
            self.more_message(more)
                .map(|it| Row::Spanning(Vec::new(), it)),
        );
        for device in &self.snapshot.devices {
            if has_a_row(self.snapshot, device, self.view) {
                rows.extend(self.loss_row(device));
                rows.extend(self.unattributed_row(device));
            }
            let unlisted = unlisted_reason(self.snapshot, device, self.style.symbols);
            rows.extend(unlisted.map(|message| self.message_row(device, message)));
        }
        rows
    }

    /// The maximum number of processes of a device that has `all`.
    fn most(&self, all: usize) -> usize {
        match self.view.max_processes {
            0 => all,
            most => most,
        }
    }

    fn process_row(&self, device: &Device, process: &GpuProcess) -> Row {
        let row = ProcessRow {
            device,
            process,
            view: self.view,
            markers: self.markers,
            taken_at: self.snapshot.taken_at,
            style: self.style,
        };
        let columns = self.columns.iter();
        Row::Cells(columns.map(|column| (column.cell)(&row)).collect())
    }

    fn loss_row(&self, device: &Device) -> Option<Row> {
        let loss = device.lost.as_ref()?;
        let text = loss_text(device, &self.snapshot.devices, loss, self.now, self.style);
        Some(self.message_row(device, Cell::with_tone(text, Tone::Broken)))
    }

    /// A row with a message about a device instead of numbers.
    fn message_row(&self, device: &Device, mut message: Cell) -> Row {
        match self.columns.first() {
            Some(first) if first.name() == "gpu" => Row::Spanning(vec![index(device)], message),
            Some(_) | None => {
                message
                    .text
                    .insert_str(0, &format!("GPU {}: ", device.index));
                Row::Spanning(Vec::new(), message)
            }
        }
    }

    fn more_message(&self, more: usize) -> Option<Cell> {
        let ellipsis = self.style.symbols.ellipsis();
        let message = format!("{ellipsis} {more} more here: --max-processes 0 shows all");
        (more > 0).then(|| Cell::with_tone(message, Tone::Faint))
    }

    /// The row for memory that no listed process explains, if any. This memory is not part of
    /// one user's or one program's share.
    fn unattributed_row(&self, device: &Device) -> Option<Row> {
        let memory = device.memory_unattributed.last_known();
        memory.filter(|bytes| bytes.0 > 0 && self.view.only.is_none())?;
        let command = match self.style.density() {
            Density::Compact => "holders",
            Density::Full => "gpukillctl holders",
        };
        let message = format!("unattributed: {command} --gpu {}", device.index);
        let mut message = Cell::with_tone(message, Tone::Doubtful);
        let size = size_cell(&device.memory_unattributed);
        let mut columns = self.columns.iter();
        let Some(memory) = columns.position(|column| column.name() == "memory") else {
            message.text.insert_str(0, &format!("{} ", size.text));
            return Some(self.message_row(device, message));
        };
        // The message needs no column of its own, which would take room from real commands.
        let before = self.columns.iter().take(memory);
        let mut cells: Vec<Cell> = before
            .map(|column| match column.name() {
                "gpu" => index(device),
                _ => Cell::plain(self.style.symbols.placeholder()),
            })
            .collect();
        cells.push(size);
        Some(Row::Spanning(cells, message))
    }
}

fn index(device: &Device) -> Cell {
    Cell::plain(device.index.to_string())
}

/// The processes with the most memory. Marked processes are always included.
fn largest_processes<'a>(
    processes: Vec<&'a GpuProcess>,
    most: usize,
    markers: MarkerColumns<'_>,
) -> Vec<&'a GpuProcess> {
    let by_size =
        |process: &&GpuProcess| (Reverse(process.memory.last_known().copied()), process.pid);
    let is_marked = |process: &&GpuProcess| markers.is_marked(process);
    let (mut kept, mut others): (Vec<_>, Vec<_>) = processes.into_iter().partition(is_marked);
    others.sort_indirect_by_key(by_size);
    others.truncate(most.saturating_sub(kept.len()));
    kept.append(&mut others);
    kept.sort_indirect_by_key(by_size);
    kept
}

fn location_cell(location: &Reading<Option<String>>, symbols: Symbols) -> Cell {
    reading(location, |location| {
        let location = location
            .as_deref()
            .map(|location| escaped(location, symbols));
        location.unwrap_or_else(|| symbols.placeholder().to_owned())
    })
}

fn command_cell(row: &ProcessRow<'_>) -> Cell {
    let ProcessRow { process, .. } = row;
    Cell::plain(match process.last_known_key() {
        Some(_) => {
            let symbols = row.style.symbols;
            let command = command_line(&process.command, &process.name, symbols);
            with_end_time(process, command)
        }
        None => text::NO_PROCESS.to_owned(),
    })
}

/// Why processes of a device may be missing.
fn unlisted_reason(snapshot: &Snapshot, device: &Device, symbols: Symbols) -> Option<Cell> {
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
    Some(Cell::with_tone(format!("{what}: {why}"), Tone::Doubtful))
}

fn container(process: &GpuProcess) -> Reading<Option<String>> {
    let container = process.location.container.clone();
    container.map(|container| container.map(|container| container.to_string()))
}

/// The location of a process, or its container only.
fn location_reading(process: &GpuProcess, view: &View) -> Reading<Option<String>> {
    if view.containers {
        container(process)
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
    let cell = percent_cell(&process.utilization);
    match process.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::with_tone(cell.text, Tone::Busy),
        Some(_) => Cell::with_tone(cell.text, Tone::Doubtful),
        None => cell,
    }
}

/// The name of a process, with the time since its end when its driver still lists it.
pub(in crate::output) fn with_end_time(process: &GpuProcess, called: String) -> String {
    match process.seconds_since_end() {
        Some(seconds) => format!("({}) {called}", ended_text(seconds)),
        None => called,
    }
}

/// `ended 6s ago`
pub(in crate::output) fn ended_text(seconds: u32) -> String {
    let ago = format_duration(Duration::from_secs(u64::from(seconds)));
    format!("ended {ago} ago")
}

/// The command line; without one, the name and the reason.
pub(in crate::output) fn command_line(
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
