//! Who may end whose processes.

use super::{Box, all, endings};
use gpukill_tests::harness::{
    Actor, NOBODY, Troupe, acting_as, becomes, can_act_as_others, eventually, group, is_over, skip,
    user,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Users without any right.
const ALICE: u32 = user(1);
const BOB: u32 = user(2);
const CAROL: u32 = user(3);

fn actor_of(uid: u32) -> Actor {
    let mut command = Command::new("sleep");
    Actor::of(command.arg0("python --token=secret").arg("1000").uid(uid))
}

#[test]
fn people_end_their_own_processes_and_operators_anybodys() {
    if !can_act_as_others() {
        return;
    }
    let Some(operators) = group("daemon") else {
        return skip("this system has no group daemon");
    };
    let it = Box::configured("[access]\noperator_group = \"daemon\"");
    let [own, others, nobodys] = [ALICE, BOB, NOBODY].map(actor_of);
    let pids = [&own, &others, &nobodys].map(Actor::pid);
    it.lists(&pids);

    let (code, report) = acting_as(ALICE, &[], || it.kill(&[&own.pid().to_string()]));
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[own.pid()], "ended", "SIGTERM"))
    );
    assert_eq!(it.recorded()["uid"], ALICE);

    let pid = nobodys.pid();
    let ran = acting_as(ALICE, &[], || {
        it.says(&[&pid.to_string(), "--yes", "--force"])
    });
    let nobody = super::super::people::name_of(NOBODY).unwrap_or_else(|| NOBODY.to_string());
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
    becomes(&json!(["refused", ALICE, pid.to_string()]), || {
        let act = it.recorded();
        json!([act["word"], act["uid"], act["asked"]])
    });
    assert!(!is_over(pid));
    // Neither does somebody whose rights are of another group.
    let ran = acting_as(ALICE, &[operators + 1], || it.says(&[&pid.to_string()]));
    assert_eq!(ran.code, 4, "{ran:?}");

    let pid = pid.to_string();
    let (code, report) = acting_as(ALICE, &[operators], || it.kill(&[&pid]));
    assert_eq!(
        (code, &report["outcomes"][0]["ending"]),
        (0, &json!("ended"))
    );
    let (code, report) = it.kill(&[&others.pid().to_string()]);
    assert_eq!(
        (code, &report["outcomes"][0]["ending"]),
        (0, &json!("ended"))
    );
}

#[test]
fn of_several_a_person_ends_their_own_and_is_told_of_the_rest() {
    if !can_act_as_others() {
        return;
    }
    let it = Box::new();
    let [own, others] = [ALICE, BOB].map(actor_of);
    let (a, b) = (own.pid(), others.pid());
    it.lists(&[a, b]);
    let (code, report) = acting_as(ALICE, &[], || it.kill(&["--gpu", "0", "--batch"]));
    assert_eq!(code, 7, "{report:#}");
    let mut expected = [(a, "ended", Some("SIGTERM")), (b, "denied", None)];
    expected.sort_unstable();
    assert_eq!(endings(&report), json!(expected));
    assert!(is_over(a) && !is_over(b));
}

#[test]
fn a_hidden_command_line_never_says_who_is_meant() {
    if !can_act_as_others() {
        return;
    }
    let it = Box::configured("[access]\nhide_other_users = true");
    let [own, others] = [ALICE, BOB].map(actor_of);
    it.lists(&[own.pid(), others.pid()]);
    let arguments = ["--command", "secret", "--batch", "--dry-run"];
    let (code, plan) = acting_as(ALICE, &[], || it.kill(&arguments));
    assert_eq!(
        (code, super::ended(&plan)),
        (0, vec![own.pid()]),
        "{plan:#}"
    );
    assert_eq!(plan["targets"].as_array().unwrap().len(), 1, "{plan:#}");
    assert!(
        !plan.to_string().contains(&others.pid().to_string()),
        "{plan:#}"
    );
    // Whether it matches or not, the answer is the same.
    let [right, wrong] = ["secret", "wrong"].map(|pattern| {
        let ran = acting_as(CAROL, &[], || it.says(&["--command", pattern, "--batch"]));
        (ran.code, ran.stdout, ran.stderr)
    });
    assert_eq!(right, wrong);
    assert_ne!(right.0, 0);
    let (code, plan) = it.kill(&arguments);
    assert_eq!((code, super::ended(&plan).len()), (0, 2), "{plan:#}");
    assert!(!is_over(own.pid()) && !is_over(others.pid()));
}

#[test]
fn whoever_made_a_user_namespace_ends_what_runs_in_it() {
    if !can_act_as_others() {
        return;
    }
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("setpriv") || !has("unshare") {
        return skip("no setpriv or unshare here");
    }
    let it = Box::new();
    // Alice's, and in it a process of a uid that is Carol's on the box.
    let script = "echo $$
        until [ \"$(cat /proc/self/uid_map)\" ]; do sleep 0.02; done
        exec setpriv --reuid=5 --keep-groups worker 1000";
    let mut command = Command::new("unshare");
    command.args(["--user", "--keep-caps", "bash", "-c", script]);
    let troupe = Troupe::of(&it.stage, command.uid(ALICE).gid(ALICE));
    let [pid] = troupe.pids();
    let map = format!("0 {ALICE} 1\n5 {CAROL} 1\n");
    if std::fs::write(format!("/proc/{pid}/uid_map"), map).is_err() {
        return skip("no user namespace can be mapped here");
    }
    eventually("it is the other user's", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let is_worker = status.starts_with("Name:\tworker\n");
        (is_worker && status.contains(&format!("\nUid:\t{CAROL}\t"))).then_some(())
    });
    it.lists(&[pid]);
    let ran = acting_as(BOB, &[], || it.says(&[&pid.to_string()]));
    assert_eq!(ran.code, 4, "{ran:?}");
    let (code, report) = acting_as(ALICE, &[], || it.kill(&[&pid.to_string()]));
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[pid], "ended", "SIGTERM"))
    );
    assert!(is_over(pid));
}

#[test]
fn a_plan_is_of_who_made_it_and_a_process_that_took_others_rights_is_not_theirs() {
    if !can_act_as_others() {
        return;
    }
    let has = Command::new("setpriv").arg("--version").output();
    if has.is_err() {
        return skip("no setpriv here");
    }
    let it = Box::new();
    // Alice's by its real user, with Bob's rights, as a set-user-id program has.
    let mut command = Command::new("setpriv");
    let (real, effective) = (format!("--ruid={ALICE}"), format!("--euid={BOB}"));
    command.args([&real, &effective, "--keep-groups"]);
    let actor = Actor::of(command.args(["sleep", "1000"]));
    let pid = actor.pid();
    eventually("it has both users", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .contains(&format!("\nUid:\t{ALICE}\t{BOB}\t"))
            .then_some(())
    });
    it.lists(&[pid]);
    for uid in [ALICE, BOB] {
        let ran = acting_as(uid, &[], || it.says(&[&pid.to_string()]));
        assert_eq!(ran.code, 4, "{ran:?}");
    }
    assert!(!is_over(pid));
}
