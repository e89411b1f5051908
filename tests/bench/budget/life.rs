//! What the daemon, without its sensor, does in a life.

use super::callgrind::{Callgrind, total};
use super::process::file;
use gpukill_tests::harness::{Daemon, Stage};
use std::process::Command;
use std::time::Duration;

/// What it has done from its start to its end.
pub(crate) struct Life {
    /// How often it polled.
    pub(crate) polls: u64,
    /// Where valgrind is installed.
    pub(crate) instructions: Option<u64>,
    /// What it read of files.
    pub(crate) bytes: u64,
    /// How often it read.
    pub(crate) reads: u64,
}

/// Lets this daemon live for so long after its first poll. Nobody asks it meanwhile: answers
/// cost too.
pub(crate) fn live(
    stage: &Stage,
    mut command: Command,
    length: Duration,
    callgrind: Option<&Callgrind>,
) -> Life {
    let out = stage.path("callgrind.out");
    if let Some(callgrind) = callgrind {
        command = callgrind.command(&command, &out);
    }
    let daemon = stage.start_with(&mut command);
    std::thread::sleep(length);
    let status = stage.json(&["status", "-o", "json"]);
    let (bytes, reads) = (io(&daemon, "rchar:"), io(&daemon, "syscr:"));
    daemon.stop();
    Life {
        polls: status["polls"].as_u64().unwrap(),
        instructions: callgrind.map(|_| total(&out)),
        bytes,
        reads,
    }
}

/// A number of proc_pid_io(5).
fn io(daemon: &Daemon, name: &str) -> u64 {
    let io = std::fs::read_to_string(file(daemon.pid(), "io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}
