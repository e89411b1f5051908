//! Output recorded on real Macs, where the recordings are available.

use super::*;
use crate::procfs::recordings;

fn recording(name: &str) -> Option<String> {
    std::fs::read_to_string(recordings("apple")?.join(name)).ok()
}

fn readings(accelerators: &str, clients: &str) -> BackendReadings {
    AppleState::default().parse_readings(accelerators, Ok(clients), Instant::now(), Timestamp(0))
}

#[test]
fn m1_pro_reports_utilization_and_memory() {
    let Some(text) = recording("ioreg-IOAccelerator-M1Pro-macOS12.6-excerpt.txt") else {
        return;
    };
    let id = DeviceId("AGXAcceleratorG13X".into());
    let mut device = DeviceReadings::unknown(id, 0, Vendor::Apple, &Reading::Unsupported);
    // The recording ends before the model.
    device.name = Reading::Value("AGXAcceleratorG13X".into());
    device.memory = MemoryReadings {
        used: Reading::Value(Bytes(340_983_808)),
        ..MemoryReadings::shared_with_host()
    };
    device.vitals.utilization = Reading::Value(Percent(2));
    device.processes = Reading::Value(Vec::new());
    let expected = BackendReadings {
        driver: Reading::Value("190.22".into()),
        devices: vec![device],
        ..BackendReadings::without_devices(BackendState::Ready)
    };
    assert_eq!(readings(&text, ""), expected);
}

#[test]
fn clients_belong_to_their_creators() {
    let Some(text) = recording("ioreg-AGXDeviceUserClient-format-SYNTHETIC.txt") else {
        return;
    };
    let readings = readings(&text, &text);
    let ids: Vec<_> = readings.devices.iter().map(|it| it.id.0.as_str()).collect();
    assert_eq!(ids, ["AGXAcceleratorG17X"]);
    let processes = readings.devices[0].processes.known().unwrap();
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [808, 4_242]);

    let before = Instant::now();
    let mut usage = ClientUsage::default();
    usage.shares_since_last(registry::parse_entries(&text), before);
    // The first queue of pid 4242 gained a quarter of a second.
    let later = text.replace("=250000000}", "=500000000}");
    assert_ne!(later, text);
    let after = before + std::time::Duration::from_secs(1);
    let shares = usage.shares_since_last(registry::parse_entries(&later), after);
    let expected = [(808, Some(Percent(0))), (4_242, Some(Percent(25)))];
    assert_eq!(shares, BTreeMap::from(expected));
}
