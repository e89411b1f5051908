//! How an installed daemon ends: when it is told to, when it is stuck, and with the box.

use super::{Installed, STAND_IN, timed};
use gpukill_tests::harness::{Invented, Procfs, becomes, eventually};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

/// What a stop may take with somebody watching.
const STOP: Duration = Duration::from_secs(2);

#[test]
fn a_stop_takes_less_than_two_seconds_and_what_is_recorded_outlives_a_reboot() {
    let Some(mut it) = Installed::with("") else {
        return;
    };
    let pid = it.job("alice", "training");
    it.lists(&[pid]);
    eventually("a sample of it", || sampled(&it).then_some(()));
    let edit = [
        "gpukillctl",
        "guard",
        "set",
        "global.default_memory_limit_gb",
        "4",
    ];
    let ran = it.run("ada", &edit);
    assert_eq!(ran.code, 0, "{ran:?}");

    let mut watcher = it.command("alice", &["gpukillctl", "list", "--watch"]);
    let mut watcher = watcher
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (ran, took) = timed(&mut it.command("root", &["systemctl", "stop", "gpukilld"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(took < STOP, "{took:?}");
    assert_eq!(it.property("gpukilld", "Result"), "success");
    it.told("stopped", &[]);
    assert!(!it.path("/run/gpukill").exists());
    // Whoever asks for a reset is told what becomes of it, also now.
    assert!(it.path("/run/gpukill-reset.sock").exists());
    let _ = watcher.kill();
    let _ = watcher.wait();
    it.does(&["systemctl", "start", "gpukilld"]);
    let before = it.edits();
    assert_eq!(before.len(), 1, "{before:?}");

    it.booted.reboot();
    it.gets("gpukilld", "SubState", "running");
    assert_eq!(it.edits(), before);
    assert!(sampled(&it));
    let rules = it.does(&["gpukillctl", "guard", "config"]);
    assert!(rules.contains("default_memory_limit_gb = 4"), "{rules}");
}

/// Whether the store has a sample of the job.
fn sampled(it: &Installed) -> bool {
    let ran = it.run(
        "root",
        &["gpukillctl", "audit", "--user", "alice", "-o", "ndjson"],
    );
    ran.code == 0 && !ran.stdout.is_empty()
}

/// A tick that is stuck, as in a file of `/proc` that never comes to its end.
#[test]
fn a_daemon_whose_poll_is_stuck_is_ended_by_the_watchdog_and_started_again() {
    let Some(it) = Installed::with("") else {
        return;
    };
    let root = format!("{STAND_IN}/proc");
    let procfs = Procfs::at(it.path(&root));
    let invented = Invented {
        pid: 4711,
        name: "python",
        uid: 2001,
        start_ticks: 100,
        cmdline: "python\0",
        cgroup: "0::/\n",
    };
    procfs.invent(invented);
    it.play(&json!({"gpus": [{"processes": [{"pid": 4711, "memory": 1}]}]}));
    it.write(
        "/etc/systemd/system/gpukilld.service.d/impatient.conf",
        &format!(
            "[Service]\nWatchdogSec=1s\nRestartSec=3s\n\
             Environment=GPUKILLD_BACKENDS_PROCFS_ROOT={root}\n"
        ),
    );
    it.does(&["systemctl", "daemon-reload"]);
    it.does(&["systemctl", "restart", "gpukilld"]);
    becomes(&json!(["alice"]), || users(&it));
    let first = it.main_pid();
    // It is petted for longer than the watchdog waits.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(it.main_pid(), first);

    let stat = it.path(&format!("{root}/4711/stat"));
    let mode = Mode::RUSR | Mode::ROTH;
    mknodat(CWD, stat.with_file_name("new"), FileType::Fifo, mode, 0).unwrap();
    std::fs::rename(stat.with_file_name("new"), &stat).unwrap();
    it.gets("gpukilld", "SubState", "auto-restart");
    assert_eq!(it.property("gpukilld", "Result"), "watchdog");
    procfs.invent(invented);
    it.gets("gpukilld", "SubState", "running");
    assert_eq!(it.property("gpukilld", "NRestarts"), "1");
    assert_ne!(it.main_pid(), first);
    becomes(&json!(["alice"]), || users(&it));
}

/// Whose processes are listed.
fn users(it: &Installed) -> Value {
    let list = it.json("root", &["list", "-o", "json"]);
    let rows = list["procs"].as_array().unwrap().iter();
    rows.map(|row| row["user"].clone()).collect()
}
