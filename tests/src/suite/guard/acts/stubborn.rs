//! Who goes on after SIGTERM.

use super::{Box, all};
use gpukill_tests::harness::{Troupe, becomes, is_over};
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
