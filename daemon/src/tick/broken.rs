//! What is broken in a poll: backends, devices, and single readings. The words
//! of a fault hold nothing that changes while it lasts.

use crate::backend::reader::Latest;
use crate::backend::{DeviceReadings, SILENT};
use crate::faults::FoundFault;
use crate::holders::NOT_YET;
use gpukill_policy::health::complaints;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::IMPOSSIBLE;
use gpukill_proto::snapshot::{
    BackendState, Device, DeviceId, FaultCode, LossKind, Snapshot, Vitals,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Everything that is broken, the backends first.
pub(super) fn faults(latest: &[(&'static str, Latest)], snapshot: &Snapshot) -> Vec<FoundFault> {
    let mut all: Vec<FoundFault> = Vec::new();
    all.extend(snapshot.backends.iter().filter_map(|backend| {
        let (code, what) = match &backend.state {
            BackendState::Failed(code, why) => (*code, why.clone()),
            // A driver that is let go of on request is a wish, and nothing broke.
            BackendState::Ready
            | BackendState::Starting
            | BackendState::Absent(_)
            | BackendState::Quiesced(_) => return None,
        };
        Some(FoundFault::new(&backend.name, code, what))
    }));
    for (name, latest) in latest {
        all.extend(late(name, latest, snapshot));
        let readings = latest.readings.as_ref().map(|(readings, _)| readings);
        let beyond = readings.into_iter().flat_map(|readings| &readings.faults);
        all.extend(beyond.map(|fault| fault.clone().found_in(*name)));
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
                // Why each value is old or missing is told once.
                Some(read) if read.silent_since.is_some() => {
                    let part = format!("GPU {}", device.index);
                    all.push(FoundFault::new(part, FaultCode::GpuSilent, SILENT));
                }
                Some(_) => all.extend(of_device(device, works(name))),
                None => {}
            }
        }
    }
    all.extend(lists(latest, &indices, &works));
    all.extend(unseen(latest));
    all
}

/// Gives the fault of each device that is lost the time since when it is lost: the words of
/// the fault may be newer, where the driver gives another reason for the same state.
pub(super) fn share_beginnings(snapshot: &mut Snapshot) {
    for device in &snapshot.devices {
        let Some(loss) = &device.lost else { continue };
        let part = format!("GPU {}", device.index);
        let what = format!("{} ({})", loss.kind.words(), loss.reason);
        let names_it = |what: &str| loss.kind != LossKind::Gone || !names_another(what, device);
        for fault in &mut snapshot.faults {
            if fault.part == part && fault.what.starts_with(&what) && names_it(&fault.what) {
                fault.since = loss.since;
            }
        }
    }
}

/// Whether the fault of a GPU that is gone is another one's, which had the same number.
fn names_another(what: &str, device: &Device) -> bool {
    let named = what.rsplit(' ').next().unwrap_or_default();
    named != device.index.to_string() && named != device.id.0
}

/// An answer may take so long before anybody need hear of it: one late answer on
/// a busy machine is no fault, and its readings tell their age anyway.
const LATE: Duration = Duration::from_secs(3);

/// What is wrong with a backend whose driver is slow.
const SLOW: &str = "answers slowly: polls are less frequent until it answers in time again";

fn late(name: &str, latest: &Latest, snapshot: &Snapshot) -> Option<FoundFault> {
    if latest.failure.is_some() {
        return None;
    }
    // One fault while it lasts, though every other answer may come in time.
    if latest.slow.is_some() {
        return Some(FoundFault::new(name, FaultCode::AnswersSlowly, SLOW));
    }
    if latest.is_fresh() {
        return None;
    }
    let mut backends = snapshot.backends.iter();
    let starts = backends.any(|backend| {
        backend.name == name
            && backend.state == BackendState::Starting
            && snapshot.taken_at.since(backend.since) < LATE
    });
    if starts {
        return None;
    }
    let (code, what) = match &latest.readings {
        Some((_, taken_at)) if snapshot.taken_at.since(*taken_at) < LATE => return None,
        Some(_) => (
            FaultCode::ReadingsOld,
            "does not answer in time: readings are old",
        ),
        None => (
            FaultCode::NoAnswerYet,
            "has not answered yet: the driver may be waking its devices",
        ),
    };
    Some(FoundFault::new(name, code, what))
}

/// Why not everybody who uses a GPU may be listed: once, whatever the GPU.
fn unseen(latest: &[(&'static str, Latest)]) -> BTreeSet<FoundFault> {
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    devices
        .filter_map(|device| device.unseen.clone())
        // It is on its way.
        .filter(|why| why != NOT_YET)
        .map(|why| FoundFault::new("processes", FaultCode::ListIncomplete, why))
        .into_set()
}

/// Lists that could not be had, and what in them cannot be.
fn lists(
    latest: &[(&'static str, Latest)],
    indices: &BTreeMap<&DeviceId, u32>,
    works: &dyn Fn(&str) -> bool,
) -> Vec<FoundFault> {
    let readings = latest
        .iter()
        .filter(|(name, _)| works(name))
        .filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    devices
        .filter(|device| device.lost.is_none() && device.silent_since.is_none())
        .filter(|device| !is_asleep(&device.vitals))
        .flat_map(|device| {
            let index = indices.get(&device.id).copied().unwrap_or(device.index);
            let what = what_of_lists(device).into_iter();
            what.map(move |(code, what)| FoundFault::new(format!("GPU {index}"), code, what))
        })
        .collect()
}

/// What is wrong with the lists of processes and of instances of one device.
fn what_of_lists(device: &DeviceReadings) -> Vec<(FaultCode, String)> {
    let list = device.processes.failure();
    let instances = device.instances_fault.as_deref();
    let held = device.processes.known().into_iter().flatten();
    let mut held = held.filter_map(|process| process.memory.failure());
    // One is told: of many the same thing is wrong.
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

/// Nothing is asked of a device that sleeps: that is no fault.
fn is_asleep(vitals: &Vitals) -> bool {
    vitals.suspended.known() == Some(&true)
}

/// `works`: whether its backend does; else each reading fails for that reason,
/// which is told already.
fn of_device(device: &Device, works: bool) -> Vec<FoundFault> {
    let part = format!("GPU {}", device.index);
    if let Some(loss) = &device.lost {
        let (words, remedy) = (loss.kind.words(), loss.kind.remedy());
        let what = format!("{words} ({}){remedy}", loss.reason);
        let code = match loss.kind {
            LossKind::Lost => FaultCode::GpuLost,
            LossKind::Gone => FaultCode::GpuGone,
            LossKind::NotPermitted => FaultCode::NotPermitted,
            LossKind::Unknown => FaultCode::GpuStateUnknown,
        };
        return vec![FoundFault::new(part, code, what)];
    }
    if !works || is_asleep(&device.vitals) {
        return Vec::new();
    }
    let own = [
        ("name", device.name.failure()),
        ("PCI address", device.pci.failure()),
        ("memory", device.memory_used.failure()),
    ];
    let own = own.into_iter().filter_map(|(what, why)| Some((what, why?)));
    // That not every process could be looked at is nothing that broke.
    let unseen = device.process_count.failure();
    let all: Vec<(&str, &str)> = own
        .chain(device.vitals.failures())
        .filter(|(_, why)| Some(*why) != unseen)
        .collect();
    // One sick GPU is one fault for each reason, and not one for each reading.
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
    let parts = device.instances.iter().filter_map(|it| {
        let why = it.memory_used.failure()?;
        let what = format!("memory of instance {}: {why}", it.id);
        Some((FaultCode::InstanceMemoryFailed, what))
    });
    failed
        .chain(parts)
        .chain(complaints(device))
        .map(|(code, what)| FoundFault::new(&part, code, what))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Readings;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::Vendor;
    use gpukill_proto::units::Timestamp;
    use std::sync::Arc;

    #[test]
    fn a_late_answer_is_a_fault_once_its_readings_are_old() {
        let told = |age: Option<i64>, on_time| {
            let snapshot = Snapshot {
                host: String::new(),
                taken_at: Timestamp(100_000),
                tick: 1,
                devices: Vec::new(),
                processes: Vec::new(),
                backends: Vec::new(),
                faults: Vec::new(),
            };
            let readings = age.map(|age| {
                let nothing = Readings::nothing(BackendState::Ready);
                (Arc::new(nothing), Timestamp(100_000 - age))
            });
            let latest = Latest {
                readings,
                on_time,
                ..Latest::default()
            };
            late("nvidia", &latest, &snapshot).map(|fault| fault.cause.what)
        };
        let old = Some("does not answer in time: readings are old".to_owned());
        assert_eq!(told(Some(2_999), false), None);
        assert_eq!(told(Some(3_000), false), old);
        assert_eq!(told(Some(3_000), true), None);
        let slow = Latest {
            slow: Some(Duration::from_secs(4)),
            on_time: true,
            ..Latest::default()
        };
        let snapshot = Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            tick: 1,
            devices: Vec::new(),
            processes: Vec::new(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let fault = late("nvidia", &slow, &snapshot);
        let expected = FoundFault::new("nvidia", FaultCode::AnswersSlowly, SLOW);
        assert_eq!(fault, Some(expected));
        let never = "has not answered yet: the driver may be waking its devices";
        assert_eq!(told(None, false), Some(never.to_owned()));
    }

    #[test]
    fn each_reading_that_failed_is_a_fault_of_its_own_while_the_backend_works() {
        let id = DeviceId("GPU-0".into());
        let mut device = Device::unknown(id, 3, Vendor::Nvidia, &Reading::Unsupported);
        assert_eq!(of_device(&device, true), []);
        device.vitals.fan = Reading::Failed("timeout".into());
        device.memory_used = Reading::Failed("999".into());
        device.process_count = Reading::Failed("not looked everywhere yet".into());
        device.vitals.encoder = device.process_count.because();
        let fault = |what: &str| FoundFault::new("GPU 3", FaultCode::ReadingFailed, what);
        assert_eq!(
            of_device(&device, true),
            [fault("memory: 999"), fault("fan: timeout")]
        );
        assert_eq!(of_device(&device, false), []);
        device.vitals.utilization = Reading::Failed("999".into());
        assert_eq!(
            of_device(&device, true),
            [fault("memory and others: 999"), fault("fan: timeout")]
        );
    }
}
