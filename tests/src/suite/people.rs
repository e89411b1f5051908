//! Whose process is it, and where does it run? Names, times, containers, jobs and
//! namespaces, and the texts that processes choose for themselves.

mod containers;

mod ended;

mod groups;

mod hidden;

mod hostile;

mod identity;

mod jobs;

mod launchers;

mod namespaces;

mod runtimes;

mod screens;

mod stuck;

use gpukill_tests::harness::{Stage, eventually};
use serde_json::{Value, json};
use std::process::Command;

/// The row of a process, once it satisfies.
fn row_when(stage: &Stage, pid: u32, mut satisfies: impl FnMut(&Value) -> bool) -> Value {
    eventually("the row of the process", || {
        let list = stage.list();
        let procs = list["procs"].as_array().unwrap();
        let row = procs.iter().find(|row| row["pid"] == pid)?;
        satisfies(row).then(|| row.clone())
    })
}

/// A GPU that these processes use.
fn one_gpu(pids: &[u32]) -> Value {
    let processes: Vec<Value> = pids
        .iter()
        .map(|pid| json!({"pid": pid, "memory": 1u64 << 30, "sm": 5}))
        .collect();
    json!({"gpus": [{"processes": processes}]})
}

/// The name of a user, from the name service; none where it has none.
pub(super) fn name_of(uid: u32) -> Option<String> {
    let output = Command::new("getent")
        .args(["passwd", &uid.to_string()])
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    Some(line.split(':').next()?.to_owned()).filter(|name| !name.is_empty())
}

/// These fields of a row.
fn fields(row: &Value, names: &[&str]) -> Value {
    let field = |name: &&str| ((*name).to_owned(), row[*name].clone());
    names.iter().map(field).collect()
}
