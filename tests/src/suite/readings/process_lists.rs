//! Process lists in unusual forms.

use gpukill_tests::harness::{TestBox, eventually_equals};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// The pid, memory and use of each process.
fn processes(test_box: &TestBox) -> Vec<Value> {
    let list = test_box.list();
    let processes = list["procs"].as_array().unwrap();
    processes
        .iter()
        .map(|it| json!([it["pid"], it["used_mem_bytes"], it["used_for"]]))
        .collect()
}

#[test]
fn longer_driver_records_are_read() {
    let test_box = TestBox::new();
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
    test_box.set_driver_state(&state(24));
    let daemon = test_box.start();
    eventually_equals(&expected, || processes(&test_box));
    daemon.stop();
    // From the first poll on: a wrong pid must never be shown.
    test_box.set_driver_state(&state(32));
    let daemon = test_box.start();
    let mut seen = Vec::new();
    eventually_equals(&expected, || {
        let now = processes(&test_box);
        seen.extend(now.iter().map(|row| row[0].as_u64().unwrap()));
        now
    });
    assert!(
        seen.iter().all(|pid| (5_000_001..=5_000_005).contains(pid)),
        "{seen:?}"
    );
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn driver_before_r450_lists_processes() {
    let test_box = TestBox::new();
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
    test_box.older_library(&missing);
    test_box.set_driver_state(&json!({"driver": "440.118.02", "gpus": [{"processes": [
        {"pid": 5_000_001, "memory": 11 * MIB},
        {"pid": 5_000_002, "memory": 12 * MIB, "kind": "both"},
        {"pid": 5_000_003, "memory": null, "kind": "graphics"},
    ]}]}));
    let daemon = test_box.start();
    let expected = vec![
        json!([5_000_001, 11 * MIB, ["compute"]]),
        json!([5_000_002, 12 * MIB, ["compute", "graphics"]]),
        json!([5_000_003, null, ["graphics"]]),
    ];
    eventually_equals(&expected, || processes(&test_box));
    assert_eq!(test_box.list()["gpus"][0]["pids"], 3);
    assert_eq!(test_box.faults(), []);
    let table = test_box.table(&["list", "--details"]);
    for pid in ["5000001", "5000002", "5000003"] {
        assert!(table.contains(pid), "{table}");
    }
    // Its events are received too.
    test_box.set_driver_state(&json!({
        "driver": "440.118.02", "gpus": [{}],
        "events": [{"id": 1, "gpu": 0, "type": 8, "data": 79}],
    }));
    eventually_equals(&json!(79), || {
        test_box.list()["gpus"][0]["last_xid"]["xid"].clone()
    });
    daemon.stop();
}

#[test]
fn growing_list_is_read_endless_growth_is_a_fault() {
    let test_box = TestBox::new();
    let grows = |times: i32| json!({"gpus": [{"grow": times, "processes": [{"pid": 5_000_001, "memory": MIB}]}, {}]});
    test_box.set_driver_state(&grows(2));
    let daemon = test_box.start();
    let expected = vec![json!([5_000_001, MIB, ["compute"]])];
    eventually_equals(&expected, || processes(&test_box));
    assert_eq!(test_box.faults(), []);
    test_box.set_driver_state(&grows(-1));
    let fault = "processes: the list grows faster than it can be read".to_owned();
    eventually_equals(&vec![("GPU 0".to_owned(), fault)], || test_box.faults());
    let gpus = test_box.list()["gpus"].clone();
    assert_eq!(
        (&gpus[0]["pids"], &gpus[1]["pids"]),
        (&Value::Null, &json!(0))
    );
    test_box.set_driver_state(&grows(0));
    eventually_equals(&expected, || processes(&test_box));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn impossible_utilization_is_rejected() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{
        "processes": [
            {"pid": 5_000_001, "memory": MIB, "sm": 30, "mem_util": 20, "enc": 4, "dec": 5},
            {"pid": 5_000_002, "memory": MIB},
        ],
        "samples": [
            {"pid": 5_000_002, "sm": 4000, "mem": 7, "enc": 0, "dec": 0, "age_us": 0},
            {"pid": 6_000_000, "sm": 99, "mem": 99, "enc": 0, "dec": 0, "age_us": 0},
        ],
    }]}));
    let daemon = test_box.start();
    let shares = || -> Vec<Value> {
        let list = test_box.list();
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
    eventually_equals(&expected, shares);
    daemon.stop();
}

#[test]
fn last_use_is_kept_while_idle() {
    let test_box = TestBox::new();
    let state = |sm: Option<u32>, known: bool| {
        json!({"gpus": [{
            "process_utilization": known,
            "processes": [{"pid": std::process::id(), "memory": MIB, "sm": sm}],
        }]})
    };
    let process = || test_box.list()["procs"][0].clone();
    let used = || {
        let process = process();
        let why = process["reasons"]["last_active_at"].clone();
        (
            process["util_pct"].clone(),
            process["last_active_at"].is_string(),
            why,
        )
    };
    test_box.set_driver_state(&state(None, true));
    let daemon = test_box.start();
    eventually_equals(&(json!(0), false, Value::Null), used);
    test_box.set_driver_state(&state(Some(40), true));
    eventually_equals(&(json!(40), true, Value::Null), used);
    test_box.set_driver_state(&state(None, true));
    eventually_equals(&(json!(0), true, Value::Null), used);
    let last = process()["last_active_at"].clone();
    eventually_equals(&true, || process()["util_pct"] == 0);
    assert_eq!(process()["last_active_at"], last);
    // Unknown is not idle.
    test_box.set_driver_state(&state(None, false));
    eventually_equals(&(Value::Null, false, json!("unsupported")), used);
    daemon.stop();
}
