//! Readings of the processes on a GPU.

use gpukill_tests::harness::{TestBox, TestProcess, eventually_equals, failed_readings};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

fn procs(list: &Value, fields: &[&str]) -> Vec<Value> {
    let procs = list["procs"].as_array().unwrap();
    procs
        .iter()
        .map(|process| fields.iter().map(|field| process[*field].clone()).collect())
        .collect()
}

#[test]
fn unknown_process_memory_makes_remainder_unknown() {
    let test_box = TestBox::new();
    let process = TestProcess::start("python");
    let gpu = |memory: Option<u64>| {
        json!({"gpus": [{
            "memory": {"used": 30 * GIB}, "processes": [{"pid": process.pid(), "memory": memory}],
        }]})
    };
    test_box.set_driver_state(&gpu(None));
    let daemon = test_box.start();
    let memory = || {
        let process = &test_box.list()["procs"][0];
        let why = process["reasons"]["used_mem_bytes"].clone();
        (process["used_mem_bytes"].clone(), why)
    };
    eventually_equals(&(Value::Null, json!("unsupported")), memory);
    let gpu_of = |list: Value| {
        let gpu = &list["gpus"][0];
        (
            gpu["mem_used_bytes"].clone(),
            gpu["mem_unattributed_bytes"].clone(),
            failed_readings(gpu),
        )
    };
    let why = json!({"mem_unattributed_bytes": "failed: the memory of a process is not known"});
    eventually_equals(&(json!(30 * GIB), Value::Null, why), || {
        gpu_of(test_box.list())
    });
    // That is no fault, because nothing is broken.
    assert_eq!(test_box.faults(), []);
    assert_eq!(table_column(&test_box, 3), ["MEMORY", "n/a"]);

    test_box.set_driver_state(&gpu(Some(10 * GIB)));
    let known = (json!(30 * GIB), json!(20 * GIB), json!({}));
    eventually_equals(&known, || gpu_of(test_box.list()));
    daemon.stop();
}

/// One column of the process table, its title first.
fn table_column(test_box: &TestBox, column: usize) -> Vec<String> {
    let table = test_box.table(&["list", "--details"]);
    table
        .lines()
        .take_while(|line| !line.is_empty())
        // `ON GPU` is one title.
        .map(|line| line.replace("ON GPU", "ON_GPU"))
        .map(|line| line.split_whitespace().nth(column).unwrap().to_owned())
        .collect()
}

#[test]
fn unattributed_memory_has_row_and_field() {
    let test_box = TestBox::new();
    let process = TestProcess::start("python");
    test_box.set_driver_state(&json!({"gpus": [
        {"memory": {"used": 35 * GIB}},
        {"memory": {"used": 35 * GIB}, "processes": [{"pid": process.pid(), "memory": 30 * GIB}]},
        // Memory of the driver itself: no more than an idle GPU shows.
        {"memory": {"used": GIB / 2}},
    ]}));
    let daemon = test_box.start();
    let unattributed = |list: Value| -> Vec<Value> {
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter()
            .map(|gpu| gpu["mem_unattributed_bytes"].clone())
            .collect()
    };
    eventually_equals(&vec![json!(35 * GIB), json!(5 * GIB), json!(0)], || {
        unattributed(test_box.list())
    });
    let table = test_box.table(&["list", "--details"]);
    let rows: Vec<String> = table
        .lines()
        .filter(|line| line.contains("unattributed") && !line.starts_with("unattributed"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        rows,
        [
            "0 – – 35.0G unattributed: gpukillctl holders --gpu 0",
            "1 – – 5.0G unattributed: gpukillctl holders --gpu 1",
        ]
    );
    daemon.stop();
}

#[test]
fn process_without_sample_is_idle() {
    let test_box = TestBox::new();
    let process = TestProcess::start("python");
    let on = |sm: Option<u32>| json!([{"pid": process.pid(), "memory": GIB, "sm": sm}]);
    test_box.set_driver_state(&json!({"gpus": [
        {"processes": on(Some(97))},
        {"processes": on(None)},
        {"processes": on(None), "process_utilization": false},
        {"processes": on(Some(97)), "errors": {"nvmlDeviceGetProcessUtilization": 999}},
        // Garbage that some drivers report.
        {"processes": on(Some(101))},
    ]}));
    let daemon = test_box.start();
    let expected = vec![
        (json!(97), Value::Null),
        (json!(0), Value::Null),
        (Value::Null, json!("unsupported")),
        (
            Value::Null,
            json!("failed: NVML reports an unknown error (999)"),
        ),
        (
            Value::Null,
            json!("failed: the driver reports an impossible value: 101 %"),
        ),
    ];
    eventually_equals(&expected, || {
        let list = test_box.list();
        let processes = list["procs"].as_array().unwrap();
        let shown = |process: &Value| {
            let why = process["reasons"]["util_pct"].clone();
            (process["util_pct"].clone(), why)
        };
        processes.iter().map(shown).collect()
    });
    assert_eq!(
        table_column(&test_box, 4),
        ["SM", "97%", "0%", "n/a", "?", "?"]
    );
    daemon.stop();
}

#[test]
fn process_in_several_lists_counts_once() {
    let test_box = TestBox::new();
    let [both, graphics, mps] = ["both", "graphics", "mps"].map(TestProcess::start);
    test_box.set_driver_state(
        &json!({"gpus": [{"memory": {"used": 6 * GIB}, "processes": [
            {"pid": both.pid(), "memory": 3 * GIB, "kind": "both"},
            {"pid": graphics.pid(), "memory": 2 * GIB, "kind": "graphics"},
            {"pid": mps.pid(), "memory": GIB, "kind": "mps"},
        ]}]}),
    );
    let daemon = test_box.start();
    let mut expected = vec![
        json!([both.pid(), 3 * GIB, ["compute", "graphics"]]),
        json!([graphics.pid(), 2 * GIB, ["graphics"]]),
        json!([mps.pid(), GIB, ["mps"]]),
    ];
    // Pids may have wrapped around.
    expected.sort_by_key(|row| row[0].as_u64());
    eventually_equals(&expected, || {
        procs(&test_box.list(), &["pid", "used_mem_bytes", "used_for"])
    });
    let gpu = &test_box.list()["gpus"][0];
    assert_eq!(gpu["pids"], 3);
    assert_eq!(gpu["mem_unattributed_bytes"], 0);
    daemon.stop();
}

#[test]
fn failed_process_list_is_a_fault() {
    let test_box = TestBox::new();
    let process = TestProcess::start("python");
    let processes = json!([{"pid": process.pid(), "memory": GIB}]);
    test_box.set_driver_state(&json!({"gpus": [
        {"processes": processes},
        {"processes": processes, "errors": {"nvmlDeviceGetGraphicsRunningProcesses_v3": 999}},
        // This GPU has no MPS: the other lists are complete.
        {"processes": processes, "errors": {"nvmlDeviceGetMPSComputeRunningProcesses_v3": 3}},
    ]}));
    let daemon = test_box.start();
    let broken = vec![(
        "GPU 1".to_owned(),
        "processes: NVML reports an unknown error (999)".to_owned(),
    )];
    eventually_equals(&broken, || test_box.faults());
    let expected = vec![json!([0]), json!([2])];
    eventually_equals(&expected, || procs(&test_box.list(), &["gpu_index"]));
    let gpu = &test_box.list()["gpus"][1];
    assert_eq!(
        failed_readings(gpu),
        json!({
            "mem_unattributed_bytes": "failed: the list of processes failed",
            "pids": "failed: NVML reports an unknown error (999)",
        })
    );
    // Unknown is not "free".
    assert_eq!(gpu["pids"], json!(null));
    daemon.stop();
}

/// The pid of each process, its memory in MiB and the reason where that is unknown.
fn process_memory(test_box: &TestBox) -> Vec<Value> {
    let list = test_box.list();
    let processes = list["procs"].as_array().unwrap().iter();
    processes
        .map(|it| json!([it["pid"], it["used_mem_mb"], it["reasons"]["used_mem_mb"]]))
        .collect()
}

#[test]
fn impossible_memory_and_pid_0_are_rejected() {
    let test_box = TestBox::new();
    let memory = json!({"total": 80 * GIB, "used": 70 * GIB});
    let state = |more: u64| {
        json!({"gpus": [
            {"memory": memory, "processes": [
                {"pid": 0, "memory": GIB},
                {"pid": 5_000_001, "memory": 88 * GIB + more},
                {"pid": 5_000_002, "memory": 3 * GIB},
            ]},
            {"memory": memory, "processes": [
                {"pid": 5_000_001, "memory": 60 * GIB}, {"pid": 5_000_002, "memory": 30 * GIB},
            ]},
        ]})
    };
    test_box.set_driver_state(&state(0));
    let daemon = test_box.start();
    let why =
        |held: u64| format!("the driver reports an impossible value: {held} MiB of 81920 MiB");
    let failed = |pid: u32, held: u64| json!([pid, null, format!("failed: {}", why(held))]);
    let expected = |first: u64| {
        vec![
            failed(5_000_001, first),
            json!([5_000_002, 3 * 1024, null]),
            failed(5_000_001, 90 * 1024),
            failed(5_000_002, 90 * 1024),
        ]
    };
    eventually_equals(&expected(88 * 1024), || process_memory(&test_box));
    let gpus = test_box.list()["gpus"].clone();
    assert_eq!(gpus[0]["pids"], 2);
    assert_eq!(gpus[0]["mem_unattributed_bytes"], Value::Null);
    let fault = |gpu: u32, held: u64| {
        let what = format!("memory of a process: {}", why(held));
        (format!("GPU {gpu}"), what)
    };
    let faults = [fault(0, 88 * 1024), fault(1, 90 * 1024)];
    assert_eq!(test_box.faults(), faults);
    let status = test_box.ctl(&["status"]).stdout;
    assert!(
        status.lines().any(|line| line.ends_with(&faults[0].1)),
        "{status}"
    );
    assert_eq!(
        table_column(&test_box, 3),
        ["MEMORY", "3.0G", "?", "?", "?"]
    );
    // Another impossible value is the same fault.
    test_box.set_driver_state(&state(GIB));
    eventually_equals(&expected(89 * 1024), || process_memory(&test_box));
    assert_eq!(test_box.faults(), faults);
    daemon.stop();
}
