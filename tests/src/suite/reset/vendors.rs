//! GPUs of other vendors: AMD's are reset by the kernel's own file, Intel's not at
//! all.

use super::{Box, Systemd};
use gpukill_tests::harness::{Card, becomes};
use serde_json::{Value, json};

const AMD: &str = "0000:c1:00.0";
const INTEL: &str = "0000:c2:00.0";

/// A box with one card of AMD and one of Intel, and no GPU of NVIDIA.
fn mixed() -> Box {
    let it = Box::new();
    for of_nvidia in ["proc/driver", "sys/bus/pci/devices"] {
        std::fs::remove_dir_all(it.stage.path(of_nvidia)).unwrap();
    }
    let sysfs = it.stage.sysfs();
    sysfs.plug(Card {
        name: "card3",
        driver: "amdgpu",
        pci: Some((AMD, "1002:744C")),
        nodes: &[("card3", "1:5")],
        files: &[
            ("mem_info_vram_total", "17179869184\n"),
            ("mem_info_vram_used", "1048576\n"),
            ("gpu_busy_percent", "0\n"),
        ],
    });
    sysfs.plug(Card {
        name: "card4",
        driver: "xe",
        pci: Some((INTEL, "8086:E20B")),
        nodes: &[("card4", "1:9")],
        files: &[],
    });
    it.plug(AMD, "0x1002", "0x030000");
    it.write(&format!("sys/bus/pci/devices/{AMD}/drm/card3/dev"), "1:5\n");
    it
}

fn vendors(it: &Box) -> Value {
    let list = it.stage.list();
    let gpus = list["gpus"].as_array().unwrap().iter();
    gpus.map(|gpu| json!([gpu["vendor"], gpu["state"]]))
        .collect()
}

#[test]
fn a_card_of_amd_is_reset_by_the_kernels_file_and_one_of_intel_cannot_be() {
    let it = mixed();
    let file = format!("debug/dri/{AMD}/amdgpu_gpu_recover");
    it.write(&file, "0\n");
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!([["amd", "ok"], ["intel", "ok"]]), || vendors(&it));
    let ran = it.reset(&["--all", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let outcomes = it.outcomes(&ran);
    assert_eq!(outcomes[0], json!([0, "reset", null]));
    assert_eq!(outcomes[1][1], "unsupported");
    // Where the driver says that it failed, the card is as before.
    it.write(&file, "-5\n");
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    let why = "the driver says that the reset failed: Input/output error (os error 5)";
    assert_eq!(
        (ran.code, it.outcomes(&ran)),
        (1, json!([[0, "failed", why]]))
    );
    let ran = it.reset(&["--gpu", "1", "--yes"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
}

#[test]
fn cards_of_one_hive_are_in_each_others_way() {
    let it = mixed();
    let second = "0000:c3:00.0";
    it.stage.sysfs().plug(Card {
        name: "card5",
        driver: "amdgpu",
        pci: Some((second, "1002:744C")),
        nodes: &[("card5", "1:8")],
        files: &[("mem_info_vram_used", "1048576\n")],
    });
    for address in [AMD, second] {
        let hive = format!("sys/bus/pci/devices/{address}/xgmi_hive_info/xgmi_hive_id");
        it.write(&hive, "12345\n");
    }
    it.write(&format!("debug/dri/{AMD}/amdgpu_gpu_recover"), "0\n");
    it.invent(4711, "python", &["/dev/random"]);
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    let third = json!([["amd", "ok"], ["intel", "ok"], ["amd", "ok"]]);
    becomes(&third, || vendors(&it));
    becomes(&json!([[2], "blocked", 4711]), || {
        let plan = it
            .stage
            .json(&["reset", "--gpu", "0", "--dry-run", "-o", "json"]);
        let gpu = &plan["gpus"][0];
        json!([gpu["peers"], gpu["fate"], gpu["blockers"][0]["pid"]])
    });
    daemon.stop();
}
