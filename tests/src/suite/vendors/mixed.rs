//! GPUs of several vendors in one box: one order for all, and the faults of each vendor
//! apart.

use super::DrmBox;
use gpukill_tests::harness::{FakeCard, eventually_equals};
use serde_json::{Value, json};

const INTEL: FakeCard<'_> = FakeCard {
    name: "card0",
    driver: "i915",
    pci: Some(("0000:00:02.0", "8086:9A49")),
    nodes: &[("card0", "226:0"), ("renderD128", "226:128")],
    files: &[],
};

const AMD: FakeCard<'_> = FakeCard {
    name: "card1",
    driver: "amdgpu",
    pci: Some(("0000:03:00.0", "1002:744C")),
    nodes: &[("card1", "226:1"), ("renderD129", "226:129")],
    files: &[
        ("gpu_busy_percent", "42\n"),
        ("mem_info_vram_total", "25753026560\n"),
        ("mem_info_vram_used", "1073741824\n"),
    ],
};

/// An NVIDIA GPU that is also a DRM card, as with `nvidia-drm`.
const NVIDIA: FakeCard<'_> = FakeCard {
    name: "card2",
    driver: "nvidia",
    pci: Some(("0000:17:00.0", "10DE:2330")),
    nodes: &[("card2", "226:2"), ("renderD130", "226:130")],
    files: &[],
};

fn box_with_all_vendors() -> DrmBox {
    let it = DrmBox::new();
    for card in [NVIDIA, AMD, INTEL] {
        it.test_box.sysfs().add_card(card);
    }
    it.test_box
        .set_driver_state(&json!({"gpus": [nvidia_gpu()]}));
    it
}

fn nvidia_gpu() -> Value {
    json!({"uuid": "GPU-h100", "name": "NVIDIA H100", "pci": "00000000:17:00.0"})
}

#[test]
fn all_vendors_are_ordered_by_address() {
    let it = box_with_all_vendors();
    let daemon = it.start();
    let all = vec![
        json!([0, "intel", "0000:00:02.0"]),
        json!([1, "amd", "0000:03:00.0"]),
        json!([2, "nvidia", "0000:17:00.0"]),
    ];
    eventually_equals(&all, || it.gpus(&["gpu_index", "vendor", "pci"]));
    for (vendor, index) in [("intel", 0), ("amd", 1), ("nvidia", 2)] {
        let list = it
            .test_box
            .json(&["list", "--vendor", vendor, "-o", "json"]);
        let found = super::select_fields(&list["gpus"], &["gpu_index", "vendor"]);
        assert_eq!(found, [json!([index, vendor])]);
    }
    assert_eq!(it.test_box.faults(), []);
    daemon.stop();
}

#[test]
fn failing_vendor_affects_no_other() {
    let it = box_with_all_vendors();
    let daemon = it.start();
    eventually_equals(&3, || it.gpus(&["id"]).len());
    it.test_box.set_driver_state(
        &json!({"gpus": [nvidia_gpu()], "errors": {"nvmlDeviceGetCount_v2": 999}}),
    );
    let parts = || -> Vec<String> {
        let faults = it.test_box.faults().into_iter();
        faults.map(|fault| fault.0).collect()
    };
    eventually_equals(&vec!["nvidia".to_owned()], parts);
    let rows = || it.gpus(&["gpu_index", "vendor", "util_pct"]);
    eventually_equals(
        &vec![
            // No process has it open, so it is idle.
            json!([0, "intel", 0]),
            json!([1, "amd", 42]),
            json!([2, "nvidia", null]),
        ],
        rows,
    );
    daemon.stop();
}

#[test]
fn late_driver_gets_its_index_after_restart() {
    let it = DrmBox::new();
    for (address, vendor, class) in [
        ("0000:03:00.0", "0x1002\n", "0x030000\n"),
        ("0000:17:00.0", "0x10de\n", "0x030200\n"),
    ] {
        let device = format!("bus/pci/devices/{address}");
        it.test_box
            .sysfs()
            .write(&format!("{device}/vendor"), vendor);
        it.test_box.sysfs().write(&format!("{device}/class"), class);
    }
    it.test_box
        .set_driver_state(&json!({"gpus": [nvidia_gpu()]}));
    let rows = || it.gpus(&["gpu_index", "vendor"]);
    let daemon = it.start();
    eventually_equals(&vec![json!([1, "nvidia"])], rows);
    it.test_box.sysfs().add_card(AMD);
    let both = vec![json!([0, "amd"]), json!([1, "nvidia"])];
    eventually_equals(&both, rows);
    daemon.stop();
    let restarted = it.start();
    eventually_equals(&both, rows);
    restarted.stop();
}

#[test]
fn busy_card_without_clock_is_rejected() {
    let it = DrmBox::new();
    let sysfs = it.test_box.sysfs();
    sysfs.add_card(FakeCard {
        name: "card1",
        driver: "i915",
        pci: Some(("0000:03:00.0", "8086:56A5")),
        nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
        files: &[],
    });
    let gt = |file: &str, text: &str| sysfs.write(&format!("class/drm/card1/gt/gt0/{file}"), text);
    // The card is in RC6, and the counter of its time there stands still.
    gt("rc6_residency_ms", "123456\n");
    gt("rps_act_freq_mhz", "0\n");
    // The engine time of its only client is unknown.
    let client = "drm-driver:\ti915\ndrm-client-id:\t1\ndrm-pdev:\t0000:03:00.0\n\
         drm-engine-render:\tgarbage\n";
    it.add_holder(4711, "/dev/full", client);
    // The interval is long enough that counters change between polls.
    let daemon = it.start_with_interval("300ms");
    let shown = || {
        let gpu = it.test_box.list()["gpus"][0].clone();
        json!([
            gpu["util_pct"],
            gpu["reasons"]["util_pct"],
            gpu["clock_graphics_mhz"]
        ])
    };
    let contradicted = "failed: contradicted: busy all the time at a clock of 0 MHz";
    eventually_equals(&json!([null, contradicted, 0]), shown);
    gt("rps_act_freq_mhz", "600\n");
    eventually_equals(&json!([100, null, 600]), shown);
    daemon.stop();
}
