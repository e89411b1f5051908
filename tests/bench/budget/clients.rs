//! The cost of a client: instructions and page faults of the whole process.

use super::callgrind::Callgrind;
use super::comparison::Count;
use gpukill_tests::harness::{TestBox, binaries};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::process::{Command, Stdio};

/// The name in the budget keys, and the arguments.
const CLIENTS: [(&str, &[&str]); 4] = [
    ("list", &["list"]),
    ("status", &["status"]),
    ("list_json", &["list", "-o", "json"]),
    ("version", &["--version"]),
];

/// The smallest of this many runs counts, because ages and pids sometimes have more digits.
const INSTRUCTION_RUNS: usize = 3;

/// The page cache arranges pages differently in each run.
const FAULT_RUNS: usize = 30;

/// The instructions and page faults of all clients.
pub(crate) fn measure_clients(test_box: &TestBox, callgrind: Option<&Callgrind>) -> Vec<Count> {
    let mut counts = Vec::new();
    for (name, arguments) in CLIENTS {
        let key = format!("{name}_instructions");
        counts.push(match callgrind {
            Some(callgrind) => Count::new(key, instructions(test_box, callgrind, arguments)),
            None => Count::skipped(key),
        });
    }
    for (name, arguments) in CLIENTS {
        let runs = (0..FAULT_RUNS).map(|_| page_faults(&mut client_command(test_box, arguments)));
        counts.push(Count::new(
            format!("{name}_page_faults"),
            runs.min().unwrap(),
        ));
    }
    counts
}

/// The instructions of a client with these arguments.
pub(crate) fn instructions(test_box: &TestBox, callgrind: &Callgrind, arguments: &[&str]) -> u64 {
    let command = client_command(test_box, arguments);
    let runs =
        (0..INSTRUCTION_RUNS).map(|_| callgrind.instructions(&command, test_box.directory()));
    runs.min().unwrap()
}

/// A client with the same environment on every machine.
fn client_command(test_box: &TestBox, arguments: &[&str]) -> Command {
    let mut command = Command::new(&binaries().gpukillctl);
    command
        .env_clear()
        .env("HOME", test_box.path("home"))
        .env("GPUKILL_SOCKET", test_box.socket())
        .env("LANG", "C.UTF-8")
        // Read from no file, because time zone files differ.
        .env("TZ", "UTC0")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The minor page faults of a whole process, from its zombie's proc_pid_stat(5).
fn page_faults(command: &mut Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), ends).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    let (_, fields) = stat.rsplit_once(')').unwrap();
    // The tenth field of the file; the name is the second.
    let faults = fields.split_whitespace().nth(7);
    faults.unwrap().parse().unwrap()
}
