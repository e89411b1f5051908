//! Merges the three process lists of one GPU, or of one of its instances.

use super::codes::{ErrorClass, error_class, failed_reading};
use super::raw::ListKind;
use super::records::{ListError, ProcessRecord, read_records};
use super::utilization::UtilizationSamples;
use crate::backend::ProcessReadings;
use gpukill_proto::model::{GpuUse, InstanceId};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;

/// A pid on an instance of a GPU, or on a whole GPU.
type ProcessInstance = (u32, Option<InstanceId>);

pub(super) type MergedProcesses = BTreeMap<ProcessInstance, (GpuUse, Reading<Bytes>)>;

/// The processes in all lists of a GPU or of a MIG device.
pub(super) fn read_merged(nvml: &Nvml, device: &Device<'_>) -> Result<MergedProcesses, ListError> {
    let kinds = [ListKind::Compute, ListKind::Graphics, ListKind::Mps];
    merge_records(kinds.map(|kind| (kind, read_records(nvml, device, kind))))
}

pub(super) fn list_failure<T>(error: &ListError) -> Reading<T> {
    match error {
        ListError::Nvml(error) => failed_reading(error),
        ListError::Growing => Reading::Failed("the list grows faster than it can be read".into()),
        ListError::UnknownRecords => Reading::Failed(
            "the driver writes records of an unknown length: their pids cannot be trusted".into(),
        ),
    }
}

pub(super) fn add_utilization(
    merged: MergedProcesses,
    samples: &UtilizationSamples,
) -> Vec<ProcessReadings> {
    let processes = merged.into_iter();
    processes
        .map(|((pid, instance), (used_for, memory))| ProcessReadings {
            pid,
            start_ticks: None,
            instance,
            used_for,
            memory,
            utilization: samples.utilization_of(pid),
        })
        .collect()
}

/// Merges the lists: each process once on each instance. A process in several lists holds its
/// memory once.
///
/// A list that this GPU or driver does not have is empty. Any other failure fails the whole: a part
/// of the processes would look like all of them.
fn merge_records(
    lists: [(ListKind, Result<Vec<ProcessRecord>, ListError>); 3],
) -> Result<MergedProcesses, ListError> {
    let mut merged = MergedProcesses::new();
    let mut supported = false;
    let mut unsupported = None;
    for (kind, list) in lists {
        let list = match list {
            Ok(list) => list,
            Err(ListError::Nvml(error)) if error_class(&error) == ErrorClass::Unsupported => {
                unsupported = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        supported = true;
        // A driver may list itself as pid 0: no process has that pid.
        for record in list.into_iter().filter(|record| record.pid != 0) {
            let memory = record.memory.map(Bytes);
            let memory = memory.map_or(Reading::Unsupported, Reading::Value);
            let (used_for, held) = merged
                .entry((record.pid, record.instance))
                .or_insert((GpuUse::default(), Reading::Unsupported));
            match kind {
                ListKind::Compute => used_for.compute = true,
                ListKind::Graphics => used_for.graphics = true,
                ListKind::Mps => used_for.mps = true,
            }
            let greater = |one: Bytes, other| Reading::Value(one.max(other));
            *held = held.clone().combine_supported(memory, greater);
        }
    }
    match (supported, unsupported) {
        (false, Some(error)) => Err(error.into()),
        _ => Ok(merged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper::error::NvmlError;

    const INSTANCE: Option<InstanceId> = Some(InstanceId { gpu: 2, compute: 0 });

    fn process(pid: u32, memory: Option<u64>, instance: Option<InstanceId>) -> ProcessRecord {
        ProcessRecord {
            pid,
            memory,
            instance,
        }
    }

    fn merge_lists(
        compute: Result<Vec<ProcessRecord>, NvmlError>,
        graphics: Result<Vec<ProcessRecord>, NvmlError>,
        mps: Result<Vec<ProcessRecord>, NvmlError>,
    ) -> Result<MergedProcesses, ListError> {
        merge_records([
            (ListKind::Compute, compute.map_err(ListError::Nvml)),
            (ListKind::Graphics, graphics.map_err(ListError::Nvml)),
            (ListKind::Mps, mps.map_err(ListError::Nvml)),
        ])
    }

    #[test]
    fn process_in_two_lists_counts_once() {
        let merged = merge_lists(
            Ok(vec![process(7, Some(100), None)]),
            Ok(vec![process(7, Some(90), None), process(8, Some(5), None)]),
            Err(NvmlError::NotSupported),
        )
        .unwrap();
        let (used_for, memory) = &merged[&(7, None)];
        assert!(used_for.compute && used_for.graphics && !used_for.mps);
        assert_eq!(memory, &Reading::Value(Bytes(100)));
        assert_eq!(merged[&(8, None)].1, Reading::Value(Bytes(5)));
    }

    #[test]
    fn pid_zero_is_no_process() {
        let merged = merge_lists(
            Ok(vec![process(0, Some(100), None), process(7, Some(1), None)]),
            Ok(vec![process(0, Some(1), None)]),
            Ok(vec![]),
        );
        let merged = merged.unwrap();
        let pids: Vec<u32> = merged.keys().map(|(pid, _)| *pid).collect();
        assert_eq!(pids, [7]);
    }

    #[test]
    fn process_on_two_instances() {
        let other = Some(InstanceId { gpu: 3, compute: 0 });
        let merged = merge_lists(
            Ok(vec![
                process(7, Some(100), INSTANCE),
                process(7, Some(50), other),
            ]),
            Ok(vec![]),
            Ok(vec![]),
        )
        .unwrap();
        assert_eq!(merged[&(7, INSTANCE)].1, Reading::Value(Bytes(100)));
        assert_eq!(merged[&(7, other)].1, Reading::Value(Bytes(50)));
    }

    #[test]
    fn unknown_memory_is_not_zero() {
        let alone = merge_lists(Ok(vec![process(7, None, None)]), Ok(vec![]), Ok(vec![]));
        assert_eq!(alone.unwrap()[&(7, None)].1, Reading::Unsupported);
        let listed_once = merge_lists(
            Ok(vec![process(7, None, None)]),
            Ok(vec![process(7, Some(3), None)]),
            Ok(vec![]),
        );
        assert_eq!(listed_once.unwrap()[&(7, None)].1, Reading::Value(Bytes(3)));
    }

    #[test]
    fn failed_list_fails_missing_list_does_not() {
        assert!(merge_lists(Ok(vec![]), Err(NvmlError::Unknown), Ok(vec![])).is_err());
        let none = || Err(NvmlError::NotSupported);
        assert!(merge_lists(Ok(vec![]), none(), none()).is_ok());
        assert!(matches!(
            merge_lists(none(), none(), none()),
            Err(ListError::Nvml(NvmlError::NotSupported))
        ));
    }
}
