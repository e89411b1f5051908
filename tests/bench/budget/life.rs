//! What the daemon, without its sensor, does in a life.

use super::callgrind::{Callgrind, total};
use super::process::file;
use gpukill_tests::harness::{Daemon, Stage};
use std::process::Command;

/// What a process has read until now.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    /// Bytes of files. Names of directories and targets of links are none.
    pub(crate) bytes: u64,
    /// How often it read.
    pub(crate) calls: u64,
}

impl Reads {
    /// Those of the daemon (proc_pid_io(5)).
    pub(crate) fn by(daemon: &Daemon) -> Self {
        let io = std::fs::read_to_string(file(daemon.pid(), "io")).unwrap();
        let number = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        Self {
            bytes: number("rchar:"),
            calls: number("syscr:"),
        }
    }
}

/// The instructions of a daemon from its start to its end, which comes after its first poll.
/// valgrind cannot run its sensor: nothing of NVIDIA's GPUs is in it.
pub(crate) fn instructions(stage: &Stage, command: &Command, callgrind: &Callgrind) -> u64 {
    let out = stage.path("callgrind.out");
    let daemon = stage.start_with(&mut callgrind.command(command, &out));
    daemon.stop();
    total(&out)
}
