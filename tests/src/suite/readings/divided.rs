//! GPUs that are divided into instances (MIG).

use gpukill_tests::harness::{Stage, becomes, wrong};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// An H100 of two GPU instances; the first has two compute instances.
fn divided(more: &Value) -> Value {
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
            // One program may use several.
            {"pid": 5_000_003, "memory": GIB, "gpu_instance": 2, "compute_instance": 0},
        ],
    });
    let all = gpu.as_object_mut().unwrap();
    all.extend(more.as_object().unwrap().clone());
    json!({"gpus": [gpu, {}]})
}

fn instances(stage: &Stage) -> Vec<Value> {
    let list = stage.list();
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

fn processes(stage: &Stage) -> Vec<Value> {
    let list = stage.list();
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
fn instances_have_memory_and_processes_of_their_own_and_all_is_counted_once() {
    let stage = Stage::new();
    stage.play(&divided(&json!({})));
    let daemon = stage.start();
    let expected = vec![
        json!([2, 0, "MIG-a", 40 * GIB, 20 * GIB, 2]),
        json!([2, 1, "MIG-b", 40 * GIB, 20 * GIB, 1]),
        json!([9, 0, "MIG-c", 10 * GIB, 5 * GIB, 1]),
    ];
    becomes(&expected, || instances(&stage));
    assert_eq!(processes(&stage), expected_processes());
    let gpu = stage.list()["gpus"][0].clone();
    assert_eq!(gpu["instances"][0]["profile"], "3g.40gb");
    assert_eq!(gpu["mig_mode"], true);
    assert_eq!(gpu["mem_used_bytes"], 31 * GIB);
    // 31 GiB less 25 of processes, each once.
    assert_eq!(gpu["mem_unattributed_bytes"], 6 * GIB);
    // A divided GPU has no utilisation: unknown, and not idle.
    assert_eq!(gpu["reasons"]["util_pct"], "unsupported");
    let process = &stage.list()["procs"][0];
    assert_eq!(process["reasons"]["util_pct"], "unsupported");
    assert_eq!(wrong(&gpu), json!({}));
    becomes(&Vec::new(), || stage.faults());
    daemon.stop();
}

#[test]
fn where_the_parts_may_not_be_asked_the_whole_tells_and_the_other_way_round() {
    let stage = Stage::new();
    // One of both needs a right that the sensor does not have.
    stage.play(&divided(&json!({"mig_parent_lists": 4})));
    let daemon = stage.start();
    becomes(&expected_processes(), || processes(&stage));
    assert_eq!(stage.faults(), []);
    let mut another = expected_processes();
    another[0][0] = json!(5_000_000);
    let state = divided(&json!({"mig_instance_lists": 4}));
    let state = state.to_string().replace("5000001", "5000000");
    stage.play(&serde_json::from_str(&state).unwrap());
    becomes(&another, || processes(&stage));
    assert_eq!(stage.faults(), []);

    // Neither tells: unknown, and not none.
    stage.play(&divided(
        &json!({"mig_parent_lists": 4, "mig_instance_lists": 4}),
    ));
    becomes(&Value::Null, || stage.list()["gpus"][0]["pids"].clone());
    daemon.stop();
}

#[test]
fn instances_that_are_made_anew_are_seen_at_the_next_poll() {
    let stage = Stage::new();
    stage.play(&divided(&json!({})));
    let daemon = stage.start();
    becomes(&3, || instances(&stage).len());
    let one = json!([{
        "index": 0, "gpu_instance": 7, "compute_instance": 0, "uuid": "MIG-d",
        "memory": {"total": 10 * GIB, "used": GIB},
    }]);
    let process = json!([
        {"pid": 5_000_009, "memory": GIB, "gpu_instance": 7, "compute_instance": 0},
    ]);
    stage.play(&divided(&json!({"instances": one, "processes": process})));
    let expected = vec![json!([7, 0, "MIG-d", 10 * GIB, GIB, 1])];
    becomes(&expected, || instances(&stage));
    assert_eq!(processes(&stage), [json!([5_000_009, 7, 0, GIB])]);
    // Divided into nothing yet.
    stage.play(&divided(&json!({"instances": [], "processes": []})));
    becomes(&Vec::new(), || instances(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn parts_that_cannot_be_listed_leave_processes_to_the_whole_and_else_unknown() {
    let fails = |code: u32| ("nvmlDeviceGetMigDeviceHandleByIndex", code);
    let faults = |what: &[&str]| -> Vec<(String, String)> {
        let why = "NVML reports an unknown error (999)";
        let what = what.iter().map(|what| format!("{what}: {why}"));
        what.map(|what| ("GPU 0".to_owned(), what)).collect()
    };
    let stage = Stage::new();
    for (function, code) in [fails(999), ("nvmlDeviceGetMaxMigDeviceCount", 999)] {
        stage.play(&divided(&json!({"errors": {function: code}})));
        let daemon = stage.start();
        becomes(&faults(&["instances"]), || stage.faults());
        assert_eq!(instances(&stage), Vec::<Value>::new());
        becomes(&expected_processes(), || processes(&stage));
        daemon.stop();
    }
    // Neither tells: unknown, and not none.
    let (function, code) = fails(999);
    stage.play(&divided(
        &json!({"errors": {function: code}, "mig_parent_lists": 4}),
    ));
    let daemon = stage.start();
    becomes(&faults(&["instances", "processes"]), || stage.faults());
    assert_eq!(stage.list()["gpus"][0]["pids"], Value::Null);
    daemon.stop();
}

#[test]
fn one_part_that_fails_takes_no_process_and_no_other_part_with_it() {
    let stage = Stage::new();
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
        let mut state = divided(&json!({}));
        state["gpus"][0]["instances"][1]["errors"] = json!({function: 999});
        stage.play(&state);
        let daemon = stage.start();
        becomes(&others, || instances(&stage));
        // The whole names the instance of each process itself; nothing is made up.
        assert_eq!(processes(&stage), expected_processes());
        let what = "instances: NVML reports an unknown error (999)".to_owned();
        assert_eq!(stage.faults(), [("GPU 0".to_owned(), what.clone())]);
        let status = stage.ctl(&["status"]).stdout;
        assert!(status.lines().any(|line| line.ends_with(&what)), "{status}");
        let details = stage.table(&["list", "--details"]);
        assert!(details.contains("5000002"), "{details}");
        daemon.stop();
    }
    // The list of one part alone fails: all parts are there.
    let mut state = divided(&json!({}));
    let list = "nvmlDeviceGetComputeRunningProcesses_v3";
    state["gpus"][0]["instances"][1]["errors"] = json!({list: 999});
    stage.play(&state);
    let daemon = stage.start();
    becomes(&3, || instances(&stage).len());
    assert_eq!(processes(&stage), expected_processes());
    assert_eq!(stage.faults(), []);
    daemon.stop();
}
