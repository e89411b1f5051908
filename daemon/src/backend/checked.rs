//! What a sensor answers, checked before anybody believes it. The library it
//! hosts runs in its memory and may have written anything into it.

use super::{DeviceReadings, Readings};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

/// More than this is no box but garbage.
const MOST_DEVICES: usize = 256;
const MOST_PROCESSES: usize = 20_000;
const MOST_FAULTS: usize = 256;

/// The longest text, in bytes.
const LONGEST_TEXT: usize = 512;

/// Whether these readings can be.
///
/// # Errors
/// What is impossible about them.
pub(super) fn check(readings: &Readings) -> Result<(), String> {
    let devices = &readings.devices;
    if devices.len() + readings.lost.len() > MOST_DEVICES {
        return Err(format!("more than {MOST_DEVICES} devices"));
    }
    if readings.faults.len() > MOST_FAULTS {
        return Err(format!("more than {MOST_FAULTS} faults"));
    }
    let names: BTreeSet<_> = devices.iter().map(|device| &device.id).collect();
    if names.len() < devices.len() {
        return Err("two devices of one name".into());
    }
    let lists = devices.iter().filter_map(|device| device.processes.known());
    if lists.map(Vec::len).sum::<usize>() > MOST_PROCESSES {
        return Err(format!("more than {MOST_PROCESSES} processes"));
    }
    let state = format!("{:?}", readings.state);
    let own = readings
        .faults
        .iter()
        .map(String::as_str)
        .chain([state.as_str()]);
    let lost = readings.lost.iter().map(|lost| lost.why.as_str());
    let versions = [text(&readings.driver), text(&readings.cuda)];
    let of_devices = devices.iter().flat_map(texts);
    let mut all = own
        .chain(lost)
        .chain(versions.into_iter().flatten())
        .chain(of_devices);
    if all.any(|text| text.len() > LONGEST_TEXT) {
        return Err(format!("a text of more than {LONGEST_TEXT} bytes"));
    }
    Ok(())
}

fn texts(device: &DeviceReadings) -> Vec<&str> {
    let memory = &device.memory;
    let mut texts = vec![device.id.0.as_str()];
    texts.extend(device.lost.as_deref());
    texts.extend(
        [text(&device.name), text(&device.pci)]
            .into_iter()
            .flatten(),
    );
    texts.extend(
        [
            memory.total.failure(),
            memory.used.failure(),
            memory.reserved.failure(),
            device.utilization.failure(),
            device.temperature.failure(),
            device.power.failure(),
            device.power_limit.failure(),
            device.ecc_volatile.failure(),
            device.processes.failure(),
        ]
        .into_iter()
        .flatten(),
    );
    for process in device.processes.known().into_iter().flatten() {
        texts.extend(
            [process.memory.failure(), process.utilization.failure()]
                .into_iter()
                .flatten(),
        );
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
    use crate::backend::{MemoryReadings, ProcessReadings};
    use gpukill_proto::snapshot::{BackendState, DeviceId, Use, Vendor};

    fn device(id: &str, processes: u32) -> DeviceReadings {
        let process = |pid| ProcessReadings {
            pid,
            used_for: Use::default(),
            memory: Reading::Unsupported,
            utilization: Reading::Unsupported,
        };
        DeviceReadings {
            id: DeviceId(id.into()),
            index: 0,
            vendor: Vendor::Nvidia,
            name: Reading::Value("H100".into()),
            pci: Reading::Unsupported,
            memory: MemoryReadings::unknown(&Reading::Unsupported),
            utilization: Reading::Unsupported,
            temperature: Reading::Unsupported,
            power: Reading::Unsupported,
            power_limit: Reading::Unsupported,
            ecc_volatile: Reading::Unsupported,
            lost: None,
            processes: Reading::Value((0..processes).map(process).collect()),
        }
    }

    fn readings(devices: Vec<DeviceReadings>) -> Readings {
        Readings {
            state: BackendState::Ready,
            driver: Reading::Unsupported,
            cuda: Reading::Unsupported,
            devices,
            lost: Vec::new(),
            faults: Vec::new(),
            cost_us: 0,
        }
    }

    #[test]
    fn a_box_is_believed_and_garbage_is_not() {
        let said = |devices| check(&readings(devices)).err();
        assert_eq!(said(vec![device("a", 100), device("b", 0)]), None);
        assert_eq!(
            said(vec![device("a", 0), device("a", 0)]).as_deref(),
            Some("two devices of one name")
        );
        assert_eq!(
            said(vec![device("a", 20_001)]).as_deref(),
            Some("more than 20000 processes")
        );
        let many = (0..257).map(|n| device(&n.to_string(), 0)).collect();
        assert_eq!(said(many).as_deref(), Some("more than 256 devices"));
        let mut long = device("a", 0);
        long.power = Reading::Failed("x".repeat(513));
        assert_eq!(
            said(vec![long]).as_deref(),
            Some("a text of more than 512 bytes")
        );
    }
}
