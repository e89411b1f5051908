//! A process that is stuck in a driver: its command line cannot be read.

use super::{gpu_with_processes, row_when};
use gpukill_tests::harness::{FakeProcess, FakeProcfs, TestBox, eventually_equals};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

#[test]
fn stuck_process_hides_only_its_own_command_line() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let pids = [1001, 1002, 1003, 1004];
    for pid in pids {
        procfs.add_process(FakeProcess {
            pid,
            name: "python",
            uid: 1000,
            start_ticks: 100,
            cmdline: "python\0train.py\0",
            cgroup: "0::/\n",
        });
    }
    // Opening a FIFO waits until another process opens it for writing.
    let cmdline = procfs.root().join("1001/cmdline");
    std::fs::remove_file(&cmdline).unwrap();
    let made = Command::new("mkfifo").arg(&cmdline).status();
    assert!(made.unwrap().success());
    test_box.set_driver_state(&gpu_with_processes(&pids));
    let mut daemon = test_box.daemon_command();
    let daemon = test_box.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()));

    let why = "cannot read the command line of process 1001: the process may be stuck in a driver";
    let fault = ("processes".to_owned(), why.to_owned());
    // The evidence of the rogue watch cannot be read either; that fault may follow.
    let of_processes = || -> Vec<_> {
        let faults = test_box.faults().into_iter();
        faults.filter(|(part, _)| part == "processes").collect()
    };
    eventually_equals(&vec![fault], of_processes);
    for pid in [1002, 1003, 1004] {
        row_when(&test_box, pid, |row| row["command"] == "python train.py");
    }
    // A process that starts meanwhile is read too.
    procfs.write(1002, "cmdline", "python\0other.py\0");
    procfs.write(
        1002,
        "stat",
        &read_stat(&procfs, 1002).replace("python", "other"),
    );
    row_when(&test_box, 1002, |row| row["command"] == "python other.py");
    let stuck = row_when(&test_box, 1001, |_| true);
    assert_eq!(stuck["command"], Value::Null);
    assert_eq!(stuck["reasons"]["command"], json!("failed: not read yet"));

    let mut fifo = OpenOptions::new().write(true).open(&cmdline).unwrap();
    procfs.write(1001, "cmdline", "python\0late.py\0");
    fifo.write_all(b"python\0late.py\0").unwrap();
    drop(fifo);
    row_when(&test_box, 1001, |row| row["command"] == "python late.py");
    eventually_equals(&Vec::new(), || test_box.faults());
    daemon.stop();
}

fn read_stat(procfs: &FakeProcfs, pid: u32) -> String {
    std::fs::read_to_string(procfs.root().join(format!("{pid}/stat"))).unwrap()
}
