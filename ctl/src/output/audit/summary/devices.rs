//! How each GPU was used, and its peaks.

use super::number::percent;
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped};
use crate::output::value::{WEEKDAY_TIME, formatted, size};
use gpukill_proto::audit::{AuditSummary, DeviceTime};
use gpukill_proto::units::Timestamp;

/// A row for each GPU.
pub(super) fn lines(summary: &AuditSummary, now: Timestamp, style: &OutputStyle) -> Vec<Line> {
    let devices = &summary.devices;
    if devices.is_empty() {
        return Vec::new();
    }
    let some_unknown = devices.iter().any(|device| device.times.unknown_ms > 0);
    let mut columns = vec![
        Column::right("GPU", WhenNarrow::Stays),
        Column::left("NAME", WhenNarrow::Goes(4)),
        Column::right("BUSY", WhenNarrow::Stays),
        Column::right("HELD IDLE", WhenNarrow::Stays),
        Column::right("FREE", WhenNarrow::Goes(2)),
    ];
    if some_unknown {
        columns.push(Column::right("UNKNOWN", WhenNarrow::Goes(3)));
    }
    columns.extend([
        Column::right("MOST MEMORY", WhenNarrow::Stays),
        Column::left("AT", WhenNarrow::Goes(5)),
        Column::right("HOTTEST", WhenNarrow::Goes(6)),
        Column::right("ENERGY", WhenNarrow::Goes(1)),
    ]);
    let mut table = Table::new(columns);
    let form = time_form(devices, now);
    for device in devices {
        table.push(Row::Cells(row(device, some_unknown, form, style)));
    }
    table.lines(style)
}

/// One format for the times of all devices: weekdays only if they name days of the last week.
fn time_form(devices: &[DeviceTime], now: Timestamp) -> &'static str {
    let oldest = devices
        .iter()
        .filter_map(|device| device.memory_max_at)
        .min();
    match oldest {
        Some(oldest) if now.since(oldest) >= WEEKDAY_TIME => "%b %d %H:%M",
        Some(_) | None => "%a %H:%M",
    }
}

fn row(device: &DeviceTime, some_unknown: bool, time_form: &str, style: &OutputStyle) -> Vec<Cell> {
    let symbols = style.symbols;
    let times = &device.times;
    let whole = times.total_ms();
    let absent = || Cell::with_tone("n/a", Tone::Faint);
    let name = device.name.as_deref().map(|name| {
        let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
        Cell::plain(escaped(name, symbols))
    });
    let mut cells = vec![
        Cell::plain(device.index.to_string()),
        name.unwrap_or_else(absent),
        Cell::plain(percent(times.busy_ms, whole)),
        Cell::plain(percent(times.held_ms, whole)),
        Cell::plain(percent(times.free_ms, whole)),
    ];
    if some_unknown {
        cells.push(Cell::plain(percent(times.unknown_ms, whole)));
    }
    let memory = device.memory_max.map(|bytes| Cell::plain(size(bytes)));
    let at = device.memory_max_at;
    let at = at.map(|at| Cell::plain(formatted(at, time_form, style.zone)));
    let hottest = device.hottest;
    let hottest = hottest.map(|celsius| Cell::plain(format!("{celsius}{}", symbols.degree())));
    let energy = device.energy_j.map(|joules| Cell::plain(energy(joules)));
    cells.extend([
        memory.unwrap_or_else(absent),
        at.unwrap_or_else(|| Cell::plain(symbols.placeholder())),
        hottest.unwrap_or_else(absent),
        energy.unwrap_or_else(absent),
    ]);
    cells
}

/// `113 kWh`, `0.4 kWh`
#[expect(clippy::cast_precision_loss, reason = "2^53 J are 2.5 TWh")]
fn energy(joules: u64) -> String {
    let kilowatt_hours = joules as f64 / 3_600_000.0;
    match joules {
        0 => "0 kWh".into(),
        _ if kilowatt_hours < 0.05 => "<0.1 kWh".into(),
        _ if kilowatt_hours < 99.95 => format!("{kilowatt_hours:.1} kWh"),
        _ => format!("{kilowatt_hours:.0} kWh"),
    }
}
