//! A daemon that ends during a kill.

use super::{KillBox, recorded_actions};
use gpukill_tests::harness::{
    Daemon, FakeDriver, RunningProgram, Script, TestBox, eventually, eventually_equals,
    process_has_ended,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Prints each SIGTERM and continues.
const STUBBORN: &str = "trap 'echo TERM' TERM; echo $$; while :; do sleep 0.05; done";

/// The kind and result of the recorded action, and whether it has a plan.
fn recorded_action(test_box: &TestBox) -> Value {
    let actions = recorded_actions(test_box);
    assert_eq!(actions.len(), 1, "{actions:#?}");
    json!([
        actions[0]["kind"],
        actions[0]["result"],
        actions[0]["plan"].is_object()
    ])
}

/// Starts a kill that takes long, and waits for its first signal.
fn start_long_kill() -> (TestBox, FakeDriver, Daemon, Script, u32, RunningProgram) {
    let KillBox {
        driver,
        daemon,
        test_box,
    } = KillBox::new();
    let script = Script::run(&test_box, STUBBORN);
    let [pid] = script.next_pids();
    driver.add_processes(&[pid]);
    eventually("it is listed", || {
        let list = test_box.list();
        list["procs"]
            .as_array()?
            .iter()
            .any(|row| row["pid"] == pid)
            .then_some(())
    });
    let arguments = [
        "kill",
        &pid.to_string(),
        "--timeout-secs",
        "60",
        "--force",
        "-o",
        "json",
    ];
    let client = RunningProgram::start(&mut test_box.client_command(&arguments));
    assert_eq!(script.next_line(), "TERM");
    // The intent is recorded before the signal.
    assert_eq!(recorded_action(&test_box), json!(["kill", null, true]));
    (test_box, driver, daemon, script, pid, client)
}

/// Restarts the daemon and checks that it sends no further signal.
fn restart_and_check(test_box: &TestBox, script: &Script, pid: u32) {
    let daemon = test_box.start();
    eventually_equals(&json!(["kill", "interrupted", true]), || {
        recorded_action(test_box)
    });
    // The daemon has had time for several scans.
    eventually("some polls", || {
        let status = test_box.json(&["status", "-o", "json"]);
        (status["polls"].as_u64()? > 10).then_some(())
    });
    assert_eq!(
        script.unread_lines(),
        Vec::<String>::new(),
        "it got another signal"
    );
    assert!(!process_has_ended(pid));
    daemon.stop();
    assert_eq!(
        recorded_action(test_box),
        json!(["kill", "interrupted", true])
    );
}

#[test]
fn stopped_daemon_does_not_resume_a_kill() {
    let (test_box, _driver, daemon, script, pid, client) = start_long_kill();
    let started_at = std::time::Instant::now();
    daemon.stop();
    assert!(
        started_at.elapsed() < Duration::from_secs(20),
        "it waited for the signal's time"
    );
    let (code, _, complaints) = client.wait();
    assert!([1, 6].contains(&code), "{code} {complaints:?}");
    eventually_equals(&json!(["kill", "interrupted", true]), || {
        recorded_action(&test_box)
    });
    restart_and_check(&test_box, &script, pid);
}

#[test]
fn killed_daemon_does_not_resume_a_kill() {
    let (test_box, _driver, daemon, script, pid, client) = start_long_kill();
    daemon.kill();
    let (code, _, complaints) = client.wait();
    assert!([1, 6].contains(&code), "{code} {complaints:?}");
    assert_eq!(recorded_action(&test_box), json!(["kill", null, true]));
    restart_and_check(&test_box, &script, pid);
}
