//! A process on a GPU, from the driver to the screen.

use gpukill_tests::harness::{
    TestBox, TestProcess, can_see_all_cgroups, eventually, failed_readings,
};
use serde_json::json;

#[test]
fn process_has_owner_memory_and_utilization() {
    let test_box = TestBox::new();
    let training = TestProcess::start("python train.py");
    test_box.set_driver_state(&json!({"driver": "580.65.06", "cuda": 13000, "gpus": [{
        "uuid": "GPU-8f3c0000-0000-0000-0000-000000000001",
        "name": "NVIDIA H100 80GB HBM3",
        "pci": "00000000:1B:00.0",
        "memory": {"total": 85_899_345_920u64, "reserved": 1 << 29, "used": 64_424_509_440u64},
        "utilization": {"gpu": 98, "memory": 40},
        "temperature": 71, "power_mw": 688_000, "power_limit_mw": 700_000,
        "ecc": {"enabled": true, "volatile_uncorrected": 3},
        "processes": [{"pid": training.pid(), "memory": 64_424_509_440u64, "sm": 97}],
    }]}));
    let daemon = test_box.start();
    // Names, sockets and the store are read in the background, and their answers appear a
    // poll or two later.
    let late = [
        "connections",
        "network_role",
        "first_seen",
        "last_active_at",
    ];
    let list = eventually("all that comes later", || {
        let list = test_box.json(&["list", "-o", "json"]);
        let process = &list["procs"][0];
        let missing = failed_readings(process);
        let is_late = can_see_all_cgroups() && late.iter().any(|it| !missing[it].is_null());
        (!process["user"].is_null() && !is_late).then_some(list)
    });

    let gpu = &list["gpus"][0];
    assert_eq!(gpu["gpu_index"], 0);
    assert_eq!(gpu["id"], "GPU-8f3c0000-0000-0000-0000-000000000001");
    assert_eq!(gpu["pci"], "0000:1b:00.0");
    assert_eq!(gpu["name"], "NVIDIA H100 80GB HBM3");
    assert_eq!(gpu["vendor"], "nvidia");
    assert_eq!(gpu["mem_used_mb"], 61_440);
    assert_eq!(gpu["mem_total_mb"], 81_920);
    assert_eq!(gpu["mem_unattributed_bytes"], 0);
    assert_eq!(gpu["util_pct"], 98);
    assert_eq!(gpu["temp_c"], 71);
    assert_eq!(gpu["power_w"], 688.0);
    assert_eq!(gpu["power_limit_w"], 700.0);
    assert_eq!(gpu["ecc_volatile"], 3);
    assert_eq!(gpu["pids"], 1);
    assert_eq!(failed_readings(gpu), json!({}));
    assert_eq!(gpu["top_proc"], list["procs"][0]);

    let process = &list["procs"][0];
    assert_eq!(process["pid"], training.pid());
    assert_eq!(process["uid"], rustix::process::getuid().as_raw());
    assert_eq!(process["proc_name"], "sleep");
    assert_eq!(process["command"], "python train.py 1000");
    assert_eq!(process["used_mem_mb"], 61_440);
    assert_eq!(process["util_pct"], 97);
    assert_eq!(process["used_for"], json!(["compute"]));
    if can_see_all_cgroups() {
        assert_eq!(failed_readings(process), json!({}));
    }
    daemon.stop();
}
