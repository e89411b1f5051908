//! The table with a row for each GPU, and for each instance of a divided GPU.

pub(crate) mod columns;
mod instances;

use crate::output::age::{AgeColumn, age};
use crate::output::list::columns::NamedColumn as _;
use crate::output::list::processes::with_end_time;
use crate::output::list::view::{View, has_a_row};
use crate::output::loss::{loss_text, xid_text};
use crate::output::owner_cells::process_owner;
use crate::output::style::{Density, OutputStyle, Symbols};
use crate::output::table::{Cell, Row, Table};
use crate::output::text::{Line, Tone, escaped};
use crate::output::value::{bar, counted, gib, percent_cell, reading, size, size_cell};
use columns::GpuColumn;
use gpukill_policy::health::{device_problems, recent_xid};
use gpukill_proto::collect::IntoSet as _;
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

pub(in crate::output) fn table(
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
    let density = style.density();
    let shown = view.gpu_columns.shown(|column| match column {
        "ecc" => density == Density::Full || devices.iter().any(|it| has_ecc_errors(it)),
        "procs" => density == Density::Full,
        "age" => age_column == AgeColumn::Needed,
        "containers" => view.containers,
        _ => true,
    });
    let columns = shown.iter().enumerate().map(|(at, it)| {
        let column = it.column(density);
        match view.gpu_columns.has_requested(it.name()) {
            true => column.as_requested(at),
            false => column,
        }
    });
    let mut table = Table::new(columns.collect());
    if view.gpu_columns.is_request() {
        table = table.with_empty_columns();
    }
    for device in devices {
        let row = DeviceRow {
            device,
            processes: by_device.get(&device.id).map_or(&[], Vec::as_slice),
            snapshot,
            view,
            age_column,
            symbols: style.symbols,
            density,
        };
        if let Some(loss) = &device.lost {
            let text = loss_text(device, &snapshot.devices, loss, now, style);
            table.push(row.message_row(&shown, Cell::with_tone(text, Tone::Broken)));
        } else if is_suspended(device) {
            let message = Cell::with_tone(SUSPENDED_TEXT, Tone::Faint);
            table.push(row.message_row(&shown, message));
        } else {
            table.push(Row::Cells(shown.iter().map(|it| (it.cell)(&row)).collect()));
            let xid = recent_xid(device, snapshot.taken_at).map(|it| xid_text(it, now, style));
            let problems = device_problems(device).into_iter().map(|(_, what)| what);
            for problem in xid.into_iter().chain(problems) {
                let message = Cell::with_tone(escaped(&problem, style.symbols), Tone::Broken);
                table.push(row.message_row(&shown[..1], message));
            }
            for instance in instances::rows(&row) {
                table.push(Row::Cells(
                    shown
                        .iter()
                        .map(|it| (it.instance_cell)(&instance))
                        .collect(),
                ));
            }
        }
    }
    let mut lines = table.lines(style);
    if shown.iter().any(|column| column.name() == "age") {
        lines.extend(age_column.legend(style));
    }
    lines.extend(view.gpu_columns.dropped_lines(&table, &shown, style));
    lines
}

/// A device and all that its cells are made of.
struct DeviceRow<'a> {
    device: &'a Device,
    processes: &'a [&'a GpuProcess],
    snapshot: &'a Snapshot,
    view: &'a View,
    age_column: AgeColumn,
    symbols: Symbols,
    density: Density,
}

impl DeviceRow<'_> {
    /// A row with a message about the device instead of numbers, behind the first columns as
    /// far as they name the device.
    fn message_row(&self, shown: &[&GpuColumn], mut message: Cell) -> Row {
        let names = shown.iter().take_while(|column| column.names_device());
        let before: Vec<Cell> = names.map(|column| (column.cell)(self)).collect();
        if before.is_empty() {
            let index = self.device.index;
            message.text.insert_str(0, &format!("GPU {index}: "));
        }
        Row::Spanning(before, message)
    }

    fn text(&self, text: &str) -> Cell {
        Cell::plain(escaped(text, self.symbols))
    }

    fn text_reading(&self, value: &Reading<String>) -> Cell {
        reading(value, |text| escaped(text, self.symbols))
    }
}

/// Shown instead of numbers for a suspended device.
const SUSPENDED_TEXT: &str = "asleep: not woken for a reading";

pub(in crate::output) fn is_suspended(device: &Device) -> bool {
    device.vitals.suspended.known() == Some(&true)
}

/// The index of a device, marked if it has a fault, an alert or a recent XID: `!3`.
fn index(row: &DeviceRow<'_>) -> Cell {
    let (device, index) = (row.device, row.device.index);
    let faults = row.snapshot.faults.iter();
    let mut faults = faults.filter(|fault| fault.gpu_index() == Some(index));
    let first = faults.next();
    // The message about a lost device has its XID.
    let has_xid = device.lost.is_none() && recent_xid(device, row.snapshot.taken_at).is_some();
    if first.is_none() && !has_xid {
        return Cell::plain(index.to_string());
    }
    let mut all = first.into_iter().chain(faults);
    let tone = match has_xid || all.any(|fault| !fault.code.is_alert()) {
        true => Tone::Broken,
        false => Tone::Doubtful,
    };
    Cell::with_tone(format!("!{index}"), tone)
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
fn name(row: &DeviceRow<'_>) -> Cell {
    let device = row.device;
    let Some(name) = device.name.last_known() else {
        return reading(&device.name, |_| String::new());
    };
    let mut name = name.strip_prefix("NVIDIA ").unwrap_or(name);
    if row.density == Density::Compact {
        name = name.strip_prefix("GeForce ").unwrap_or(name);
        // The kind of memory, as in `H100 80GB HBM3`.
        name = name.split(" HBM").next().unwrap_or(name);
    }
    let name = escaped(name, row.symbols);
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

/// `63.1/79.6G`; compact: `63/80G`.
fn memory(used: &Reading<Bytes>, total: &Reading<Bytes>, density: Density) -> Cell {
    if used.last_known().is_none() && total.last_known().is_none() {
        return reading(used, |_| String::new());
    }
    let part = |part: &Reading<Bytes>| {
        reading(part, |bytes| match density {
            Density::Compact if bytes.as_mib() >= 10 * 1024 => {
                ((bytes.as_mib() + 512) / 1024).to_string()
            }
            Density::Compact | Density::Full => gib(*bytes),
        })
    };
    let (mut cell, total) = (part(used), part(total));
    cell.text.push('/');
    cell.text.push_str(&total.text);
    if total.text.ends_with(|c: char| c.is_ascii_digit()) {
        cell.text.push('G');
    }
    cell
}

fn utilization(row: &DeviceRow<'_>) -> Cell {
    let DeviceRow {
        device, processes, ..
    } = row;
    let cell = percent_cell(&device.vitals.utilization);
    match device.vitals.utilization.known() {
        Some(percent) if percent.0 > 0 => Cell::with_tone(cell.text, Tone::Busy),
        Some(_) if !processes.is_empty() => Cell::with_tone(cell.text, Tone::Doubtful),
        Some(_) | None => cell,
    }
}

/// `688/700W`; compact: `688W`.
fn power(row: &DeviceRow<'_>) -> Cell {
    let vitals = &row.device.vitals;
    let watts = |power: &Milliwatts| power.whole_watts().to_string();
    let mut cell = reading(&vitals.power, watts);
    if vitals.power.last_known().is_some() {
        let limit = vitals.power_limit.last_known();
        if let Some(limit) = limit.filter(|_| row.density == Density::Full) {
            cell.text.push('/');
            cell.text.push_str(&watts(limit));
        }
        cell.text.push('W');
    }
    cell
}

fn ecc(device: &Device) -> Cell {
    let cell = reading(&device.vitals.ecc_volatile, ToString::to_string);
    match has_ecc_errors(device) {
        true => Cell::with_tone(cell.text, Tone::Broken),
        false => cell,
    }
}

fn has_ecc_errors(device: &Device) -> bool {
    let errors = device.vitals.ecc_volatile.last_known();
    errors.is_some_and(|errors| *errors > 0)
}

fn containers(processes: &[&GpuProcess], symbols: Symbols) -> Cell {
    let names: BTreeSet<String> = processes
        .iter()
        .filter_map(|process| process.location.container.last_known()?.as_ref())
        .map(|container| escaped(&container.to_string(), symbols))
        .into_set();
    if names.is_empty() {
        return Cell::plain(symbols.placeholder());
    }
    Cell::plain(names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The process that holds the most, and the memory that no process explains. For a divided
/// device the number of instances, which have rows of their own.
fn top_process_cell(row: &DeviceRow<'_>) -> Cell {
    let DeviceRow {
        device,
        view,
        symbols,
        ..
    } = *row;
    let taken_at = row.snapshot.taken_at;
    let (divided, processes) = instances::summary(device, row.processes);
    // The driver may count more processes than it lists, but not only the selected ones.
    let reported = device.process_count.last_known();
    let reported = reported.filter(|_| view.only.is_none() && divided.is_none());
    let reported = reported.map_or(0, |count| *count as usize);
    let others = other_processes(reported.max(processes.len()), row.density);
    let mut parts: Vec<String> = divided.into_iter().collect();
    let mut tone = Tone::Plain;
    let mut more = 0;
    if let Some(process) = top_process(processes) {
        let (text, of_holder) = process_text(process, taken_at, symbols, row.density, others);
        more = others;
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
    Cell::with_tone(parts.join(", "), tone).and_more(more)
}

/// The number of processes besides the top one, where no column has their number.
fn other_processes(all: usize, density: Density) -> u32 {
    match density {
        Density::Compact => u32::try_from(all.saturating_sub(1)).unwrap_or(u32::MAX),
        Density::Full => 0,
    }
}

/// The owner, name, memory and idle time of a process: `bob python 48.3G, idle 9h`; compact:
/// `bob python, idle 9h`. Beside a number of others there is no room for the memory.
fn process_text(
    process: &GpuProcess,
    taken_at: Timestamp,
    symbols: Symbols,
    density: Density,
    others: u32,
) -> (String, Tone) {
    let owner = process_owner(process, symbols);
    let name = match process.last_known_key() {
        Some(_) => {
            let name = reading(&process.name, |name| escaped(name, symbols)).text;
            with_end_time(process, name)
        }
        None => NO_PROCESS.to_owned(),
    };
    let memory = size_cell(&process.memory).text;
    match (idle_text(process, taken_at), density) {
        (None, _) if others > 0 => ([owner.as_str(), &name].join(" "), Tone::Plain),
        (None, _) => ([owner.as_str(), &name, &memory].join(" "), Tone::Plain),
        (Some(idle), Density::Compact) => (format!("{owner} {name}, {idle}"), Tone::Doubtful),
        (Some(idle), Density::Full) => (format!("{owner} {name} {memory}, {idle}"), Tone::Doubtful),
    }
}

/// `idle 9h`, in the greatest unit; `None` as for [`idle_time`].
fn idle_text(process: &GpuProcess, taken_at: Timestamp) -> Option<String> {
    let units = format_duration(idle_time(process, taken_at)?);
    Some(format!("idle {}", units.split(' ').next()?))
}

/// How long a process has not used its device; `None` when it used the device recently, or when
/// that is not known.
pub(in crate::output) fn idle_time(process: &GpuProcess, taken_at: Timestamp) -> Option<Duration> {
    time_since_use(process, taken_at).filter(|length| *length >= MIN_IDLE)
}

/// How long a process has not used its device, however short; `None` when that is not known.
pub(in crate::output) fn time_since_use(
    process: &GpuProcess,
    taken_at: Timestamp,
) -> Option<Duration> {
    let last_active = process.last_active.known()?;
    let since = last_active.or_else(|| process.first_seen.known().copied())?;
    Some(taken_at.since(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{NOW, snapshot};
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
