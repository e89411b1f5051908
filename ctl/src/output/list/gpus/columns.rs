//! The columns of the table of GPUs, in the order in which they stand by default.

use super::instances::{self, InstanceRow};
use super::{
    DeviceRow, containers, device_ages, ecc, index, memory, memory_bar, name, power,
    top_process_cell, utilization,
};
use crate::output::list::columns::NamedColumn;
use crate::output::list::view::reads_vendor;
use crate::output::style::Density;
use crate::output::table::{Cell, Column, WhenNarrow};
use crate::output::value::{percent_cell, reading, size_cell};
use gpukill_proto::model::BackendReport;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Celsius, Megahertz};

#[derive(Debug, Clone)]
pub(crate) struct GpuColumn {
    /// The name in `--columns` and in the settings.
    name: &'static str,
    column: Column,
    pub(super) cell: fn(&DeviceRow<'_>) -> Cell,
    /// The cell of an instance of a divided device.
    pub(super) instance_cell: fn(&InstanceRow<'_>) -> Cell,
}

impl NamedColumn for GpuColumn {
    const ALL: &'static [Self] = COLUMNS;
    const DEFAULT: &'static [Self] = COLUMNS.split_at(DEFAULT_COLUMNS).0;

    fn name(&self) -> &'static str {
        self.name
    }
}

impl GpuColumn {
    /// Whether the column names the device. Only these stand before a message about a device.
    pub(super) fn names_device(&self) -> bool {
        matches!(self.name, "gpu" | "name")
    }

    pub(super) fn column(&self, density: Density) -> Column {
        let when_narrow = match (density, self.name) {
            // The model without its series, and an owner, a program and a size.
            (Density::Compact, "name") => WhenNarrow::Shrinks(8),
            (Density::Compact, "top") => WhenNarrow::Shrinks(19),
            (Density::Compact | Density::Full, _) => self.column.when_narrow,
        };
        Column {
            when_narrow,
            ..self.column
        }
    }
}

/// Defines the columns: alignment, name, title, how it gives way, the cell, and the cell of an
/// instance.
macro_rules! columns {
    (@instance) => {
        // Drivers report most readings for a whole device only.
        instances::no_value
    };
    (@instance $cell:expr) => { $cell };
    ($($align:ident $name:literal $title:literal $narrow:ident $(($width:literal))?
        => $cell:expr $(, $instance_cell:expr)?;)*) => {
        /// All columns: the default ones, then those that must be requested.
        const COLUMNS: &[GpuColumn] = &[$(GpuColumn {
            name: $name,
            column: Column::$align($title, WhenNarrow::$narrow $(($width))?),
            cell: $cell,
            instance_cell: columns!(@instance $($instance_cell)?),
        }),*];
    };
}

/// The first columns of the registry stand in the table by default.
const DEFAULT_COLUMNS: usize = 12;

columns! {
    right "gpu" "GPU" Stays => index, instances::index;
    left "name" "NAME" Stays => name, instances::profile;
    left "bar" "" Goes(5) =>
        |row| memory_bar(&row.device.memory_used, &row.device.memory_total, row.symbols),
        instances::bar;
    right "memory" "MEMORY" Stays =>
        |row| memory(&row.device.memory_used, &row.device.memory_total, row.density),
        instances::memory;
    right "util" "UTIL" Stays => utilization;
    right "temp" "TEMP" Goes(4) => |row| celsius(&row.device.vitals.temperature, row);
    right "power" "POWER" Goes(6) => power;
    right "ecc" "ECC" Goes(1) => |row| ecc(row.device);
    right "procs" "PROCS" Goes(2) =>
        |row| reading(&row.device.process_count, ToString::to_string),
        instances::process_count;
    right "age" "AGE" Stays =>
        |row| {
            let cell = row.age_column.cell(device_ages(row.device), row.symbols);
            cell.unwrap_or_else(|| Cell::plain(row.symbols.placeholder()))
        },
        instances::age;
    left "containers" "CONTAINERS" Shrinks(19) =>
        |row| containers(row.processes, row.symbols),
        instances::containers;
    // Enough for a user, a program, a size and the idle time.
    left "top" "TOP PROCESS" Shrinks(24) => top_process_cell, instances::top_process;
    left "vendor" "VENDOR" Stays => |row| Cell::plain(row.device.vendor.name());
    left "driver" "DRIVER" Stays => |row| of_backend(row, |backend| &backend.driver);
    left "cuda" "CUDA" Stays => |row| of_backend(row, |backend| &backend.cuda);
    left "uuid" "UUID" Stays => |row| row.text(&row.device.id.0);
    left "pci" "PCI" Stays => |row| row.text_reading(&row.device.pci);
    right "fan" "FAN" Stays => |row| percent_cell(&row.device.vitals.fan);
    right "pstate" "PSTATE" Stays =>
        |row| reading(&row.device.vitals.performance_state, |state| format!("P{state}"));
    left "pcie" "PCIE" Stays => pcie;
    left "throttle" "THROTTLE" Stays =>
        |row| reading(&row.device.vitals.throttle, |reasons| match reasons.0.as_slice() {
            [] => row.symbols.placeholder().to_owned(),
            reasons => reasons.join(","),
        });
    right "clock" "CLOCK" Stays =>
        // AMD and Intel report the graphics clock only.
        |row| megahertz(match &row.device.vitals.clock_sm {
            Reading::Unsupported => &row.device.vitals.clock_graphics,
            clock => clock,
        });
    right "mem_clock" "MEM CLOCK" Stays => |row| megahertz(&row.device.vitals.clock_memory);
    right "mem_temp" "MEM TEMP" Stays => |row| celsius(&row.device.vitals.memory_temperature, row);
    right "mem_util" "MEM UTIL" Stays => |row| percent_cell(&row.device.vitals.memory_utilization);
    right "encoder" "ENCODER" Stays => |row| percent_cell(&row.device.vitals.encoder);
    right "decoder" "DECODER" Stays => |row| percent_cell(&row.device.vitals.decoder);
    right "reserved" "RESERVED" Stays => |row| size_cell(&row.device.memory_reserved);
    right "unattributed" "UNATTRIBUTED" Stays => |row| size_cell(&row.device.memory_unattributed);
}

fn megahertz(value: &Reading<Megahertz>) -> Cell {
    reading(value, |clock| clock.0.to_string() + "MHz")
}

fn celsius(value: &Reading<Celsius>, row: &DeviceRow<'_>) -> Cell {
    reading(value, |celsius| {
        celsius.0.to_string() + row.symbols.degree()
    })
}

/// The generation and the lanes in use: `5x16`. An idle device lowers the generation.
fn pcie(row: &DeviceRow<'_>) -> Cell {
    let vitals = &row.device.vitals;
    let mut cell = reading(&vitals.pcie_generation, ToString::to_string);
    if let Some(lanes) = vitals.pcie_width.last_known() {
        cell.text.push('x');
        cell.text.push_str(&lanes.to_string());
    }
    cell
}

fn of_backend(row: &DeviceRow<'_>, version: fn(&BackendReport) -> &Reading<String>) -> Cell {
    let mut backends = row.snapshot.backends.iter();
    match backends.find(|backend| reads_vendor(&backend.name, row.device.vendor)) {
        Some(backend) => row.text_reading(version(backend)),
        None => Cell::plain(row.symbols.placeholder()),
    }
}
