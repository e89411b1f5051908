//! Entry points for fuzzing the parsers of amdgpu files, with the properties that must hold for any
//! input.

use super::{clocks, metrics, parse_numbers, ras, topology};
use crate::backend::drm::fdinfo::fuzz_api::assert_printable;
use crate::backend::drm::{hwmon, link, names};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Megahertz, Milliwatts, Percent};

/// The structure `gpu_metrics`.
pub fn gpu_metrics(bytes: &[u8]) {
    let Some(vitals) = metrics::parse(bytes) else {
        return;
    };
    // The header contains the length: bytes after it change nothing.
    let size = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    assert!((4..=bytes.len()).contains(&size));
    assert_eq!(metrics::parse(&bytes[..size]).as_ref(), Some(&vitals));
    let mut longer = bytes.to_vec();
    longer.extend([0, 0xff]);
    assert_eq!(metrics::parse(&longer).as_ref(), Some(&vitals));
    assert_eq!(metrics::parse(&bytes[..size - 1]), None);
    for degrees in [
        &vitals.temperature,
        &vitals.hotspot_temperature,
        &vitals.memory_temperature,
    ] {
        assert!(degrees.known().is_none_or(|it| (-60..=250).contains(&it.0)));
    }
    for share in [&vitals.utilization, &vitals.memory_utilization] {
        assert!(share.known().is_none_or(|Percent(share)| *share <= 100));
    }
    for clock in [
        &vitals.clock_graphics,
        &vitals.clock_memory,
        &vitals.clock_video,
    ] {
        assert!(
            clock
                .known()
                .is_none_or(|Megahertz(clock)| *clock <= 20_000)
        );
    }
    let turns = vitals.fan_speed.known();
    assert!(turns.is_none_or(|it| (1..=50_000).contains(&it.0)));
    let lanes = vitals.pcie_width.known();
    assert!(lanes.is_none_or(|it| (1..=32).contains(it)));
    let generation = vitals.pcie_generation.known();
    assert!(generation.is_none_or(|it| (1..=6).contains(it)));
    let power = vitals.power.known();
    assert!(power.is_none_or(|Milliwatts(power)| *power <= 10_000_000));
    for reason in vitals.throttle.known().into_iter().flat_map(|it| &it.0) {
        assert_printable(reason, 32);
    }
}

/// The values of sensors and of the card's other files.
pub fn hwmon(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let value = text.trim_ascii().parse().ok();
    let value = value.map_or(Reading::Unsupported, Reading::Value);
    let degrees = hwmon::celsius(value.clone());
    assert!(degrees.known().is_none_or(|it| (-60..=250).contains(&it.0)));
    let power = hwmon::milliwatts(value.clone());
    assert!(power.known().is_none_or(|it| it.0 <= 10_000_000));
    let speed = hwmon::rpm(value.clone());
    assert!(speed.known().is_none_or(|it| it.0 <= 50_000));
    let clock = hwmon::megahertz(value);
    assert!(clock.known().is_none_or(|it| it.0 <= 20_000));
    if let Some(Some(steps)) = clocks::parse_steps(&text) {
        assert!(steps.current.is_none_or(|now| now <= steps.greatest));
    }
    let speed = link::parse_speed(&text).map_or(Reading::Unsupported, Reading::Value);
    let generation = link::generation_of_tenths(speed);
    assert!(generation.known().is_none_or(|it| (1..=6).contains(it)));
    let lines = text.lines().count() as u64;
    assert!(ras::parse_bad_pages(&text).is_none_or(|pages| pages <= lines));
    if ras::parse_errors(&text).is_some() {
        assert!(text.contains("ue") && text.contains("ce"));
    }
}

/// The properties of a KFD node.
pub fn kfd(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = parse_numbers(&text).len();
    assert!(lines <= text.lines().count());
    if let Some(node) = topology::parse_node(&text, 1) {
        assert_ne!(node.render_minor, Some(0));
        assert_ne!(node.compute_units, Some(0));
        assert!(node.clock_max.is_none_or(|it| (1..=20_000).contains(&it.0)));
        assert!(text.contains("location_id"));
    }
}

/// Lists of names. The first four bytes choose the device.
pub fn ids(bytes: &[u8]) {
    let Some((device, list)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let [vendor, model] = [[device[0], device[1]], [device[2], device[3]]].map(u16::from_be_bytes);
    let found = [
        names::find_product(list, model, device[0]),
        names::find_device(list, vendor, model),
    ];
    for name in found.into_iter().flatten() {
        assert!(!name.is_empty());
        assert_printable(&name, 128);
    }
}
