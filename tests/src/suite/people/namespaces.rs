//! Processes of other user and PID namespaces, and a daemon that is in one.

use super::{fields, name_of, one_gpu, row_when};
use gpukill_tests::harness::{
    Actor, NOBODY, Stage, acting_as, becomes, can_act_as_others, can_be_several_people, eventually,
    sees_all_cgroups, skip, user,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Whether this machine lets `unshare` do this.
fn can_unshare(arguments: &[&str]) -> bool {
    let mut command = Command::new("unshare");
    command.args(arguments).arg("true").stderr(Stdio::null());
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        skip("no such namespace can be made here");
    }
    can
}

/// The only child of a process, once it is called so.
fn child(pid: u32, name: &str) -> u32 {
    eventually("the child", || {
        let children = format!("/proc/{pid}/task/{pid}/children");
        let child: u32 = std::fs::read_to_string(children)
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        (comm.trim() == name).then_some(child)
    })
}

#[test]
fn a_subordinate_uid_without_a_namespace_is_its_persons() {
    if !can_be_several_people() {
        return;
    }
    let stage = Stage::new();
    let (uid, person) = (user(7), user(50));
    let mut command = Command::new("sleep");
    command.arg("1000").uid(uid).gid(uid);
    let mut job = Actor::of(&mut command);
    stage.play(&one_gpu(&[job.pid()]));
    let range = format!("{person}:{}:10\n", user(0));
    let daemon = stage.start_with(&mut stage.daemon_with_subordinates(&range));
    let row = row_when(&stage, job.pid(), |row| row["owner"].is_string());
    let keys = ["uid", "owner_uid", "owner_kind", "namespace_owner_uid"];
    let expected = json!({
        "uid": uid,
        "owner_uid": person,
        "owner_kind": "subordinate",
        "namespace_owner_uid": null,
    });
    assert_eq!(fields(&row, &keys), expected);
    // It gives no right.
    stage.open_to_all();
    let kill = ["kill", &job.pid().to_string(), "--yes"];
    let theirs = acting_as(person, &[], || stage.ctl(&kill));
    assert_ne!(theirs.code, 0, "{theirs:?}");
    assert!(job.is_alive());
    daemon.stop();
}

#[test]
fn a_process_of_another_pid_namespace_shows_its_pid_there() {
    let flags = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
    ];
    if !can_unshare(&flags) || !sees_all_cgroups() {
        return;
    }
    let stage = Stage::new();
    let outer = Actor::of(Command::new("unshare").args(flags).args(["sleep", "1000"]));
    let inner = child(outer.pid(), "sleep");
    stage.play(&one_gpu(&[inner, outer.pid()]));
    let daemon = stage.start();
    let us = rustix::process::geteuid().as_raw();
    let row = row_when(&stage, inner, |row| row["command"] == "sleep 1000");
    assert_eq!(
        fields(
            &row,
            &[
                "inner_pid",
                "uid",
                "namespace_owner_uid",
                "owner_kind",
                "owner_uid"
            ]
        ),
        json!({
            "inner_pid": 1,
            "uid": us,
            "namespace_owner_uid": us,
            "owner_kind": "user",
            "owner_uid": us,
        })
    );
    assert_eq!(row["parents"][0]["pid"], outer.pid());
    let row = row_when(&stage, outer.pid(), |row| row["uid"].is_u64());
    assert_eq!(row["reasons"]["inner_pid"], Value::Null);
    assert_eq!(row["inner_pid"], Value::Null);
    daemon.stop();
}

/// A process of a subordinate user, as rootless containers have them: in a
/// namespace of nobody's, and within that in one of its own.
fn rootless(inside: u32, outside: u32) -> Option<Actor> {
    let mut command = Command::new("unshare");
    let script = format!(
        "until setpriv --reuid={inside} --keep-groups true; do sleep 0.02; done; \
         exec setpriv --reuid={inside} --keep-groups unshare --user sleep 1000"
    );
    command.args(["--user", "sh", "-c", &script]);
    command.uid(NOBODY).gid(NOBODY);
    let actor = Actor::of(&mut command);
    let file = |name: &str| format!("/proc/{}/{name}", actor.pid());
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    eventually("the namespace", || {
        let theirs = std::fs::read_link(file("ns/user")).ok()?;
        (theirs != own).then_some(())
    });
    // What newgidmap and newuidmap do. Without a group nobody may make a
    // namespace in it.
    std::fs::write(file("gid_map"), format!("0 {NOBODY} 1\n")).ok()?;
    let users = format!("0 {NOBODY} 1\n{inside} {outside} 1\n");
    std::fs::write(file("uid_map"), users).ok()?;
    Some(actor)
}

#[test]
fn a_rootless_container_is_its_makers_whoever_runs_in_it() {
    if !can_act_as_others() || !can_unshare(&["--user"]) {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure("[access]\nhide_other_users = true");
    let Some(actor) = rootless(7, 3_999_999_990) else {
        return skip("users cannot be mapped here");
    };
    stage.play(&one_gpu(&[actor.pid()]));
    let daemon = stage.start();
    let name = name_of(NOBODY).unwrap_or_else(|| NOBODY.to_string());
    let row = row_when(&stage, actor.pid(), |row| {
        row["command"] == "sleep 1000" && row["owner"] == name.as_str()
    });
    assert_eq!(row["uid"], 3_999_999_990u32);
    assert_eq!(
        fields(&row, &["owner_uid", "owner_kind", "namespace_owner_uid"]),
        json!({"owner_uid": NOBODY, "owner_kind": "namespace", "namespace_owner_uid": NOBODY})
    );
    // It is theirs: they see what is hidden from others, and choose it as theirs.
    let seen_by = |uid| acting_as(uid, &[], || stage.list()["procs"][0]["command"].clone());
    assert_eq!(seen_by(NOBODY), "sleep 1000");
    assert_eq!(seen_by(3_999_999_990), "sleep 1000");
    assert_eq!(seen_by(3_999_999_991), Value::Null);
    let remembered_by = |uid| {
        let records = ["audit", "-o", "json", "--process", "sleep"];
        let history = eventually("a sample", || {
            let ran = acting_as(uid, &[], || stage.ctl(&records));
            let history: Value = serde_json::from_str(&ran.stdout).ok()?;
            history["records"][0]["owner"]
                .is_string()
                .then_some(history)
        });
        let names = [
            "owner",
            "owner_uid",
            "owner_kind",
            "namespace_owner_uid",
            "command",
        ];
        fields(&history["records"][0], &names)
    };
    let record = |command: Value| {
        json!({
            "owner": name, "owner_uid": NOBODY, "owner_kind": "namespace",
            "namespace_owner_uid": NOBODY, "command": command,
        })
    };
    // The first sample may be older than the command line.
    becomes(&record(json!("sleep 1000")), || remembered_by(NOBODY));
    assert_eq!(remembered_by(3_999_999_991), record(Value::Null));
    let chosen = stage.json(&["list", "-o", "json", "--user", &NOBODY.to_string()]);
    assert_eq!(chosen["procs"][0]["pid"], actor.pid());
    daemon.stop();
}

#[test]
fn a_daemon_that_is_not_in_the_hosts_pid_namespace_says_that_it_will_end_nothing() {
    let flags = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    if !can_unshare(&flags) {
        return;
    }
    let stage = Stage::new();
    let on_the_host = stage.start();
    let first = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let will_not_act = || stage.json(&["status", "-o", "json"])["will_not_act"].clone();
    if first.to_str() == Some("pid:[4026531836]") {
        assert_eq!(will_not_act(), Value::Null);
        assert_eq!(stage.faults(), []);
    } else {
        skip("the tests themselves are not in the host's PID namespace");
    }
    on_the_host.stop();

    let daemon = stage.daemon();
    let mut inside = Command::new("unshare");
    inside
        .args(flags)
        .arg(daemon.get_program())
        .args(daemon.get_args());
    inside.env_clear();
    for (name, value) in daemon.get_envs() {
        inside.env(name, value.unwrap_or_default());
    }
    // Where the admin has not allowed it; a stage does.
    inside.env("GPUKILLD_DAEMON_FOREIGN_PIDS", "false");
    let daemon = stage.start_with(&mut inside);
    let why = "gpukilld is not in the host's PID namespace, so pids may name other processes: \
               run it on the host, or in a container with the host's PIDs (hostPID: true)";
    assert_eq!(will_not_act(), why);
    let status = stage.ctl(&["status"]).stdout;
    assert!(
        status.contains("ends no process, whoever asks: gpukilld is not in"),
        "{status}"
    );
    assert!(daemon.log().contains("ends no process, whoever asks"));
    // `unshare` ends its child when it ends, and not when it is asked to.
    daemon.kill();
}
