//! A daemon that is killed between a decision and its outcome ends no job twice and loses no
//! record.

use super::{GuardBox, guard_steps, recorded_kills, steps_in_mode, wait_for_polls};
use gpukill_tests::harness::{
    Daemon, FakeProcfs, ScanGate, Script, TestBox, eventually, eventually_equals, process_has_ended,
};
use serde_json::{Value, json};

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// No process here ends on SIGTERM. The launcher prints each one.
const STUBBORN: &str = r#"launcher -c '
    trap "echo TERM" TERM
    echo $$; (trap "" TERM; exec worker 1000) & echo $!
    while :; do wait; done' & wait; true"#;

/// Checks that a restarted daemon sends no signal, and compares the recorded actions.
fn assert_no_signal(
    test_box: &TestBox,
    daemon: Daemon,
    (job, pids): (&Script, [u32; 2]),
    recorded: &Value,
) {
    eventually_equals(recorded, || recorded_kills(test_box));
    wait_for_polls(test_box);
    assert_eq!(job.unread_lines(), Vec::<String>::new(), "it got a signal");
    assert!(pids.iter().all(|pid| !process_has_ended(*pid)));
    assert_eq!(
        guard_steps(test_box),
        steps_in_mode("enforce", &["violated", "ended"])
    );
    assert_eq!(recorded_kills(test_box), *recorded);
    daemon.stop();
    // Otherwise the job would be left alone while the guard waits for the result of the signals.
    let kept = std::fs::read_to_string(test_box.path("state/guard.json")).unwrap();
    assert!(!kept.contains("\"progress\":\"Began\""), "{kept}");
}

fn interrupted_kill() -> Value {
    json!([["guard: default: memory", "interrupted"]])
}

#[test]
fn signalled_job_gets_no_second_signal() {
    let Some(it) = GuardBox::with_rules(RULES) else {
        return;
    };
    let job = Script::run(&it.test_box, STUBBORN);
    let pids = job.next_pids();
    it.driver.add_processes(&[pids[1]]);
    assert_eq!(job.next_line(), "TERM");
    // The intent is recorded before the signal.
    assert_eq!(it.kills(), json!([["guard: default: memory", null]]));
    let GuardBox {
        driver: _driver,
        daemon,
        test_box,
    } = it;
    daemon.kill();
    let daemon = test_box.start();
    assert_no_signal(&test_box, daemon, (&job, pids), &interrupted_kill());
}

#[test]
fn chosen_job_is_not_ended_after_restart() {
    // Killed during planning, and between the recorded intent and the first signal.
    let cases = [(0, json!([]), "Chosen"), (1, interrupted_kill(), "Began")];
    for (scans, recorded, progress) in cases {
        let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
            return;
        };
        let procfs = FakeProcfs::new(test_box.path("proc"));
        let root = procfs.root().to_owned();
        let daemon = || {
            let mut daemon = test_box.daemon_command();
            daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", &root);
            daemon
        };
        let (mut first, mut second) = (daemon(), daemon());
        let it = GuardBox::start(test_box, &mut first);
        let job = Script::run(&it.test_box, STUBBORN);
        let pids: [u32; 2] = job.next_pids();
        for pid in pids {
            procfs.link_real_process(pid);
        }
        let gate = ScanGate::new(&procfs);
        it.driver.add_processes(&[pids[1]]);
        eventually("it is chosen", || {
            (it.steps() == steps_in_mode("enforce", &["violated", "ended"])).then_some(())
        });
        for _ in 0..scans {
            eventually("a scan", || gate.pass_one());
            // The intent is recorded before the signal.
            eventually_equals(&json!([["guard: default: memory", null]]), || it.kills());
        }
        let held = eventually("a scan waits", || gate.hold_reader());
        let GuardBox {
            driver: _driver,
            daemon,
            test_box,
        } = it;
        daemon.kill();
        drop(held);
        gate.remove();
        let kept = std::fs::read_to_string(test_box.path("state/guard.json")).unwrap();
        assert!(
            kept.contains(&format!("\"progress\":\"{progress}\"")),
            "{kept}"
        );
        let daemon = test_box.start_with(&mut second);
        assert_no_signal(&test_box, daemon, (&job, pids), &recorded);
    }
}
