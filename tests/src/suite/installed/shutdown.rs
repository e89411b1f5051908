//! The end of an installed daemon: stopped by its admin, ended by the watchdog, or with the
//! reboot of the box.

use super::{InstalledBox, STAND_IN, run_timed};
use gpukill_tests::harness::{FakeProcess, FakeProcfs, eventually, eventually_equals};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

/// The longest that a stop may take while a client watches.
const MAX_STOP_TIME: Duration = Duration::from_secs(2);

#[test]
fn stop_is_fast_and_records_survive_a_reboot() {
    let Some(mut it) = InstalledBox::with_settings("") else {
        return;
    };
    let pid = it.start_job("alice", "training");
    it.list_processes(&[pid]);
    eventually("a sample of it", || has_sample(&it).then_some(()));
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
    let (ran, took) = run_timed(&mut it.command("root", &["systemctl", "stop", "gpukilld"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(took < MAX_STOP_TIME, "{took:?}");
    assert_eq!(it.unit_property("gpukilld", "Result"), "success");
    it.wait_for_entry("stopped", &[]);
    assert!(!it.path("/run/gpukill").exists());
    // The reset socket stays, so that a client that requests a reset still gets its answer.
    assert!(it.path("/run/gpukill-reset.sock").exists());
    let _ = watcher.kill();
    let _ = watcher.wait();
    it.run_as_root(&["systemctl", "start", "gpukilld"]);
    let before = it.recorded_edits();
    assert_eq!(before.len(), 1, "{before:?}");

    it.booted.reboot();
    it.wait_for_property("gpukilld", "SubState", "running");
    assert_eq!(it.recorded_edits(), before);
    assert!(has_sample(&it));
    let rules = it.run_as_root(&["gpukillctl", "guard", "config"]);
    assert!(rules.contains("default_memory_limit_gb = 4"), "{rules}");
}

/// Whether the store has a sample of the job.
fn has_sample(it: &InstalledBox) -> bool {
    let ran = it.run(
        "root",
        &["gpukillctl", "audit", "--user", "alice", "-o", "ndjson"],
    );
    ran.code == 0 && !ran.stdout.is_empty()
}

/// The poll blocks on a file of `/proc`.
#[test]
fn watchdog_restarts_a_stuck_daemon() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let root = format!("{STAND_IN}/proc");
    let procfs = FakeProcfs::new(it.path(&root));
    let invented = FakeProcess {
        pid: 4711,
        name: "python",
        uid: 2001,
        start_ticks: 100,
        cmdline: "python\0",
        cgroup: "0::/\n",
    };
    procfs.add_process(invented);
    it.set_driver_state(&json!({"gpus": [{"processes": [{"pid": 4711, "memory": 1}]}]}));
    it.write(
        "/etc/systemd/system/gpukilld.service.d/impatient.conf",
        &format!(
            "[Service]\nWatchdogSec=1s\nRestartSec=3s\n\
             Environment=GPUKILLD_BACKENDS_PROCFS_ROOT={root}\n"
        ),
    );
    it.run_as_root(&["systemctl", "daemon-reload"]);
    it.run_as_root(&["systemctl", "restart", "gpukilld"]);
    eventually_equals(&json!(["alice"]), || listed_users(&it));
    let first = it.main_pid();
    // The daemon notifies the watchdog for longer than its timeout.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(it.main_pid(), first);

    let stat = it.path(&format!("{root}/4711/stat"));
    let mode = Mode::RUSR | Mode::ROTH;
    mknodat(CWD, stat.with_file_name("new"), FileType::Fifo, mode, 0).unwrap();
    std::fs::rename(stat.with_file_name("new"), &stat).unwrap();
    it.wait_for_property("gpukilld", "SubState", "auto-restart");
    assert_eq!(it.unit_property("gpukilld", "Result"), "watchdog");
    procfs.add_process(invented);
    it.wait_for_property("gpukilld", "SubState", "running");
    assert_eq!(it.unit_property("gpukilld", "NRestarts"), "1");
    assert_ne!(it.main_pid(), first);
    eventually_equals(&json!(["alice"]), || listed_users(&it));
}

fn listed_users(it: &InstalledBox) -> Value {
    let list = it.json("root", &["list", "-o", "json"]);
    let rows = list["procs"].as_array().unwrap().iter();
    rows.map(|row| row["user"].clone()).collect()
}
