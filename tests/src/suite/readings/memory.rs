//! The different ways in which drivers report the memory of a GPU.

use gpukill_tests::harness::{TestBox, eventually_equals};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// Total, used, reserved and unattributed bytes, and whether the memory is the host's.
fn memory(test_box: &TestBox) -> Vec<Value> {
    let gpu = test_box.list()["gpus"][0].clone();
    let names = [
        "mem_total_bytes",
        "mem_used_bytes",
        "mem_reserved_bytes",
        "mem_unattributed_bytes",
        "mem_unified",
    ];
    names.map(|name| gpu[name].clone()).to_vec()
}

fn host_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

#[test]
fn reserved_memory_is_not_unattributed() {
    let gpu = |v1_only: bool| {
        json!({"gpus": [{
            "memory": {"total": 80 * GIB, "reserved": GIB, "used": 20 * GIB, "v1_only": v1_only},
            "processes": [{"pid": 5_000_000, "memory": 20 * GIB}],
        }]})
    };
    let test_box = TestBox::new();
    test_box.set_driver_state(&gpu(false));
    let daemon = test_box.start();
    let newer = json!([80 * GIB, 20 * GIB, GIB, 0, false]);
    eventually_equals(newer.as_array().unwrap(), || memory(&test_box));
    // Before R510 the used memory includes the reserved memory: the unattributed memory is
    // unknown, and no process is blamed for it.
    test_box.set_driver_state(&gpu(true));
    let older = json!([80 * GIB, 21 * GIB, null, null, false]);
    eventually_equals(older.as_array().unwrap(), || memory(&test_box));
    let reasons = &test_box.list()["gpus"][0]["reasons"];
    assert_eq!(reasons["mem_reserved_bytes"], "unsupported");
    assert_eq!(reasons["mem_unattributed_bytes"], "unsupported");
    assert_eq!(test_box.faults(), []);
    daemon.stop();

    // The same where the newer call does not exist.
    let test_box = TestBox::new();
    test_box.older_library(&["nvmlDeviceGetMemoryInfo_v2"]);
    test_box.set_driver_state(&gpu(true));
    let daemon = test_box.start();
    eventually_equals(older.as_array().unwrap(), || memory(&test_box));
    daemon.stop();
}

#[test]
fn unified_memory_is_that_of_its_processes() {
    // Some driver builds report "not supported" and some 0 bytes.
    for memory_of_gpu in [Value::Null, json!({"total": 0})] {
        let test_box = TestBox::new();
        let gpu = |second: Option<u64>| {
            json!({"gpus": [{
                "name": "NVIDIA GB10", "memory": memory_of_gpu,
                "processes": [
                    {"pid": 5_000_000, "memory": 3 * GIB}, {"pid": 5_000_001, "memory": second},
                ],
            }]})
        };
        test_box.set_driver_state(&gpu(Some(GIB)));
        let daemon = test_box.start();
        let shared = json!([host_memory_bytes(), 4 * GIB, null, null, true]);
        eventually_equals(shared.as_array().unwrap(), || memory(&test_box));
        assert!(test_box.table(&["list"]).contains("GB10 (unified)"));
        // If one part is unknown, the sum is unknown.
        test_box.set_driver_state(&gpu(None));
        let unknown = json!([host_memory_bytes(), null, null, null, true]);
        eventually_equals(unknown.as_array().unwrap(), || memory(&test_box));
        assert_eq!(test_box.faults(), []);
        daemon.stop();
    }
}

#[test]
fn unified_memory_depends_on_the_product() {
    let test_box = TestBox::new();
    let gpu = |name: &str, errors: &Value| {
        json!({
            "name": name, "memory": null, "errors": errors,
            "processes": [{"pid": 5_000_000, "memory": 4 * GIB}],
        })
    };
    let not_supported = json!({});
    test_box.set_driver_state(&json!({"gpus": [
        gpu("NVIDIA GeForce RTX 4090", &not_supported),
        gpu("NVIDIA GB10", &not_supported),
        gpu("Orin (nvgpu)", &not_supported),
        // A product with unified memory, and a driver that fails.
        gpu("NVIDIA GB10", &json!({"nvmlDeviceGetMemoryInfo_v2": 999})),
    ]}));
    let daemon = test_box.start();
    let shown = || -> Vec<Value> {
        let list = test_box.list();
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
        json!([host_memory_bytes(), 4 * GIB, true]),
        json!([host_memory_bytes(), 4 * GIB, true]),
        json!([null, null, true]),
    ];
    eventually_equals(&expected, shown);
    let table = test_box.table(&["list"]);
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains(" n/a ") && !row.contains("unified"), "{row}");
    assert!(table.contains("GB10 (unified)"), "{table}");
    daemon.stop();
}

#[test]
fn silent_gpu_is_not_without_memory() {
    let test_box = TestBox::new();
    for (newer, older) in [(15, 15), (999, 999), (3, 999), (25, 999)] {
        test_box.set_driver_state(&json!({"gpus": [{"errors": {
            "nvmlDeviceGetMemoryInfo_v2": newer, "nvmlDeviceGetMemoryInfo": older,
        }}]}));
        let daemon = test_box.start();
        eventually_equals(&json!([null, null, null, null, false]), || {
            memory(&test_box).into()
        });
        daemon.stop();
    }
}

#[test]
fn process_memory_is_bounded_by_gpu_memory() {
    let test_box = TestBox::new();
    let gpu = |used: u64, held: u64, errors: Value| {
        json!({"gpus": [{
            "memory": {"total": 80 * GIB, "used": used}, "errors": errors,
            "processes": [{"pid": 5_000_000, "memory": held}],
        }]})
    };
    let shown = || {
        let list = test_box.list();
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
    let is_reported = || {
        let mut faults = test_box.faults().into_iter();
        faults.any(|(part, what)| part == "GPU 0" && what.starts_with("memory of a process: "))
    };
    // The used memory is impossible too.
    test_box.set_driver_state(&gpu(88 * GIB, 88 * GIB, json!({})));
    let daemon = test_box.start();
    eventually_equals(&unknown, shown);
    eventually_equals(&true, is_reported);
    test_box.set_driver_state(&gpu(20 * GIB, 20 * GIB, json!({})));
    eventually_equals(&json!([20 * GIB, 20 * GIB, null]), shown);
    eventually_equals(&false, is_reported);
    // The memory is not reported any more: its total stays the last known one.
    test_box.set_driver_state(&gpu(
        88 * GIB,
        88 * GIB,
        json!({"nvmlDeviceGetMemoryInfo_v2": 999}),
    ));
    eventually_equals(&unknown, shown);
    eventually_equals(&true, is_reported);
    daemon.stop();
}
