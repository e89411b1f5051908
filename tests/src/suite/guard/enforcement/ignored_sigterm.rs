//! Processes that ignore SIGTERM.

use super::{GuardBox, guard_violations, steps_in_mode};
use gpukill_tests::harness::{
    Script, can_use_several_persons, eventually, eventually_equals, process_has_ended, run_as_user,
    test_uid,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

/// The launcher prints SIGTERM and ends; its worker ignores it.
const JOB: &str = r#"launcher -c '
    trap "echo TERM; exit" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// The time from SIGTERM to SIGKILL in milliseconds, according to README.md. No setting changes
/// it, so the test waits that long.
const SIGTERM_TIMEOUT_MS: u64 = 30_000;

#[test]
fn sigkill_follows_after_half_a_minute() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(it) = GuardBox::with_rules(rules) else {
        return;
    };
    // A process group of its own: an orphan of the group that starts during the kill is reported.
    let mut shell = std::process::Command::new("bash");
    let job = Script::spawn(&it.test_box, shell.args(["-c", JOB]).process_group(0));
    let [launcher, worker] = job.next_pids();
    it.driver.add_processes(&[worker]);
    assert_eq!(job.next_line(), "TERM");
    // Checks two thirds of the time, so that a slow machine may be late.
    let soon = Instant::now() + Duration::from_millis(SIGTERM_TIMEOUT_MS * 2 / 3);
    while Instant::now() < soon {
        assert!(
            !process_has_ended(worker),
            "SIGKILL came before the timeout"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    // The decision is recorded, and no outcome yet.
    assert_eq!(it.steps(), steps_in_mode("enforce", &["violated", "ended"]));
    assert_eq!(it.kills(), json!([["guard: default: memory", null]]));
    let open = guard_violations(&it.test_box)["open"][0].clone();
    assert!(open["ending_since"].is_string(), "{open:#}");
    let ended = (&open["ended_at"], &open["survived_at"]);
    assert_eq!(ended, (&json!(null), &json!(null)));

    eventually_equals(&true, || {
        process_has_ended(launcher) && process_has_ended(worker)
    });
    assert_eq!(it.outcome(), json!([2, 0, null]));
    eventually_equals(
        &steps_in_mode("enforce", &["violated", "ended", "outcome", "over"]),
        || it.steps(),
    );
    let actions = it.test_box.json(&["audit", "actions", "-o", "json"]);
    let actions = actions["actions"].as_array().unwrap();
    let kills: Vec<&Value> = actions
        .iter()
        .filter(|action| action["kind"] == "kill")
        .collect();
    let [kill] = kills[..] else {
        panic!("{actions:#?}")
    };
    assert_eq!(kill["result"], "done", "{kill:#}");
    let became = |pid: u32| {
        let mut outcomes = kill["outcome"]["outcomes"].as_array().unwrap().iter();
        outcomes.find(|it| it["pid"] == pid).unwrap()
    };
    let signal = |pid: u32| json!([became(pid)["outcome"], became(pid)["signal"]]);
    assert_eq!(signal(launcher), json!(["ended", "SIGTERM"]));
    assert_eq!(signal(worker), json!(["ended", "SIGKILL"]));
    let after = became(worker)["after_ms"].as_u64().unwrap();
    assert!(after >= SIGTERM_TIMEOUT_MS, "{kill:#}");
    it.daemon.stop();
}

/// A user with many jobs that ignore SIGTERM, and another user.
const STUBBORN: u32 = test_uid(145);
const OTHER: u32 = test_uid(146);

#[test]
fn one_person_does_not_block_the_guard() {
    if !can_use_several_persons() {
        return;
    }
    let rules = format!(
        "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
        hard_enforcement = true\n[gpu_policies.0]\nblocked_users = [\"{STUBBORN}\", \"{OTHER}\"]\n"
    );
    let Some(it) = GuardBox::with_rules(&rules) else {
        return;
    };
    // Creates the links in the box's directory as its owner.
    drop(Script::run(&it.test_box, "true"));
    let start =
        |user: u32, script: &str| run_as_user(user, &[], || Script::run(&it.test_box, script));
    let stubborn: Vec<Script> = (0..8).map(|_| start(STUBBORN, JOB)).collect();
    let workers: Vec<u32> = stubborn.iter().map(|job| job.next_pids::<2>()[1]).collect();
    it.driver.add_processes(&workers);
    let of = |step: &str| -> Vec<Value> {
        let document = guard_violations(&it.test_box);
        let records = document["records"].as_array().unwrap().iter();
        records.filter(|it| it["step"] == step).cloned().collect()
    };
    let ended = |user: u32| -> Vec<Value> {
        let ended = of("ended").into_iter();
        ended
            .map(|it| it["victim"].clone())
            .filter(|it| it["owner_uid"] == user)
            .collect()
    };
    // The maximum number of concurrent enforcements for one person.
    eventually("the guard is at work on four of them", || {
        (ended(STUBBORN).len() >= 4).then_some(())
    });

    let other = start(OTHER, super::RESPAWNING_JOB);
    let [launcher, worker] = other.next_pids();
    it.driver.add_processes(&[worker]);
    eventually_equals(&true, || {
        process_has_ended(launcher) && process_has_ended(worker)
    });
    let outcome = eventually("the outcome is recorded", || {
        let mut outcome = of("outcome").into_iter();
        let job = ended(OTHER).first()?["job"].clone();
        outcome.find(|it| it["outcome"]["job"] == job)
    });
    let came = json!([
        outcome["outcome"]["ended"],
        outcome["outcome"]["left"],
        outcome["why"]
    ]);
    assert_eq!(came, json!([2, 0, null]), "{outcome:#}");
    // The job was chosen once and was not delayed.
    assert_eq!(ended(OTHER).len(), 1);
    it.daemon.stop();
}
