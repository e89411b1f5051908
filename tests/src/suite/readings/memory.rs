//! The ways in which drivers tell a GPU's memory.

use gpukill_tests::harness::{Stage, becomes};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// Total, used, reserved and unattributed bytes, and whether it is the host's.
fn memory(stage: &Stage) -> Vec<Value> {
    let gpu = stage.list()["gpus"][0].clone();
    let names = [
        "mem_total_bytes",
        "mem_used_bytes",
        "mem_reserved_bytes",
        "mem_unattributed_bytes",
        "mem_unified",
    ];
    names.map(|name| gpu[name].clone()).to_vec()
}

fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

#[test]
fn what_the_driver_reserves_is_no_bodys_memory_and_an_older_driver_cannot_tell_it() {
    let gpu = |v1_only: bool| {
        json!({"gpus": [{
            "memory": {"total": 80 * GIB, "reserved": GIB, "used": 20 * GIB, "v1_only": v1_only},
            "processes": [{"pid": 5_000_000, "memory": 20 * GIB}],
        }]})
    };
    let stage = Stage::new();
    stage.play(&gpu(false));
    let daemon = stage.start();
    let newer = json!([80 * GIB, 20 * GIB, GIB, 0, false]);
    becomes(newer.as_array().unwrap(), || memory(&stage));
    // Before R510, what is used has the reserved in it: nothing can be said of a
    // rest, and nobody is blamed for it.
    stage.play(&gpu(true));
    let older = json!([80 * GIB, 21 * GIB, null, null, false]);
    becomes(older.as_array().unwrap(), || memory(&stage));
    let reasons = &stage.list()["gpus"][0]["reasons"];
    assert_eq!(reasons["mem_reserved_bytes"], "unsupported");
    assert_eq!(reasons["mem_unattributed_bytes"], "unsupported");
    assert_eq!(stage.faults(), []);
    daemon.stop();

    // The same where the newer call does not exist at all.
    let stage = Stage::new();
    stage.older_library(&["nvmlDeviceGetMemoryInfo_v2"]);
    stage.play(&gpu(true));
    let daemon = stage.start();
    becomes(older.as_array().unwrap(), || memory(&stage));
    daemon.stop();
}

#[test]
fn a_gpu_that_shares_the_hosts_memory_has_its_size_and_holds_what_its_processes_hold() {
    // Some driver builds say "not supported" and some "0 bytes".
    for memory_of_gpu in [Value::Null, json!({"total": 0})] {
        let stage = Stage::new();
        let gpu = |second: Option<u64>| {
            json!({"gpus": [{
                "name": "NVIDIA GB10", "memory": memory_of_gpu,
                "processes": [
                    {"pid": 5_000_000, "memory": 3 * GIB}, {"pid": 5_000_001, "memory": second},
                ],
            }]})
        };
        stage.play(&gpu(Some(GIB)));
        let daemon = stage.start();
        let shared = json!([host_memory(), 4 * GIB, null, null, true]);
        becomes(shared.as_array().unwrap(), || memory(&stage));
        assert!(stage.table(&["list"]).contains("GB10 (unified)"));
        // With a part unknown, so is the sum.
        stage.play(&gpu(None));
        let unknown = json!([host_memory(), null, null, null, true]);
        becomes(unknown.as_array().unwrap(), || memory(&stage));
        assert_eq!(stage.faults(), []);
        daemon.stop();
    }
}

#[test]
fn a_gpu_whose_memory_is_not_told_has_the_hosts_only_where_its_product_shares_it() {
    let stage = Stage::new();
    let gpu = |name: &str, errors: &Value| {
        json!({
            "name": name, "memory": null, "errors": errors,
            "processes": [{"pid": 5_000_000, "memory": 4 * GIB}],
        })
    };
    let not_supported = json!({});
    stage.play(&json!({"gpus": [
        gpu("NVIDIA GeForce RTX 4090", &not_supported),
        gpu("NVIDIA GB10", &not_supported),
        gpu("Orin (nvgpu)", &not_supported),
        // A product that shares it, and a driver that fails.
        gpu("NVIDIA GB10", &json!({"nvmlDeviceGetMemoryInfo_v2": 999})),
    ]}));
    let daemon = stage.start();
    let shown = || -> Vec<Value> {
        let list = stage.list();
        let gpus = list["gpus"].as_array().unwrap().iter();
        gpus.map(|gpu| {
            json!([
                gpu["mem_total_bytes"],
                gpu["mem_used_bytes"],
                gpu["mem_unified"]
            ])
        })
        .collect()
    };
    let expected = vec![
        json!([null, null, false]),
        json!([host_memory(), 4 * GIB, true]),
        json!([host_memory(), 4 * GIB, true]),
        json!([null, null, true]),
    ];
    becomes(&expected, shown);
    let table = stage.table(&["list"]);
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains(" n/a ") && !row.contains("unified"), "{row}");
    assert!(table.contains("GB10 (unified)"), "{table}");
    daemon.stop();
}

#[test]
fn a_gpu_that_does_not_answer_is_not_taken_for_one_without_memory() {
    let stage = Stage::new();
    for (newer, older) in [(15, 15), (999, 999), (3, 999), (25, 999)] {
        stage.play(&json!({"gpus": [{"errors": {
            "nvmlDeviceGetMemoryInfo_v2": newer, "nvmlDeviceGetMemoryInfo": older,
        }}]}));
        let daemon = stage.start();
        becomes(&json!([null, null, null, null, false]), || {
            memory(&stage).into()
        });
        daemon.stop();
    }
}

#[test]
fn no_process_is_believed_to_hold_more_than_its_gpu_has_though_the_rest_is_not_known() {
    let stage = Stage::new();
    let gpu = |used: u64, held: u64, errors: Value| {
        json!({"gpus": [{
            "memory": {"total": 80 * GIB, "used": used}, "errors": errors,
            "processes": [{"pid": 5_000_000, "memory": held}],
        }]})
    };
    let shown = || {
        let list = stage.list();
        let process = &list["procs"][0];
        let card = &list["gpus"][0];
        json!([
            card["mem_used_bytes"],
            process["used_mem_bytes"],
            process["reasons"]["used_mem_bytes"]
        ])
    };
    let impossible = "failed: the driver reports an impossible value: 90112 MiB of 81920 MiB";
    let unknown = json!([null, null, impossible]);
    let is_told = || {
        let mut faults = stage.faults().into_iter();
        faults.any(|(part, what)| part == "GPU 0" && what.starts_with("memory of a process: "))
    };
    // What is used cannot be either.
    stage.play(&gpu(88 * GIB, 88 * GIB, json!({})));
    let daemon = stage.start();
    becomes(&unknown, shown);
    becomes(&true, is_told);
    stage.play(&gpu(20 * GIB, 20 * GIB, json!({})));
    becomes(&json!([20 * GIB, 20 * GIB, null]), shown);
    becomes(&false, is_told);
    // Nothing is told of the memory any more: it is as large as it was.
    stage.play(&gpu(
        88 * GIB,
        88 * GIB,
        json!({"nvmlDeviceGetMemoryInfo_v2": 999}),
    ));
    becomes(&unknown, shown);
    becomes(&true, is_told);
    daemon.stop();
}
