//! GPUs that are divided into instances (MIG).

use gpukill_tests::harness::{TestBox, eventually_equals, failed_readings};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// An H100 with two GPU instances; the first has two compute instances.
fn mig_gpu(more: &Value) -> Value {
    let mut gpu = json!({
        "mig": true,
        "memory": {"total": 80 * GIB, "reserved": GIB, "used": 31 * GIB},
        "instances": [
            {
                "index": 0, "gpu_instance": 2, "compute_instance": 0, "uuid": "MIG-a",
                "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
                "memory": {"total": 40 * GIB, "used": 20 * GIB},
            },
            {"index": 1, "gpu_instance": 2, "compute_instance": 1, "uuid": "MIG-b"},
            {
                "index": 4, "gpu_instance": 9, "compute_instance": 0, "uuid": "MIG-c",
                "memory": {"total": 10 * GIB, "used": 5 * GIB},
            },
        ],
        "processes": [
            {"pid": 5_000_001, "memory": 15 * GIB, "gpu_instance": 2, "compute_instance": 0},
            {"pid": 5_000_002, "memory": 5 * GIB, "gpu_instance": 2, "compute_instance": 1},
            {"pid": 5_000_003, "memory": 4 * GIB, "gpu_instance": 9, "compute_instance": 0},
            // One program may use several instances.
            {"pid": 5_000_003, "memory": GIB, "gpu_instance": 2, "compute_instance": 0},
        ],
    });
    let all = gpu.as_object_mut().unwrap();
    all.extend(more.as_object().unwrap().clone());
    json!({"gpus": [gpu, {}]})
}

fn instances(test_box: &TestBox) -> Vec<Value> {
    let list = test_box.list();
    let parts = list["gpus"][0]["instances"].as_array().unwrap();
    let part = |it: &Value| {
        json!([
            it["gpu_instance"],
            it["compute_instance"],
            it["uuid"],
            it["mem_total_bytes"],
            it["mem_used_bytes"],
            it["pids"],
        ])
    };
    parts.iter().map(part).collect()
}

fn processes(test_box: &TestBox) -> Vec<Value> {
    let list = test_box.list();
    let processes = list["procs"].as_array().unwrap();
    let process = |it: &Value| {
        json!([
            it["pid"],
            it["gpu_instance"],
            it["compute_instance"],
            it["used_mem_bytes"]
        ])
    };
    processes.iter().map(process).collect()
}

fn expected_processes() -> Vec<Value> {
    vec![
        json!([5_000_001, 2, 0, 15 * GIB]),
        json!([5_000_002, 2, 1, 5 * GIB]),
        json!([5_000_003, 2, 0, GIB]),
        json!([5_000_003, 9, 0, 4 * GIB]),
    ]
}

#[test]
fn instances_have_own_memory_and_processes() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&mig_gpu(&json!({})));
    let daemon = test_box.start();
    let expected = vec![
        json!([2, 0, "MIG-a", 40 * GIB, 20 * GIB, 2]),
        json!([2, 1, "MIG-b", 40 * GIB, 20 * GIB, 1]),
        json!([9, 0, "MIG-c", 10 * GIB, 5 * GIB, 1]),
    ];
    eventually_equals(&expected, || instances(&test_box));
    assert_eq!(processes(&test_box), expected_processes());
    let gpu = test_box.list()["gpus"][0].clone();
    assert_eq!(gpu["instances"][0]["profile"], "3g.40gb");
    assert_eq!(gpu["mig_mode"], true);
    assert_eq!(gpu["mem_used_bytes"], 31 * GIB);
    // 31 GiB used, minus 25 GiB of the processes, each counted once.
    assert_eq!(gpu["mem_unattributed_bytes"], 6 * GIB);
    // A divided GPU has no utilization: it is unknown, and not idle.
    assert_eq!(gpu["reasons"]["util_pct"], "unsupported");
    let process = &test_box.list()["procs"][0];
    assert_eq!(process["reasons"]["util_pct"], "unsupported");
    assert_eq!(failed_readings(&gpu), json!({}));
    eventually_equals(&Vec::new(), || test_box.faults());
    daemon.stop();
}

#[test]
fn instance_and_parent_lists_complement_each_other() {
    let test_box = TestBox::new();
    // One of the two lists needs a privilege that the sensor does not have.
    test_box.set_driver_state(&mig_gpu(&json!({"mig_parent_lists": 4})));
    let daemon = test_box.start();
    eventually_equals(&expected_processes(), || processes(&test_box));
    assert_eq!(test_box.faults(), []);
    let mut another = expected_processes();
    another[0][0] = json!(5_000_000);
    let state = mig_gpu(&json!({"mig_instance_lists": 4}));
    let state = state.to_string().replace("5000001", "5000000");
    test_box.set_driver_state(&serde_json::from_str(&state).unwrap());
    eventually_equals(&another, || processes(&test_box));
    assert_eq!(test_box.faults(), []);

    // Both lists are missing: the processes are unknown, which is not the same as none.
    test_box.set_driver_state(&mig_gpu(
        &json!({"mig_parent_lists": 4, "mig_instance_lists": 4}),
    ));
    eventually_equals(&Value::Null, || test_box.list()["gpus"][0]["pids"].clone());
    daemon.stop();
}

#[test]
fn recreated_instances_appear_at_next_poll() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&mig_gpu(&json!({})));
    let daemon = test_box.start();
    eventually_equals(&3, || instances(&test_box).len());
    let one = json!([{
        "index": 0, "gpu_instance": 7, "compute_instance": 0, "uuid": "MIG-d",
        "memory": {"total": 10 * GIB, "used": GIB},
    }]);
    let process = json!([
        {"pid": 5_000_009, "memory": GIB, "gpu_instance": 7, "compute_instance": 0},
    ]);
    test_box.set_driver_state(&mig_gpu(&json!({"instances": one, "processes": process})));
    let expected = vec![json!([7, 0, "MIG-d", 10 * GIB, GIB, 1])];
    eventually_equals(&expected, || instances(&test_box));
    assert_eq!(processes(&test_box), [json!([5_000_009, 7, 0, GIB])]);
    // MIG mode without instances.
    test_box.set_driver_state(&mig_gpu(&json!({"instances": [], "processes": []})));
    eventually_equals(&Vec::new(), || instances(&test_box));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn unlisted_instances_leave_processes_to_parent() {
    let fails = |code: u32| ("nvmlDeviceGetMigDeviceHandleByIndex", code);
    let faults = |what: &[&str]| -> Vec<(String, String)> {
        let why = "NVML reports an unknown error (999)";
        let what = what.iter().map(|what| format!("{what}: {why}"));
        what.map(|what| ("GPU 0".to_owned(), what)).collect()
    };
    let test_box = TestBox::new();
    for (function, code) in [fails(999), ("nvmlDeviceGetMaxMigDeviceCount", 999)] {
        test_box.set_driver_state(&mig_gpu(&json!({"errors": {function: code}})));
        let daemon = test_box.start();
        eventually_equals(&faults(&["instances"]), || test_box.faults());
        assert_eq!(instances(&test_box), Vec::<Value>::new());
        eventually_equals(&expected_processes(), || processes(&test_box));
        daemon.stop();
    }
    // Both lists are missing: the processes are unknown, which is not the same as none.
    let (function, code) = fails(999);
    test_box.set_driver_state(&mig_gpu(
        &json!({"errors": {function: code}, "mig_parent_lists": 4}),
    ));
    let daemon = test_box.start();
    eventually_equals(&faults(&["instances", "processes"]), || test_box.faults());
    assert_eq!(test_box.list()["gpus"][0]["pids"], Value::Null);
    daemon.stop();
}

#[test]
fn failing_instance_affects_no_other() {
    let test_box = TestBox::new();
    let others = vec![
        json!([2, 0, "MIG-a", 40 * GIB, 20 * GIB, 2]),
        json!([9, 0, "MIG-c", 10 * GIB, 5 * GIB, 1]),
    ];
    for function in [
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ] {
        let mut state = mig_gpu(&json!({}));
        state["gpus"][0]["instances"][1]["errors"] = json!({function: 999});
        test_box.set_driver_state(&state);
        let daemon = test_box.start();
        eventually_equals(&others, || instances(&test_box));
        // The list of the parent names the instance of each process; no values are made up.
        assert_eq!(processes(&test_box), expected_processes());
        let what = "instances: NVML reports an unknown error (999)".to_owned();
        assert_eq!(test_box.faults(), [("GPU 0".to_owned(), what.clone())]);
        let status = test_box.ctl(&["status"]).stdout;
        assert!(status.lines().any(|line| line.ends_with(&what)), "{status}");
        let details = test_box.table(&["list", "--details"]);
        assert!(details.contains("5000002"), "{details}");
        daemon.stop();
    }
    // Only the process list of one instance fails: all instances are there.
    let mut state = mig_gpu(&json!({}));
    let list = "nvmlDeviceGetComputeRunningProcesses_v3";
    state["gpus"][0]["instances"][1]["errors"] = json!({list: 999});
    test_box.set_driver_state(&state);
    let daemon = test_box.start();
    eventually_equals(&3, || instances(&test_box).len());
    assert_eq!(processes(&test_box), expected_processes());
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}
