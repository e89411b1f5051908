//! The table with a row for each GPU.

use super::age::{AgeColumn, age};
use super::line::{Line, Tone, shown};
use super::look::{Look, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{bar, clock, gib, reading, size};
use super::view::{View, has_a_row};
use gpukill_proto::document::top_process;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, GpuProcess, Loss, Snapshot};
use gpukill_proto::units::{Bytes, Milliwatts, Timestamp};
use std::collections::BTreeSet;

/// The table of the GPUs.
pub(super) fn table(snapshot: &Snapshot, view: &View, now: Timestamp, look: &Look) -> Vec<Line> {
    let devices: Vec<&Device> = snapshot
        .devices
        .iter()
        .filter(|device| has_a_row(snapshot, device, view))
        .collect();
    let present = devices.iter().filter(|device| device.lost.is_none());
    let age_column = AgeColumn::for_ages(present.flat_map(|device| ages(device)));
    let mut table = Table::new(columns(view, age_column));
    for device in devices {
        table.push(match &device.lost {
            Some(loss) => lost(device, loss, now, look),
            None => row(snapshot, device, view, age_column, look.symbols),
        });
    }
    let mut lines = table.lines(look);
    lines.extend(age_column.legend(look));
    lines
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
    // Room for a user, a program and a size.
    columns.push(Column::left("TOP PROCESS", WhenNarrow::Shrinks(24)));
    columns
}

fn row(
    snapshot: &Snapshot,
    device: &Device,
    view: &View,
    age_column: AgeColumn,
    symbols: Symbols,
) -> Row {
    let processes: Vec<&GpuProcess> = snapshot
        .processes
        .iter()
        .filter(|process| process.device == device.id)
        .collect();
    let mut cells = vec![
        Cell::plain(device.index.to_string()),
        name(device, symbols),
        memory_bar(device, symbols),
        memory(device),
        utilization(device, &processes),
        reading(&device.temperature, |celsius| {
            format!("{}{}", celsius.0, symbols.degree())
        }),
        power(device),
        ecc(device),
        reading(&device.process_count, ToString::to_string),
    ];
    cells.extend(age_column.cell(ages(device), symbols));
    if view.containers {
        cells.push(containers(&processes, symbols));
    }
    cells.push(top(snapshot, device, view, symbols));
    Row::Cells(cells)
}

fn lost(device: &Device, loss: &Loss, now: Timestamp, look: &Look) -> Row {
    let since = clock(loss.since, now, look);
    let reason = shown(&loss.reason, look.symbols);
    let sentence = format!("lost since {since} ({reason}): needs a reset or a reboot");
    Row::Sentence(
        vec![
            Cell::plain(device.index.to_string()),
            name(device, look.symbols),
        ],
        Cell::toned(sentence, Tone::Broken),
    )
}

/// The ages of what the row shows of the device.
fn ages(device: &Device) -> [Option<u32>; 7] {
    [
        age(&device.memory_used),
        age(&device.memory_total),
        age(&device.utilization),
        age(&device.temperature),
        age(&device.power),
        age(&device.power_limit),
        age(&device.ecc_volatile),
    ]
}

/// The model, without what every model of the vendor begins with. It does not
/// change, so its age says nothing.
fn name(device: &Device, symbols: Symbols) -> Cell {
    let Some(name) = device.name.last_known() else {
        return reading(&device.name, |_| String::new());
    };
    let name = shown(name.trim_start_matches("NVIDIA "), symbols);
    Cell::plain(if device.memory_unified {
        format!("{name} (unified memory)")
    } else {
        name
    })
}

fn memory_bar(device: &Device, symbols: Symbols) -> Cell {
    let known = device
        .memory_used
        .last_known()
        .zip(device.memory_total.last_known());
    Cell::plain(known.map_or_else(String::new, |(used, total)| bar(used.0, total.0, symbols)))
}

fn memory(device: &Device) -> Cell {
    let (used, total) = (&device.memory_used, &device.memory_total);
    if used.last_known().is_none() && total.last_known().is_none() {
        return reading(used, |_| String::new());
    }
    let part = |part: &Reading<Bytes>| reading(part, |bytes| gib(*bytes));
    let (used, total) = (part(used), part(total));
    let unit = if total.text.ends_with(|c: char| c.is_ascii_digit()) {
        "G"
    } else {
        ""
    };
    Cell::toned(format!("{}/{}{unit}", used.text, total.text), used.tone)
}

fn utilization(device: &Device, processes: &[&GpuProcess]) -> Cell {
    let cell = reading(&device.utilization, |percent| format!("{}%", percent.0));
    match device.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::toned(cell.text, Tone::Busy),
        Some(_) if !processes.is_empty() => Cell::toned(cell.text, Tone::Doubtful),
        Some(_) | None => cell,
    }
}

fn power(device: &Device) -> Cell {
    let watts = |power: &Milliwatts| format!("{:.0}", power.as_watts());
    let mut cell = reading(&device.power, watts);
    if device.power.last_known().is_some() {
        if let Some(limit) = device.power_limit.last_known() {
            cell.text = format!("{}/{}", cell.text, watts(limit));
        }
        cell.text.push('W');
    }
    cell
}

fn ecc(device: &Device) -> Cell {
    let cell = reading(&device.ecc_volatile, ToString::to_string);
    match device.ecc_volatile.last_known() {
        Some(errors) if *errors > 0 => Cell::toned(cell.text, Tone::Broken),
        Some(_) | None => cell,
    }
}

fn containers(processes: &[&GpuProcess], symbols: Symbols) -> Cell {
    let names: BTreeSet<String> = processes
        .iter()
        .filter_map(|process| process.container.last_known()?.as_ref())
        .map(|container| shown(&container.to_string(), symbols))
        .collect();
    if names.is_empty() {
        return Cell::plain(symbols.none());
    }
    Cell::plain(names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The process that holds the most, and the memory that no process explains.
fn top(snapshot: &Snapshot, device: &Device, view: &View, symbols: Symbols) -> Cell {
    let mut parts = Vec::new();
    if let Some(process) = top_process(snapshot, device) {
        let [user, name] = [
            super::processes::user(process, symbols),
            short(process, symbols),
        ];
        let memory = reading(&process.memory, |bytes| size(*bytes)).text;
        parts.push(format!("{user} {name} {memory}"));
    }
    let mut tone = Tone::Plain;
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

fn short(process: &GpuProcess, symbols: Symbols) -> String {
    reading(&process.name, |name| shown(name, symbols)).text
}
