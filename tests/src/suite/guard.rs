//! The guard: who breaks the admin's rules, the rules themselves, and rules tried on
//! the past.

mod edits;

mod judged;

use gpukill_tests::harness::Stage;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// A GPU with these processes, each with so much memory.
fn plays(stage: &Stage, processes: &[(u32, u64)]) {
    let processes: Vec<Value> = processes
        .iter()
        .map(|(pid, memory)| json!({"pid": pid, "memory": memory}))
        .collect();
    stage.play(&json!({"gpus": [{"memory": {"total": 80 * GIB}, "processes": processes}]}));
}

/// What goes on, and what was decided, newest first.
fn violations(stage: &Stage) -> Value {
    stage.json(&["guard", "violations", "--limit", "0", "-o", "json"])
}

fn has_rules(stage: &Stage, text: &str) {
    std::fs::write(stage.path("guard.toml"), text).unwrap();
}

/// These fields of each record, the oldest first.
fn records<'a>(document: &'a Value, fields: &'a [&str]) -> Vec<Value> {
    let records = document["records"].as_array().unwrap();
    let told = records
        .iter()
        .map(|record| Value::from_iter(fields.iter().map(|field| record[field].clone())));
    told.collect()
}
