//! A daemon that is killed between a decision and what came of it ends no job twice, and
//! loses no record.

use super::{Box, acts, all, goes_on, steps};
use gpukill_tests::harness::{Daemon, Gate, Procfs, Stage, Troupe, becomes, eventually, is_over};
use serde_json::{Value, json};

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// Nobody here ends on SIGTERM. The launcher says each that it gets.
const STUBBORN: &str = r#"launcher -c '
    trap "echo TERM" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// Sees that a daemon that was started again leaves everybody in peace, and what it has
/// recorded of acts.
fn leaves_in_peace(
    stage: &Stage,
    daemon: Daemon,
    (job, pids): (&Troupe, [u32; 2]),
    recorded: &Value,
) {
    becomes(recorded, || acts(stage));
    goes_on(stage);
    assert_eq!(job.murmurs(), Vec::<String>::new(), "it got a signal");
    assert!(pids.iter().all(|pid| !is_over(*pid)));
    assert_eq!(steps(stage), all("enforce", &["violated", "ended"]));
    assert_eq!(acts(stage), *recorded);
    daemon.stop();
}

fn interrupted() -> Value {
    json!([["guard: default: memory", "interrupted"]])
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
    let daemon = stage.start();
    leaves_in_peace(&stage, daemon, (&job, pids), &interrupted());
}

#[test]
fn a_job_that_a_killed_daemon_was_about_to_end_is_left_in_peace() {
    // Killed while it plans, and between the intent and the first signal.
    let cases = [(0, json!([]), "Chosen"), (1, interrupted(), "Began")];
    for (looks, recorded, progress) in cases {
        let Some(stage) = Box::stage(RULES) else {
            return;
        };
        let procfs = Procfs::at(stage.path("proc"));
        let root = procfs.root().to_owned();
        let daemon = || {
            let mut daemon = stage.daemon();
            daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", &root);
            daemon
        };
        let (mut first, mut second) = (daemon(), daemon());
        let it = Box::of(stage, &mut first);
        let job = Troupe::run(&it.stage, STUBBORN);
        let pids: [u32; 2] = job.pids();
        for pid in pids {
            procfs.link(pid);
        }
        let gate = Gate::new(&procfs);
        it.driver.lists(&[pids[1]]);
        eventually("it is chosen", || {
            (it.steps() == all("enforce", &["violated", "ended"])).then_some(())
        });
        for _ in 0..looks {
            eventually("a look", || gate.open());
            // The intent stands there before the signal.
            becomes(&json!([["guard: default: memory", null]]), || it.acts());
        }
        let held = eventually("it looks", || gate.hold());
        let Box {
            driver: _driver,
            daemon,
            stage,
        } = it;
        daemon.kill();
        drop(held);
        gate.remove();
        let kept = std::fs::read_to_string(stage.path("state/guard.json")).unwrap();
        assert!(
            kept.contains(&format!("\"progress\":\"{progress}\"")),
            "{kept}"
        );
        let daemon = stage.start_with(&mut second);
        leaves_in_peace(&stage, daemon, (&job, pids), &recorded);
    }
}
