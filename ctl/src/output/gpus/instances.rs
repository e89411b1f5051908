//! The rows below a divided (MIG) device: its instances and their processes.

use super::super::age::AgeColumn;
use super::super::style::Symbols;
use super::super::table::{Cell, Row};
use super::super::value::{gpu, reading};
use super::super::view::View;
use super::{age, containers, memory, memory_bar, process_text};
use gpukill_proto::json::top_process;
use gpukill_proto::model::{Device, GpuProcess, Instance, InstanceId};
use gpukill_proto::units::Timestamp;

/// The rows of the instances; when only some processes are shown, only those of the instances
/// that they use.
pub(super) fn rows(
    device: &Device,
    processes: &[&GpuProcess],
    view: &View,
    age_column: AgeColumn,
    taken_at: Timestamp,
    symbols: Symbols,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut before: Option<InstanceId> = None;
    for instance in &device.instances {
        let here = processes_in(processes, instance);
        if view.only.is_some() && here.is_empty() {
            continue;
        }
        let shares = before.is_some_and(|before| before.gpu == instance.id.gpu);
        before = Some(instance.id);
        let none = || Cell::plain(symbols.placeholder());
        let mut cells = vec![
            Cell::plain(gpu(device.index, Some(instance.id))),
            reading(&instance.profile, |profile| {
                format!("MIG {}", super::escaped(profile, symbols))
            }),
        ];
        // The memory belongs to the GPU instance and is shown once.
        cells.extend(if shares {
            [Cell::plain(""), Cell::plain("shared")]
        } else {
            let (used, total) = (&instance.memory_used, &instance.memory_total);
            [memory_bar(used, total, symbols), memory(used, total)]
        });
        // The driver reports these for a whole device only.
        cells.extend([none(), none(), none(), none()]);
        cells.push(match &view.only {
            Some(_) => Cell::plain(here.len().to_string()),
            None => reading(&instance.process_count, ToString::to_string),
        });
        cells.extend(age_column.cell(ages(instance), symbols));
        if view.containers {
            cells.push(containers(&here, symbols));
        }
        cells.push(match top_process(here) {
            Some(process) => {
                let (text, tone) = process_text(process, taken_at, symbols);
                Cell::with_tone(text, tone)
            }
            None => none(),
        });
        rows.push(Row::Cells(cells));
    }
    rows
}

/// The ages of what the row of an instance shows.
pub(super) fn ages(instance: &Instance) -> [Option<u32>; 2] {
    [age(&instance.memory_used), age(&instance.memory_total)]
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
    use super::super::super::fixtures::snapshot;
    use super::*;
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
