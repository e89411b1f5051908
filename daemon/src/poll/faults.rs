//! Finds the faults of a poll: backends, devices and single readings. The text of a fault contains
//! nothing that changes while it lasts.

use crate::backend::reader::LatestReadings;
use crate::backend::{DRIVER_NOT_ANSWERING, DeviceReadings};
use crate::fault::PartFault;
use crate::fd_scan::{FIRST_SCAN_PENDING, FileHolders};
use crate::host::users::Users;
use gpukill_policy::health::device_problems;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::model::{BackendState, Device, DeviceId, FaultCode, LossKind, Snapshot, Vitals};
use gpukill_proto::reading::IMPOSSIBLE;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All faults, backends first.
pub(super) fn detect_faults(
    latest: &[(&'static str, LatestReadings)],
    snapshot: &Snapshot,
) -> Vec<PartFault> {
    let mut all: Vec<PartFault> = Vec::new();
    all.extend(snapshot.backends.iter().filter_map(|backend| {
        let (code, what) = match &backend.state {
            BackendState::Failed(code, why) => (*code, why.clone()),
            // A driver that is released on request is intended, not a fault.
            BackendState::Ready
            | BackendState::Starting
            | BackendState::Absent(_)
            | BackendState::Quiesced(_) => return None,
        };
        Some(PartFault::new(&backend.name, code, what))
    }));
    for (name, latest) in latest {
        all.extend(late_fault(name, latest, snapshot));
        let readings = latest.readings.as_ref().map(|(readings, _)| readings);
        let beyond = readings.into_iter().flat_map(|readings| &readings.faults);
        all.extend(beyond.map(|fault| fault.clone().with_part(*name)));
    }
    let works = |vendor: &str| {
        let backend = snapshot.backends.iter().find(|it| it.name == vendor);
        backend.is_none_or(|it| it.state == BackendState::Ready)
    };
    let indices: BTreeMap<&DeviceId, u32> = snapshot
        .devices
        .iter()
        .map(|device| (&device.id, device.index))
        .into_map();
    for (name, latest) in latest {
        let read = latest.readings.iter();
        let read = read.flat_map(|(readings, _)| &readings.devices);
        let read: BTreeMap<&DeviceId, &DeviceReadings> =
            read.map(|device| (&device.id, device)).into_map();
        for device in &snapshot.devices {
            match read.get(&device.id) {
                // The silence is reported once instead of each old or missing value.
                Some(read) if read.stale_since.is_some() => {
                    let part = format!("GPU {}", device.index);
                    all.push(PartFault::new(
                        part,
                        FaultCode::GpuSilent,
                        DRIVER_NOT_ANSWERING,
                    ));
                }
                Some(_) => all.extend(device_faults(device, works(name))),
                None => {}
            }
        }
    }
    all.extend(list_faults(latest, &indices, &works));
    all.extend(incomplete_list_faults(latest));
    all
}

/// Gives the fault of each lost device the time of the loss. The text of the fault may be newer,
/// where the driver reports another reason for the same state.
pub(super) fn align_loss_times(snapshot: &mut Snapshot) {
    for device in &snapshot.devices {
        let Some(loss) = &device.lost else { continue };
        let part = format!("GPU {}", device.index);
        let what = format!("{} ({})", loss.kind.label(), loss.reason);
        let names_it = |what: &str| loss.kind != LossKind::Gone || !names_another_gpu(what, device);
        for fault in &mut snapshot.faults {
            if fault.part == part && fault.what.starts_with(&what) && names_it(&fault.what) {
                fault.since = loss.since;
            }
        }
    }
}

/// Whether the fault of a gone GPU belongs to another GPU that had the same number.
fn names_another_gpu(what: &str, device: &Device) -> bool {
    let named = what.rsplit(' ').next().unwrap_or_default();
    named != device.index.to_string() && named != device.id.0
}

/// How late an answer may be before it is a fault. One late answer on a busy host is none, and its
/// readings show their age anyway.
const LATE_AFTER: Duration = Duration::from_secs(3);

/// The fault of a backend with a slow driver.
const SLOW: &str = "answers slowly: polls are less frequent until it answers in time again";

fn late_fault(name: &str, latest: &LatestReadings, snapshot: &Snapshot) -> Option<PartFault> {
    if latest.failure.is_some() {
        return None;
    }
    // One fault while it lasts, even if every other answer is in time.
    if latest.slowest_answer.is_some() {
        return Some(PartFault::new(name, FaultCode::AnswersSlowly, SLOW));
    }
    if latest.is_fresh() {
        return None;
    }
    let mut backends = snapshot.backends.iter();
    let starts = backends.any(|backend| {
        backend.name == name
            && backend.state == BackendState::Starting
            && snapshot.taken_at.since(backend.since) < LATE_AFTER
    });
    if starts {
        return None;
    }
    let (code, what) = match &latest.readings {
        Some((_, taken_at)) if snapshot.taken_at.since(*taken_at) < LATE_AFTER => return None,
        Some(_) => (
            FaultCode::ReadingsOld,
            "does not answer in time: readings are old",
        ),
        None => (
            FaultCode::NoAnswerYet,
            "has not answered yet: the driver may be waking its devices",
        ),
    };
    Some(PartFault::new(name, code, what))
}

/// Why the list of GPU processes may be incomplete; one fault for all GPUs.
fn incomplete_list_faults(latest: &[(&'static str, LatestReadings)]) -> BTreeSet<PartFault> {
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    devices
        .filter_map(|device| device.incomplete_reason.clone())
        // The first scan is still running.
        .filter(|why| why != FIRST_SCAN_PENDING)
        .map(|why| PartFault::new("processes", FaultCode::ListIncomplete, why))
        .into_set()
}

/// Lists that failed, and entries in them that failed.
fn list_faults(
    latest: &[(&'static str, LatestReadings)],
    indices: &BTreeMap<&DeviceId, u32>,
    works: &dyn Fn(&str) -> bool,
) -> Vec<PartFault> {
    let readings = latest
        .iter()
        .filter(|(name, _)| works(name))
        .filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    devices
        .filter(|device| device.lost.is_none() && device.stale_since.is_none())
        .filter(|device| !is_suspended(&device.vitals))
        .flat_map(|device| {
            let index = indices.get(&device.id).copied().unwrap_or(device.index);
            let what = device_list_faults(device).into_iter();
            what.map(move |(code, what)| PartFault::new(format!("GPU {index}"), code, what))
        })
        .collect()
}

/// Faults in the lists of processes and instances of one device.
fn device_list_faults(device: &DeviceReadings) -> Vec<(FaultCode, String)> {
    let list = device.processes.failure();
    let instances = device.instances_fault.as_deref();
    let held = device.processes.known().into_iter().flatten();
    let mut held = held.filter_map(|process| process.memory.failure());
    // The first is reported: the others have the same fault.
    let impossible = held.find(|why| why.starts_with(IMPOSSIBLE));
    let all = [
        (FaultCode::ProcessListFailed, "processes", list),
        (FaultCode::InstanceListFailed, "instances", instances),
        (
            FaultCode::ProcessMemoryImpossible,
            "memory of a process",
            impossible,
        ),
    ];
    let all = all.into_iter();
    all.filter_map(|(code, what, why)| Some((code, format!("{what}: {}", why?))))
        .collect()
}

/// A suspended device is not read, which is no fault.
fn is_suspended(vitals: &Vitals) -> bool {
    vitals.suspended.known() == Some(&true)
}

/// The faults of one device. `works`: whether the backend works. If not, each reading fails for a
/// reason that is reported already.
pub(crate) fn device_faults(device: &Device, works: bool) -> Vec<PartFault> {
    let part = format!("GPU {}", device.index);
    if let Some(loss) = &device.lost {
        let (words, remedy) = (loss.kind.label(), loss.kind.remedy());
        let what = format!("{words} ({}){remedy}", loss.reason);
        let code = match loss.kind {
            LossKind::Lost => FaultCode::GpuLost,
            LossKind::Gone => FaultCode::GpuGone,
            LossKind::NotPermitted => FaultCode::NotPermitted,
            LossKind::Unknown => FaultCode::GpuStateUnknown,
        };
        return vec![PartFault::new(part, code, what)];
    }
    if !works || is_suspended(&device.vitals) {
        return Vec::new();
    }
    let own = [
        ("name", device.name.failure()),
        ("PCI address", device.pci.failure()),
        ("memory", device.memory_used.failure()),
    ];
    let own = own.into_iter().filter_map(|(what, why)| Some((what, why?)));
    // An incomplete list of processes is reported elsewhere.
    let incomplete = device.process_count.failure();
    let all: Vec<(&str, &str)> = own
        .chain(device.vitals.failures())
        .filter(|(_, why)| Some(*why) != incomplete)
        .collect();
    // A failing GPU has one fault for each reason, not one for each reading.
    let failed = all.iter().enumerate().filter_map(|(at, (what, why))| {
        let same = |(_, other): &&(&str, &str)| other == why;
        if all.iter().take(at).any(|it| same(&it)) {
            return None;
        }
        let others = all.iter().filter(same).count() > 1;
        let others = if others { " and others" } else { "" };
        let what = format!("{what}{others}: {why}");
        Some((FaultCode::ReadingFailed, what))
    });
    let parts = device.instances.iter().filter_map(|instance| {
        let why = instance.memory_used.failure()?;
        let what = format!("memory of instance {}: {why}", instance.id);
        Some((FaultCode::InstanceMemoryFailed, what))
    });
    failed
        .chain(parts)
        .chain(device_problems(device))
        .map(|(code, what)| PartFault::new(&part, code, what))
        .collect()
}

/// How many users the text about short-lived processes names per device.
const MAX_NAMED_USERS: usize = 3;

/// Describes each device that short-lived processes of one user hold one after the other.
pub(super) fn describe_short_lived(
    latest: &[(&'static str, LatestReadings)],
    file_holders: &FileHolders,
    users: &Users,
) -> BTreeMap<DeviceId, String> {
    if file_holders.short_lived.is_empty() {
        return BTreeMap::new();
    }
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    let faults = devices.filter_map(|device| {
        let persons: Vec<String> = file_holders
            .short_lived
            .iter()
            .filter(|(_, numbers)| {
                let mut own = device.nodes.iter().filter(|node| !node.shared);
                own.any(|node| numbers.contains(&node.number))
            })
            .map(|(person, _)| match users.name(*person).known() {
                Some(name) => format!("{name} (user {person})"),
                None => format!("user {person}"),
            })
            .take(MAX_NAMED_USERS)
            .collect();
        (!persons.is_empty()).then(|| (device.id.clone(), short_lived_text(&persons)))
    });
    faults.into_map()
}

fn short_lived_text(persons: &[String]) -> String {
    format!(
        "short-lived processes of {} hold it one after the other: they end before a rule or a kill \
         reaches them",
        persons.join(" and of ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendReadings;
    use gpukill_proto::model::Vendor;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::Timestamp;
    use std::sync::Arc;

    #[test]
    fn late_answer_is_a_fault_once_old() {
        let fault_at = |age: Option<i64>, on_time| {
            let snapshot = Snapshot {
                host: String::new(),
                taken_at: Timestamp(100_000),
                polls: 1,
                devices: Vec::new(),
                processes: Vec::new(),
                backends: Vec::new(),
                faults: Vec::new(),
            };
            let readings = age.map(|age| {
                let nothing = BackendReadings::without_devices(BackendState::Ready);
                (Arc::new(nothing), Timestamp(100_000 - age))
            });
            let latest = LatestReadings {
                readings,
                on_time,
                ..LatestReadings::default()
            };
            late_fault("nvidia", &latest, &snapshot).map(|fault| fault.cause.what)
        };
        let old = Some("does not answer in time: readings are old".to_owned());
        assert_eq!(fault_at(Some(2_999), false), None);
        assert_eq!(fault_at(Some(3_000), false), old);
        assert_eq!(fault_at(Some(3_000), true), None);
        let slow = LatestReadings {
            slowest_answer: Some(Duration::from_secs(4)),
            on_time: true,
            ..LatestReadings::default()
        };
        let snapshot = Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            polls: 1,
            devices: Vec::new(),
            processes: Vec::new(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let fault = late_fault("nvidia", &slow, &snapshot);
        let expected = PartFault::new("nvidia", FaultCode::AnswersSlowly, SLOW);
        assert_eq!(fault, Some(expected));
        let never = "has not answered yet: the driver may be waking its devices";
        assert_eq!(fault_at(None, false), Some(never.to_owned()));
    }

    #[test]
    fn failed_readings_are_faults_of_a_working_backend() {
        let id = DeviceId("GPU-0".into());
        let mut device = Device::unknown(id, 3, Vendor::Nvidia, &Reading::Unsupported);
        assert_eq!(device_faults(&device, true), []);
        device.vitals.fan = Reading::Failed("timeout".into());
        device.memory_used = Reading::Failed("999".into());
        device.process_count = Reading::Failed("not all processes have been scanned yet".into());
        device.vitals.encoder = device.process_count.as_unknown();
        let fault = |what: &str| PartFault::new("GPU 3", FaultCode::ReadingFailed, what);
        assert_eq!(
            device_faults(&device, true),
            [fault("memory: 999"), fault("fan: timeout")]
        );
        assert_eq!(device_faults(&device, false), []);
        device.vitals.utilization = Reading::Failed("999".into());
        assert_eq!(
            device_faults(&device, true),
            [fault("memory and others: 999"), fault("fan: timeout")]
        );
    }
}
