//! The table with a row for each GPU, and for each instance of a divided GPU.

mod instances;

use super::age::{AgeColumn, age};
use super::loss::loss_text;
use super::owner_cells::process_owner;
use super::processes::with_end_time;
use super::style::{OutputStyle, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::text::{Line, Tone, escaped};
use super::value::{bar, counted, gib, reading, size};
use super::view::{View, has_a_row};
use gpukill_policy::health::device_problems;
use gpukill_proto::json::top_process;
use gpukill_proto::model::{Device, DeviceId, GpuProcess, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{NO_PROCESS, format_duration};
use gpukill_proto::units::{Bytes, Milliwatts, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Shorter pauses are part of the work: loading data, compiling or writing a checkpoint takes
/// minutes.
const MIN_IDLE: Duration = Duration::from_secs(10 * 60);

/// The table of the GPUs.
pub(super) fn table(
    snapshot: &Snapshot,
    view: &View,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let devices: Vec<&Device> = snapshot
        .devices
        .iter()
        .filter(|device| has_a_row(snapshot, device, view))
        .collect();
    let present = devices
        .iter()
        .filter(|device| device.lost.is_none() && !is_suspended(device));
    let age_column = AgeColumn::for_ages(present.flat_map(|device| ages(device)));
    // Grouped once: comparing 250 devices with 2,000 processes takes half a million steps.
    let mut by_device: BTreeMap<&DeviceId, Vec<&GpuProcess>> = BTreeMap::new();
    for process in &snapshot.processes {
        by_device.entry(&process.device).or_default().push(process);
    }
    let mut table = Table::new(columns(view, age_column));
    for device in devices {
        let message = match &device.lost {
            Some(loss) => Some((
                loss_text(device, &snapshot.devices, loss, now, style),
                Tone::Broken,
            )),
            None if is_suspended(device) => Some((SUSPENDED_TEXT.to_owned(), Tone::Faint)),
            None => None,
        };
        match message {
            Some((text, tone)) => table.push(Row::Spanning(
                vec![index(device), name(device, style.symbols)],
                Cell::with_tone(text, tone),
            )),
            None => {
                let processes = by_device.get(&device.id).map_or(&[][..], Vec::as_slice);
                let taken_at = snapshot.taken_at;
                for row in rows(device, processes, view, age_column, taken_at, style.symbols) {
                    table.push(row);
                }
            }
        }
    }
    let mut lines = table.lines(style);
    lines.extend(age_column.legend(style));
    lines
}

/// Shown instead of numbers for a suspended device.
const SUSPENDED_TEXT: &str = "asleep: not woken for a reading";

pub(super) fn is_suspended(device: &Device) -> bool {
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
    // Enough for a user, a program, a size and the idle time.
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
    let whole = device_row(device, processes, view, age_column, taken_at, symbols);
    let complaints = device_problems(device).into_iter().map(|(_, complaint)| {
        let message = Cell::with_tone(escaped(&complaint, symbols), Tone::Broken);
        Row::Spanning(vec![index(device)], message)
    });
    let parts = instances::rows(device, processes, view, age_column, taken_at, symbols);
    std::iter::once(whole)
        .chain(complaints)
        .chain(parts)
        .collect()
}

fn device_row(
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
    cells.extend(age_column.cell(device_ages(device), symbols));
    if view.containers {
        cells.push(containers(processes, symbols));
    }
    cells.push(top_process_cell(device, processes, view, taken_at, symbols));
    Row::Cells(cells)
}

/// The ages of everything shown of a device and its instances.
fn ages(device: &Device) -> impl Iterator<Item = Option<u32>> {
    let parts = device.instances.iter().flat_map(instances::ages);
    device_ages(device).into_iter().chain(parts)
}

/// The ages of what the row shows of the device.
fn device_ages(device: &Device) -> [Option<u32>; 7] {
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

/// The model without the prefix common to the vendor's models. The name does not change, so its
/// age does not matter. Memory shared with the host must not be read as the GPU's own.
fn name(device: &Device, symbols: Symbols) -> Cell {
    let Some(name) = device.name.last_known() else {
        return reading(&device.name, |_| String::new());
    };
    let name = escaped(name.trim_start_matches("NVIDIA "), symbols);
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
        Some(percent) if percent.0 > 0 => Cell::with_tone(cell.text, Tone::Busy),
        Some(_) if !processes.is_empty() => Cell::with_tone(cell.text, Tone::Doubtful),
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
        Some(errors) if *errors > 0 => Cell::with_tone(cell.text, Tone::Broken),
        Some(_) | None => cell,
    }
}

fn containers(processes: &[&GpuProcess], symbols: Symbols) -> Cell {
    let names: BTreeSet<String> = processes
        .iter()
        .filter_map(|process| process.location.container.last_known()?.as_ref())
        .map(|container| escaped(&container.to_string(), symbols))
        .collect();
    if names.is_empty() {
        return Cell::plain(symbols.placeholder());
    }
    Cell::plain(names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The process that holds the most, and the memory that no process explains. For a divided
/// device the number of instances, which have rows of their own.
fn top_process_cell(
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
        let (text, of_holder) = process_text(process, taken_at, symbols);
        parts.push(text);
        tone = of_holder;
    }
    let unattributed = device
        .memory_unattributed
        .last_known()
        .filter(|bytes| bytes.0 > 0);
    // Unexplained memory is not part of one user's or one program's share.
    if let (Some(bytes), None) = (unattributed, &view.only) {
        parts.push(format!("{} unattributed", size(*bytes)));
        tone = Tone::Doubtful;
    }
    if parts.is_empty() {
        return Cell::plain(symbols.placeholder());
    }
    Cell::with_tone(parts.join(", "), tone)
}

/// The owner, name, memory and idle time of a process.
fn process_text(process: &GpuProcess, taken_at: Timestamp, symbols: Symbols) -> (String, Tone) {
    let owner = process_owner(process, symbols);
    let name = match process.last_known_key() {
        Some(_) => {
            let name = reading(&process.name, |name| escaped(name, symbols)).text;
            with_end_time(process, name)
        }
        None => NO_PROCESS.to_owned(),
    };
    let memory = reading(&process.memory, |bytes| size(*bytes)).text;
    let text = [owner.as_str(), &name, &memory].join(" ");
    match idle_text(process, taken_at) {
        Some(idle) => (format!("{text}, {idle}"), Tone::Doubtful),
        None => (text, Tone::Plain),
    }
}

/// `idle 9h`, in the greatest unit; `None` when the process used the device recently, or when
/// that is not known.
fn idle_text(process: &GpuProcess, taken_at: Timestamp) -> Option<String> {
    let last_active = process.last_active.known()?;
    let since = last_active.or_else(|| process.first_seen.known().copied())?;
    let length = taken_at.since(since);
    let length = Some(length).filter(|length| *length >= MIN_IDLE)?;
    let units = format_duration(length);
    Some(format!("idle {}", units.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NOW, snapshot};
    use super::*;
    use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value};

    #[test]
    fn idle_only_when_known_and_long() {
        let mut process = snapshot().processes.remove(0);
        process.first_seen = Value(NOW.plus_seconds(-90_000));
        let at = |seconds: i64| Some(NOW.plus_seconds(-seconds));
        let cases = [
            (Value(at(0)), None),
            (Value(at(599)), None),
            (Value(at(600)), Some("idle 10m")),
            (Value(at(34_860)), Some("idle 9h")),
            (Value(None), Some("idle 1d")),
            (Stale(at(34_860), 60), None),
            (Failed("timeout".into()), None),
            (Unsupported, None),
        ];
        for (last_active, expected) in cases {
            process.last_active = last_active;
            assert_eq!(idle_text(&process, NOW).as_deref(), expected, "{process:?}");
        }
    }
}
