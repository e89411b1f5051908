//! Enforce: a process that gets the pid of one that a driver goes on listing is not the one
//! that is listed.

use super::super::has_rules;
use super::{acts, all, goes_on, steps};
use crate::acting::is_inside;
use gpukill_tests::harness::{Actor, Stage, becomes, can_act_as_others, eventually, is_over, skip};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Persons: users that no box has.
const ALICE: u32 = 60_001;
const BOB: u32 = 60_002;

const GIB: u64 = 1 << 30;

/// Bob may not use the GPU, and holds more memory than he may.
const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n\
    [user_policies.60001]\nmemory_limit_gb = 8\n\
    [gpu_policies.0]\nblocked_users = [\"60002\"]\n";

const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// A pid that no process of this test's PID namespace has.
const FREE: u32 = 9_000;

fn process_of(uid: u32) -> Actor {
    Actor::of(Command::new("sleep").arg("1000").uid(uid).gid(uid))
}

/// A process of this user with this pid.
fn process_with(pid: u32, uid: u32) -> Actor {
    eventually("a process gets the pid", || {
        std::fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        Some(process_of(uid)).filter(|it| it.pid() == pid)
    })
}

fn lists(stage: &Stage, pids: &[u32]) {
    let rows = pids.iter().map(|pid| json!({"pid": pid, "memory": GIB}));
    let rows: Vec<Value> = rows.collect();
    let memory = json!({"total": 80 * GIB, "used": GIB * rows.len() as u64});
    stage.play(&json!({"gpus": [{"memory": memory, "processes": rows}]}));
}

/// Pid and user of each row, and why the user is not known.
fn rows(stage: &Stage) -> Vec<Value> {
    let list = stage.list();
    let rows = list["procs"].as_array().unwrap().iter();
    rows.map(|row| json!([row["pid"], row["uid"], row["reasons"]["uid"]]))
        .collect()
}

#[test]
fn whoever_gets_a_pid_that_stays_listed_lives() {
    if !is_inside("guard::acts::reused::whoever_gets_a_pid_that_stays_listed_lives")
        || !can_act_as_others()
    {
        return;
    }
    if std::fs::write(LAST_PID, "2000").is_err() {
        return skip("which pid comes next cannot be said here");
    }
    let stage = Stage::new();
    stage.open_to_all();
    has_rules(&stage, RULES);
    lists(&stage, &[]);
    let daemon = stage.start();
    let nobody = |pid: u32| vec![json!([pid, null, "failed: no such process here"])];

    // One pid was Alice's process's, and one was no process's when it was listed.
    let alices = process_of(ALICE);
    let pid = alices.pid();
    lists(&stage, &[pid]);
    becomes(&vec![json!([pid, ALICE, null])], || rows(&stage));
    drop(alices);
    becomes(&true, || stage.list()["procs"][0]["ended_at"].is_string());
    assert_eq!(rows(&stage), [json!([pid, ALICE, null])]);
    stays_bobs(&stage, pid);

    lists(&stage, &[FREE]);
    becomes(&nobody(FREE), || rows(&stage));
    let bobs = stays_bobs(&stage, FREE);

    // Only when the driver forgot the pid and lists it anew, it names Bob's process.
    lists(&stage, &[]);
    becomes(&Vec::new(), || rows(&stage));
    lists(&stage, &[FREE]);
    becomes(&true, || is_over(bobs.pid()));
    let acted = all("enforce", &["acted"]);
    becomes(&true, || steps(&stage).contains(&acted[0]));
    daemon.stop();
}

/// Lets a process of Bob's have a pid that the driver lists: it uses nothing, and nothing is
/// done to it.
fn stays_bobs(stage: &Stage, pid: u32) -> Actor {
    let bobs = process_with(pid, BOB);
    let why = "failed: listed since before the process with this pid began";
    becomes(&vec![json!([pid, null, why])], || rows(stage));
    goes_on(stage);
    assert!(!is_over(pid), "{}", acts(stage));
    assert_eq!(acts(stage), json!([]));
    assert_eq!(rows(stage), [json!([pid, null, why])]);
    let violations = super::violations(stage).to_string();
    assert!(!violations.contains("60002"), "{violations}");
    let samples = eventually("the samples are stored", || {
        let samples = stage.json(&["audit", "-o", "json"]).to_string();
        samples.contains("60001").then_some(samples)
    });
    assert!(!samples.contains("60002"), "{samples}");
    let own = pid.to_string();
    // Whether Bob's processes use the GPU is not known.
    let words: [(&[&str], i32); 3] = [
        (&["kill", "--gpu", "0", "--batch"], 8),
        (&["kill", "--user", "60002", "--batch"], 2),
        (&["kill", &own, "--yes"], 8),
    ];
    for (words, code) in words {
        let ran = stage.ctl(words);
        assert_eq!(ran.code, code, "{words:?} {ran:?}");
    }
    let why = "listed since before the process with this pid began";
    for words in [&["holders", "--gpu", "0"][..], &["explain", &own][..]] {
        let ran = stage.ctl(words);
        assert!(ran.stdout.contains(why), "{words:?} {ran:?}");
    }
    assert!(!is_over(pid), "{}", acts(stage));
    bobs
}
