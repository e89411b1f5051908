//! Which callers may end which processes.

use super::{KillBox, all_with_ending, outcomes};
use gpukill_tests::harness::{
    NOBODY_UID, Script, TestProcess, can_run_as_other_users, eventually, eventually_equals,
    group_id, process_has_ended, run_as_user, skip, test_uid,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Users without rights.
const ALICE: u32 = test_uid(1);
const BOB: u32 = test_uid(2);
const CAROL: u32 = test_uid(3);

fn process_of(uid: u32) -> TestProcess {
    let mut command = Command::new("sleep");
    TestProcess::spawn(command.arg0("python --token=secret").arg("1000").uid(uid))
}

#[test]
fn users_end_their_own_operators_any() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(operators) = group_id("daemon") else {
        return skip("this system has no group daemon");
    };
    let it = KillBox::with_settings("[access]\noperator_group = \"daemon\"");
    let [own, others, nobodys] = [ALICE, BOB, NOBODY_UID].map(process_of);
    let pids = [&own, &others, &nobodys].map(TestProcess::pid);
    it.add_gpu_processes(&pids);

    let (code, report) = run_as_user(ALICE, &[], || it.kill_json(&[&own.pid().to_string()]));
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[own.pid()], "ended", "SIGTERM"))
    );
    assert_eq!(it.newest_action()["uid"], ALICE);

    let pid = nobodys.pid();
    let ran = run_as_user(ALICE, &[], || {
        it.kill_output(&[&pid.to_string(), "--yes", "--force"])
    });
    let nobody =
        super::super::host::user_name(NOBODY_UID).unwrap_or_else(|| NOBODY_UID.to_string());
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (
            4,
            "",
            format!(
                "gpukillctl: cannot end process {pid}: it belongs to {nobody}\n\
                 hint: ask {nobody}, or someone in group daemon\n"
            )
            .as_str()
        )
    );
    eventually_equals(&json!(["refused", ALICE, pid.to_string()]), || {
        let action = it.newest_action();
        json!([action["result"], action["uid"], action["request"]])
    });
    assert!(!process_has_ended(pid));
    // A right of another group does not help.
    let ran = run_as_user(ALICE, &[operators + 1], || {
        it.kill_output(&[&pid.to_string()])
    });
    assert_eq!(ran.code, 4, "{ran:?}");

    let pid = pid.to_string();
    let (code, report) = run_as_user(ALICE, &[operators], || it.kill_json(&[&pid]));
    assert_eq!(
        (code, &report["outcomes"][0]["outcome"]),
        (0, &json!("ended"))
    );
    let (code, report) = it.kill_json(&[&others.pid().to_string()]);
    assert_eq!(
        (code, &report["outcomes"][0]["outcome"]),
        (0, &json!("ended"))
    );
}

#[test]
fn other_users_processes_are_reported_as_denied() {
    if !can_run_as_other_users() {
        return;
    }
    let it = KillBox::new();
    let [own, others] = [ALICE, BOB].map(process_of);
    let (a, b) = (own.pid(), others.pid());
    it.add_gpu_processes(&[a, b]);
    let (code, report) = run_as_user(ALICE, &[], || it.kill_json(&["--gpu", "0", "--batch"]));
    assert_eq!(code, 7, "{report:#}");
    let mut expected = [(a, "ended", Some("SIGTERM")), (b, "denied", None)];
    expected.sort_unstable();
    assert_eq!(outcomes(&report), json!(expected));
    assert!(process_has_ended(a) && !process_has_ended(b));
}

#[test]
fn hidden_command_lines_do_not_leak() {
    if !can_run_as_other_users() {
        return;
    }
    let it = KillBox::with_settings("[access]\nhide_other_users = true");
    let [own, others] = [ALICE, BOB].map(process_of);
    it.add_gpu_processes(&[own.pid(), others.pid()]);
    let arguments = ["--command", "secret", "--batch", "--dry-run"];
    let (code, plan) = run_as_user(ALICE, &[], || it.kill_json(&arguments));
    assert_eq!(
        (code, super::planned_pids(&plan)),
        (0, vec![own.pid()]),
        "{plan:#}"
    );
    assert_eq!(plan["targets"].as_array().unwrap().len(), 1, "{plan:#}");
    assert!(
        !plan.to_string().contains(&others.pid().to_string()),
        "{plan:#}"
    );
    // The answer must not depend on whether the pattern matches.
    let [right, wrong] = ["secret", "wrong"].map(|pattern| {
        let ran = run_as_user(CAROL, &[], || {
            it.kill_output(&["--command", pattern, "--batch"])
        });
        (ran.code, ran.stdout, ran.stderr)
    });
    assert_eq!(right, wrong);
    assert_ne!(right.0, 0);
    let (code, plan) = it.kill_json(&arguments);
    assert_eq!((code, super::planned_pids(&plan).len()), (0, 2), "{plan:#}");
    assert!(!process_has_ended(own.pid()) && !process_has_ended(others.pid()));
}

#[test]
fn namespace_owner_ends_its_processes() {
    if !can_run_as_other_users() {
        return;
    }
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("setpriv") || !has("unshare") {
        return skip("no setpriv or unshare here");
    }
    let it = KillBox::new();
    // The namespace belongs to Alice; the process in it has Carol's uid on the host.
    let commands = "echo $$
        until [ \"$(cat /proc/self/uid_map)\" ]; do sleep 0.02; done
        exec setpriv --reuid=5 --keep-groups worker 1000";
    let mut command = Command::new("unshare");
    command.args(["--user", "--keep-caps", "bash", "-c", commands]);
    let script = Script::spawn(&it.test_box, command.uid(ALICE).gid(ALICE));
    let [pid] = script.next_pids();
    let map = format!("0 {ALICE} 1\n5 {CAROL} 1\n");
    if std::fs::write(format!("/proc/{pid}/uid_map"), map).is_err() {
        return skip("no user namespace can be mapped here");
    }
    eventually("the process has the other uid", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let is_worker = status.starts_with("Name:\tworker\n");
        (is_worker && status.contains(&format!("\nUid:\t{CAROL}\t"))).then_some(())
    });
    it.add_gpu_processes(&[pid]);
    let ran = run_as_user(BOB, &[], || it.kill_output(&[&pid.to_string()]));
    assert_eq!(ran.code, 4, "{ran:?}");
    let (code, report) = run_as_user(ALICE, &[], || it.kill_json(&[&pid.to_string()]));
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[pid], "ended", "SIGTERM"))
    );
    assert!(process_has_ended(pid));
}

#[test]
fn set_user_id_process_is_denied() {
    if !can_run_as_other_users() {
        return;
    }
    let has = Command::new("setpriv").arg("--version").output();
    if has.is_err() {
        return skip("no setpriv here");
    }
    let it = KillBox::new();
    // The real user is Alice and the effective user Bob, as in a set-user-id program.
    let mut command = Command::new("setpriv");
    let (real, effective) = (format!("--ruid={ALICE}"), format!("--euid={BOB}"));
    command.args([&real, &effective, "--keep-groups"]);
    let process = TestProcess::spawn(command.args(["sleep", "1000"]));
    let pid = process.pid();
    eventually("the process has both uids", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .contains(&format!("\nUid:\t{ALICE}\t{BOB}\t"))
            .then_some(())
    });
    it.add_gpu_processes(&[pid]);
    for uid in [ALICE, BOB] {
        let ran = run_as_user(uid, &[], || it.kill_output(&[&pid.to_string()]));
        assert_eq!(ran.code, 4, "{ran:?}");
    }
    assert!(!process_has_ended(pid));
}
