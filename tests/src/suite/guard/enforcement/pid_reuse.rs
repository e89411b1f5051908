//! Enforce mode: a process that reuses the pid of a process that the driver still lists is not
//! the listed process.

use super::super::write_rules;
use super::{guard_steps, recorded_kills, steps_in_mode, wait_for_polls};
use crate::kill::is_in_test_namespaces;
use gpukill_tests::harness::{
    TestBox, TestProcess, can_run_as_other_users, eventually, eventually_equals, process_has_ended,
    skip,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Persons; no machine has these uids.
const ALICE: u32 = 60_001;
const BOB: u32 = 60_002;

const GIB: u64 = 1 << 30;

/// Bob may not use the GPU, and exceeds the memory limit.
const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n\
    [user_policies.60001]\nmemory_limit_gb = 8\n\
    [gpu_policies.0]\nblocked_users = [\"60002\"]\n";

const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// A pid that is free in the PID namespace of this test.
const FREE_PID: u32 = 9_000;

fn process_of(uid: u32) -> TestProcess {
    TestProcess::spawn(Command::new("sleep").arg("1000").uid(uid).gid(uid))
}

/// Starts a process of this user with this pid.
fn process_with_pid(pid: u32, uid: u32) -> TestProcess {
    eventually("a process gets the pid", || {
        std::fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        Some(process_of(uid)).filter(|it| it.pid() == pid)
    })
}

fn set_listed_pids(test_box: &TestBox, pids: &[u32]) {
    let rows = pids.iter().map(|pid| json!({"pid": pid, "memory": GIB}));
    let rows: Vec<Value> = rows.collect();
    let memory = json!({"total": 80 * GIB, "used": GIB * rows.len() as u64});
    test_box.set_driver_state(&json!({"gpus": [{"memory": memory, "processes": rows}]}));
}

/// Pid, user and the reason of an unknown user in each row.
fn rows(test_box: &TestBox) -> Vec<Value> {
    let list = test_box.list();
    let rows = list["procs"].as_array().unwrap().iter();
    rows.map(|row| json!([row["pid"], row["uid"], row["reasons"]["uid"]]))
        .collect()
}

#[test]
fn reused_pid_is_not_ended() {
    if !is_in_test_namespaces("guard::enforcement::pid_reuse::reused_pid_is_not_ended")
        || !can_run_as_other_users()
    {
        return;
    }
    if std::fs::write(LAST_PID, "2000").is_err() {
        return skip("the next pid cannot be set here");
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    write_rules(&test_box, RULES);
    set_listed_pids(&test_box, &[]);
    let daemon = test_box.start();
    let nobody = |pid: u32| vec![json!([pid, null, "failed: no such process on this host"])];

    // The first pid belonged to Alice's process, the second to no process when it was listed.
    let alices = process_of(ALICE);
    let pid = alices.pid();
    set_listed_pids(&test_box, &[pid]);
    eventually_equals(&vec![json!([pid, ALICE, null])], || rows(&test_box));
    drop(alices);
    eventually_equals(&true, || {
        test_box.list()["procs"][0]["ended_at"].is_string()
    });
    assert_eq!(rows(&test_box), [json!([pid, ALICE, null])]);
    assert_not_attributed(&test_box, pid);

    set_listed_pids(&test_box, &[FREE_PID]);
    eventually_equals(&nobody(FREE_PID), || rows(&test_box));
    let bobs = assert_not_attributed(&test_box, FREE_PID);

    // The row is Bob's only after the driver has removed the pid and lists it again.
    set_listed_pids(&test_box, &[]);
    eventually_equals(&Vec::new(), || rows(&test_box));
    set_listed_pids(&test_box, &[FREE_PID]);
    eventually_equals(&true, || process_has_ended(bobs.pid()));
    let outcome = steps_in_mode("enforce", &["outcome"]);
    eventually_equals(&true, || guard_steps(&test_box).contains(&outcome[0]));
    daemon.stop();
}

/// Starts a process of Bob with a listed pid and checks that it is neither attributed nor
/// ended.
fn assert_not_attributed(test_box: &TestBox, pid: u32) -> TestProcess {
    let bobs = process_with_pid(pid, BOB);
    let why = "failed: listed before the process with this pid started";
    eventually_equals(&vec![json!([pid, null, why])], || rows(test_box));
    wait_for_polls(test_box);
    assert!(!process_has_ended(pid), "{}", recorded_kills(test_box));
    assert_eq!(recorded_kills(test_box), json!([]));
    assert_eq!(rows(test_box), [json!([pid, null, why])]);
    let violations = super::guard_violations(test_box).to_string();
    assert!(!violations.contains("60002"), "{violations}");
    let samples = eventually("the samples are stored", || {
        let samples = test_box
            .json(&["audit", "--samples", "-o", "json"])
            .to_string();
        samples.contains("60001").then_some(samples)
    });
    assert!(!samples.contains("60002"), "{samples}");
    let own = pid.to_string();
    // Whether Bob's processes use the GPU is unknown.
    let words: [(&[&str], i32); 3] = [
        (&["kill", "--gpu", "0", "--batch"], 8),
        (&["kill", "--user", "60002", "--batch"], 2),
        (&["kill", &own, "--yes"], 8),
    ];
    for (words, code) in words {
        let ran = test_box.ctl(words);
        assert_eq!(ran.code, code, "{words:?} {ran:?}");
    }
    let why = "listed before the process with this pid started";
    for words in [&["holders", "--gpu", "0"][..], &["explain", &own][..]] {
        let ran = test_box.ctl(words);
        assert!(ran.stdout.contains(why), "{words:?} {ran:?}");
    }
    assert!(!process_has_ended(pid), "{}", recorded_kills(test_box));
    bobs
}
