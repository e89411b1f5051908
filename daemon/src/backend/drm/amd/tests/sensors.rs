//! Tests of the source of each value, and of values that are refused.

use super::*;

/// The vitals of a card with these files in its hwmon directory.
fn vitals_with_hwmon(files: &[(&str, &str)]) -> Vitals {
    let tree = AmdTree::new(&[("hwmon/hwmon0/name", "amdgpu\n")]);
    for (name, text) in files {
        tree.device(&format!("hwmon/hwmon0/{name}"), text);
    }
    tree.read_card().vitals
}

#[test]
fn percent_above_100_fails() {
    for (text, utilization) in [
        ("0\n", Reading::Value(Percent(0))),
        ("100\n", Reading::Value(Percent(100))),
        ("101\n", Reading::impossible("101 %")),
        ("-1\n", failed("not understood: -1")),
    ] {
        let expected = Vitals {
            utilization,
            ..nothing()
        };
        let readings = AmdTree::new(&[("gpu_busy_percent", text)]).read_card();
        assert_eq!(readings.vitals, expected, "{text:?}");
    }
}

#[test]
fn power_falls_back_to_current() {
    let vitals = vitals_with_hwmon(&[("power1_input", "5000000\n")]);
    assert_eq!(vitals.power, Reading::Value(Milliwatts(5_000)));
    let vitals = vitals_with_hwmon(&[("power1_input", "5000000\n"), ("power1_average", "0\n")]);
    assert_eq!(vitals.power, Reading::Value(Milliwatts(0)));
}

#[test]
fn zero_power_limit_is_unsupported() {
    let limit = |text| vitals_with_hwmon(&[("power1_cap", text)]).power_limit;
    assert_eq!(limit("0\n"), Reading::Unsupported);
    assert_eq!(limit("1000000\n"), Reading::Value(Milliwatts(1_000)));
}

#[test]
fn fan_is_pwm_or_share_of_maximum() {
    for (files, share) in [
        (
            &[("pwm1", "255\n"), ("fan1_input", "0\n")][..],
            Reading::Value(Percent(100)),
        ),
        (
            &[("pwm1", "0\n"), ("fan1_input", "800\n")],
            Reading::Value(Percent(0)),
        ),
        (&[("pwm1", "256\n")], Reading::impossible("256 of 255")),
        (
            &[("fan1_input", "800\n"), ("fan1_max", "3200\n")],
            Reading::Value(Percent(25)),
        ),
        // A fan may turn a little faster than its maximum.
        (
            &[("fan1_input", "3300\n"), ("fan1_max", "3200\n")],
            Reading::Value(Percent(100)),
        ),
        (
            &[("fan1_input", "800\n"), ("fan1_max", "0\n")],
            Reading::Unsupported,
        ),
        (&[("fan1_input", "800\n")], Reading::Unsupported),
        (
            &[("fan1_input", "90000\n"), ("fan1_max", "3200\n")],
            Reading::impossible("90000 RPM"),
        ),
    ] {
        assert_eq!(vitals_with_hwmon(files).fan, share, "{files:?}");
    }
}

#[test]
fn single_unlabelled_temperature_is_the_cards() {
    let vitals = vitals_with_hwmon(&[("temp1_input", "44000\n")]);
    assert_eq!(vitals.temperature, Reading::Value(Celsius(44)));
    // Two without a label have unknown positions.
    let vitals = vitals_with_hwmon(&[("temp1_input", "44000\n"), ("temp2_input", "44000\n")]);
    assert_eq!(vitals.temperature, Reading::Unsupported);
}

#[test]
fn hotspot_stands_for_missing_temperature() {
    let vitals = vitals_with_hwmon(&[("temp2_input", "66000\n"), ("temp2_label", "junction\n")]);
    let hot = Reading::Value(Celsius(66));
    assert_eq!(vitals.temperature, hot);
    assert_eq!(vitals.hotspot_temperature, hot);
}

#[test]
fn sources_are_tried_in_order() {
    let mut bytes = vec![0xff; 120];
    bytes[..4].copy_from_slice(&[120, 0, 1, 3]);
    for (offset, value) in [
        (4, 40_u8),
        (6, 70),
        (16, 90),
        (22, 100),
        (54, 11),
        (58, 22),
        (60, 33),
        (72, 44),
        (74, 8),
        (76, 80),
    ] {
        bytes[offset..offset + 2].copy_from_slice(&[value, 0]);
    }
    let tree = AmdTree::new(&[]);
    tree.device("gpu_metrics", &bytes);
    let vitals = tree.read_card().vitals;
    let expected = Vitals {
        utilization: Reading::Value(Percent(90)),
        temperature: Reading::Value(Celsius(40)),
        hotspot_temperature: Reading::Value(Celsius(70)),
        power: Reading::Value(Milliwatts(100_000)),
        clock_graphics: Reading::Value(Megahertz(11)),
        clock_sm: Reading::Value(Megahertz(11)),
        clock_memory: Reading::Value(Megahertz(22)),
        clock_video: Reading::Value(Megahertz(33)),
        fan_speed: Reading::Value(Rpm(44)),
        pcie_generation: Reading::Value(3),
        pcie_width: Reading::Value(8),
        ..nothing()
    };
    assert_eq!(vitals, expected);
    for (file, text) in SENSORS {
        tree.device(file, text);
    }
    tree.device("current_link_speed", "16.0 GT/s PCIe\n");
    tree.device("current_link_width", "16\n");
    // A failed reading is not replaced.
    tree.device("gpu_busy_percent", "300\n");
    let vitals = tree.read_card().vitals;
    assert_eq!(vitals.utilization, Reading::impossible("300 %"));
    assert_eq!(vitals.temperature, Reading::Value(Celsius(53)));
    assert_eq!(vitals.power, Reading::Value(Milliwatts(68_000)));
    assert_eq!(vitals.clock_graphics, Reading::Value(Megahertz(31)));
    assert_eq!(vitals.fan_speed, Reading::Value(Rpm(1_600)));
    let link = (vitals.pcie_generation, vitals.pcie_width);
    assert_eq!(link, (Reading::Value(4), Reading::Value(16)));
}
