//! What was printed on real Macs, where the recordings are at hand.

use super::*;
use std::path::Path;

/// What was recorded: `GPUKILL_CAPTURES`, or beside the workspace.
fn recording(name: &str) -> Option<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let named = std::env::var_os("GPUKILL_CAPTURES").map_or(beside, PathBuf::from);
    let text = std::fs::read_to_string(named.join("apple").join(name)).ok();
    if text.is_none() {
        eprintln!("skipped: no recordings here; GPUKILL_CAPTURES names their directory");
    }
    text
}

fn readings(accelerators: &str, clients: &str) -> Readings {
    Memory::default().readings(accelerators, Ok(clients), Instant::now(), Timestamp(0))
}

#[test]
fn a_recorded_m1_pro_tells_how_busy_it_is_and_what_memory_is_in_use() {
    let Some(text) = recording("ioreg-IOAccelerator-M1Pro-macOS12.6-excerpt.txt") else {
        return;
    };
    let id = DeviceId("AGXAcceleratorG13X".into());
    let mut device = DeviceReadings::unknown(id, 0, Vendor::Apple, &Reading::Unsupported);
    // The recording ends before its model.
    device.name = Reading::Value("AGXAcceleratorG13X".into());
    device.memory = MemoryReadings {
        used: Reading::Value(Bytes(340_983_808)),
        ..MemoryReadings::shared_with_host()
    };
    device.vitals.utilization = Reading::Value(Percent(2));
    device.processes = Reading::Value(Vec::new());
    let expected = Readings {
        driver: Reading::Value("190.22".into()),
        devices: vec![device],
        ..Readings::nothing(BackendState::Ready)
    };
    assert_eq!(readings(&text, ""), expected);
}

#[test]
fn clients_below_their_gpu_are_those_that_created_them() {
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
    let mut usage = Usage::default();
    usage.since_last(registry::entries(&text), before);
    // A quarter of a second more of the first queue of pid 4242.
    let later = text.replace("=250000000}", "=500000000}");
    assert_ne!(later, text);
    let after = before + std::time::Duration::from_secs(1);
    let shares = usage.since_last(registry::entries(&later), after);
    let expected = [(808, Some(Percent(0))), (4_242, Some(Percent(25)))];
    assert_eq!(shares, BTreeMap::from(expected));
}
