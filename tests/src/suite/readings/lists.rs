//! Lists of processes that are hard to read.

use gpukill_tests::harness::{Stage, becomes};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// The pid, memory and kind of use of each process.
fn processes(stage: &Stage) -> Vec<Value> {
    let list = stage.list();
    let processes = list["procs"].as_array().unwrap();
    processes
        .iter()
        .map(|it| json!([it["pid"], it["used_mem_bytes"], it["used_for"]]))
        .collect()
}

#[test]
fn drivers_that_write_longer_records_name_the_same_processes() {
    let stage = Stage::new();
    let state = |record: u32| {
        json!({"process_record": record, "gpus": [{"processes": [
            {"pid": 5_000_001, "memory": 11 * MIB, "protected_memory": 7},
            {"pid": 5_000_002, "memory": 12 * MIB, "kind": "both"},
            {"pid": 5_000_003, "memory": null, "kind": "graphics"},
            {"pid": 5_000_004, "memory": 14 * MIB, "kind": "mps"},
            {"pid": 5_000_005, "memory": 15 * MIB},
        ]}]})
    };
    let expected = vec![
        json!([5_000_001, 11 * MIB, ["compute"]]),
        json!([5_000_002, 12 * MIB, ["compute", "graphics"]]),
        json!([5_000_003, null, ["graphics"]]),
        json!([5_000_004, 14 * MIB, ["mps"]]),
        json!([5_000_005, 15 * MIB, ["compute"]]),
    ];
    stage.play(&state(24));
    let daemon = stage.start();
    becomes(&expected, || processes(&stage));
    daemon.stop();
    // From its first poll on: nobody may ever see a wrong pid.
    stage.play(&state(32));
    let daemon = stage.start();
    let mut seen = Vec::new();
    becomes(&expected, || {
        let now = processes(&stage);
        seen.extend(now.iter().map(|row| row[0].as_u64().unwrap()));
        now
    });
    assert!(
        seen.iter().all(|pid| (5_000_001..=5_000_005).contains(pid)),
        "{seen:?}"
    );
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_driver_before_r450_names_its_processes() {
    let stage = Stage::new();
    let lists = ["Compute", "Graphics", "MPSCompute"];
    let missing = lists.map(|list| {
        [2, 3].map(|version| format!("nvmlDeviceGet{list}RunningProcesses_v{version}"))
    });
    let mut missing: Vec<&str> = missing.iter().flatten().map(String::as_str).collect();
    missing.extend([
        "nvmlDeviceGetMPSComputeRunningProcesses",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMigMode",
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
    ]);
    stage.older_library(&missing);
    stage.play(&json!({"driver": "440.118.02", "gpus": [{"processes": [
        {"pid": 5_000_001, "memory": 11 * MIB},
        {"pid": 5_000_002, "memory": 12 * MIB, "kind": "both"},
        {"pid": 5_000_003, "memory": null, "kind": "graphics"},
    ]}]}));
    let daemon = stage.start();
    let expected = vec![
        json!([5_000_001, 11 * MIB, ["compute"]]),
        json!([5_000_002, 12 * MIB, ["compute", "graphics"]]),
        json!([5_000_003, null, ["graphics"]]),
    ];
    becomes(&expected, || processes(&stage));
    assert_eq!(stage.list()["gpus"][0]["pids"], 3);
    assert_eq!(stage.faults(), []);
    let table = stage.table(&["list", "--details"]);
    for pid in ["5000001", "5000002", "5000003"] {
        assert!(table.contains(pid), "{table}");
    }
    // Its events are heard too.
    stage.play(&json!({
        "driver": "440.118.02", "gpus": [{}],
        "events": [{"id": 1, "gpu": 0, "type": 8, "data": 79}],
    }));
    becomes(&json!(79), || {
        stage.list()["gpus"][0]["last_xid"]["xid"].clone()
    });
    daemon.stop();
}

#[test]
fn a_list_that_grows_is_read_and_one_that_never_stops_growing_is_a_fault() {
    let stage = Stage::new();
    let grows = |times: i32| json!({"gpus": [{"grow": times, "processes": [{"pid": 5_000_001, "memory": MIB}]}, {}]});
    stage.play(&grows(2));
    let daemon = stage.start();
    let expected = vec![json!([5_000_001, MIB, ["compute"]])];
    becomes(&expected, || processes(&stage));
    assert_eq!(stage.faults(), []);
    stage.play(&grows(-1));
    let fault = "processes: the list grows faster than it can be read".to_owned();
    becomes(&vec![("GPU 0".to_owned(), fault)], || stage.faults());
    let gpus = stage.list()["gpus"].clone();
    assert_eq!(
        (&gpus[0]["pids"], &gpus[1]["pids"]),
        (&Value::Null, &json!(0))
    );
    stage.play(&grows(0));
    becomes(&expected, || processes(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn utilization_of_nobody_and_of_more_than_all_is_not_believed() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{
        "processes": [
            {"pid": 5_000_001, "memory": MIB, "sm": 30, "mem_util": 20, "enc": 4, "dec": 5},
            {"pid": 5_000_002, "memory": MIB},
        ],
        "samples": [
            {"pid": 5_000_002, "sm": 4000, "mem": 7, "enc": 0, "dec": 0, "age_us": 0},
            {"pid": 6_000_000, "sm": 99, "mem": 99, "enc": 0, "dec": 0, "age_us": 0},
        ],
    }]}));
    let daemon = stage.start();
    let shares = || -> Vec<Value> {
        let list = stage.list();
        let processes = list["procs"].as_array().unwrap();
        let share = |it: &Value| {
            json!([
                it["pid"],
                it["util_pct"],
                it["mem_util_pct"],
                it["encoder_util_pct"],
                it["decoder_util_pct"],
            ])
        };
        processes.iter().map(share).collect()
    };
    let expected = vec![
        json!([5_000_001, 30, 20, 4, 5]),
        json!([5_000_002, null, 7, 0, 0]),
    ];
    becomes(&expected, shares);
    daemon.stop();
}

#[test]
fn when_a_process_last_used_the_gpu_is_kept_while_it_is_idle() {
    let stage = Stage::new();
    let state = |sm: Option<u32>, known: bool| {
        json!({"gpus": [{
            "process_utilization": known,
            "processes": [{"pid": std::process::id(), "memory": MIB, "sm": sm}],
        }]})
    };
    let process = || stage.list()["procs"][0].clone();
    let used = || {
        let process = process();
        let why = process["reasons"]["last_active_at"].clone();
        (
            process["util_pct"].clone(),
            process["last_active_at"].is_string(),
            why,
        )
    };
    stage.play(&state(None, true));
    let daemon = stage.start();
    becomes(&(json!(0), false, Value::Null), used);
    stage.play(&state(Some(40), true));
    becomes(&(json!(40), true, Value::Null), used);
    stage.play(&state(None, true));
    becomes(&(json!(0), true, Value::Null), used);
    let last = process()["last_active_at"].clone();
    becomes(&true, || process()["util_pct"] == 0);
    assert_eq!(process()["last_active_at"], last);
    // Not knowing is not being idle.
    stage.play(&state(None, false));
    becomes(&(Value::Null, false, json!("unsupported")), used);
    daemon.stop();
}
