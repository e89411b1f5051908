//! The rows below a divided (MIG) device: its instances and their processes.

use super::{
    DeviceRow, age as age_of, memory as memory_cell, memory_bar, other_processes, process_text,
};
use crate::output::style::Density;
use crate::output::table::Cell;
use crate::output::value::{gpu, reading};
use gpukill_proto::json::top_process as top_process_of;
use gpukill_proto::model::{Device, GpuProcess, Instance};

/// An instance and all that its cells are made of.
pub(super) struct InstanceRow<'a> {
    device_row: &'a DeviceRow<'a>,
    instance: &'a Instance,
    processes: Vec<&'a GpuProcess>,
    /// Whether a row above shows the memory, which belongs to the GPU instance.
    shares_memory: bool,
}

/// The rows of the instances; when only some processes are shown, only those of the instances
/// that they use.
pub(super) fn rows<'a>(device_row: &'a DeviceRow<'a>) -> Vec<InstanceRow<'a>> {
    let mut rows: Vec<InstanceRow<'_>> = Vec::new();
    for instance in &device_row.device.instances {
        let processes = processes_in(device_row.processes, instance);
        if device_row.view.only.is_some() && processes.is_empty() {
            continue;
        }
        let shares_memory = rows
            .last()
            .is_some_and(|before| before.instance.id.gpu == instance.id.gpu);
        rows.push(InstanceRow {
            device_row,
            instance,
            processes,
            shares_memory,
        });
    }
    rows
}

/// The cell of a reading that the driver reports for a whole device only.
pub(super) fn no_value(row: &InstanceRow<'_>) -> Cell {
    Cell::plain(row.device_row.symbols.placeholder())
}

/// The number of the device and of the instance.
pub(super) fn index(row: &InstanceRow<'_>) -> Cell {
    Cell::plain(gpu(row.device_row.device.index, Some(row.instance.id)))
}

/// `MIG 3g.40gb`; compact: `3g.40gb`.
pub(super) fn profile(row: &InstanceRow<'_>) -> Cell {
    let mut cell = row.device_row.text_reading(&row.instance.profile);
    if row.device_row.density == Density::Full && row.instance.profile.last_known().is_some() {
        cell.text.insert_str(0, "MIG ");
    }
    cell
}

/// The bar of the memory, once for each GPU instance.
pub(super) fn bar(row: &InstanceRow<'_>) -> Cell {
    let (used, total) = (&row.instance.memory_used, &row.instance.memory_total);
    match row.shares_memory {
        true => Cell::plain(""),
        false => memory_bar(used, total, row.device_row.symbols),
    }
}

/// The memory, once for each GPU instance.
pub(super) fn memory(row: &InstanceRow<'_>) -> Cell {
    let (used, total) = (&row.instance.memory_used, &row.instance.memory_total);
    match row.shares_memory {
        true => Cell::plain("shared"),
        false => memory_cell(used, total, row.device_row.density),
    }
}

pub(super) fn process_count(row: &InstanceRow<'_>) -> Cell {
    match &row.device_row.view.only {
        Some(_) => Cell::plain(row.processes.len().to_string()),
        None => reading(&row.instance.process_count, ToString::to_string),
    }
}

pub(super) fn age(row: &InstanceRow<'_>) -> Cell {
    let cell = row.device_row.age_column;
    let cell = cell.cell(ages(row.instance), row.device_row.symbols);
    cell.unwrap_or_else(|| no_value(row))
}

pub(super) fn containers(row: &InstanceRow<'_>) -> Cell {
    super::containers(&row.processes, row.device_row.symbols)
}

/// The process that holds the most.
pub(super) fn top_process(row: &InstanceRow<'_>) -> Cell {
    let DeviceRow {
        snapshot,
        symbols,
        density,
        ..
    } = row.device_row;
    match top_process_of(row.processes.iter().copied()) {
        Some(process) => {
            let others = other_processes(row.processes.len(), *density);
            let (text, tone) = process_text(process, snapshot.taken_at, *symbols, *density, others);
            Cell::with_tone(text, tone).and_more(others)
        }
        None => no_value(row),
    }
}

/// The ages of what the row of an instance shows.
pub(super) fn ages(instance: &Instance) -> [Option<u32>; 2] {
    [
        age_of(&instance.memory_used),
        age_of(&instance.memory_total),
    ]
}

fn processes_in<'a>(processes: &[&'a GpuProcess], instance: &Instance) -> Vec<&'a GpuProcess> {
    let here = processes.iter().copied();
    here.filter(|process| process.instance == Some(instance.id))
        .collect()
}

/// The cell of a divided device instead of its biggest process, and the processes that no row
/// of its instances shows.
pub(super) fn summary<'a>(
    device: &Device,
    processes: &[&'a GpuProcess],
) -> (Option<String>, Vec<&'a GpuProcess>) {
    let elsewhere = processes.iter().copied().filter(|process| {
        let mut instances = device.instances.iter();
        !instances.any(|instance| process.instance == Some(instance.id))
    });
    let parts = match (device.instances.len(), device.vitals.mig.last_known()) {
        (0, Some(true)) => Some("MIG is on, no instances".to_owned()),
        (0, Some(false) | None) => None,
        (several, _) => Some(super::counted(several, "MIG instance")),
    };
    (parts, elsewhere.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::snapshot;
    use gpukill_proto::model::InstanceId;
    use gpukill_proto::reading::Reading::{Stale, Value};

    fn summed_up(device: &Device, processes: &[GpuProcess]) -> (Option<String>, Vec<u32>) {
        let processes: Vec<&GpuProcess> = processes.iter().collect();
        let (parts, elsewhere) = summary(device, &processes);
        (parts, elsewhere.iter().map(|process| process.pid).collect())
    }

    #[test]
    fn process_outside_instances_stays_visible() {
        let snapshot = snapshot();
        let device = &snapshot.devices[8];
        let mut processes = snapshot.processes.clone();
        processes.retain(|process| process.device == device.id);
        let parts = || Some("3 MIG instances".to_owned());
        assert_eq!(summed_up(device, &processes), (parts(), vec![]));
        processes[0].instance = None;
        processes[1].instance = Some(InstanceId { gpu: 9, compute: 0 });
        assert_eq!(
            summed_up(device, &processes),
            (parts(), vec![70_001, 70_002])
        );
    }

    #[test]
    fn mig_without_instances_is_shown() {
        let mut device = snapshot().devices.remove(8);
        device.instances.clear();
        let on = Some("MIG is on, no instances".to_owned());
        assert_eq!(summed_up(&device, &[]), (on.clone(), vec![]));
        device.vitals.mig = Stale(true, 60);
        assert_eq!(summed_up(&device, &[]), (on, vec![]));
        device.vitals.mig = Value(false);
        assert_eq!(summed_up(&device, &[]), (None, vec![]));
    }
}
