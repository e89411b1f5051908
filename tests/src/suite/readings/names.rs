//! GPUs of which only the kernel driver tells: NVML is missing or refuses.

use gpukill_tests::harness::{Procfs, Stage, becomes};
use serde_json::{Value, json};
use std::path::Path;

const WHY_MISMATCH: &str = "the NVIDIA library and the loaded driver are of different versions: \
                            reload the driver or reboot";

/// A `/proc` in which a driver of two GPUs is loaded.
fn with_driver(stage: &Stage) -> Procfs {
    let procfs = Procfs::at(stage.path("proc"));
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

fn start(stage: &Stage, procfs: &Procfs) -> gpukill_tests::harness::Daemon {
    let mut command = stage.daemon();
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    stage.start_with(&mut command)
}

fn named(list: &Value) -> Vec<Value> {
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

fn states(list: &Value) -> Vec<Value> {
    let gpus = list["gpus"].as_array().unwrap();
    gpus.iter()
        .map(|gpu| json!([gpu["gpu_index"], gpu["id"], gpu["state"]]))
        .collect()
}

#[test]
fn without_nvml_gpus_and_driver_are_named_all_the_same_and_what_to_install_is_said() {
    let stage = Stage::new();
    let procfs = with_driver(&stage);
    let aside = stage.path("lib/aside");
    std::fs::rename(stage.library(), &aside).unwrap();
    let daemon = start(&stage, &procfs);
    let expected = vec![
        json!([0, "GPU-a", "0000:1b:00.0", "NVIDIA H100 80GB HBM3", 1]),
        json!([1, "0000:1c:00.0", "0000:1c:00.0", null, 0]),
    ];
    becomes(&expected, || named(&stage.list()));
    let why = format!(
        "the driver is loaded without its library {}: install the one of its version",
        stage.library().display()
    );
    // One fault, and not one for each value that is missing.
    assert_eq!(stage.faults(), [("nvidia".to_owned(), why.clone())]);
    let list = stage.list();
    assert_eq!(list["backends"][0]["driver"], "580.65.06");
    assert_eq!(
        list["gpus"][1]["reasons"]["mem_used_bytes"],
        format!("failed: {why}")
    );
    assert_eq!(list["gpus"][1]["pids"], Value::Null);
    assert_eq!(list["gpus"][0]["state"], "unknown");
    assert_eq!(stage.ctl(&["list"]).code, 2);

    // Installed, and nobody restarts the daemon.
    stage.play(&json!({"gpus": [
        {"uuid": "GPU-a", "pci": "00000000:1B:00.0", "temperature": 41},
        {"uuid": "GPU-z", "pci": "00000000:1C:00.0", "temperature": 42},
    ]}));
    std::fs::rename(aside, stage.library()).unwrap();
    let woken = vec![json!([0, "GPU-a", "ok"]), json!([1, "GPU-z", "ok"])];
    becomes(&woken, || states(&stage.list()));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_driver_of_another_version_than_its_library_is_named_until_it_is_reloaded() {
    let stage = Stage::new();
    let procfs = with_driver(&stage);
    stage.play(&json!({"init_error": 18, "gpus": []}));
    let daemon = start(&stage, &procfs);
    becomes(&2, || stage.list()["gpus"].as_array().unwrap().len());
    assert_eq!(
        stage.faults(),
        [("nvidia".to_owned(), WHY_MISMATCH.to_owned())]
    );
    stage.play(&json!({"gpus": [{"temperature": 41}]}));
    becomes(&json!(41), || stage.list()["gpus"][0]["temp_c"].clone());
    daemon.stop();
}

#[test]
fn a_library_that_only_a_fresh_process_can_use_is_used_by_one() {
    let stage = Stage::new();
    let state =
        |load: u32, temperature: u32| json!({"load": load, "gpus": [{"temperature": temperature}]});
    stage.play(&state(1, 41));
    let daemon = stage.start();
    becomes(&json!(41), || stage.list()["gpus"][0]["temp_c"].clone());
    let sensor = daemon.sensor();
    // The driver was replaced: what is mapped already fails for good.
    stage.play(&state(2, 42));
    becomes(&json!(42), || stage.list()["gpus"][0]["temp_c"].clone());
    assert_ne!(daemon.sensor(), sensor);
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_gpu_that_was_lost_before_the_daemon_came_has_the_name_that_the_kernel_driver_has() {
    let stage = Stage::new();
    let procfs = with_driver(&stage);
    stage.play(&json!({"gpus": [
        {"uuid": "GPU-a", "pci": "00000000:1B:00.0"},
        {"uuid": "GPU-z", "pci": "00000000:1C:00.0", "lost": true},
    ]}));
    let daemon = start(&stage, &procfs);
    let expected = vec![
        json!([0, "GPU-a", "ok"]),
        json!([1, "0000:1c:00.0", "lost"]),
    ];
    becomes(&expected, || states(&stage.list()));
    daemon.stop();
}
