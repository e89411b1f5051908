//! A daemon that is killed between a decision and what came of it ends no job twice, and
//! loses no record.

use super::{Box, acts, all, goes_on, steps};
use gpukill_tests::harness::{Stage, Troupe, becomes, is_over};
use serde_json::json;

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// Nobody here ends on SIGTERM. The launcher says each that it gets.
const STUBBORN: &str = r#"launcher -c '
    trap "echo TERM" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// Starts the daemon again, and sees that it leaves everybody in peace.
fn leaves_in_peace(stage: &Stage, job: &Troupe, pids: [u32; 2]) {
    let daemon = stage.start();
    becomes(&json!([["guard: default: memory", "interrupted"]]), || {
        acts(stage)
    });
    goes_on(stage);
    assert_eq!(job.murmurs(), Vec::<String>::new(), "it got a signal");
    assert!(pids.iter().all(|pid| !is_over(*pid)));
    assert_eq!(steps(stage), all("enforce", &["violated", "ended"]));
    daemon.stop();
    let expected = json!([["guard: default: memory", "interrupted"]]);
    let daemon = stage.start();
    becomes(&expected, || acts(stage));
    daemon.stop();
}

#[test]
fn a_job_that_had_its_signal_from_a_killed_daemon_gets_no_other() {
    let Some(it) = Box::by(RULES) else { return };
    let job = Troupe::run(&it.stage, STUBBORN);
    let pids = job.pids();
    it.driver.lists(&[pids[1]]);
    assert_eq!(job.says(), "TERM");
    // The intent stands there before the signal.
    assert_eq!(it.acts(), json!([["guard: default: memory", null]]));
    let Box {
        driver: _driver,
        daemon,
        stage,
    } = it;
    daemon.kill();
    leaves_in_peace(&stage, &job, pids);
}
