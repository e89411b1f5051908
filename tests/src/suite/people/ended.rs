//! A process that has ended while its driver lists it still: every screen shows the owner,
//! the name and the times that it had, and nothing is decided about it.

use super::{fields, one_gpu, row_when};
use crate::guard::has_rules;
use gpukill_tests::harness::{Actor, Stage, becomes, can_act_as_others, eventually};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A person: a user that no box has.
const ALICE: u32 = 60_001;

/// One process of Alice's is within the limit, and two are not.
const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 1.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// What stays as it was.
const SAME: [&str; 10] = [
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

fn alices_process() -> Actor {
    Actor::of(Command::new("sleep").arg("1000").uid(ALICE).gid(ALICE))
}

#[test]
fn a_process_that_has_ended_keeps_its_owner_and_its_times_while_the_driver_lists_it() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    has_rules(&stage, RULES);
    let ends = alices_process();
    let ended = ends.pid();
    stage.play(&one_gpu(&[ended]));
    let daemon = stage.start();
    let before = row_when(&stage, ended, |row| {
        row["command"] == "sleep 1000" && row["first_seen"].is_string()
    });
    assert_eq!(before["uid"], ALICE);
    assert_eq!(before["ended_at"], Value::Null);
    samples_of(&stage, ended, 1);

    drop(ends);
    let after = row_when(&stage, ended, |row| row["ended_at"].is_string());
    assert_eq!(fields(&after, &SAME), fields(&before, &SAME));
    assert_eq!(after["reasons"]["cpu_pct"], "failed: the process has ended");
    let line = |words: &[&str]| {
        let table = stage.table(words);
        let mut lines = table.lines();
        let line = lines.find(|line| line.contains(&ended.to_string()));
        line.unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    let listed = line(&["list", "--details"]);
    assert!(listed.contains("60001"), "{listed}");
    assert!(
        listed.contains("(ended ") && listed.ends_with(" ago) sleep 1000"),
        "{listed}"
    );
    let summary = stage.table(&["list"]);
    assert!(
        summary.contains("60001 (ended ") && summary.contains(" ago) sleep 1.0G"),
        "{summary}"
    );
    let held = line(&["holders", "--gpu", "0"]);
    assert!(
        held.contains("60001") && held.contains("still listed) sleep 1000"),
        "{held}"
    );
    let own = ended.to_string();
    let explained = stage.ctl(&["explain", &own]).stdout;
    assert!(explained.contains("60001: (ended "), "{explained}");
    assert!(explained.contains("nobody: it has ended"), "{explained}");
    let json = stage.json(&["holders", "--gpu", "0", "-o", "json"]);
    let holder = &json["held_gpus"][0]["holders"][0];
    assert_eq!(
        fields(holder, &["pid", "uid", "role"]),
        json!({"pid": ended, "uid": ALICE, "role": "gone"})
    );

    // What it holds is counted for no living process of hers, and nothing is ended for it.
    let mut lives = alices_process();
    let living = lives.pid();
    stage.play(&one_gpu(&[ended, living]));
    row_when(&stage, living, |row| row["uid"] == ALICE);
    let records = samples_of(&stage, living, 3);
    let is_its = |record: &&Value| record["pid"] == ended;
    for record in records.iter().filter(is_its) {
        assert_eq!(record["owner"], "60001", "{record}");
        assert_eq!(record["process_name"], "sleep", "{record}");
    }
    assert!(records.iter().any(|record| is_its(&record)));
    let users = stage.json(&["audit", "--summary", "-o", "json"])["owners"].clone();
    let users: Vec<&Value> = users.as_array().unwrap().iter().collect();
    assert!(
        users.iter().all(|user| user["owner"] == "60001"),
        "{users:?}"
    );
    let violations = stage.json(&["guard", "violations", "-o", "json"]);
    assert_eq!(violations["records"], json!([]), "{violations}");
    let replay = stage.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
    assert_eq!(replay["records"], json!([]), "{replay}");
    assert!(lives.is_alive());
    let ran = stage.ctl(&["kill", &own, "--yes"]);
    assert_ne!(ran.code, 0, "{ran:?}");

    stage.play(&one_gpu(&[living]));
    becomes(&1, || stage.list()["procs"].as_array().unwrap().len());
    daemon.stop();
}

/// The records of processes, once this many are of this one.
fn samples_of(stage: &Stage, pid: u32, at_least: usize) -> Vec<Value> {
    eventually("samples of the process", || {
        let audit = stage.json(&["audit", "-o", "json"]);
        let records = audit["records"].as_array()?.clone();
        let its = records.iter().filter(|record| record["pid"] == pid);
        (its.count() >= at_least).then_some(records)
    })
}
