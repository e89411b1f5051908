//! Processes in other user and PID namespaces, and a daemon that runs in one.

use super::{gpu_with_processes, row_when, select_fields, user_name};
use gpukill_tests::harness::{
    NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, can_see_all_cgroups,
    can_use_several_persons, eventually, eventually_equals, run_as_user, skip, test_uid,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Whether this machine permits `unshare` with these arguments.
fn can_unshare(arguments: &[&str]) -> bool {
    let mut command = Command::new("unshare");
    command.args(arguments).arg("true").stderr(Stdio::null());
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        skip("no such namespace can be made here");
    }
    can
}

/// Waits for the only child of a process to have this name, and returns its pid.
fn wait_for_child(pid: u32, name: &str) -> u32 {
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
fn subordinate_uid_without_namespace_has_its_owner() {
    if !can_use_several_persons() {
        return;
    }
    let test_box = TestBox::new();
    let (uid, person) = (test_uid(7), test_uid(50));
    let mut command = Command::new("sleep");
    command.arg("1000").uid(uid).gid(uid);
    let mut job = TestProcess::spawn(&mut command);
    test_box.set_driver_state(&gpu_with_processes(&[job.pid()]));
    let range = format!("{person}:{}:10\n", test_uid(0));
    let daemon = test_box.start_with(&mut test_box.daemon_command_with_subuid(&range));
    let row = row_when(&test_box, job.pid(), |row| row["owner"].is_string());
    let keys = ["uid", "owner_uid", "owner_kind", "namespace_owner_uid"];
    let expected = json!({
        "uid": uid,
        "owner_uid": person,
        "owner_kind": "subordinate",
        "namespace_owner_uid": null,
    });
    assert_eq!(select_fields(&row, &keys), expected);
    // The attribution gives no right to end the process.
    test_box.make_world_accessible();
    let kill = ["kill", &job.pid().to_string(), "--yes"];
    let theirs = run_as_user(person, &[], || test_box.ctl(&kill));
    assert_ne!(theirs.code, 0, "{theirs:?}");
    assert!(job.is_alive());
    daemon.stop();
}

#[test]
fn process_of_other_pid_namespace_has_inner_pid() {
    let flags = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
    ];
    if !can_unshare(&flags) || !can_see_all_cgroups() {
        return;
    }
    let test_box = TestBox::new();
    let outer = TestProcess::spawn(Command::new("unshare").args(flags).args(["sleep", "1000"]));
    let inner = wait_for_child(outer.pid(), "sleep");
    test_box.set_driver_state(&gpu_with_processes(&[inner, outer.pid()]));
    let daemon = test_box.start();
    let us = rustix::process::geteuid().as_raw();
    let row = row_when(&test_box, inner, |row| row["command"] == "sleep 1000");
    assert_eq!(
        select_fields(
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
    let row = row_when(&test_box, outer.pid(), |row| row["uid"].is_u64());
    assert_eq!(row["reasons"]["inner_pid"], Value::Null);
    assert_eq!(row["inner_pid"], Value::Null);
    daemon.stop();
}

/// Starts a process with a subordinate uid, as rootless containers have them: in a user
/// namespace that user nobody owns, and within that in another one.
fn start_rootless(inside: u32, outside: u32) -> Option<TestProcess> {
    let mut command = Command::new("unshare");
    let script = format!(
        "until setpriv --reuid={inside} --keep-groups true; do sleep 0.02; done; \
         exec setpriv --reuid={inside} --keep-groups unshare --user sleep 1000"
    );
    command.args(["--user", "sh", "-c", &script]);
    command.uid(NOBODY_UID).gid(NOBODY_UID);
    let process = TestProcess::spawn(&mut command);
    let file = |name: &str| format!("/proc/{}/{name}", process.pid());
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    eventually("the namespace", || {
        let theirs = std::fs::read_link(file("ns/user")).ok()?;
        (theirs != own).then_some(())
    });
    // Writes what newgidmap and newuidmap write. Without a mapped group no user may create
    // a namespace inside.
    std::fs::write(file("gid_map"), format!("0 {NOBODY_UID} 1\n")).ok()?;
    let users = format!("0 {NOBODY_UID} 1\n{inside} {outside} 1\n");
    std::fs::write(file("uid_map"), users).ok()?;
    Some(process)
}

#[test]
fn rootless_container_belongs_to_its_creator() {
    if !can_run_as_other_users() || !can_unshare(&["--user"]) {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure("[access]\nhide_other_users = true");
    let Some(process) = start_rootless(7, 3_999_999_990) else {
        return skip("users cannot be mapped here");
    };
    test_box.set_driver_state(&gpu_with_processes(&[process.pid()]));
    let daemon = test_box.start();
    let name = user_name(NOBODY_UID).unwrap_or_else(|| NOBODY_UID.to_string());
    let row = row_when(&test_box, process.pid(), |row| {
        row["command"] == "sleep 1000" && row["owner"] == name.as_str()
    });
    assert_eq!(row["uid"], 3_999_999_990u32);
    assert_eq!(
        select_fields(&row, &["owner_uid", "owner_kind", "namespace_owner_uid"]),
        json!({"owner_uid": NOBODY_UID, "owner_kind": "namespace", "namespace_owner_uid": NOBODY_UID})
    );
    // The creator owns it: they see what is hidden from other users, and `--user` with
    // their name selects it.
    let seen_by = |uid| run_as_user(uid, &[], || test_box.list()["procs"][0]["command"].clone());
    assert_eq!(seen_by(NOBODY_UID), "sleep 1000");
    assert_eq!(seen_by(3_999_999_990), "sleep 1000");
    assert_eq!(seen_by(3_999_999_991), Value::Null);
    let remembered_by = |uid| {
        let records = ["audit", "--samples", "-o", "json", "--process", "sleep"];
        let history = eventually("a sample", || {
            let ran = run_as_user(uid, &[], || test_box.ctl(&records));
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
        select_fields(&history["records"][0], &names)
    };
    let record = |command: Value| {
        json!({
            "owner": name, "owner_uid": NOBODY_UID, "owner_kind": "namespace",
            "namespace_owner_uid": NOBODY_UID, "command": command,
        })
    };
    // The first sample may be older than the first reading of the command line.
    eventually_equals(&record(json!("sleep 1000")), || remembered_by(NOBODY_UID));
    assert_eq!(remembered_by(3_999_999_991), record(Value::Null));
    let chosen = test_box.json(&["list", "-o", "json", "--user", &NOBODY_UID.to_string()]);
    assert_eq!(chosen["procs"][0]["pid"], process.pid());
    daemon.stop();
}

#[test]
fn daemon_in_pid_namespace_refuses_to_act() {
    let flags = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    if !can_unshare(&flags) {
        return;
    }
    let test_box = TestBox::new();
    let on_the_host = test_box.start();
    let first = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let will_not_act = || test_box.json(&["status", "-o", "json"])["will_not_act"].clone();
    if first.to_str() == Some("pid:[4026531836]") {
        assert_eq!(will_not_act(), Value::Null);
        assert_eq!(test_box.faults(), []);
    } else {
        skip("the tests themselves are not in the host's PID namespace");
    }
    on_the_host.stop();

    let daemon = test_box.daemon_command();
    let mut inside = Command::new("unshare");
    inside
        .args(flags)
        .arg(daemon.get_program())
        .args(daemon.get_args());
    inside.env_clear();
    for (name, value) in daemon.get_envs() {
        inside.env(name, value.unwrap_or_default());
    }
    // The admin has not permitted foreign pids here; a test box does by default.
    inside.env("GPUKILLD_DAEMON_FOREIGN_PIDS", "false");
    let daemon = test_box.start_with(&mut inside);
    let why = "gpukilld is not in the host's PID namespace, so pids may name other processes: \
               run it on the host, or in a container with the host's PIDs (hostPID: true)";
    assert_eq!(will_not_act(), why);
    let status = test_box.ctl(&["status"]).stdout;
    assert!(
        status.contains("ends no process for any caller: gpukilld is not in"),
        "{status}"
    );
    assert!(daemon.log().contains("kills are disabled"));
    // `unshare` ends its child when it is killed, and not on SIGTERM.
    daemon.kill();
}
