//! What the package brings, and what its service may.

use super::{ALICE, Installed};
use gpukill_tests::harness::eventually;
use serde_json::json;
use std::collections::BTreeMap;

/// CAP_DAC_READ_SEARCH, CAP_KILL and CAP_SYS_PTRACE.
const THREE: &str = "0000000000080024";
const NONE: &str = "0000000000000000";

/// The worst that `systemd-analyze security` may say of the daemon.
const EXPOSURE: f64 = 1.4;

#[test]
fn an_installed_package_runs_ready_at_each_boot_and_with_three_capabilities() {
    let Some(it) = Installed::bare() else { return };
    it.install(&it.package.first);
    // As installed, with no setting changed: `dpkg` returns when it is ready.
    assert_eq!(it.property("gpukilld", "Type"), "notify");
    assert_eq!(it.property("gpukilld", "SubState"), "running");
    for unit in ["gpukilld.service", "gpukill-reset.socket"] {
        let enabled = it.does(&["systemctl", "is-enabled", unit]);
        assert_eq!(enabled, "enabled\n", "{unit}");
        assert_eq!(it.property(unit, "ActiveState"), "active", "{unit}");
    }
    for group in ["gpukill", "gpukill-operators", "gpukill-admin"] {
        it.does(&["getent", "group", group]);
    }
    let status = it.does(&["gpukillctl", "status"]);
    assert!(status.contains("no library libnvidia-ml.so.1"), "{status}");

    it.settle();
    it.configure("");
    it.does(&["systemctl", "restart", "gpukilld"]);
    lists_what_people_use(&it);
    a_box_that_hides_processes_is_listed_too(&it);
    runs_with_few_rights(&it);
    a_library_writes_nothing_of_the_daemons(&it);
    units_are_well(&it);
}

fn lists_what_people_use(it: &Installed) {
    let pid = it.job("alice", "training");
    it.lists(&[pid]);
    let row = eventually("the job is listed with its user", || {
        let list = it.json("bob", &["list", "-o", "json"]);
        let row = list["procs"][0].clone();
        (!row["user"].is_null()).then_some(row)
    });
    let told = ["pid", "uid", "user", "used_mem_mb"].map(|field| &row[field]);
    assert_eq!(json!(told), json!([pid, ALICE, "alice", 1024]), "{row:#}");
    assert_eq!(row["unit"], "training.service", "{row:#}");
}

/// Bob sees nothing but what he has just started.
fn a_box_that_hides_processes_is_listed_too(it: &Installed) {
    it.does(&["mount", "-o", "remount,hidepid=invisible", "/proc"]);
    let seen = it.run("bob", &["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]);
    assert!(seen.stdout.trim().parse::<u32>().unwrap() <= 4, "{seen:?}");
    it.does(&["systemctl", "restart", "gpukilld"]);
    eventually("the job is listed", || {
        let list = it.json("bob", &["list", "-o", "json"]);
        let row = &list["procs"][0];
        (row["user"] == "alice" && row["unit"] == "training.service").then_some(())
    });
    it.does(&["mount", "-o", "remount,hidepid=off", "/proc"]);
}

/// The lines of `/proc/PID/status` by their names.
fn status(it: &Installed, pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(it.path(&format!("/proc/{pid}/status"))).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn runs_with_few_rights(it: &Installed) {
    let daemon = it.main_pid();
    let uid = it.does(&["id", "--user", "gpukill"]);
    let uids = [uid.trim(); 4].join("\t");
    let all = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let of_daemon = status(it, daemon);
    for set in all {
        assert_eq!(of_daemon[set], THREE, "{set} of the daemon");
    }
    let sensors = children(it, daemon);
    let [sensor] = sensors[..] else {
        panic!("one sensor: {sensors:?}")
    };
    let of_sensor = status(it, sensor);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(of_sensor[set], NONE, "{set} of the sensor");
    }
    for process in [of_daemon, of_sensor] {
        assert_eq!(process["Uid"], uids);
        assert_eq!(process["NoNewPrivs"], "1");
        assert_eq!(process["Seccomp"], "2");
    }
}

/// The unit lets the sensor confine itself.
fn a_library_writes_nothing_of_the_daemons(it: &Installed) {
    let [here, there] = ["/var/lib/gpukill/tampered", "/dev/shm/told"];
    it.does(&["install", "--owner=gpukill", "/dev/null", there]);
    it.play(&json!({"gpus": [{}], "tamper": [here], "trespass": there}));
    let told = eventually("it tried", || {
        let told = std::fs::read_to_string(it.path(there)).unwrap();
        told.ends_with('\n').then_some(told)
    });
    assert!(told.starts_with("let through: [], "), "{told}");
    it.play(&json!({"gpus": [{}]}));
    assert!(!it.path(here).exists());
}

/// What any thread of a process has started.
fn children(it: &Installed, pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(it.path(&format!("/proc/{pid}/task"))).unwrap();
    let files = tasks.map(|task| task.unwrap().path().join("children"));
    let pids: String = files
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let pids = pids.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.collect()
}

fn units_are_well(it: &Installed) {
    let units = [
        "gpukilld.service",
        "gpukill-nodes.service",
        "gpukill-reset.socket",
        "gpukill-reset@0.service",
    ];
    // Pages of the manual are left out of some images.
    let verify = ["systemd-analyze", "verify", "--man=no"];
    let ran = it.run("root", &[&verify[..], &units].concat());
    // Ubuntu 22.04's tells of units of its own too.
    let of_ours = ran.stderr.lines().find(|line| line.contains("gpukill"));
    assert_eq!((ran.code, of_ours), (0, None), "{ran:?}");
    let told = it.does(&["systemd-analyze", "security", "gpukilld.service"]);
    let last = told.lines().last().unwrap();
    let (_, level) = last.split_once("gpukilld.service: ").expect(last);
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= EXPOSURE, "{told}");
}
