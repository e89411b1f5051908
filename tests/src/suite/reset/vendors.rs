//! GPUs of other vendors: the kernel's own file resets those of AMD, and those of Intel
//! cannot be reset.

use super::{FakeSystemd, ResetBox};
use gpukill_tests::harness::{FakeCard, eventually_equals};
use serde_json::{Value, json};

const AMD: &str = "0000:c1:00.0";
const INTEL: &str = "0000:c2:00.0";

/// A box with an AMD card and an Intel card, and without NVIDIA GPUs.
fn amd_and_intel_box() -> ResetBox {
    let it = ResetBox::new();
    for of_nvidia in ["proc/driver", "sys/bus/pci/devices"] {
        std::fs::remove_dir_all(it.test_box.path(of_nvidia)).unwrap();
    }
    let sysfs = it.test_box.sysfs();
    sysfs.add_card(FakeCard {
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
    sysfs.add_card(FakeCard {
        name: "card4",
        driver: "xe",
        pci: Some((INTEL, "8086:E20B")),
        nodes: &[("card4", "1:9")],
        files: &[],
    });
    it.add_pci_device(AMD, "0x1002", "0x030000");
    it.write_file(&format!("sys/bus/pci/devices/{AMD}/drm/card3/dev"), "1:5\n");
    it
}

fn vendors(it: &ResetBox) -> Value {
    let list = it.test_box.list();
    let gpus = list["gpus"].as_array().unwrap().iter();
    gpus.map(|gpu| json!([gpu["vendor"], gpu["state"]]))
        .collect()
}

#[test]
fn amd_is_reset_and_intel_is_not() {
    let it = amd_and_intel_box();
    let file = format!("debug/dri/{AMD}/amdgpu_gpu_recover");
    it.write_file(&file, "0\n");
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!([["amd", "ok"], ["intel", "ok"]]), || vendors(&it));
    let ran = it.reset(&["--all", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let outcomes = it.outcomes(&ran);
    assert_eq!(outcomes[0], json!([0, "reset", null]));
    assert_eq!(outcomes[1][1], "unsupported");
    // When the driver reports a failure, the card is as before.
    it.write_file(&file, "-5\n");
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    let why = "the driver reports that the reset failed: Input/output error (os error 5)";
    assert_eq!(
        (ran.code, it.outcomes(&ran)),
        (1, json!([[0, "failed", why]]))
    );
    let ran = it.reset(&["--gpu", "1", "--yes"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
}

#[test]
fn cards_of_one_hive_block_each_other() {
    let it = amd_and_intel_box();
    let second = "0000:c3:00.0";
    it.test_box.sysfs().add_card(FakeCard {
        name: "card5",
        driver: "amdgpu",
        pci: Some((second, "1002:744C")),
        nodes: &[("card5", "1:8")],
        files: &[("mem_info_vram_used", "1048576\n")],
    });
    for address in [AMD, second] {
        let hive = format!("sys/bus/pci/devices/{address}/xgmi_hive_info/xgmi_hive_id");
        it.write_file(&hive, "12345\n");
    }
    it.write_file(&format!("debug/dri/{AMD}/amdgpu_gpu_recover"), "0\n");
    it.add_process(4711, "python", &["/dev/random"]);
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    let third = json!([["amd", "ok"], ["intel", "ok"], ["amd", "ok"]]);
    eventually_equals(&third, || vendors(&it));
    eventually_equals(&json!([[2], "blocked", 4711]), || {
        let plan = it
            .test_box
            .json(&["reset", "--gpu", "0", "--dry-run", "-o", "json"]);
        let gpu = &plan["gpus"][0];
        json!([
            gpu["peers"],
            gpu["planned_action"],
            gpu["blockers"][0]["pid"]
        ])
    });
    daemon.stop();
}
