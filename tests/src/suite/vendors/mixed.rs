//! GPUs of several vendors in one box: one order, and each vendor's faults its
//! own.

use super::Box;
use gpukill_tests::harness::{Card, becomes};
use serde_json::{Value, json};

const INTEL: Card<'_> = Card {
    name: "card0",
    driver: "i915",
    pci: Some(("0000:00:02.0", "8086:9A49")),
    nodes: &[("card0", "226:0"), ("renderD128", "226:128")],
    files: &[],
};

const AMD: Card<'_> = Card {
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
const NVIDIA: Card<'_> = Card {
    name: "card2",
    driver: "nvidia",
    pci: Some(("0000:17:00.0", "10DE:2330")),
    nodes: &[("card2", "226:2"), ("renderD130", "226:130")],
    files: &[],
};

fn plugged() -> Box {
    let it = Box::new();
    for card in [NVIDIA, AMD, INTEL] {
        it.stage.sysfs().plug(card);
    }
    it.stage.play(&json!({"gpus": [gpu()]}));
    it
}

fn gpu() -> Value {
    json!({"uuid": "GPU-h100", "name": "NVIDIA H100", "pci": "00000000:17:00.0"})
}

#[test]
fn gpus_of_all_vendors_are_counted_once_in_the_order_of_their_addresses() {
    let it = plugged();
    let daemon = it.start();
    let all = vec![
        json!([0, "intel", "0000:00:02.0"]),
        json!([1, "amd", "0000:03:00.0"]),
        json!([2, "nvidia", "0000:17:00.0"]),
    ];
    becomes(&all, || it.gpus(&["gpu_index", "vendor", "pci"]));
    for (vendor, index) in [("intel", 0), ("amd", 1), ("nvidia", 2)] {
        let list = it.stage.json(&["list", "--vendor", vendor, "-o", "json"]);
        let found = super::pick(&list["gpus"], &["gpu_index", "vendor"]);
        assert_eq!(found, [json!([index, vendor])]);
    }
    assert_eq!(it.stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_vendor_that_fails_takes_no_other_with_it_and_no_number_moves() {
    let it = plugged();
    let daemon = it.start();
    becomes(&3, || it.gpus(&["id"]).len());
    it.stage
        .play(&json!({"gpus": [gpu()], "errors": {"nvmlDeviceGetCount_v2": 999}}));
    let parts = || -> Vec<String> {
        let faults = it.stage.faults().into_iter();
        faults.map(|fault| fault.0).collect()
    };
    becomes(&vec!["nvidia".to_owned()], parts);
    let rows = || it.gpus(&["gpu_index", "vendor", "util_pct"]);
    becomes(
        &vec![
            // Nobody has it open: it does nothing.
            json!([0, "intel", 0]),
            json!([1, "amd", 42]),
            json!([2, "nvidia", null]),
        ],
        rows,
    );
    daemon.stop();
}

#[test]
fn a_gpu_whose_driver_is_loaded_later_has_the_number_that_it_has_after_a_restart() {
    let it = Box::new();
    for (address, vendor, class) in [
        ("0000:03:00.0", "0x1002\n", "0x030000\n"),
        ("0000:17:00.0", "0x10de\n", "0x030200\n"),
    ] {
        let device = format!("bus/pci/devices/{address}");
        it.stage.sysfs().write(&format!("{device}/vendor"), vendor);
        it.stage.sysfs().write(&format!("{device}/class"), class);
    }
    it.stage.play(&json!({"gpus": [gpu()]}));
    let rows = || it.gpus(&["gpu_index", "vendor"]);
    let daemon = it.start();
    becomes(&vec![json!([1, "nvidia"])], rows);
    it.stage.sysfs().plug(AMD);
    let both = vec![json!([0, "amd"]), json!([1, "nvidia"])];
    becomes(&both, rows);
    daemon.stop();
    let restarted = it.start();
    becomes(&both, rows);
    restarted.stop();
}

#[test]
fn a_card_that_is_busy_at_no_clock_is_not_believed() {
    let it = Box::new();
    let sysfs = it.stage.sysfs();
    sysfs.plug(Card {
        name: "card1",
        driver: "i915",
        pci: Some(("0000:03:00.0", "8086:56A5")),
        nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
        files: &[],
    });
    let gt = |file: &str, text: &str| sysfs.write(&format!("class/drm/card1/gt/gt0/{file}"), text);
    // It is asleep (RC6), and the counter of how long it was so stands still.
    gt("rc6_residency_ms", "123456\n");
    gt("rps_act_freq_mhz", "0\n");
    // What its only client does is not known.
    let client = "drm-driver:\ti915\ndrm-client-id:\t1\ndrm-pdev:\t0000:03:00.0\n\
         drm-engine-render:\tgarbage\n";
    it.holder(4711, "/dev/full", client);
    // Polls so far apart that each tells how much a counter grew.
    let daemon = it.start_polling_every("300ms");
    let shown = || {
        let gpu = it.stage.list()["gpus"][0].clone();
        json!([
            gpu["util_pct"],
            gpu["reasons"]["util_pct"],
            gpu["clock_graphics_mhz"]
        ])
    };
    let contradicted = "failed: contradicted: busy all the time at a clock of 0 MHz";
    becomes(&json!([null, contradicted, 0]), shown);
    gt("rps_act_freq_mhz", "600\n");
    becomes(&json!([100, null, 600]), shown);
    daemon.stop();
}
