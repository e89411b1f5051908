//! One owner and one name for a process, on every screen.

use super::row_when;
use crate::guard::has_rules;
use gpukill_tests::harness::{
    Actor, Invented, Procfs, Stage, becomes, can_act_as_others, eventually, user,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// No process has it.
const DEAD: u32 = 4_194_999;

const ROOTLESS: &str = "0::/user.slice/user@60607.service/user.slice/libpod-\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n";
const OUTSIDE: &str = "0::/\n";

/// A container's root, as its owner.
const CONTAINED: &str = "container cdcdcdcdcdcd";

/// Runs a client until each text is on its screen, whatever its exit code.
fn shows(stage: &Stage, arguments: &[&str], texts: &[&str]) {
    becomes(&String::new(), || {
        let ran = stage.ctl(arguments);
        let lacks = texts.iter().find(|text| !ran.stdout.contains(**text));
        lacks.map_or_else(String::new, |text| {
            format!("{arguments:?} without {text:?}: {ran:?}")
        })
    });
}

#[test]
fn a_process_has_one_owner_and_one_name_on_every_screen() {
    let stage = Stage::new();
    stage.open_to_all();
    has_rules(
        &stage,
        "[global]\ndry_run = true\ndefault_memory_limit_gb = 0.5\n",
    );
    let procfs = Procfs::at(stage.path("proc"));
    let roots = format!("0::/system.slice/docker-{}.scope\n", "ab".repeat(32));
    // Name, arguments, cgroup; owner, command and kind of process as they are shown.
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
            OUTSIDE,
            "60602",
            "[kworker/u8:2]",
            "[kworker/u8:2]",
        ),
        (
            "sglang::schedul",
            "sglang::scheduler/tp0\0",
            OUTSIDE,
            "60603",
            "sglang::scheduler/tp0",
            "sglang::scheduler/tp0",
        ),
        (
            "my train",
            "/opt/my train/run\0fit\0",
            OUTSIDE,
            "60604",
            "my train/run fit",
            "my",
        ),
        (
            "migration/0",
            "",
            OUTSIDE,
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
        let uid = user(number);
        procfs.invent(Invented {
            pid,
            name,
            uid,
            start_ticks: 1_000,
            cmdline,
            cgroup,
        });
        rows.push((pid, owner, command, kind));
    }
    let rootless = can_act_as_others().then(|| {
        let mut command = Command::new("unshare");
        Actor::of(
            command
                .args(["--user", "sleep", "1000"])
                .uid(user(7))
                .gid(user(7)),
        )
    });
    if let Some(actor) = &rootless {
        let command = format!("/proc/{}/comm", actor.pid());
        eventually("it runs", || {
            (std::fs::read_to_string(&command).ok()? == "sleep\n").then_some(())
        });
        procfs.dress(actor.pid(), &[("cgroup", Some(ROOTLESS))]);
        rows.push((actor.pid(), "60607", "sleep 1000", "sleep"));
    }
    // Root's, in a container, and one that can be ended.
    let contained = can_act_as_others().then(|| {
        let mut command = Command::new("sh");
        command.arg0("/usr/bin/python3");
        Actor::of(
            command
                .args(["-c", "while :; do sleep 1; done"])
                .process_group(0),
        )
    });
    if let Some(actor) = &contained {
        let cgroup = format!("0::/system.slice/docker-{}.scope\n", "cd".repeat(32));
        procfs.dress(actor.pid(), &[("cgroup", Some(&cgroup))]);
        rows.push((actor.pid(), CONTAINED, "python3 -c", "python3"));
    }
    let pids = rows.iter().map(|(pid, ..)| *pid).chain([DEAD]);
    let used = pids.map(|pid| json!({"pid": pid, "memory": 1 << 30, "sm": 5}));
    let gpus: Vec<Value> = used
        .map(|process| json!({"processes": [process]}))
        .collect();
    stage.play(&json!({"gpus": gpus}));
    let mut daemon = stage.daemon();
    let daemon = stage.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()));
    let index = |pid: u32| {
        let list = stage.list();
        let found = list["procs"]
            .as_array()?
            .iter()
            .find(|row| row["pid"] == pid)?;
        found["gpu_index"].as_u64()
    };
    let owners: Vec<&str> = rows.iter().map(|(_, owner, ..)| *owner).collect();
    for (pid, owner, program, kind) in rows {
        row_when(&stage, pid, |row| row["owner"] == owner);
        let gpu = eventually("it has a GPU", || index(pid)).to_string();
        let pid = pid.to_string();
        shows(&stage, &["list", "--gpu", &gpu], &[owner]);
        for arguments in [
            &["list", "-d", "--gpu", &gpu][..],
            &["explain", &pid],
            &["holders", "--gpu", &gpu],
            &["kill", &pid, "--dry-run"],
        ] {
            shows(&stage, arguments, &[owner, program]);
        }
        shows(&stage, &["audit", "--gpu", &gpu], &[owner]);
        shows(
            &stage,
            &["audit", "--summary", "--gpu", &gpu],
            &[owner, kind],
        );
    }
    for owner in owners {
        shows(&stage, &["guard", "violations"], &[owner]);
        assert!(daemon.log().contains(owner), "{owner}: {}", daemon.log());
    }
    shows(
        &stage,
        &["guard", "violations"],
        &["kworker/u8:2", "migration/0"],
    );
    shows(
        &stage,
        &["rogue", "scan"],
        &["container abababababab", "xmrig"],
    );
    if let Some(actor) = &contained {
        let ran = stage.ctl(&["kill", &actor.pid().to_string(), "--force", "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let ended = format!("kill {} python3 of {CONTAINED}", actor.pid());
        shows(&stage, &["audit", "actions"], &[&ended]);
    }
    let gpu = eventually("it is listed", || index(DEAD)).to_string();
    for arguments in [
        &["list", "--gpu", &gpu][..],
        &["list", "-d", "--gpu", &gpu],
        &["audit", "--gpu", &gpu],
        &["audit", "--summary", "--gpu", &gpu],
    ] {
        shows(&stage, arguments, &["(no process)"]);
    }
    daemon.stop();
}
