//! A GPU that disappears from the driver's list while a job on it violates a rule: the job is
//! not ended, and all commands report the lost GPU, also after a restart.

use super::{GuardBox, RESPAWNING_JOB, guard_steps};
use crate::guard::GIB;
use gpukill_tests::harness::{Script, TestBox, eventually, eventually_equals, process_has_ended};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\ngrace_period_seconds = 15\nmax_warnings = 1\n\
    [gpu_policies.1]\nmax_memory_gb = 2\n\
    [gpu_policies.2]\nmax_memory_gb = 2\naction = \"warn\"\n";

/// The number of open violations, the number in a rule test, and what the test could not
/// evaluate about devices.
fn open_violations(test_box: &TestBox) -> Value {
    let live = test_box.json(&["guard", "status", "-o", "json"])["open"].clone();
    // The store of a daemon that has just started may not be open yet.
    let test = test_box.ctl(&["guard", "test", "-o", "json"]);
    if test.code != 0 {
        return Value::Null;
    }
    let test: Value = serde_json::from_str(&test.stdout).unwrap();
    let of_devices = test["not_evaluated"].as_array().unwrap().iter();
    let of_devices = of_devices.filter(|it| it["rule"].is_null());
    let whys: Vec<&Value> = of_devices.map(|it| &it["why"]).collect();
    json!([live, test["open"].as_array().unwrap().len(), whys])
}

#[test]
fn lost_gpu_ends_no_job() {
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let job = Script::run(&test_box, RESPAWNING_JOB);
    let [_, worker] = job.next_pids();
    let gpu = |name: &str, pids: &[u32]| {
        let processes: Vec<Value> = pids
            .iter()
            .map(|pid| json!({"pid": pid, "memory": 3 * GIB}))
            .collect();
        json!({"uuid": format!("GPU-{name}"), "processes": processes})
    };
    let (a, b, c) = (gpu("a", &[]), gpu("b", &[worker]), gpu("c", &[worker]));
    test_box.set_driver_state(&json!({"gpus": [a, b, c]}));
    let daemon = test_box.start();
    eventually_equals(&json!([2, 2, []]), || open_violations(&test_box));
    let is_step = |name: &str| guard_steps(&test_box).iter().any(|step| step[0] == name);
    eventually("a warning", || is_step("warned").then_some(()));
    let warned = Instant::now();
    test_box.set_driver_state(&json!({"gpus": [a, c]}));
    let gone = "GPU 1 is gone (its driver does not list it)";
    eventually_equals(&json!([1, 1, [gone]]), || open_violations(&test_box));
    let screen = test_box.table(&["guard", "test"]);
    let is_reported = |line: &str| line.starts_with(&format!("not evaluated: {gone} for "));
    assert!(screen.lines().any(is_reported), "{screen}");

    // The other GPU disappears while no daemon runs.
    daemon.stop();
    test_box.set_driver_state(&json!({"gpus": [a]}));
    let daemon = test_box.start();
    let both = ["GPU 1 is gone", "GPU 2 is gone"];
    eventually_equals(&json!([0, 0, both]), || open_violations(&test_box));
    // Longer than the grace period.
    while warned.elapsed() < Duration::from_secs(20) {
        assert!(!process_has_ended(worker), "it was ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!is_step("ended"), "{:?}", guard_steps(&test_box));
    daemon.stop();
}
