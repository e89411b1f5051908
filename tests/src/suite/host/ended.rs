//! An ended process that its driver still lists: every screen keeps its owner, its name and
//! its times, and no rule is evaluated for it.

use super::{gpu_with_processes, row_when, select_fields};
use crate::guard::write_rules;
use gpukill_tests::harness::{
    TestBox, TestProcess, can_run_as_other_users, eventually, eventually_equals, test_uid,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const ALICE_UID: u32 = test_uid(1);

/// One process of Alice is within the limit, and two exceed it.
const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 1.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// Fields that keep their values after the end.
const UNCHANGED_FIELDS: [&str; 10] = [
    "uid",
    "owner",
    "owner_uid",
    "proc_name",
    "command",
    "executable",
    "start_ticks",
    "started_at",
    "first_seen",
    "used_mem_mb",
];

fn start_process_of_alice() -> TestProcess {
    TestProcess::spawn(
        Command::new("sleep")
            .arg("1000")
            .uid(ALICE_UID)
            .gid(ALICE_UID),
    )
}

#[test]
fn ended_process_keeps_owner_and_times() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    write_rules(&test_box, RULES);
    let ends = start_process_of_alice();
    let ended = ends.pid();
    test_box.set_driver_state(&gpu_with_processes(&[ended]));
    let daemon = test_box.start();
    let before = row_when(&test_box, ended, |row| {
        row["command"] == "sleep 1000" && row["first_seen"].is_string()
    });
    assert_eq!(before["uid"], ALICE_UID);
    assert_eq!(before["ended_at"], Value::Null);
    wait_for_samples(&test_box, ended, 1);

    drop(ends);
    let after = row_when(&test_box, ended, |row| row["ended_at"].is_string());
    assert_eq!(
        select_fields(&after, &UNCHANGED_FIELDS),
        select_fields(&before, &UNCHANGED_FIELDS)
    );
    assert_eq!(after["reasons"]["cpu_pct"], "failed: the process has ended");
    let line = |words: &[&str]| {
        let table = test_box.table(words);
        let mut lines = table.lines();
        let line = lines.find(|line| line.contains(&ended.to_string()));
        line.unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    let listed = line(&["list", "--details"]);
    assert!(listed.contains("60601"), "{listed}");
    assert!(
        listed.contains("(ended ") && listed.ends_with(" ago) sleep 1000"),
        "{listed}"
    );
    let summary = test_box.table(&["list"]);
    assert!(
        summary.contains("60601 (ended ") && summary.contains(" ago) sleep 1.0G"),
        "{summary}"
    );
    let held = line(&["holders", "--gpu", "0"]);
    assert!(
        held.contains("60601") && held.contains("still listed) sleep 1000"),
        "{held}"
    );
    let own = ended.to_string();
    let explained = test_box.ctl(&["explain", &own]).stdout;
    assert!(explained.contains("60601: (ended "), "{explained}");
    assert!(explained.contains("nobody: it has ended"), "{explained}");
    let json = test_box.json(&["holders", "--gpu", "0", "-o", "json"]);
    let holder = &json["held_gpus"][0]["holders"][0];
    assert_eq!(
        select_fields(holder, &["pid", "uid", "role"]),
        json!({"pid": ended, "uid": ALICE_UID, "role": "gone"})
    );

    // Its memory does not count against Alice's running process, so that the guard does not
    // end that one.
    let mut lives = start_process_of_alice();
    let living = lives.pid();
    test_box.set_driver_state(&gpu_with_processes(&[ended, living]));
    row_when(&test_box, living, |row| row["uid"] == ALICE_UID);
    let records = wait_for_samples(&test_box, living, 3);
    let is_its = |record: &&Value| record["pid"] == ended;
    for record in records.iter().filter(is_its) {
        assert_eq!(record["owner"], "60601", "{record}");
        assert_eq!(record["process_name"], "sleep", "{record}");
    }
    assert!(records.iter().any(|record| is_its(&record)));
    let users = test_box.json(&["audit", "--summary", "-o", "json"])["owners"].clone();
    let users: Vec<&Value> = users.as_array().unwrap().iter().collect();
    assert!(
        users.iter().all(|user| user["owner"] == "60601"),
        "{users:?}"
    );
    let violations = test_box.json(&["guard", "violations", "-o", "json"]);
    assert_eq!(violations["records"], json!([]), "{violations}");
    let replay = test_box.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
    assert_eq!(replay["records"], json!([]), "{replay}");
    assert!(lives.is_alive());
    let ran = test_box.ctl(&["kill", &own, "--yes"]);
    assert_ne!(ran.code, 0, "{ran:?}");

    test_box.set_driver_state(&gpu_with_processes(&[living]));
    eventually_equals(&1, || test_box.list()["procs"].as_array().unwrap().len());
    daemon.stop();
}

/// Waits until there are `at_least` process records with this pid, and returns all records.
fn wait_for_samples(test_box: &TestBox, pid: u32, at_least: usize) -> Vec<Value> {
    eventually("samples of the process", || {
        let audit = test_box.json(&["audit", "--samples", "-o", "json"]);
        let records = audit["records"].as_array()?.clone();
        let its = records.iter().filter(|record| record["pid"] == pid);
        (its.count() >= at_least).then_some(records)
    })
}
