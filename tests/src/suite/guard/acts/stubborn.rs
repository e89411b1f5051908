//! Who goes on after SIGTERM.

use super::{Box, all, violations};
use gpukill_tests::harness::{
    Troupe, acting_as, becomes, can_be_several_people, eventually, is_over, user,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The launcher ends on SIGTERM, and says so; its worker does not.
const JOB: &str = r#"launcher -c '
    trap "echo TERM; exit" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// How long SIGTERM may take before SIGKILL, in milliseconds, as README.md says. No setting
/// changes that: this story really waits for so long.
const PATIENCE_MS: u64 = 30_000;

#[test]
fn who_ignores_sigterm_has_half_a_minute_and_is_killed_then() {
    let rules = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
        [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";
    let Some(it) = Box::by(rules) else { return };
    let job = Troupe::run(&it.stage, JOB);
    let [launcher, worker] = job.pids();
    it.driver.lists(&[worker]);
    assert_eq!(job.says(), "TERM");
    // It is seen for the most of it, so that a slow machine may still be late.
    let soon = Instant::now() + Duration::from_millis(PATIENCE_MS * 2 / 3);
    while Instant::now() < soon {
        assert!(!is_over(worker), "it had no time");
        std::thread::sleep(Duration::from_millis(100));
    }
    // What it was meant to be is written down, and not what came of it.
    assert_eq!(it.steps(), all("enforce", &["violated", "ended"]));
    assert_eq!(it.acts(), json!([["guard: default: memory", null]]));

    becomes(&true, || is_over(launcher) && is_over(worker));
    assert_eq!(it.acted(), json!([2, 0, null]));
    becomes(
        &all("enforce", &["violated", "ended", "acted", "over"]),
        || it.steps(),
    );
    let acts = it.stage.json(&["audit", "actions", "-o", "json"]);
    let acts = acts["actions"].as_array().unwrap();
    let kills: Vec<&Value> = acts.iter().filter(|act| act["kind"] == "kill").collect();
    let [kill] = kills[..] else {
        panic!("{acts:#?}")
    };
    assert_eq!(kill["result"], "done", "{kill:#}");
    let became = |pid: u32| {
        let mut outcomes = kill["outcome"]["outcomes"].as_array().unwrap().iter();
        outcomes.find(|it| it["pid"] == pid).unwrap()
    };
    let signal = |pid: u32| json!([became(pid)["ending"], became(pid)["signal"]]);
    assert_eq!(signal(launcher), json!(["ended", "SIGTERM"]));
    assert_eq!(signal(worker), json!(["ended", "SIGKILL"]));
    let after = became(worker)["after_ms"].as_u64().unwrap();
    assert!(after >= PATIENCE_MS, "{kill:#}");
    it.daemon.stop();
}

/// One of whom many jobs ignore SIGTERM, and another.
const STUBBORN: u32 = user(145);
const OTHER: u32 = user(146);

#[test]
fn one_persons_jobs_that_ignore_sigterm_keep_the_guard_from_nobody_else() {
    if !can_be_several_people() {
        return;
    }
    let rules = format!(
        "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
        hard_enforcement = true\n[gpu_policies.0]\nblocked_users = [\"{STUBBORN}\", \"{OTHER}\"]\n"
    );
    let Some(it) = Box::by(&rules) else { return };
    // Only the owner of its directory adds the links to it that the jobs run.
    drop(Troupe::run(&it.stage, "true"));
    let start = |user: u32, script: &str| acting_as(user, &[], || Troupe::run(&it.stage, script));
    let stubborn: Vec<Troupe> = (0..8).map(|_| start(STUBBORN, JOB)).collect();
    let workers: Vec<u32> = stubborn.iter().map(|job| job.pids::<2>()[1]).collect();
    it.driver.lists(&workers);
    let of = |step: &str| -> Vec<Value> {
        let document = violations(&it.stage);
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
    // As many as it ends of one person at once.
    eventually("the guard is at work on four of them", || {
        (ended(STUBBORN).len() >= 4).then_some(())
    });

    let other = start(OTHER, super::JOB);
    let [launcher, worker] = other.pids();
    it.driver.lists(&[worker]);
    becomes(&true, || is_over(launcher) && is_over(worker));
    let acted = eventually("it is told what came of it", || {
        let mut acted = of("acted").into_iter();
        let job = ended(OTHER).first()?["job"].clone();
        acted.find(|it| it["outcome"]["job"] == job)
    });
    let came = json!([
        acted["outcome"]["ended"],
        acted["outcome"]["left"],
        acted["why"]
    ]);
    assert_eq!(came, json!([2, 0, null]), "{acted:#}");
    // It was chosen once, and had its place at once.
    assert_eq!(ended(OTHER).len(), 1);
    it.daemon.stop();
}
