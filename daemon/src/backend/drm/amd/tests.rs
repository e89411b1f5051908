//! Tests with trees of files as amdgpu writes them, and with recorded trees.

mod kfd;
mod recorded;
mod sensors;

use super::*;
use crate::backend::MemoryReadings;
use crate::backend::drm::card;
use gpukill_proto::model::Vitals;
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Rpm};
use proptest::prelude::*;
use std::time::Duration;

/// A host with one card, in a temporary directory.
struct AmdTree {
    root: tempfile::TempDir,
}

const DEVICE: &str = "class/drm/card0/device";

impl AmdTree {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let tree = Self { root };
        tree.device(
            "uevent",
            "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:c1:00.0\n",
        );
        tree.device("drm/renderD128/dev", "226:128\n");
        for (name, text) in files {
            tree.device(name, text);
        }
        tree
    }

    /// Writes a file of the card.
    fn device(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write(&format!("{DEVICE}/{name}"), content);
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let file = self.root.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    fn card(&self) -> DrmCard {
        card::list_all_cards(self.root.path()).pop().unwrap()
    }

    fn amd(&self) -> AmdCard {
        AmdCard::new(&self.card(), self.root.path())
    }

    fn read_card(&self) -> CardReadings {
        self.amd().read(&self.card(), Instant::now())
    }
}

fn failed<T>(why: &str) -> Reading<T> {
    Reading::Failed(why.to_owned())
}

fn nothing() -> Vitals {
    Vitals::unknown(&Reading::Unsupported)
}

/// The sensors of a card, numbered out of order: labels decide.
const SENSORS: [(&str, &str); 16] = [
    ("hwmon/hwmon4/name", "amdgpu\n"),
    ("hwmon/hwmon4/temp1_input", "68000\n"),
    ("hwmon/hwmon4/temp1_label", "mem\n"),
    ("hwmon/hwmon4/temp2_input", "53000\n"),
    ("hwmon/hwmon4/temp2_label", "edge\n"),
    ("hwmon/hwmon4/temp3_input", "61000\n"),
    ("hwmon/hwmon4/temp3_label", "junction\n"),
    ("hwmon/hwmon4/power1_average", "68000000\n"),
    ("hwmon/hwmon4/power1_cap", "290000000\n"),
    ("hwmon/hwmon4/pwm1", "127\n"),
    ("hwmon/hwmon4/fan1_input", "1600\n"),
    ("hwmon/hwmon4/freq1_input", "31000000\n"),
    ("hwmon/hwmon4/freq1_label", "sclk\n"),
    ("hwmon/hwmon4/freq2_input", "1249000000\n"),
    ("hwmon/hwmon4/freq2_label", "mclk\n"),
    ("hwmon/hwmon4/power1_input", "1\n"),
];

#[test]
fn card_without_files_is_unknown_not_zero() {
    let readings = AmdTree::new(&[]).read_card();
    assert_eq!(readings, CardReadings::unknown(&Reading::Unsupported));
}

#[test]
fn vitals_come_from_the_cards_files() {
    let tree = AmdTree::new(&SENSORS);
    for (file, text) in [
        ("gpu_busy_percent", "3\n"),
        ("mem_busy_percent", "0\n"),
        ("vcn_busy_percent", "7\n"),
        ("mem_info_gtt_total", "1000\n"),
        ("mem_info_gtt_used", "10\n"),
        ("pp_dpm_sclk", "0: 500Mhz\n1: 31Mhz *\n2: 2219Mhz\n"),
        ("pp_dpm_mclk", "0: 96Mhz \n1: 1249Mhz *\n"),
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("current_link_width", "8\n"),
        ("max_link_speed", "16.0 GT/s PCIe\n"),
        ("max_link_width", "16\n"),
        ("current_compute_partition", "SPX\n"),
        ("current_memory_partition", "NPS1\n"),
        ("serial_number", "692136000123\n"),
        ("ras/umc_err_count", "ue: 1\nce: 2\n"),
        ("ras/gpu_vram_bad_pages", "0x00000001 : 0x00001000 : R\n"),
    ] {
        tree.device(file, text);
    }
    let expected = Vitals {
        utilization: Reading::Value(Percent(3)),
        memory_utilization: Reading::Value(Percent(0)),
        encoder: Reading::Value(Percent(7)),
        decoder: Reading::Value(Percent(7)),
        temperature: Reading::Value(Celsius(53)),
        hotspot_temperature: Reading::Value(Celsius(61)),
        memory_temperature: Reading::Value(Celsius(68)),
        power: Reading::Value(Milliwatts(68_000)),
        power_limit: Reading::Value(Milliwatts(290_000)),
        fan: Reading::Value(Percent(50)),
        fan_speed: Reading::Value(Rpm(1_600)),
        clock_graphics: Reading::Value(Megahertz(31)),
        clock_sm: Reading::Value(Megahertz(31)),
        clock_memory: Reading::Value(Megahertz(1_249)),
        clock_sm_max: Reading::Value(Megahertz(2_219)),
        clock_memory_max: Reading::Value(Megahertz(1_249)),
        ecc_volatile: Reading::Value(1),
        ecc_volatile_corrected: Reading::Value(2),
        bad_pages: Reading::Value(1),
        gtt_total: Reading::Value(Bytes(1_000)),
        gtt_used: Reading::Value(Bytes(10)),
        pcie_generation: Reading::Value(3),
        pcie_width: Reading::Value(8),
        pcie_generation_max: Reading::Value(4),
        pcie_width_max: Reading::Value(16),
        compute_partition: Reading::Value("SPX".into()),
        memory_partition: Reading::Value("NPS1".into()),
        serial: Reading::Value("692136000123".into()),
        ..nothing()
    };
    assert_eq!(tree.read_card().vitals, expected);
}

#[test]
fn discrete_card_has_its_own_memory() {
    let memory = |total: &str, used: &str| {
        let tree = AmdTree::new(&[
            ("mem_info_vram_total", total),
            ("mem_info_vram_used", used),
            ("mem_info_gtt_total", "5\n"),
            ("mem_info_gtt_used", "4\n"),
        ]);
        tree.read_card().memory
    };
    let whole = |total, used| MemoryReadings {
        total,
        used,
        reserved: Reading::Unsupported,
        unified: false,
    };
    let value = |bytes| Reading::Value(Bytes(bytes));
    assert_eq!(memory("100\n", "7\n"), whole(value(100), value(7)));
    assert_eq!(
        memory("100\n", "101\n"),
        whole(value(100), Reading::impossible("101 of 100 bytes"))
    );
    let none = whole(Reading::Unsupported, Reading::Unsupported);
    assert_eq!(memory("0\n", "0\n"), none);
}

#[test]
fn integrated_memory_is_vram_plus_gtt() {
    // A part of 512 MiB that is 96 % full while nothing runs.
    let tree = AmdTree::new(&[
        ("mem_info_vram_total", "536870912\n"),
        ("mem_info_vram_used", "514580480\n"),
        ("mem_info_gtt_total", "16400000000\n"),
        ("mem_info_gtt_used", "3900000000\n"),
    ]);
    let mut bytes = vec![0xff; 264];
    bytes[..4].copy_from_slice(&[8, 1, 3, 0]);
    tree.device("gpu_metrics", &bytes);
    let expected = MemoryReadings {
        total: Reading::Value(Bytes(536_870_912 + 16_400_000_000)),
        used: Reading::Value(Bytes(514_580_480 + 3_900_000_000)),
        reserved: Reading::Unsupported,
        unified: true,
    };
    let (card, mut amd, now) = (tree.card(), tree.amd(), Instant::now());
    assert_eq!(amd.read(&card, now).memory, expected);
    // The structure cannot be read this time.
    std::fs::remove_file(tree.root.path().join(DEVICE).join("gpu_metrics")).unwrap();
    assert_eq!(amd.read(&card, now).memory, expected);
    std::fs::remove_file(tree.root.path().join(DEVICE).join("mem_info_gtt_used")).unwrap();
    let used = Reading::Unsupported;
    assert_eq!(
        amd.read(&card, now).memory,
        MemoryReadings { used, ..expected }
    );
}

#[test]
fn blank_or_masked_serial_is_unsupported() {
    for (text, expected) in [
        ("\n", Reading::Unsupported),
        ("0\n", Reading::Unsupported),
        ("0000000000\n", Reading::Unsupported),
        ("XXXXXXXX\n", Reading::Unsupported),
        ("N/A\n", Reading::Unsupported),
        ("PCB0001\n", Reading::Value("PCB0001".to_owned())),
    ] {
        let tree = AmdTree::new(&[("serial_number", text)]);
        assert_eq!(tree.read_card().vitals.serial, expected, "{text:?}");
    }
}

#[test]
fn unknown_partition_mode_is_unsupported() {
    for (text, expected) in [
        ("CPX\n", Reading::Value("CPX".to_owned())),
        ("UNKNOWN\n", Reading::Unsupported),
        ("\n", Reading::Unsupported),
        ("C P X\n", failed("not understood")),
    ] {
        let tree = AmdTree::new(&[("current_compute_partition", text)]);
        assert_eq!(
            tree.read_card().vitals.compute_partition,
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn errors_are_read_every_sixteen_seconds() {
    let tree = AmdTree::new(&[("ras/umc_err_count", "ue: 0\nce: 1\n")]);
    let (card, mut amd, start) = (tree.card(), tree.amd(), Instant::now());
    let mut corrected = |after| {
        let readings = amd.read(&card, start + Duration::from_secs(after));
        readings.vitals.ecc_volatile_corrected
    };
    assert_eq!(corrected(0), Reading::Value(1));
    tree.device("ras/umc_err_count", "ue: 0\nce: 2\n");
    assert_eq!(corrected(15), Reading::Value(1));
    assert_eq!(corrected(16), Reading::Value(2));
}

proptest! {
    #[test]
    fn any_driver_text_parses_without_panic(
        bytes: Vec<u8>,
        text in "((ue|ce|S|0|location_id|simd_count)[: ]{1,2}[0-9]{0,21}(Mhz)?[ *]{0,2}\n){0,6}",
    ) {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            fuzz_api::hwmon(bytes);
            fuzz_api::kfd(bytes);
            fuzz_api::ids(bytes);
        }
    }
}

/// A small, nearly full part of the host's memory, as a BIOS gives it to a GPU on the die of a CPU.
const PIECE: [(&str, &str); 5] = [
    ("mem_info_vram_total", "536870912\n"),
    ("mem_info_vis_vram_total", "536870912\n"),
    ("mem_info_vram_used", "513802240\n"),
    ("mem_info_gtt_total", "16000000000\n"),
    ("mem_info_gtt_used", "1000000\n"),
];

#[test]
fn integrated_gpu_without_known_metrics() {
    let whole = MemoryReadings {
        total: Reading::Value(Bytes(536_870_912 + 16_000_000_000)),
        used: Reading::Value(Bytes(513_802_240 + 1_000_000)),
        reserved: Reading::Unsupported,
        unified: true,
    };
    // The evidence beyond the sizes: an unknown layout, the sensor of a north bridge, or no sign of
    // memory of its own.
    let newer: &[(&str, &[u8])] = &[
        ("gpu_metrics", &[0x0c, 0x01, 3, 1, 0, 0, 0, 0]),
        ("mem_info_vram_vendor", b"samsung\n"),
    ];
    let north_bridge: &[(&str, &[u8])] = &[
        ("hwmon/hwmon4/name", b"amdgpu\n"),
        ("hwmon/hwmon4/in1_input", b"700\n"),
        ("hwmon/hwmon4/in1_label", b"vddnb\n"),
        ("mem_busy_percent", b"0\n"),
    ];
    let unknown: &[(&str, &[u8])] = &[("mem_info_vram_vendor", b"unknown\n")];
    for files in [newer, north_bridge, unknown, &[]] {
        let tree = AmdTree::new(&PIECE);
        for (file, content) in files {
            tree.device(file, content);
        }
        assert_eq!(tree.read_card().memory, whole, "{files:?}");
    }
}

#[test]
fn small_discrete_card_is_not_integrated() {
    let cases: [&[(&str, &str)]; 6] = [
        &[("mem_info_vram_vendor", "hynix\n")],
        &[("mem_busy_percent", "0\n")],
        &[("mem_info_vis_vram_total", "268435456\n")],
        &[("mem_info_gtt_total", "536870912\n")],
        &[("mem_info_gtt_total", "?\n")],
        // A part of an accelerator in a virtual machine.
        &[
            ("mem_info_vram_total", "8589934592\n"),
            ("mem_info_vis_vram_total", "8589934592\n"),
        ],
    ];
    for files in cases {
        let tree = AmdTree::new(&PIECE);
        for (file, text) in files {
            tree.device(file, text);
        }
        let memory = tree.read_card().memory;
        assert!(!memory.unified, "{files:?}");
        assert_eq!(memory.used, Reading::Value(Bytes(513_802_240)), "{files:?}");
    }
}
