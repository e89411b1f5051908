//! Entry points for fuzzing the `ioreg` parser: its output contains names that processes choose.

use super::AppleState;
use crate::backend::validation;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::{Percent, Timestamp};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Parses `ioreg` output of GPUs and of their clients. The first byte is the offset at which the
/// output of the second poll begins.
pub fn ioreg(bytes: &[u8]) {
    let Some((cut, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let later = String::from_utf8_lossy(rest.get(usize::from(*cut)..).unwrap_or_default());
    let mut memory = AppleState::default();
    let start = Instant::now();
    for (text, seconds) in [(&text, 0), (&later, 2)] {
        let now = start + Duration::from_secs(seconds);
        let readings = memory.parse_readings(text, Ok(text), now, Timestamp(0));
        assert_eq!(validation::validate_readings(&readings), Ok(()));
        for device in &readings.devices {
            assert_printable(&device.id.0, 80);
            assert_printable(device.name.known().map_or("", String::as_str), 128);
            if let Some(share) = device.vitals.utilization.known() {
                assert!(*share <= Percent(100));
            }
            let processes = device.processes.known().map_or(&[][..], Vec::as_slice);
            let pids: BTreeSet<u32> = processes.iter().map(|process| process.pid).into_set();
            assert_eq!(pids.len(), processes.len());
            assert!(!pids.contains(&0));
            for process in processes {
                // No driver reports it.
                assert_eq!(process.memory.known(), None);
                if let Some(share) = process.utilization.sm.known() {
                    assert!(*share <= Percent(100) && seconds > 0);
                }
            }
        }
        assert_printable(readings.driver.known().map_or("", String::as_str), 64);
    }
}

/// Asserts that the text is bounded and free of terminal control characters.
fn assert_printable(text: &str, max_bytes: usize) {
    assert_eq!(sanitize(text.as_bytes(), max_bytes), text);
}
