//! What a client costs: instructions and page faults of a whole process.

use super::callgrind::Callgrind;
use super::compare::Count;
use gpukill_tests::harness::{Stage, built};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::process::{Command, Stdio};

/// The name of each in the keys, and its arguments.
const CLIENTS: [(&str, &[&str]); 4] = [
    ("list", &["list"]),
    ("status", &["status"]),
    ("list_json", &["list", "-o", "json"]),
    ("version", &["--version"]),
];

/// Ages grow and pids have more digits at times: the least of so many is what remains.
const COUNTED: usize = 3;

/// Which pages of files lie in the cache side by side differs from run to run.
const FAULT_RUNS: usize = 30;

/// The instructions and page faults of each.
pub(crate) fn counts(stage: &Stage, callgrind: Option<&Callgrind>) -> Vec<Count> {
    let mut counts = Vec::new();
    for (name, arguments) in CLIENTS {
        let key = format!("{name}_instructions");
        counts.push(match callgrind {
            Some(callgrind) => Count::new(key, instructions(stage, callgrind, arguments)),
            None => Count::skipped(key),
        });
    }
    for (name, arguments) in CLIENTS {
        let runs = (0..FAULT_RUNS).map(|_| page_faults(&mut client(stage, arguments)));
        counts.push(Count::new(
            format!("{name}_page_faults"),
            runs.min().unwrap(),
        ));
    }
    counts
}

/// The instructions of a client with these arguments.
pub(crate) fn instructions(stage: &Stage, callgrind: &Callgrind, arguments: &[&str]) -> u64 {
    let command = client(stage, arguments);
    let runs = (0..COUNTED).map(|_| callgrind.instructions(&command, stage.directory()));
    runs.min().unwrap()
}

/// A client whose environment is the same on each machine.
fn client(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = Command::new(&built().gpukillctl);
    command
        .env_clear()
        .env("HOME", stage.path("home"))
        .env("GPUKILL_SOCKET", stage.socket())
        .env("LANG", "C.UTF-8")
        // In no file: those of time zones differ.
        .env("TZ", "UTC0")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The minor page faults of a whole process: what proc_pid_stat(5) has of it when it has
/// ended and nobody has waited for it.
fn page_faults(command: &mut Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), ends).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    let (_, fields) = stat.rsplit_once(')').unwrap();
    // The tenth field; the name is the second.
    let faults = fields.split_whitespace().nth(7);
    faults.unwrap().parse().unwrap()
}
