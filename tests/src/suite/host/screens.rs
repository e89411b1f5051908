//! One owner and one name for a process, on every screen.

use super::row_when;
use crate::guard::write_rules;
use gpukill_tests::harness::{
    FakeProcess, FakeProcfs, TestBox, TestProcess, can_run_as_other_users, eventually,
    eventually_equals, test_uid,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const UNUSED_PID: u32 = 4_194_999;

const ROOTLESS_CGROUP: &str = "0::/user.slice/user@60607.service/user.slice/libpod-\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n";
const ROOT_CGROUP: &str = "0::/\n";

/// The owner of a process of root in a container.
const CONTAINER_OWNER: &str = "container cdcdcdcdcdcd";

/// Runs a client until its output contains all texts, whatever its exit code is.
fn wait_for_texts(test_box: &TestBox, arguments: &[&str], texts: &[&str]) {
    eventually_equals(&String::new(), || {
        let ran = test_box.ctl(arguments);
        let lacks = texts.iter().find(|text| !ran.stdout.contains(**text));
        lacks.map_or_else(String::new, |text| {
            format!("{arguments:?} without {text:?}: {ran:?}")
        })
    });
}

#[test]
fn every_screen_shows_same_owner_and_name() {
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    write_rules(
        &test_box,
        "[global]\ndry_run = true\ndefault_memory_limit_gb = 0.5\n",
    );
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let roots = format!("0::/system.slice/docker-{}.scope\n", "ab".repeat(32));
    // Name, arguments, cgroup; then the expected owner, command and short command.
    let invented = [
        (
            "python",
            "/usr/bin/python3\0train.py\0",
            &*roots,
            "container abababababab",
            "python3 train.py",
            "python3 train.py",
        ),
        (
            "kworker/u8:2",
            "[kworker/u8:2]\0",
            ROOT_CGROUP,
            "60602",
            "[kworker/u8:2]",
            "[kworker/u8:2]",
        ),
        (
            "sglang::schedul",
            "sglang::scheduler/tp0\0",
            ROOT_CGROUP,
            "60603",
            "sglang::scheduler/tp0",
            "sglang::scheduler/tp0",
        ),
        (
            "my train",
            "/opt/my train/run\0fit\0",
            ROOT_CGROUP,
            "60604",
            "my train/run fit",
            "my",
        ),
        (
            "migration/0",
            "",
            ROOT_CGROUP,
            "60605",
            "[migration/0]",
            "migration/0",
        ),
        (
            "xmrig",
            "/tmp/xmrig\0-o\0stratum+tcp://pool.example:3333\0",
            &*roots,
            "container abababababab",
            "xmrig -o stratum",
            "xmrig",
        ),
    ];
    let mut rows = Vec::new();
    for (number, (name, cmdline, cgroup, owner, command, kind)) in (1..).zip(invented) {
        let pid = 71_000 + number;
        let uid = test_uid(number);
        procfs.add_process(FakeProcess {
            pid,
            name,
            uid,
            start_ticks: 1_000,
            cmdline,
            cgroup,
        });
        rows.push((pid, owner, command, kind));
    }
    let rootless = can_run_as_other_users().then(|| {
        let mut command = Command::new("unshare");
        TestProcess::spawn(
            command
                .args(["--user", "sleep", "1000"])
                .uid(test_uid(7))
                .gid(test_uid(7)),
        )
    });
    if let Some(process) = &rootless {
        let command = format!("/proc/{}/comm", process.pid());
        eventually("it runs", || {
            (std::fs::read_to_string(&command).ok()? == "sleep\n").then_some(())
        });
        procfs.link_with_changed_files(process.pid(), &[("cgroup", Some(ROOTLESS_CGROUP))]);
        rows.push((process.pid(), "60607", "sleep 1000", "sleep"));
    }
    // A process of root in a container, which can be ended.
    let contained = can_run_as_other_users().then(|| {
        let mut command = Command::new("sh");
        command.arg0("/usr/bin/python3");
        TestProcess::spawn(
            command
                .args(["-c", "while :; do sleep 1; done"])
                .process_group(0),
        )
    });
    if let Some(process) = &contained {
        let cgroup = format!("0::/system.slice/docker-{}.scope\n", "cd".repeat(32));
        procfs.link_with_changed_files(process.pid(), &[("cgroup", Some(&cgroup))]);
        rows.push((process.pid(), CONTAINER_OWNER, "python3 -c", "python3"));
    }
    let pids = rows.iter().map(|(pid, ..)| *pid).chain([UNUSED_PID]);
    let used = pids.map(|pid| json!({"pid": pid, "memory": 1 << 30, "sm": 5}));
    let gpus: Vec<Value> = used
        .map(|process| json!({"processes": [process]}))
        .collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let mut daemon = test_box.daemon_command();
    let daemon = test_box.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()));
    let index = |pid: u32| {
        let list = test_box.list();
        let found = list["procs"]
            .as_array()?
            .iter()
            .find(|row| row["pid"] == pid)?;
        found["gpu_index"].as_u64()
    };
    let owners: Vec<&str> = rows.iter().map(|(_, owner, ..)| *owner).collect();
    for (pid, owner, program, kind) in rows {
        row_when(&test_box, pid, |row| row["owner"] == owner);
        let gpu = eventually("it has a GPU", || index(pid)).to_string();
        let pid = pid.to_string();
        wait_for_texts(&test_box, &["list", "--gpu", &gpu], &[owner]);
        for arguments in [
            &["list", "-d", "--gpu", &gpu][..],
            &["explain", &pid],
            &["holders", "--gpu", &gpu],
            &["kill", &pid, "--dry-run"],
        ] {
            wait_for_texts(&test_box, arguments, &[owner, program]);
        }
        wait_for_texts(&test_box, &["audit", "--gpu", &gpu], &[owner]);
        wait_for_texts(
            &test_box,
            &["audit", "--summary", "--gpu", &gpu],
            &[owner, kind],
        );
    }
    for owner in owners {
        wait_for_texts(&test_box, &["guard", "violations"], &[owner]);
        assert!(daemon.log().contains(owner), "{owner}: {}", daemon.log());
    }
    wait_for_texts(
        &test_box,
        &["guard", "violations"],
        &["kworker/u8:2", "migration/0"],
    );
    wait_for_texts(
        &test_box,
        &["rogue", "scan"],
        &["container abababababab", "xmrig"],
    );
    if let Some(process) = &contained {
        let ran = test_box.ctl(&["kill", &process.pid().to_string(), "--force", "--yes"]);
        // The simulated driver still reports its memory.
        assert_eq!(ran.code, 7, "{ran:?}");
        let ended = format!("kill {} python3 of {CONTAINER_OWNER}", process.pid());
        wait_for_texts(&test_box, &["audit", "actions"], &[&ended]);
    }
    let gpu = eventually("it is listed", || index(UNUSED_PID)).to_string();
    for arguments in [
        &["list", "--gpu", &gpu][..],
        &["list", "-d", "--gpu", &gpu],
        &["audit", "--gpu", &gpu],
        &["audit", "--summary", "--gpu", &gpu],
    ] {
        wait_for_texts(&test_box, arguments, &["(no process)"]);
    }
    daemon.stop();
}
