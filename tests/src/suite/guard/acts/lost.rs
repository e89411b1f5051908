//! A GPU that leaves its driver's list while a job on it is judged: the job is not ended, and
//! every screen says so, also after a restart.

use super::{Box, JOB, steps};
use crate::guard::GIB;
use gpukill_tests::harness::{Stage, Troupe, becomes, eventually, is_over};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\ngrace_period_seconds = 15\nmax_warnings = 1\n\
    [gpu_policies.1]\nmax_memory_gb = 2\n\
    [gpu_policies.2]\nmax_memory_gb = 2\naction = \"warn\"\n";

/// So many rules are broken now, by the guard and by a test, and what the test says of
/// devices.
fn told(stage: &Stage) -> Value {
    let live = stage.json(&["guard", "status", "-o", "json"])["open"].clone();
    // A daemon that was just started has not opened its store.
    let test = stage.ctl(&["guard", "test", "-o", "json"]);
    if test.code != 0 {
        return Value::Null;
    }
    let test: Value = serde_json::from_str(&test.stdout).unwrap();
    let of_devices = test["not_judged"].as_array().unwrap().iter();
    let of_devices = of_devices.filter(|it| it["rule"].is_null());
    let whys: Vec<&Value> = of_devices.map(|it| &it["why"]).collect();
    json!([live, test["open"].as_array().unwrap().len(), whys])
}

#[test]
fn nobody_is_ended_for_what_they_held_of_a_gpu_that_is_gone() {
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let job = Troupe::run(&stage, JOB);
    let [_, worker] = job.pids();
    let gpu = |name: &str, pids: &[u32]| {
        let processes: Vec<Value> = pids
            .iter()
            .map(|pid| json!({"pid": pid, "memory": 3 * GIB}))
            .collect();
        json!({"uuid": format!("GPU-{name}"), "processes": processes})
    };
    let (a, b, c) = (gpu("a", &[]), gpu("b", &[worker]), gpu("c", &[worker]));
    stage.play(&json!({"gpus": [a, b, c]}));
    let daemon = stage.start();
    becomes(&json!([2, 2, []]), || told(&stage));
    let is_step = |name: &str| steps(&stage).iter().any(|step| step[0] == name);
    eventually("a warning", || is_step("warned").then_some(()));
    let warned = Instant::now();
    stage.play(&json!({"gpus": [a, c]}));
    let gone = "GPU 1 is gone (its driver does not list it)";
    becomes(&json!([1, 1, [gone]]), || told(&stage));
    let screen = stage.table(&["guard", "test"]);
    let is_said = |line: &str| line.starts_with(&format!("not judged: {gone} for "));
    assert!(screen.lines().any(is_said), "{screen}");

    // The other is away before a daemon looks again.
    daemon.stop();
    stage.play(&json!({"gpus": [a]}));
    let daemon = stage.start();
    let both = ["GPU 1 is gone", "GPU 2 is gone"];
    becomes(&json!([0, 0, both]), || told(&stage));
    // Longer than the grace.
    while warned.elapsed() < Duration::from_secs(20) {
        assert!(!is_over(worker), "it was ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!is_step("ended"), "{:?}", steps(&stage));
    daemon.stop();
}
