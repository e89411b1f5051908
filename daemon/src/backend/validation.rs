//! Validates the sensor's answers before they are used. The library that the sensor hosts runs in
//! the sensor's memory and may have written anything into it.

use super::{BackendReadings, DeviceReadings};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::GpuEvent;
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

/// More than this is no real host but garbage.
const MAX_DEVICES: usize = 256;
const MAX_PROCESSES: usize = 20_000;
const MAX_FAULTS: usize = 256;
pub(super) const MAX_EVENTS: usize = 1_000;
const MAX_INSTANCES: usize = 64;

/// The longest text, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// If more processes are listed than can be handled, marks the longest lists as failed: a user may
/// start very many processes, and all other readings are still valid.
pub(crate) fn fail_oversized_lists(readings: &mut BackendReadings) {
    let length = |device: &DeviceReadings| device.processes.known().map_or(0, Vec::len);
    let mut count: usize = readings.devices.iter().map(length).sum();
    while count > MAX_PROCESSES
        && let Some(longest) = readings.devices.iter_mut().max_by_key(|it| length(it))
    {
        count -= length(longest);
        let why = format!("more than {MAX_PROCESSES} processes are listed");
        longest.processes = Reading::Failed(why);
    }
}

/// Checks that readings are possible.
///
/// # Errors
/// The first impossibility found.
pub(crate) fn validate_readings(readings: &BackendReadings) -> Result<(), String> {
    let devices = &readings.devices;
    if devices.len() + readings.lost.len() > MAX_DEVICES {
        return Err(format!("more than {MAX_DEVICES} devices"));
    }
    if readings.faults.len() > MAX_FAULTS {
        return Err(format!("more than {MAX_FAULTS} faults"));
    }
    let mut parts = devices.iter().map(|device| device.instances.len());
    if parts.any(|count| count > MAX_INSTANCES) {
        return Err(format!("more than {MAX_INSTANCES} instances of a device"));
    }
    let indices = devices.iter().map(|device| device.index);
    let indices: Vec<u32> = indices
        .chain(readings.lost.iter().map(|it| it.index))
        .collect();
    let different: BTreeSet<_> = indices.iter().into_set();
    if different.len() < indices.len() || indices.iter().any(|at| *at as usize >= MAX_DEVICES) {
        return Err("two devices have the same index, or an index is out of range".into());
    }
    let names: BTreeSet<_> = devices.iter().map(|device| &device.id).into_set();
    if names.len() < devices.len() {
        return Err("two devices have the same name".into());
    }
    let lists = devices.iter().filter_map(|device| device.processes.known());
    if lists.map(Vec::len).sum::<usize>() > MAX_PROCESSES {
        return Err(format!("more than {MAX_PROCESSES} processes"));
    }
    let state = format!("{:?}", readings.state);
    let own = readings
        .faults
        .iter()
        .map(|fault| fault.what.as_str())
        .chain([state.as_str()]);
    let lost = readings.lost.iter().map(|lost| lost.cause.why.as_str());
    let versions = [text(&readings.driver), text(&readings.cuda)];
    let of_devices = devices.iter().flat_map(texts);
    let mut all = own
        .chain(lost)
        .chain(versions.into_iter().flatten())
        .chain(of_devices);
    if all.any(|text| text.len() > MAX_TEXT_BYTES) {
        return Err(format!("a text of more than {MAX_TEXT_BYTES} bytes"));
    }
    Ok(())
}

/// Checks that events are possible.
///
/// # Errors
/// The first impossibility found.
pub(super) fn validate_events(events: &[GpuEvent]) -> Result<(), String> {
    if events.len() > MAX_EVENTS {
        return Err(format!("more than {MAX_EVENTS} events"));
    }
    let mut names = events.iter().filter_map(|event| event.device.as_ref());
    if names.any(|id| id.0.len() > MAX_TEXT_BYTES) {
        return Err(format!("a text of more than {MAX_TEXT_BYTES} bytes"));
    }
    Ok(())
}

fn texts(device: &DeviceReadings) -> Vec<&str> {
    let mut texts = vec![device.id.0.as_str()];
    texts.extend(device.lost.as_ref().map(|cause| cause.why.as_str()));
    texts.extend(device.failures());
    texts.extend(
        [text(&device.name), text(&device.pci)]
            .into_iter()
            .flatten(),
    );
    texts.extend(
        [
            text(&device.vitals.serial),
            text(&device.vitals.compute_partition),
            text(&device.vitals.memory_partition),
            device.incomplete_reason.as_deref(),
        ]
        .into_iter()
        .flatten(),
    );
    let throttled = device.vitals.throttle.known();
    texts.extend(
        throttled
            .into_iter()
            .flat_map(|it| it.0.iter().map(String::as_str)),
    );
    texts.extend(device.nodes.iter().map(|node| node.name.as_str()));
    for part in &device.instances {
        texts.push(&part.uuid.0);
        texts.extend(text(&part.profile));
    }
    texts
}

fn text(reading: &Reading<String>) -> Option<&str> {
    reading
        .last_known()
        .map(String::as_str)
        .or(reading.failure())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ProcessReadings, Utilization};
    use gpukill_proto::model::{BackendState, DeviceId, GpuUse, Vendor};

    fn device(id: &str, processes: u32) -> DeviceReadings {
        let process = |pid| ProcessReadings {
            pid,
            start_ticks: None,
            instance: None,
            used_for: GpuUse::default(),
            memory: Reading::Unsupported,
            utilization: Utilization::unknown(&Reading::Unsupported),
        };
        let id = DeviceId(id.into());
        DeviceReadings {
            name: Reading::Value("H100".into()),
            processes: Reading::Value((0..processes).map(process).collect()),
            ..DeviceReadings::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported)
        }
    }

    fn readings(devices: Vec<DeviceReadings>) -> BackendReadings {
        BackendReadings {
            devices,
            ..BackendReadings::without_devices(BackendState::Ready)
        }
    }

    #[test]
    fn only_the_longest_lists_are_dropped() {
        let mut devices = vec![device("a", 100), device("b", 20_001), device("c", 19_950)];
        for (index, device) in (0..).zip(&mut devices) {
            device.index = index;
        }
        let mut readings = readings(devices);
        fail_oversized_lists(&mut readings);
        assert_eq!(validate_readings(&readings), Ok(()));
        let lists = readings.devices.iter().map(|it| it.processes.known());
        let lengths: Vec<Option<usize>> = lists.map(|it| it.map(Vec::len)).collect();
        assert_eq!(lengths, [Some(100), None, None]);
        let why = readings.devices[1].processes.failure();
        assert_eq!(why, Some("more than 20000 processes are listed"));
        let before = readings.clone();
        fail_oversized_lists(&mut readings);
        assert_eq!(readings, before);
    }

    #[test]
    fn garbage_is_refused() {
        let problem = |mut devices: Vec<DeviceReadings>| {
            for (index, device) in (0..).zip(&mut devices) {
                device.index = index;
            }
            validate_readings(&readings(devices)).err()
        };
        assert_eq!(problem(vec![device("a", 100), device("b", 0)]), None);
        assert_eq!(
            problem(vec![device("a", 0), device("a", 0)]).as_deref(),
            Some("two devices have the same name")
        );
        assert_eq!(
            problem(vec![device("a", 20_001)]).as_deref(),
            Some("more than 20000 processes")
        );
        let many = (0..257).map(|n| device(&n.to_string(), 0)).collect();
        assert_eq!(problem(many).as_deref(), Some("more than 256 devices"));
        let twins = vec![device("a", 0), device("b", 0)];
        assert!(
            validate_readings(&readings(twins))
                .unwrap_err()
                .contains("same index")
        );
        let mut long = device("a", 0);
        long.vitals.power = Reading::Failed("x".repeat(513));
        assert_eq!(
            problem(vec![long]).as_deref(),
            Some("a text of more than 512 bytes")
        );
    }
}
