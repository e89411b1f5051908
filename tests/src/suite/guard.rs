//! The guard: who breaks the admin's rules, the rules themselves, and rules tried on
//! the past.

mod edits;

mod files;

mod scenarios;

mod judged;

mod ghosts;

mod answers;

mod facts;

mod seen;

mod said;

mod bounds;

mod junk;

mod acts;

use gpukill_tests::harness::{Stage, eventually};
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

/// What goes on, and what was decided, newest first, as soon as a daemon that was just
/// started has opened its store.
fn violations(stage: &Stage) -> Value {
    eventually("the store answers", || {
        let ran = stage.ctl(&["guard", "violations", "--limit", "0", "-o", "json"]);
        (ran.code == 0).then(|| serde_json::from_str(&ran.stdout).unwrap())
    })
}

pub(crate) fn has_rules(stage: &Stage, text: &str) {
    std::fs::write(stage.path("guard.toml"), text).unwrap();
    // A reading that comes later than half an interval is old, and old is not known: test
    // machines are slow, and what is not known counts as nothing in a mean.
    let file = stage.path("gpukilld.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("\"100ms\"", "\"500ms\"")).unwrap();
}

/// These fields of each record, the newest first.
fn records<'a>(document: &'a Value, fields: &'a [&str]) -> Vec<Value> {
    let records = document["records"].as_array().unwrap();
    let told = records
        .iter()
        .map(|record| Value::from_iter(fields.iter().map(|field| record[field].clone())));
    told.collect()
}
