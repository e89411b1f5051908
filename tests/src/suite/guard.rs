//! The guard: its rules, violations, enforcement, and replays of the past.

mod affected_jobs;
mod display;
mod dry_run;
mod edits;
mod enforcement;
mod hostile_files;
mod job_accounts;
mod mode_messages;
mod refused_state;
mod resource_limits;
mod rule_files;
mod scenarios;
mod simulated_ends;

use gpukill_tests::harness::{TestBox, eventually};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// Puts these processes with this much memory on a simulated GPU.
fn set_gpu_processes(test_box: &TestBox, processes: &[(u32, u64)]) {
    let processes: Vec<Value> = processes
        .iter()
        .map(|(pid, memory)| json!({"pid": pid, "memory": memory}))
        .collect();
    test_box.set_driver_state(
        &json!({"gpus": [{"memory": {"total": 80 * GIB}, "processes": processes}]}),
    );
}

/// The open violations and all records, newest first. Waits until a daemon that has just
/// started has opened its store.
fn guard_violations(test_box: &TestBox) -> Value {
    eventually("the store answers", || {
        let ran = test_box.ctl(&["guard", "violations", "--limit", "0", "-o", "json"]);
        (ran.code == 0).then(|| serde_json::from_str(&ran.stdout).unwrap())
    })
}

pub(crate) fn write_rules(test_box: &TestBox, text: &str) {
    std::fs::write(test_box.path("guard.toml"), text).unwrap();
    // A reading that is later than half an interval is stale and counts as 0 in a mean. Test
    // machines are slow, so the interval is longer here.
    let file = test_box.path("gpukilld.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("\"100ms\"", "\"500ms\"")).unwrap();
}

/// These fields of each record, newest first.
fn record_fields<'a>(document: &'a Value, fields: &'a [&str]) -> Vec<Value> {
    let records = document["records"].as_array().unwrap();
    let chosen = records
        .iter()
        .map(|record| Value::from_iter(fields.iter().map(|field| record[field].clone())));
    chosen.collect()
}
