//! The files that the package installs, and the rights of its service.

use super::{ALICE_UID, InstalledBox};
use gpukill_tests::harness::eventually;
use serde_json::json;
use std::collections::BTreeMap;

/// CAP_DAC_READ_SEARCH, CAP_KILL and CAP_SYS_PTRACE.
const DAEMON_CAPABILITIES: &str = "0000000000080024";
const NO_CAPABILITIES: &str = "0000000000000000";

/// The highest exposure level of the daemon that `systemd-analyze security` may report.
const MAX_EXPOSURE: f64 = 1.4;

#[test]
fn installed_service_runs_with_three_capabilities() {
    let Some(it) = InstalledBox::without_package() else {
        return;
    };
    it.install(&it.package.first);
    // No setting was changed. `dpkg` returns when the daemon is ready.
    assert_eq!(it.unit_property("gpukilld", "Type"), "notify");
    assert_eq!(it.unit_property("gpukilld", "SubState"), "running");
    for unit in ["gpukilld.service", "gpukill-reset.socket"] {
        let enabled = it.run_as_root(&["systemctl", "is-enabled", unit]);
        assert_eq!(enabled, "enabled\n", "{unit}");
        assert_eq!(it.unit_property(unit, "ActiveState"), "active", "{unit}");
    }
    for group in ["gpukill", "gpukill-operators", "gpukill-admin"] {
        it.run_as_root(&["getent", "group", group]);
    }
    let status = it.run_as_root(&["gpukillctl", "status"]);
    assert!(status.contains("no library libnvidia-ml.so.1"), "{status}");

    it.create_users();
    it.configure("");
    it.run_as_root(&["systemctl", "restart", "gpukilld"]);
    assert_job_is_listed(&it);
    assert_job_is_listed_with_hidepid(&it);
    assert_capabilities(&it);
    assert_sensor_is_confined(&it);
    assert_archive_is_written(&it);
    verify_units(&it);
}

fn assert_job_is_listed(it: &InstalledBox) {
    let pid = it.start_job("alice", "training");
    it.list_processes(&[pid]);
    let row = eventually("the job is listed with its user", || {
        let list = it.json("bob", &["list", "-o", "json"]);
        let row = list["procs"][0].clone();
        (!row["user"].is_null()).then_some(row)
    });
    let fields = ["pid", "uid", "user", "used_mem_mb"].map(|field| &row[field]);
    assert_eq!(
        json!(fields),
        json!([pid, ALICE_UID, "alice", 1024]),
        "{row:#}"
    );
    assert_eq!(row["unit"], "training.service", "{row:#}");
}

/// With `hidepid` user Bob sees only processes that he has just started.
fn assert_job_is_listed_with_hidepid(it: &InstalledBox) {
    it.run_as_root(&["mount", "-o", "remount,hidepid=invisible", "/proc"]);
    let seen = it.run("bob", &["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]);
    assert!(seen.stdout.trim().parse::<u32>().unwrap() <= 4, "{seen:?}");
    it.run_as_root(&["systemctl", "restart", "gpukilld"]);
    eventually("the job is listed", || {
        let list = it.json("bob", &["list", "-o", "json"]);
        let row = &list["procs"][0];
        (row["user"] == "alice" && row["unit"] == "training.service").then_some(())
    });
    it.run_as_root(&["mount", "-o", "remount,hidepid=off", "/proc"]);
}

/// The lines of `/proc/PID/status` by their names.
fn status(it: &InstalledBox, pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(it.path(&format!("/proc/{pid}/status"))).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn assert_capabilities(it: &InstalledBox) {
    let daemon = it.main_pid();
    let uid = it.run_as_root(&["id", "--user", "gpukill"]);
    let uids = [uid.trim(); 4].join("\t");
    let all = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let of_daemon = status(it, daemon);
    for set in all {
        assert_eq!(of_daemon[set], DAEMON_CAPABILITIES, "{set} of the daemon");
    }
    let sensors = children(it, daemon);
    let [sensor] = sensors[..] else {
        panic!("one sensor: {sensors:?}")
    };
    let of_sensor = status(it, sensor);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(of_sensor[set], NO_CAPABILITIES, "{set} of the sensor");
    }
    for process in [of_daemon, of_sensor] {
        assert_eq!(process["Uid"], uids);
        assert_eq!(process["NoNewPrivs"], "1");
        assert_eq!(process["Seccomp"], "2");
    }
}

/// The unit permits the sensor to confine itself.
fn assert_sensor_is_confined(it: &InstalledBox) {
    let [here, there] = ["/var/lib/gpukill/tampered", "/dev/shm/copied"];
    it.run_as_root(&["install", "--owner=gpukill", "/dev/null", there]);
    it.set_driver_state(&json!({"gpus": [{}], "tamper": [here], "trespass": there}));
    let report = eventually("it tried", || {
        let report = std::fs::read_to_string(it.path(there)).unwrap();
        report.ends_with('\n').then_some(report)
    });
    assert!(report.starts_with("let through: [], "), "{report}");
    it.set_driver_state(&json!({"gpus": [{}]}));
    assert!(!it.path(here).exists());
}

/// The children that any thread of a process has started.
fn children(it: &InstalledBox, pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(it.path(&format!("/proc/{pid}/task"))).unwrap();
    let files = tasks.map(|task| task.unwrap().path().join("children"));
    let pids: String = files
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let pids = pids.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.collect()
}

/// The archive is an admin's choice, and its unit permits what it needs.
fn assert_archive_is_written(it: &InstalledBox) {
    let timer = "gpukill-archive.timer";
    assert_eq!(it.unit_property(timer, "UnitFileState"), "disabled");
    it.run_as_root(&["systemctl", "start", "gpukill-archive.service"]);
    let archive = it.path("/var/lib/private/gpukill-archive");
    let files = std::fs::read_dir(archive).unwrap();
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(names.any(|name| name.ends_with(".manifest.ndjson")));
    it.run_as_root(&["systemctl", "enable", "--now", timer]);
    assert_eq!(it.unit_property(timer, "ActiveState"), "active");
    it.run_as_root(&["systemctl", "disable", "--now", timer]);
}

fn verify_units(it: &InstalledBox) {
    let units = [
        "gpukilld.service",
        "gpukill-nodes.service",
        "gpukill-reset.socket",
        "gpukill-reset@0.service",
        "gpukill-archive.service",
        "gpukill-archive.timer",
    ];
    // Some images have no manual pages.
    let verify = ["systemd-analyze", "verify", "--man=no"];
    let ran = it.run("root", &[&verify[..], &units].concat());
    // The systemd of Ubuntu 22.04 also complains about units of its own.
    let of_ours = ran.stderr.lines().find(|line| line.contains("gpukill"));
    assert_eq!((ran.code, of_ours), (0, None), "{ran:?}");
    let output = it.run_as_root(&["systemd-analyze", "security", "gpukilld.service"]);
    let last = output.lines().last().unwrap();
    let (_, level) = last.split_once("gpukilld.service: ").expect(last);
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= MAX_EXPOSURE, "{output}");
}
