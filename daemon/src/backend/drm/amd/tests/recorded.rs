//! Compares cards recorded on real hosts with values read from the recordings by hand, where the
//! recordings are available.

use super::*;
use crate::procfs::recordings;
use gpukill_proto::model::ThrottleReasons;

/// The values of the recorded card of this name.
fn read_recorded_card(directory: &Path, name: &str, card: &str) -> Option<CardReadings> {
    let from = directory.join(name);
    if !from.is_dir() {
        return None;
    }
    let tree = AmdTree {
        root: tempfile::tempdir().unwrap(),
    };
    let device = if from.join(card).is_dir() {
        from.join(card)
    } else {
        from.clone()
    };
    copy(&device, &tree.root.path().join("class/drm").join(card));
    copy(&from.join("kfd"), &tree.root.path().join("class/kfd/kfd"));
    Some(tree.read_card())
}

fn copy(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else {
        return;
    };
    std::fs::create_dir_all(to).unwrap();
    for entry in entries.map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        // Some recordings are padded by the archiver to the size that sysfs claims. The kernel's
        // own text has no padding.
        if entry.file_name() != "gpu_metrics" {
            let end = bytes.iter().rposition(|byte| *byte != 0);
            bytes.truncate(end.map_or(0, |last| last + 1));
        }
        std::fs::write(to, bytes).unwrap();
    }
}

fn memory(total: u64, used: u64, unified: bool) -> MemoryReadings {
    MemoryReadings {
        total: Reading::Value(Bytes(total)),
        used: Reading::Value(Bytes(used)),
        reserved: Reading::Unsupported,
        unified,
    }
}

fn celsius(degrees: i32) -> Reading<Celsius> {
    Reading::Value(Celsius(degrees))
}

fn megahertz(clock: u32) -> Reading<Megahertz> {
    Reading::Value(Megahertz(clock))
}

fn expected_card(memory: MemoryReadings, vitals: Vitals) -> CardReadings {
    CardReadings {
        memory,
        vitals,
        ..CardReadings::unknown(&Reading::Unsupported)
    }
}

/// All recorded cards with their expected values.
fn expected() -> [(&'static str, &'static str, CardReadings); 5] {
    let unslowed = || Reading::Value(ThrottleReasons(Vec::new()));
    let no_memory = MemoryReadings::unknown(&Reading::Unsupported);
    [
        (
            "lact-phoenix",
            "card1",
            expected_card(
                memory(
                    4_294_967_296 + 31_433_977_856,
                    1_272_893_440 + 211_398_656,
                    true,
                ),
                Vitals {
                    utilization: Reading::Value(Percent(0)),
                    temperature: celsius(25),
                    clock_graphics: megahertz(800),
                    clock_sm: megahertz(800),
                    clock_memory: megahertz(400),
                    clock_video: megahertz(800),
                    clock_sm_max: megahertz(2_700),
                    clock_memory_max: megahertz(800),
                    throttle: unslowed(),
                    gtt_total: Reading::Value(Bytes(31_433_977_856)),
                    gtt_used: Reading::Value(Bytes(211_398_656)),
                    ..nothing()
                },
            ),
        ),
        (
            "lact-rx6900xt",
            "card0",
            expected_card(
                memory(17_163_091_968, 668_274_688, false),
                Vitals {
                    utilization: Reading::Value(Percent(3)),
                    memory_utilization: Reading::Value(Percent(0)),
                    temperature: celsius(56),
                    hotspot_temperature: celsius(59),
                    memory_temperature: celsius(54),
                    power: Reading::Value(Milliwatts(36_000)),
                    clock_graphics: megahertz(500),
                    clock_sm: megahertz(500),
                    clock_memory: megahertz(1_000),
                    clock_video: megahertz(0),
                    encoder: Reading::Value(Percent(0)),
                    decoder: Reading::Value(Percent(0)),
                    pcie_generation: Reading::Value(4),
                    pcie_width: Reading::Value(16),
                    throttle: unslowed(),
                    gtt_total: Reading::Value(Bytes(16_786_171_904)),
                    gtt_used: Reading::Value(Bytes(62_369_792)),
                    ..nothing()
                },
            ),
        ),
        (
            "lact-rx7900xtx",
            "card0",
            expected_card(
                no_memory.clone(),
                Vitals {
                    utilization: Reading::Value(Percent(3)),
                    temperature: celsius(53),
                    hotspot_temperature: celsius(61),
                    memory_temperature: celsius(68),
                    power: Reading::Value(Milliwatts(68_000)),
                    power_limit: Reading::Value(Milliwatts(290_000)),
                    fan: Reading::Value(Percent(0)),
                    fan_speed: Reading::Value(Rpm(0)),
                    clock_graphics: megahertz(31),
                    clock_sm: megahertz(31),
                    clock_memory: megahertz(1_249),
                    clock_sm_max: megahertz(2_219),
                    clock_memory_max: megahertz(1_249),
                    pcie_generation: Reading::Value(4),
                    pcie_width: Reading::Value(16),
                    ..nothing()
                },
            ),
        ),
        (
            "lact-rx9070",
            "card1",
            expected_card(
                no_memory,
                Vitals {
                    utilization: Reading::Value(Percent(25)),
                    memory_utilization: Reading::Value(Percent(0)),
                    temperature: celsius(48),
                    hotspot_temperature: celsius(52),
                    memory_temperature: celsius(72),
                    power: Reading::Value(Milliwatts(49_000)),
                    power_limit: Reading::Value(Milliwatts(200_000)),
                    fan_speed: Reading::Value(Rpm(1_944)),
                    clock_graphics: megahertz(900),
                    clock_sm: megahertz(900),
                    clock_memory: megahertz(1_124),
                    clock_video: megahertz(25),
                    encoder: Reading::Value(Percent(0)),
                    decoder: Reading::Value(Percent(0)),
                    pcie_generation: Reading::Value(4),
                    pcie_width: Reading::Value(16),
                    clock_sm_max: megahertz(2_070),
                    throttle: unslowed(),
                    ..nothing()
                },
            ),
        ),
        (
            "procfs-vega20-card0",
            "card0",
            expected_card(
                memory(8_573_157_376, 1_490_378_752, false),
                Vitals {
                    utilization: Reading::Value(Percent(4)),
                    clock_graphics: megahertz(852),
                    clock_sm: megahertz(852),
                    clock_memory: megahertz(167),
                    clock_sm_max: megahertz(1_630),
                    clock_memory_max: megahertz(945),
                    gtt_total: Reading::Value(Bytes(8_573_157_376)),
                    gtt_used: Reading::Value(Bytes(144_560_128)),
                    pcie_generation: Reading::Value(3),
                    pcie_width: Reading::Value(16),
                    pcie_generation_max: Reading::Value(3),
                    pcie_width_max: Reading::Value(16),
                    ..nothing()
                },
            ),
        ),
    ]
}

#[test]
fn recorded_cards_have_the_expected_values() {
    let Some(directory) = recordings("amd") else {
        return;
    };
    for (name, card, expected) in expected() {
        match read_recorded_card(&directory, name, card) {
            Some(readings) => assert_eq!(readings, expected, "{name}"),
            None => eprintln!("skipped: no recording {name}"),
        }
    }
}
