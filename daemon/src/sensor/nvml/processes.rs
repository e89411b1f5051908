//! The processes of one GPU, or of one of its instances: three lists merged.

use super::codes::{Class, class, failure};
use super::raw::List;
use super::records::{ListError, Record, list};
use super::window::Samples;
use crate::backend::ProcessReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{InstanceId, Use};
use gpukill_proto::units::Bytes;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;

/// A process on an instance of a GPU, or on a whole one.
type Place = (u32, Option<InstanceId>);

/// What the lists say of one process in one place.
pub(super) type Merged = BTreeMap<Place, (Use, Reading<Bytes>)>;

const COMPUTE: Use = Use {
    compute: true,
    graphics: false,
    mps: false,
};
const GRAPHICS: Use = Use {
    compute: false,
    graphics: true,
    mps: false,
};
const MPS: Use = Use {
    compute: false,
    graphics: false,
    mps: true,
};

/// The processes in all lists of a GPU or of a MIG device.
pub(super) fn merged(nvml: &Nvml, device: &Device<'_>) -> Result<Merged, ListError> {
    merge([
        (COMPUTE, list(nvml, device, List::Compute)),
        (GRAPHICS, list(nvml, device, List::Graphics)),
        (MPS, list(nvml, device, List::Mps)),
    ])
}

/// A list that could not be had, as a reading.
pub(super) fn no_list<T>(error: &ListError) -> Reading<T> {
    match error {
        ListError::Nvml(error) => failure(error),
        ListError::Growing => Reading::Failed("the list grows faster than it can be read".into()),
        ListError::UnknownRecords => Reading::Failed(
            "the driver writes records of an unknown length: no pid in them can be believed".into(),
        ),
    }
}

/// Puts each process's utilisation beside what the lists say.
pub(super) fn with_utilization(merged: Merged, samples: &Samples) -> Vec<ProcessReadings> {
    let processes = merged.into_iter();
    processes
        .map(|((pid, instance), (used_for, memory))| ProcessReadings {
            pid,
            start_ticks: None,
            instance,
            used_for,
            memory,
            utilization: samples.of(pid),
        })
        .collect()
}

/// Each process once in each place. One that is in several lists holds its
/// memory once.
///
/// A list that this GPU or driver does not have is empty. Any other failure of
/// a list fails the whole: half of the processes would look like all of them.
fn merge(lists: [(Use, Result<Vec<Record>, ListError>); 3]) -> Result<Merged, ListError> {
    let mut merged = Merged::new();
    let mut supported = false;
    let mut unsupported = None;
    for (used_for, list) in lists {
        let list = match list {
            Ok(list) => list,
            Err(ListError::Nvml(error)) if class(&error) == Class::Unsupported => {
                unsupported = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        supported = true;
        // A driver may name pid 0 for itself: no process has it.
        for record in list.into_iter().filter(|record| record.pid != 0) {
            let memory = match record.memory {
                Some(bytes) => Reading::Value(Bytes(bytes)),
                None => Reading::Unsupported,
            };
            let process = merged
                .entry((record.pid, record.instance))
                .or_insert((Use::default(), Reading::Unsupported));
            process.0 = either(process.0, used_for);
            process.1 = larger(&process.1, memory);
        }
    }
    match (supported, unsupported) {
        (false, Some(error)) => Err(error.into()),
        _ => Ok(merged),
    }
}

fn either(a: Use, b: Use) -> Use {
    Use {
        compute: a.compute || b.compute,
        graphics: a.graphics || b.graphics,
        mps: a.mps || b.mps,
    }
}

fn larger(a: &Reading<Bytes>, b: Reading<Bytes>) -> Reading<Bytes> {
    match (a.known(), b.known()) {
        (Some(known), Some(other)) => Reading::Value(*known.max(other)),
        (Some(known), None) => Reading::Value(*known),
        (None, _) => b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper::error::NvmlError;

    const INSTANCE: Option<InstanceId> = Some(InstanceId { gpu: 2, compute: 0 });

    fn process(pid: u32, memory: Option<u64>, instance: Option<InstanceId>) -> Record {
        Record {
            pid,
            memory,
            instance,
        }
    }

    fn merge_lists(
        compute: Result<Vec<Record>, NvmlError>,
        graphics: Result<Vec<Record>, NvmlError>,
        mps: Result<Vec<Record>, NvmlError>,
    ) -> Result<Merged, ListError> {
        merge([
            (COMPUTE, compute.map_err(ListError::Nvml)),
            (GRAPHICS, graphics.map_err(ListError::Nvml)),
            (MPS, mps.map_err(ListError::Nvml)),
        ])
    }

    #[test]
    fn a_process_in_two_lists_holds_its_memory_once() {
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
    fn pid_0_is_no_process() {
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
    fn a_process_in_two_instances_is_in_two_places() {
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
    fn memory_the_driver_cannot_tell_is_unknown_and_never_zero() {
        let alone = merge_lists(Ok(vec![process(7, None, None)]), Ok(vec![]), Ok(vec![]));
        assert_eq!(alone.unwrap()[&(7, None)].1, Reading::Unsupported);
        let told_once = merge_lists(
            Ok(vec![process(7, None, None)]),
            Ok(vec![process(7, Some(3), None)]),
            Ok(vec![]),
        );
        assert_eq!(told_once.unwrap()[&(7, None)].1, Reading::Value(Bytes(3)));
    }

    #[test]
    fn a_list_that_failed_fails_the_whole_and_lists_that_do_not_exist_do_not() {
        assert!(merge_lists(Ok(vec![]), Err(NvmlError::Unknown), Ok(vec![])).is_err());
        let none = || Err(NvmlError::NotSupported);
        assert!(merge_lists(Ok(vec![]), none(), none()).is_ok());
        assert!(matches!(
            merge_lists(none(), none(), none()),
            Err(ListError::Nvml(NvmlError::NotSupported))
        ));
    }
}
