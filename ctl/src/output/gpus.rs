//! The table with a row for each GPU, and for each part of one that is divided.

mod instances;

use super::age::{AgeColumn, age};
use super::idle::idle;
use super::line::{Line, Tone, shown};
use super::look::{Look, Symbols};
use super::loss::lost;
use super::processes::marked_ended;
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{bar, counted, gib, reading, size};
use super::view::{View, has_a_row};
use super::whose::owner;
use gpukill_policy::health::complaints;
use gpukill_proto::document::top_process;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, Snapshot};
use gpukill_proto::text::NO_PROCESS;
use gpukill_proto::units::{Bytes, Milliwatts, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The table of the GPUs.
pub(super) fn table(snapshot: &Snapshot, view: &View, now: Timestamp, look: &Look) -> Vec<Line> {
    let devices: Vec<&Device> = snapshot
        .devices
        .iter()
        .filter(|device| has_a_row(snapshot, device, view))
        .collect();
    let present = devices
        .iter()
        .filter(|device| device.lost.is_none() && !is_asleep(device));
    let age_column = AgeColumn::for_ages(present.flat_map(|device| ages(device)));
    // Once for all: of 250 devices and 2,000 processes, each of each is half a million.
    let mut by_device: BTreeMap<&DeviceId, Vec<&GpuProcess>> = BTreeMap::new();
    for process in &snapshot.processes {
        by_device.entry(&process.device).or_default().push(process);
    }
    let mut table = Table::new(columns(view, age_column));
    for device in devices {
        let sentence = match &device.lost {
            Some(loss) => Some((
                lost(device, &snapshot.devices, loss, now, look),
                Tone::Broken,
            )),
            None if is_asleep(device) => Some((ASLEEP.to_owned(), Tone::Faint)),
            None => None,
        };
        match sentence {
            Some((text, tone)) => table.push(Row::Sentence(
                vec![index(device), name(device, look.symbols)],
                Cell::toned(text, tone),
            )),
            None => {
                let processes = by_device.get(&device.id).map_or(&[][..], Vec::as_slice);
                let taken_at = snapshot.taken_at;
                for row in rows(device, processes, view, age_column, taken_at, look.symbols) {
                    table.push(row);
                }
            }
        }
    }
    let mut lines = table.lines(look);
    lines.extend(age_column.legend(look));
    lines
}

/// What is said instead of numbers of a device that sleeps.
const ASLEEP: &str = "asleep: not woken for a reading";

pub(super) fn is_asleep(device: &Device) -> bool {
    device.vitals.suspended.known() == Some(&true)
}

fn columns(view: &View, age_column: AgeColumn) -> Vec<Column> {
    let mut columns = vec![
        Column::right("GPU", WhenNarrow::Stays),
        Column::left("NAME", WhenNarrow::Stays),
        Column::left("", WhenNarrow::Goes(1)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("UTIL", WhenNarrow::Stays),
        Column::right("TEMP", WhenNarrow::Goes(4)),
        Column::right("POWER", WhenNarrow::Goes(3)),
        Column::right("ECC", WhenNarrow::Goes(2)),
        Column::right("PROCS", WhenNarrow::Goes(5)),
    ];
    columns.extend(age_column.column());
    if view.containers {
        columns.push(Column::left("CONTAINERS", WhenNarrow::Shrinks(19)));
    }
    // Room for a user, a program, a size, and how long it is idle.
    columns.push(Column::left("TOP PROCESS", WhenNarrow::Shrinks(25)));
    columns
}

fn index(device: &Device) -> Cell {
    Cell::plain(device.index.to_string())
}

fn rows(
    device: &Device,
    processes: &[&GpuProcess],
    view: &View,
    age_column: AgeColumn,
    taken_at: Timestamp,
    symbols: Symbols,
) -> Vec<Row> {
    let whole = whole(device, processes, view, age_column, taken_at, symbols);
    let complaints = complaints(device).into_iter().map(|(_, complaint)| {
        let sentence = Cell::toned(shown(&complaint, symbols), Tone::Broken);
        Row::Sentence(vec![index(device)], sentence)
    });
    let parts = instances::rows(device, processes, view, age_column, taken_at, symbols);
    std::iter::once(whole)
        .chain(complaints)
        .chain(parts)
        .collect()
}

fn whole(
    device: &Device,
    processes: &[&GpuProcess],
    view: &View,
    age_column: AgeColumn,
    taken_at: Timestamp,
    symbols: Symbols,
) -> Row {
    let mut cells = vec![
        index(device),
        name(device, symbols),
        memory_bar(&device.memory_used, &device.memory_total, symbols),
        memory(&device.memory_used, &device.memory_total),
        utilization(device, processes),
        reading(&device.vitals.temperature, |celsius| {
            celsius.0.to_string() + symbols.degree()
        }),
        power(device),
        ecc(device),
        reading(&device.process_count, ToString::to_string),
    ];
    cells.extend(age_column.cell(ages_of_whole(device), symbols));
    if view.containers {
        cells.push(containers(processes, symbols));
    }
    cells.push(top(device, processes, view, taken_at, symbols));
    Row::Cells(cells)
}

/// The ages of all that is shown of a device and its parts.
fn ages(device: &Device) -> impl Iterator<Item = Option<u32>> {
    let parts = device.instances.iter().flat_map(instances::ages);
    ages_of_whole(device).into_iter().chain(parts)
}

/// The ages of what the row shows of the device.
fn ages_of_whole(device: &Device) -> [Option<u32>; 7] {
    [
        age(&device.memory_used),
        age(&device.memory_total),
        age(&device.vitals.utilization),
        age(&device.vitals.temperature),
        age(&device.vitals.power),
        age(&device.vitals.power_limit),
        age(&device.vitals.ecc_volatile),
    ]
}

/// The model, without what every model of the vendor begins with. It does not
/// change, so its age says nothing. Memory that is shared with the host must not
/// be read as the GPU's own.
fn name(device: &Device, symbols: Symbols) -> Cell {
    let Some(name) = device.name.last_known() else {
        return reading(&device.name, |_| String::new());
    };
    let name = shown(name.trim_start_matches("NVIDIA "), symbols);
    Cell::plain(if device.memory_unified {
        format!("{name} (unified)")
    } else {
        name
    })
}

fn memory_bar(used: &Reading<Bytes>, total: &Reading<Bytes>, symbols: Symbols) -> Cell {
    let known = used.last_known().zip(total.last_known());
    Cell::plain(known.map_or_else(String::new, |(used, total)| bar(used.0, total.0, symbols)))
}

fn memory(used: &Reading<Bytes>, total: &Reading<Bytes>) -> Cell {
    if used.last_known().is_none() && total.last_known().is_none() {
        return reading(used, |_| String::new());
    }
    let part = |part: &Reading<Bytes>| reading(part, |bytes| gib(*bytes));
    let (mut cell, total) = (part(used), part(total));
    cell.text.push('/');
    cell.text.push_str(&total.text);
    if total.text.ends_with(|c: char| c.is_ascii_digit()) {
        cell.text.push('G');
    }
    cell
}

fn utilization(device: &Device, processes: &[&GpuProcess]) -> Cell {
    let cell = reading(&device.vitals.utilization, |percent| {
        percent.0.to_string() + "%"
    });
    match device.vitals.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::toned(cell.text, Tone::Busy),
        Some(_) if !processes.is_empty() => Cell::toned(cell.text, Tone::Doubtful),
        Some(_) | None => cell,
    }
}

fn power(device: &Device) -> Cell {
    let watts = |power: &Milliwatts| power.whole_watts().to_string();
    let mut cell = reading(&device.vitals.power, watts);
    if device.vitals.power.last_known().is_some() {
        if let Some(limit) = device.vitals.power_limit.last_known() {
            cell.text.push('/');
            cell.text.push_str(&watts(limit));
        }
        cell.text.push('W');
    }
    cell
}

fn ecc(device: &Device) -> Cell {
    let cell = reading(&device.vitals.ecc_volatile, ToString::to_string);
    match device.vitals.ecc_volatile.last_known() {
        Some(errors) if *errors > 0 => Cell::toned(cell.text, Tone::Broken),
        Some(_) | None => cell,
    }
}

fn containers(processes: &[&GpuProcess], symbols: Symbols) -> Cell {
    let names: BTreeSet<String> = processes
        .iter()
        .filter_map(|process| process.place.container.last_known()?.as_ref())
        .map(|container| shown(&container.to_string(), symbols))
        .collect();
    if names.is_empty() {
        return Cell::plain(symbols.none());
    }
    Cell::plain(names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The process that holds the most, and the memory that no process explains. Of
/// a device that is divided, how; its parts have rows of their own.
fn top(
    device: &Device,
    processes: &[&GpuProcess],
    view: &View,
    taken_at: Timestamp,
    symbols: Symbols,
) -> Cell {
    let (divided, processes) = instances::summary(device, processes);
    let mut parts: Vec<String> = divided.into_iter().collect();
    let mut tone = Tone::Plain;
    if let Some(process) = top_process(processes) {
        let (text, of_holder) = holder(process, taken_at, symbols);
        parts.push(text);
        tone = of_holder;
    }
    let unattributed = device
        .memory_unattributed
        .last_known()
        .filter(|bytes| bytes.0 > 0);
    // It is nobody's, so it is not part of one user's or one program's share.
    if let (Some(bytes), None) = (unattributed, &view.only) {
        parts.push(format!("{} unattributed", size(*bytes)));
        tone = Tone::Doubtful;
    }
    if parts.is_empty() {
        return Cell::plain(symbols.none());
    }
    Cell::toned(parts.join(", "), tone)
}

/// Whose a process is, what it is called, what it holds, and how long for nothing.
fn holder(process: &GpuProcess, taken_at: Timestamp, symbols: Symbols) -> (String, Tone) {
    let owner = owner(process, symbols);
    let name = match process.last_key() {
        Some(_) => {
            let name = reading(&process.name, |name| shown(name, symbols)).text;
            marked_ended(process, name)
        }
        None => NO_PROCESS.to_owned(),
    };
    let memory = reading(&process.memory, |bytes| size(*bytes)).text;
    let text = [owner.as_str(), &name, &memory].join(" ");
    match idle(process, taken_at) {
        Some(idle) => (format!("{text}, {idle}"), Tone::Doubtful),
        None => (text, Tone::Plain),
    }
}
