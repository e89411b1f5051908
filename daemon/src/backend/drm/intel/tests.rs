//! Tests with trees of files that follow the drivers' documentation.

use super::*;
use crate::backend::drm::card::list_all_cards;
use gpukill_proto::model::ThrottleReasons;
use gpukill_proto::units::{Celsius, Milliwatts, Rpm};
use proptest::prelude::*;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

/// A card at this address, with these files below its directory.
struct IntelFixture {
    root: tempfile::TempDir,
    card: DrmCard,
    intel: IntelCard,
    now: Cell<Instant>,
}

impl IntelFixture {
    fn new(driver: &str, slot: &str, files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let uevent = format!("DRIVER={driver}\nPCI_ID=8086:E20B\nPCI_SLOT_NAME={slot}\n");
        write(root.path(), "device/uevent", &uevent);
        for (file, text) in files {
            write(root.path(), file, text);
        }
        let card = list_all_cards(root.path()).pop().unwrap();
        let intel = IntelCard::new();
        let now = Cell::new(Instant::now());
        Self {
            root,
            card,
            intel,
            now,
        }
    }

    /// A card with memory of its own under xe.
    fn xe(files: &[(&str, &str)]) -> Self {
        Self::new("xe", "0000:03:00.0", files)
    }

    fn i915(files: &[(&str, &str)]) -> Self {
        Self::new("i915", "0000:03:00.0", files)
    }

    /// The readings after this time, with these files changed.
    fn after(&mut self, milliseconds: u64, files: &[(&str, &str)]) -> CardReadings {
        for (file, text) in files {
            write(self.root.path(), file, text);
        }
        let now = self.now.get() + Duration::from_millis(milliseconds);
        self.now.set(now);
        self.intel.read_with_clock(&self.card, &|| now)
    }

    fn vitals(&mut self) -> Vitals {
        self.after(0, &[]).vitals
    }
}

fn write(root: &Path, file: &str, text: &str) {
    let file = root.join("class/drm/card1").join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

const GT0: &str = "device/tile0/gt0/gtidle/idle_residency_ms";
const GT1: &str = "device/tile1/gt0/gtidle/idle_residency_ms";
const CARD_ENERGY: &str = "device/hwmon/hwmon4/energy1_input";
const PACKAGE_ENERGY: &str = "device/hwmon/hwmon4/energy2_input";
const HWMON: (&str, &str) = ("device/hwmon/hwmon4/name", "xe\n");
const CARD_LABEL: (&str, &str) = ("device/hwmon/hwmon4/energy1_label", "card\n");
const PACKAGE_LABEL: (&str, &str) = ("device/hwmon/hwmon4/energy2_label", "pkg\n");

#[test]
fn utilization_is_the_busiest_rendering_gt() {
    let mut fixture = IntelFixture::xe(&[
        (GT0, "1000\n"),
        (GT1, "5000\n"),
        ("device/tile0/gt1/gtidle/name", "gt1-mc\n"),
        ("device/tile0/gt1/gtidle/idle_residency_ms", "1\n"),
    ]);
    assert_eq!(fixture.vitals().utilization, Reading::Unsupported);
    // The media GT was never idle, but does not count.
    let readings = fixture.after(2_000, &[(GT0, "2500\n"), (GT1, "6000\n")]);
    assert_eq!(readings.vitals.utilization, Reading::Value(Percent(50)));
    // One counter went back: with one share unknown the busiest GT is unknown.
    let readings = fixture.after(2_000, &[(GT0, "1\n"), (GT1, "8000\n")]);
    assert_eq!(readings.vitals.utilization, Reading::Unsupported);
    let readings = fixture.after(2_000, &[(GT0, "2001\n"), (GT1, "10000\n")]);
    assert_eq!(readings.vitals.utilization, Reading::Value(Percent(0)));
}

#[test]
fn gt_without_idle_state_is_unknown() {
    let idle = "gt/gt0/rc6_residency_ms";
    for (allowed, idles, expected) in [
        ("1\n", ["100\n", "1100\n"], Reading::Value(Percent(50))),
        ("1\n", ["0\n", "0\n"], Reading::Unsupported),
        ("0\n", ["100\n", "100\n"], Reading::Unsupported),
    ] {
        let mut fixture = IntelFixture::i915(&[(idle, idles[0]), ("gt/gt0/rc6_enable", allowed)]);
        fixture.vitals();
        let readings = fixture.after(2_000, &[(idle, idles[1])]);
        assert_eq!(
            readings.vitals.utilization, expected,
            "{allowed:?} {idles:?}"
        );
    }
}

#[test]
fn old_i915_is_a_single_gt() {
    let mut fixture = IntelFixture::i915(&[
        ("gt_act_freq_mhz", "350\n"),
        ("gt_RP0_freq_mhz", "1150\n"),
        ("power/rc6_residency_ms", "100\n"),
    ]);
    let vitals = fixture.vitals();
    assert_eq!(vitals.clock_graphics, Reading::Value(Megahertz(350)));
    assert_eq!(vitals.clock_sm_max, Reading::Value(Megahertz(1_150)));
    let readings = fixture.after(1_000, &[("power/rc6_residency_ms", "350\n")]);
    assert_eq!(readings.vitals.utilization, Reading::Value(Percent(75)));
}

#[test]
fn graphics_clock_is_the_fastest_gt() {
    let mut fixture = IntelFixture::xe(&[
        ("device/tile0/gt0/freq0/act_freq", "0\n"),
        ("device/tile1/gt0/freq0/act_freq", "1550\n"),
        ("device/tile0/gt1/freq0/act_freq", "1900\n"),
        ("device/tile0/gt1/gtidle/name", "gt1-mc\n"),
        ("device/tile0/memory/freq0/max_freq", "3200\n"),
    ]);
    let vitals = fixture.vitals();
    assert_eq!(vitals.clock_graphics, Reading::Value(Megahertz(1_550)));
    assert_eq!(vitals.clock_video, Reading::Value(Megahertz(1_900)));
    assert_eq!(vitals.clock_memory_max, Reading::Value(Megahertz(3_200)));
    // The GT that failed may be the fastest.
    let readings = fixture.after(0, &[("device/tile0/gt0/freq0/act_freq", "x\n")]);
    let failed = Reading::Failed("not understood: x".into());
    assert_eq!(readings.vitals.clock_graphics, failed);
}

#[test]
fn second_gt_is_media_or_tile() {
    let files = [
        ("gt/gt0/rps_act_freq_mhz", "500\n"),
        ("gt/gt1/rps_act_freq_mhz", "900\n"),
    ];
    for (slot, graphics, video) in [
        ("0000:00:02.0", 500, Reading::Value(Megahertz(900))),
        ("0000:4d:00.0", 900, Reading::Unsupported),
    ] {
        let vitals = IntelFixture::new("i915", slot, &files).vitals();
        let graphics = Reading::Value(Megahertz(graphics));
        assert_eq!(
            (vitals.clock_graphics, vitals.clock_video),
            (graphics, video)
        );
    }
}

#[test]
fn throttle_reasons_use_nvml_names() {
    for (status, expected) in [
        ("0\n", Reading::Value(ThrottleReasons(Vec::new()))),
        (
            "1\n",
            Reading::Value(ThrottleReasons(vec![
                "hw_thermal".into(),
                "sw_power_cap".into(),
                "vr_tdc".into(),
            ])),
        ),
        ("x\n", Reading::Failed("not understood: x".into())),
    ] {
        for (driver, status_file, reasons) in [
            (
                "xe",
                "device/tile0/gt0/freq0/throttle/status",
                "device/tile0/gt0/freq0/throttle/reason_",
            ),
            (
                "i915",
                "gt/gt0/throttle_reason_status",
                "gt/gt0/throttle_reason_",
            ),
        ] {
            let mut fixture = IntelFixture::new(driver, "0000:03:00.0", &[(status_file, status)]);
            for (reason, holds) in [
                ("pl1", "1\n"),
                ("pl2", "1\n"),
                ("pl4", "0\n"),
                ("thermal", "1\n"),
                ("vr_tdc", "1\n"),
                ("ratl", "odd\n"),
            ] {
                write(fixture.root.path(), &format!("{reasons}{reason}"), holds);
            }
            assert_eq!(fixture.vitals().throttle, expected, "{driver} {status:?}");
        }
    }
    let unknown = IntelFixture::xe(&[("device/tile0/gt0/freq0/throttle/status", "1\n")]).vitals();
    let other = ThrottleReasons(vec!["other".into()]);
    assert_eq!(unknown.throttle, Reading::Value(other));
}

#[test]
fn power_needs_two_readings() {
    let mut fixture =
        IntelFixture::xe(&[HWMON, CARD_LABEL, PACKAGE_LABEL, (PACKAGE_ENERGY, "7\n")]);
    // More than 32 bits can hold.
    let readings = fixture.after(0, &[(CARD_ENERGY, "29523753173\n")]);
    assert_eq!(readings.vitals.power, Reading::Unsupported);
    let more = [
        (CARD_ENERGY, "29823753173\n"),
        (PACKAGE_ENERGY, "100000007\n"),
    ];
    let readings = fixture.after(2_000, &more);
    assert_eq!(readings.vitals.power, Reading::Value(Milliwatts(150_000)));
    // The driver was loaded again: unknown once.
    let readings = fixture.after(2_000, &[(CARD_ENERGY, "5\n"), (PACKAGE_ENERGY, "5\n")]);
    assert_eq!(readings.vitals.power, Reading::Unsupported);
    let readings = fixture.after(1_000, &[(CARD_ENERGY, "40000005\n")]);
    assert_eq!(readings.vitals.power, Reading::Value(Milliwatts(40_000)));
    let readings = fixture.after(1_000, &[(CARD_ENERGY, "9000000000000\n")]);
    let jumped = Reading::Failed("the driver's energy counter jumped".into());
    assert_eq!(readings.vitals.power, jumped);
}

#[test]
fn package_counter_replaces_a_zero_counter() {
    let mut fixture = IntelFixture::xe(&[
        HWMON,
        CARD_LABEL,
        PACKAGE_LABEL,
        (CARD_ENERGY, "0\n"),
        (PACKAGE_ENERGY, "29523753173\n"),
    ]);
    assert_eq!(fixture.vitals().power, Reading::Unsupported);
    let readings = fixture.after(2_000, &[(PACKAGE_ENERGY, "29583753173\n")]);
    assert_eq!(readings.vitals.power, Reading::Value(Milliwatts(30_000)));
    // No counter moves: that is not 0 W.
    assert_eq!(fixture.after(2_000, &[]).vitals.power, Reading::Unsupported);
}

#[test]
fn counters_restart_after_sleep() {
    let slept = "device/power/runtime_suspended_time";
    let mut fixture = IntelFixture::xe(&[
        HWMON,
        CARD_LABEL,
        (slept, "0\n"),
        (CARD_ENERGY, "1000\n"),
        (GT0, "1000\n"),
    ]);
    fixture.vitals();
    // The register restarted at 0, and the driver counted an overflow.
    let woken = [
        (slept, "590000\n"),
        (CARD_ENERGY, "262144001000\n"),
        (GT0, "3000\n"),
    ];
    let vitals = fixture.after(600_000, &woken).vitals;
    assert_eq!(vitals.power, Reading::Unsupported);
    assert_eq!(vitals.utilization, Reading::Unsupported);
    let more = [(CARD_ENERGY, "262184001000\n"), (GT0, "4500\n")];
    let vitals = fixture.after(2_000, &more).vitals;
    assert_eq!(vitals.power, Reading::Value(Milliwatts(20_000)));
    assert_eq!(vitals.utilization, Reading::Value(Percent(25)));
}

#[test]
fn sensors_are_found_by_label() {
    let mut fixture = IntelFixture::xe(&[
        HWMON,
        ("device/hwmon/hwmon4/temp1_input", "31000\n"),
        ("device/hwmon/hwmon4/temp1_label", "pcie\n"),
        ("device/hwmon/hwmon4/temp2_input", "99000\n"),
        ("device/hwmon/hwmon4/temp2_label", "vram\n"),
        ("device/hwmon/hwmon4/temp3_input", "46000\n"),
        ("device/hwmon/hwmon4/temp3_label", "pkg\n"),
        ("device/hwmon/hwmon4/fan1_input", "0\n"),
        ("device/hwmon/hwmon4/fan2_input", "418\n"),
    ]);
    let vitals = fixture.vitals();
    assert_eq!(vitals.temperature, Reading::Value(Celsius(46)));
    assert_eq!(vitals.memory_temperature, Reading::Value(Celsius(99)));
    assert_eq!(vitals.fan_speed, Reading::Value(Rpm(418)));
    // Another driver's sensors, not the card's. The name is read rarely.
    let readings = fixture.after(16_000, &[("device/hwmon/hwmon4/name", "i915_gt0\n")]);
    assert_eq!(readings.vitals.temperature, Reading::Unsupported);
}

#[test]
fn zero_power_limit_is_unsupported() {
    let max = "device/hwmon/hwmon4/power1_max";
    let cap = "device/hwmon/hwmon4/power1_cap";
    let package = "device/hwmon/hwmon4/power2_max";
    let rated = "device/hwmon/hwmon4/power1_rated_max";
    for (files, expected) in [
        (&[(max, "55000000\n"), (rated, "0\n")][..], Some(55_000)),
        (&[(max, "0\n"), (rated, "75000000\n")], None),
        (
            &[(package, "120000000\n"), (cap, "190000000\n")],
            Some(120_000),
        ),
        (
            &[(cap, "190000000\n"), (rated, "75000000\n")],
            Some(190_000),
        ),
        (&[(rated, "75000000\n")], Some(75_000)),
        (&[], None),
    ] {
        let files: Vec<_> = files.iter().copied().chain([HWMON]).collect();
        let limit = IntelFixture::xe(&files).vitals().power_limit;
        let expected = expected.map_or(Reading::Unsupported, |it| Reading::Value(Milliwatts(it)));
        assert_eq!(limit, expected, "{files:?}");
    }
}

#[test]
fn memory_is_own_shared_or_unknown() {
    let shared = MemoryReadings::shared_with_host();
    let unknown = MemoryReadings::unknown(&Reading::Unsupported);
    let of = |bytes| MemoryReadings {
        total: Reading::Value(Bytes(bytes)),
        ..unknown.clone()
    };
    let (own, other) = ("0000:00:02.0", "0000:03:00.0");
    let tile = "device/tile0/physical_vram_size_bytes";
    let second = "device/tile1/physical_vram_size_bytes";
    for (driver, slot, files, expected) in [
        ("i915", own, &[][..], &shared),
        ("i915", "0000:00:02.3", &[], &shared),
        ("xe", other, &[], &unknown),
        // A card at such an address in a virtual machine.
        ("xe", own, &[HWMON], &unknown),
        (
            "xe",
            other,
            &[(tile, "8000\n"), (second, "8000\n")],
            &of(16_000),
        ),
        ("i915", other, &[("lmem_total_bytes", "6000\n")], &of(6_000)),
        ("i915", other, &[("lmem_total_bytes", "0\n")], &unknown),
        // One tile does not report its size: the sum is unknown.
        (
            "xe",
            other,
            &[(tile, "8000\n"), ("device/tile1/x", "")],
            &unknown,
        ),
    ] {
        let readings = IntelFixture::new(driver, slot, files).after(0, &[]);
        assert_eq!(&readings.memory, expected, "{driver} {slot} {files:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_file_parses_without_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut fixture = IntelFixture::xe(&[HWMON]);
        let files = [
            GT0, CARD_ENERGY, PACKAGE_ENERGY, "device/current_link_speed", "device/max_link_width",
            "device/tile0/gt0/freq0/act_freq", "device/tile0/gt0/freq0/throttle/status",
            "device/tile0/gt0/freq0/throttle/reason_x", "device/hwmon/hwmon4/temp1_input",
            "device/hwmon/hwmon4/temp1_label", "device/tile0/physical_vram_size_bytes",
        ];
        for file in files {
            let path = fixture.root.path().join("class/drm/card1").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &text).unwrap();
        }
        let _ = fixture.after(0, &[]);
        let readings = fixture.after(2_000, &[(GT0, "9"), (CARD_ENERGY, "9")]);
        if let Some(power) = readings.vitals.power.known() {
            prop_assert!(*power <= Milliwatts(2_000_000));
        }
    }
}

#[test]
fn repeated_standstill_is_a_fault() {
    let slept = "device/power/runtime_suspended_time";
    let mut fixture = IntelFixture::xe(&[HWMON, CARD_LABEL, (CARD_ENERGY, "7\n"), (slept, "0\n")]);
    let still = || Reading::Failed("the energy counter stands still".to_owned());
    let power = |fixture: &mut IntelFixture, files: &[(&str, &str)]| {
        fixture.after(2_000, files).vitals.power
    };
    // The first reading, and four without movement.
    for _ in 0..5 {
        assert_eq!(power(&mut fixture, &[]), Reading::Unsupported);
    }
    assert_eq!(power(&mut fixture, &[]), still());
    // Too short an interval to count.
    assert_eq!(fixture.after(10, &[]).vitals.power, still());
    let moved = power(&mut fixture, &[(CARD_ENERGY, "20000007\n")]);
    assert_eq!(moved, Reading::Value(Milliwatts(9_950)));
    for _ in 0..4 {
        assert_eq!(power(&mut fixture, &[]), Reading::Unsupported);
    }
    // The card slept: the counting starts again.
    let woken = power(&mut fixture, &[(slept, "9\n")]);
    assert_eq!(woken, Reading::Unsupported);
    assert_eq!(power(&mut fixture, &[]), Reading::Unsupported);
}
