//! GPUs that only the kernel driver reports, because NVML is missing or refuses.

use gpukill_tests::harness::{FakeProcfs, TestBox, eventually_equals};
use serde_json::{Value, json};
use std::path::Path;

const WHY_MISMATCH: &str = "the NVIDIA library and the loaded driver are of different versions: \
                            reload the driver or reboot";

/// A `/proc` in which a driver with two GPUs is loaded.
fn procfs_with_driver(test_box: &TestBox) -> FakeProcfs {
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let driver = procfs.root().join("driver/nvidia");
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        &driver.join("version"),
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n\
         GCC version:  gcc version 12.2.0 (Debian)\n",
    );
    write(
        &driver.join("gpus/0000:1b:00.0/information"),
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 120\nGPU UUID: \t GPU-a\n\
         Device Minor: \t 1\nGPU Excluded:\t No\n",
    );
    write(
        &driver.join("gpus/0000:1c:00.0/information"),
        "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\n\
         Device Minor: \t 0\n",
    );
    procfs
}

fn start(test_box: &TestBox, procfs: &FakeProcfs) -> gpukill_tests::harness::Daemon {
    let mut command = test_box.daemon_command();
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    test_box.start_with(&mut command)
}

fn gpu_names(list: &Value) -> Vec<Value> {
    let gpus = list["gpus"].as_array().unwrap();
    gpus.iter()
        .map(|gpu| {
            json!([
                gpu["gpu_index"],
                gpu["id"],
                gpu["pci"],
                gpu["name"],
                gpu["minor"]
            ])
        })
        .collect()
}

fn gpu_states(list: &Value) -> Vec<Value> {
    let gpus = list["gpus"].as_array().unwrap();
    gpus.iter()
        .map(|gpu| json!([gpu["gpu_index"], gpu["id"], gpu["state"]]))
        .collect()
}

#[test]
fn gpus_are_named_without_nvml() {
    let test_box = TestBox::new();
    let procfs = procfs_with_driver(&test_box);
    let aside = test_box.path("lib/aside");
    std::fs::rename(test_box.library(), &aside).unwrap();
    let daemon = start(&test_box, &procfs);
    let expected = vec![
        json!([0, "GPU-a", "0000:1b:00.0", "NVIDIA H100 80GB HBM3", 1]),
        json!([1, "0000:1c:00.0", "0000:1c:00.0", null, 0]),
    ];
    eventually_equals(&expected, || gpu_names(&test_box.list()));
    let why = format!(
        "the driver is loaded without its library {}: install the library of the same version",
        test_box.library().display()
    );
    // One fault, and not one for each missing value.
    assert_eq!(test_box.faults(), [("nvidia".to_owned(), why.clone())]);
    let list = test_box.list();
    assert_eq!(list["backends"][0]["driver"], "580.65.06");
    assert_eq!(
        list["gpus"][1]["reasons"]["mem_used_bytes"],
        format!("failed: {why}")
    );
    assert_eq!(list["gpus"][1]["pids"], Value::Null);
    assert_eq!(list["gpus"][0]["state"], "unknown");
    assert_eq!(test_box.ctl(&["list"]).code, 2);

    // The library gets installed, and the daemon is not restarted.
    test_box.set_driver_state(&json!({"gpus": [
        {"uuid": "GPU-a", "pci": "00000000:1B:00.0", "temperature": 41},
        {"uuid": "GPU-z", "pci": "00000000:1C:00.0", "temperature": 42},
    ]}));
    std::fs::rename(aside, test_box.library()).unwrap();
    let woken = vec![json!([0, "GPU-a", "ok"]), json!([1, "GPU-z", "ok"])];
    eventually_equals(&woken, || gpu_states(&test_box.list()));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn driver_mismatch_is_named_until_reload() {
    let test_box = TestBox::new();
    let procfs = procfs_with_driver(&test_box);
    test_box.set_driver_state(&json!({"init_error": 18, "gpus": []}));
    let daemon = start(&test_box, &procfs);
    eventually_equals(&2, || test_box.list()["gpus"].as_array().unwrap().len());
    assert_eq!(
        test_box.faults(),
        [("nvidia".to_owned(), WHY_MISMATCH.to_owned())]
    );
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 41}]}));
    eventually_equals(&json!(41), || test_box.list()["gpus"][0]["temp_c"].clone());
    daemon.stop();
}

#[test]
fn library_that_needs_a_new_process_gets_one() {
    let test_box = TestBox::new();
    let state =
        |load: u32, temperature: u32| json!({"load": load, "gpus": [{"temperature": temperature}]});
    test_box.set_driver_state(&state(1, 41));
    let daemon = test_box.start();
    eventually_equals(&json!(41), || test_box.list()["gpus"][0]["temp_c"].clone());
    let sensor = daemon.sensor_pid();
    // The driver was replaced: the library that is mapped already fails for good.
    test_box.set_driver_state(&state(2, 42));
    eventually_equals(&json!(42), || test_box.list()["gpus"][0]["temp_c"].clone());
    assert_ne!(daemon.sensor_pid(), sensor);
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn gpu_lost_before_start_is_named_by_kernel() {
    let test_box = TestBox::new();
    let procfs = procfs_with_driver(&test_box);
    test_box.set_driver_state(&json!({"gpus": [
        {"uuid": "GPU-a", "pci": "00000000:1B:00.0"},
        {"uuid": "GPU-z", "pci": "00000000:1C:00.0", "lost": true},
    ]}));
    let daemon = start(&test_box, &procfs);
    let expected = vec![
        json!([0, "GPU-a", "ok"]),
        json!([1, "0000:1c:00.0", "lost"]),
    ];
    eventually_equals(&expected, || gpu_states(&test_box.list()));
    daemon.stop();
}
