//! The reads and instructions of the daemon, without its sensor.

use super::callgrind::{Callgrind, total};
use super::process::process_file;
use gpukill_tests::harness::{Daemon, TestBox};
use std::process::Command;

/// The total reads of a process.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    /// Bytes of files, without names of directories and targets of links.
    pub(crate) bytes: u64,
    /// The number of read calls.
    pub(crate) calls: u64,
}

impl Reads {
    /// Reads the totals of the daemon (proc_pid_io(5)).
    pub(crate) fn read_from(daemon: &Daemon) -> Self {
        let io = std::fs::read_to_string(process_file(daemon.pid(), "io")).unwrap();
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

/// The instructions of a daemon that ends after its first poll. valgrind cannot run the sensor,
/// so the count includes no work for NVIDIA GPUs.
pub(crate) fn life_instructions(
    test_box: &TestBox,
    command: &Command,
    callgrind: &Callgrind,
) -> u64 {
    let out = test_box.path("callgrind.out");
    let daemon = test_box.start_with(&mut callgrind.command(command, &out));
    daemon.stop();
    total(&out)
}
