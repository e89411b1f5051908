//! The identity of a process and its start time, and pids without a process.

use super::{gpu_with_processes, row_when, user_name};
use gpukill_tests::harness::{
    FakeProcess, FakeProcfs, NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually,
    eventually_equals,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn process_has_all_known_fields() {
    let test_box = TestBox::new();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let process = TestProcess::start("python train.py");
    let pid = process.pid();
    test_box.set_driver_state(&gpu_with_processes(&[pid]));
    let daemon = test_box.start();
    let uid = rustix::process::getuid().as_raw();
    let user = user_name(uid);
    let row = row_when(&test_box, pid, |row| {
        row["user"].is_string() == user.is_some()
            && row["util_pct"].is_u64()
            && row["first_seen"].is_string()
    });

    assert_eq!(row["uid"], uid);
    assert_eq!(row["user"], json!(user));
    assert_eq!(row["proc_name"], "sleep");
    assert_eq!(row["command"], "python train.py 1000");
    let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(row["executable"], executable.to_str().unwrap());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let ticks = after_name.split(' ').nth(22 - 3).unwrap();
    assert_eq!(row["start_ticks"].to_string(), ticks);
    let started_at = seconds(&row["started_at"]);
    let apart = Duration::from_secs_f64((started_at - before.as_secs_f64()).abs());
    assert!(apart < Duration::from_secs(2), "{row}");
    assert!(seconds(&row["first_seen"]) >= started_at - 2.0, "{row}");

    let second = |row: &Value| {
        let text = row["start_time"].as_str()?;
        text.strip_suffix('s')?.parse::<u64>().ok()
    };
    let running = row_when(&test_box, pid, |row| second(row) >= Some(1));
    assert_eq!(running["started_at"], row["started_at"]);
    assert_eq!(running["first_seen"], row["first_seen"]);
    daemon.stop();
}

/// The seconds since 1970 of an RFC 3339 time in UTC, as `date` reads it.
fn seconds(time: &Value) -> f64 {
    let output = Command::new("date")
        .args(["-d", time.as_str().unwrap(), "+%s.%N"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn process_of_other_user_has_its_name() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    // A uid without a name, and one that has a name on most boxes.
    let nameless = 3_999_999_999;
    let processes = [nameless, NOBODY_UID]
        .map(|uid| TestProcess::spawn(Command::new("sleep").arg("1000").uid(uid)));
    test_box.set_driver_state(&gpu_with_processes(
        &processes.each_ref().map(TestProcess::pid),
    ));
    let daemon = test_box.start();
    let named = user_name(NOBODY_UID);
    let row = row_when(&test_box, processes[1].pid(), |row| {
        row["user"].is_string() == named.is_some()
    });
    assert_eq!(
        (&row["uid"], &row["user"]),
        (&json!(NOBODY_UID), &json!(named))
    );
    let row = row_when(&test_box, processes[0].pid(), |row| {
        row["reasons"]["user"] == "unsupported"
    });
    assert_eq!(
        (&row["uid"], &row["user"]),
        (&json!(nameless), &Value::Null)
    );
    assert_eq!(row["command"], "sleep 1000");
    daemon.stop();
}

#[test]
fn unnamed_user_is_shown_and_selected_by_number() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    procfs.add_process(FakeProcess {
        pid: 4242,
        name: "python",
        uid: 3_999_999_998,
        start_ticks: 100,
        cmdline: "python\0train.py\0",
        cgroup: "0::/\n",
    });
    test_box.set_driver_state(&gpu_with_processes(&[4242]));
    let daemon = test_box.start_with(
        test_box
            .daemon_command()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    let row = row_when(&test_box, 4242, |row| {
        row["reasons"]["user"] == "unsupported"
    });
    assert_eq!(row["uid"], 3_999_999_998u32);
    let table = test_box.table(&["list", "--details", "--user", "3999999998"]);
    let row = table.lines().nth(1).unwrap();
    assert_eq!(row.split_whitespace().nth(2), Some("3999999998"), "{table}");
    assert!(row.ends_with("python train.py"), "{table}");
    daemon.stop();
}

#[test]
fn reused_pid_is_another_process() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let first = FakeProcess {
        pid: 4242,
        name: "python",
        uid: 1,
        start_ticks: 1000,
        cmdline: "python\0first.py\0",
        cgroup: "0::/\n",
    };
    procfs.add_process(first);
    test_box.set_driver_state(&gpu_with_processes(&[4242]));
    let daemon = test_box.start_with(
        test_box
            .daemon_command()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    let was = row_when(&test_box, 4242, |row| {
        row["command"] == "python first.py" && row["first_seen"].is_string()
    });
    procfs.add_process(FakeProcess {
        uid: 2,
        start_ticks: 2000,
        cmdline: "python\0second.py\0",
        ..first
    });
    // A driver's list from before the reuse may mean the process that has ended.
    let why = "failed: listed before the process with this pid started";
    let row = row_when(&test_box, 4242, |row| row["reasons"]["uid"] == why);
    for field in ["uid", "owner", "proc_name", "command", "start_ticks"] {
        assert_eq!(row[field], Value::Null, "{row}");
        assert_eq!(row["reasons"][field], why, "{row}");
    }
    test_box.set_driver_state(&gpu_with_processes(&[]));
    eventually_equals(&json!([]), || test_box.list()["procs"].clone());
    test_box.set_driver_state(&gpu_with_processes(&[4242]));
    let is = row_when(&test_box, 4242, |row| {
        row["command"] == "python second.py" && row["first_seen"].is_string()
    });
    assert_eq!((&was["uid"], &is["uid"]), (&json!(1), &json!(2)));
    let ticks = rustix::param::clock_ticks_per_second();
    for (row, start_ticks) in [(&was, 1000), (&is, 2000)] {
        assert_eq!(row["start_ticks"], start_ticks);
        let expected = (FakeProcfs::BOOT_TIME * ticks + start_ticks) / ticks;
        assert_eq!(
            seconds(&row["started_at"]).to_string(),
            expected.to_string()
        );
    }
    assert_ne!(was["first_seen"], is["first_seen"]);
    daemon.stop();
}

#[test]
fn ended_process_stays_while_the_driver_lists_it() {
    let test_box = TestBox::new();
    let stays = TestProcess::start("stays");
    let ends = TestProcess::start("ends");
    let ended = ends.pid();
    test_box.set_driver_state(&gpu_with_processes(&[stays.pid(), ended]));
    let daemon = test_box.start();
    row_when(&test_box, ended, |row| row["command"] == "ends 1000");

    drop(ends);
    let row = row_when(&test_box, ended, |row| row["ended_at"].is_string());
    assert_eq!(row["command"], "ends 1000");
    for field in ["cpu_pct", "host_mem_bytes"] {
        assert_eq!(
            row["reasons"][field], "failed: the process has ended",
            "{row}"
        );
    }
    // The values of the driver are still shown.
    assert_eq!(row["used_mem_mb"], 1024);

    test_box.set_driver_state(&gpu_with_processes(&[stays.pid()]));
    eventually_equals(&1, || test_box.list()["procs"].as_array().unwrap().len());
    assert_eq!(test_box.list()["procs"][0]["command"], "stays 1000");
    daemon.stop();
}

#[test]
fn impossible_pid_and_zombie_are_shown() {
    let test_box = TestBox::new();
    let zombie = TestProcess::spawn(&mut Command::new("true"));
    let pid = zombie.pid();
    eventually("the zombie", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.contains(") Z ").then_some(())
    });
    test_box.set_driver_state(&gpu_with_processes(&[pid, u32::MAX - 1]));
    let daemon = test_box.start();
    let row = row_when(&test_box, u32::MAX - 1, |row| row["proc_name"].is_null());
    assert_eq!(
        row["reasons"]["proc_name"],
        "failed: no such process on this host"
    );
    let row = row_when(&test_box, pid, |row| row["uid"].is_u64());
    assert_eq!(row["proc_name"], "true");
    assert!(row["start_ticks"].is_u64());
    for field in ["executable", "command"] {
        assert_eq!(row["reasons"][field], "unsupported", "{row}");
    }
    let table = test_box.table(&["list", "--details"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    daemon.stop();
}
