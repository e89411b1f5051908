//! The facts that the daemon reads about a process: owner, start time, container, job and
//! namespaces, and the texts that processes choose for themselves.

mod cgroups;
mod container_runtimes;
mod containers;
mod ended;
mod hostile_names;
mod identity;
mod jobs;
mod launchers;
mod namespaces;
mod screens;
mod stuck;

use gpukill_tests::harness::{TestBox, eventually};
use serde_json::{Value, json};
use std::process::Command;

/// Waits until the row of a process meets a condition, and returns it.
fn row_when(test_box: &TestBox, pid: u32, mut satisfies: impl FnMut(&Value) -> bool) -> Value {
    eventually("the row of the process", || {
        let list = test_box.list();
        let procs = list["procs"].as_array().unwrap();
        let row = procs.iter().find(|row| row["pid"] == pid)?;
        satisfies(row).then(|| row.clone())
    })
}

fn gpu_with_processes(pids: &[u32]) -> Value {
    let processes: Vec<Value> = pids
        .iter()
        .map(|pid| json!({"pid": pid, "memory": 1u64 << 30, "sm": 5}))
        .collect();
    json!({"gpus": [{"processes": processes}]})
}

/// The name of a user from the name service. `None` for a user without a name.
pub(super) fn user_name(uid: u32) -> Option<String> {
    let output = Command::new("getent")
        .args(["passwd", &uid.to_string()])
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    Some(line.split(':').next()?.to_owned()).filter(|name| !name.is_empty())
}

fn select_fields(row: &Value, names: &[&str]) -> Value {
    let field = |name: &&str| ((*name).to_owned(), row[*name].clone());
    names.iter().map(field).collect()
}
