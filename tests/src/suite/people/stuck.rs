//! A process that is stuck in a driver, so that its command line cannot be read.

use super::{one_gpu, row_when};
use gpukill_tests::harness::{Invented, Procfs, Stage, becomes};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

#[test]
fn one_that_is_stuck_hides_its_own_command_line_and_no_other() {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    let pids = [1001, 1002, 1003, 1004];
    for pid in pids {
        procfs.invent(Invented {
            pid,
            name: "python",
            uid: 1000,
            start_ticks: 100,
            cmdline: "python\0train.py\0",
            cgroup: "0::/\n",
        });
    }
    // Opening a FIFO waits until somebody writes to it.
    let cmdline = procfs.root().join("1001/cmdline");
    std::fs::remove_file(&cmdline).unwrap();
    let made = Command::new("mkfifo").arg(&cmdline).status();
    assert!(made.unwrap().success());
    stage.play(&one_gpu(&pids));
    let mut daemon = stage.daemon();
    let daemon = stage.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()));

    let why = "process 1001 does not let its command line be read: it may be stuck in a driver";
    let fault = ("processes".to_owned(), why.to_owned());
    becomes(&vec![fault], || stage.faults());
    for pid in [1002, 1003, 1004] {
        row_when(&stage, pid, |row| row["command"] == "python train.py");
    }
    // A process that comes while it hangs is read too.
    procfs.write(1002, "cmdline", "python\0other.py\0");
    procfs.write(
        1002,
        "stat",
        &stat_of(&procfs, 1002).replace("python", "other"),
    );
    row_when(&stage, 1002, |row| row["command"] == "python other.py");
    let stuck = row_when(&stage, 1001, |_| true);
    assert_eq!(stuck["command"], Value::Null);
    assert_eq!(stuck["reasons"]["command"], json!("failed: not read yet"));

    let mut fifo = OpenOptions::new().write(true).open(&cmdline).unwrap();
    procfs.write(1001, "cmdline", "python\0late.py\0");
    fifo.write_all(b"python\0late.py\0").unwrap();
    drop(fifo);
    row_when(&stage, 1001, |row| row["command"] == "python late.py");
    becomes(&Vec::new(), || stage.faults());
    daemon.stop();
}

fn stat_of(procfs: &Procfs, pid: u32) -> String {
    std::fs::read_to_string(procfs.root().join(format!("{pid}/stat"))).unwrap()
}
