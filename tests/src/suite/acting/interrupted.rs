//! A daemon that ends in the middle of a kill.

use super::{Box, recorded};
use gpukill_tests::harness::{Daemon, Driver, Stage, Stream, Troupe, becomes, eventually, is_over};
use serde_json::{Value, json};
use std::time::Duration;

/// Says each SIGTERM that it gets, and goes on.
const STUBBORN: &str = "trap 'echo TERM' TERM; echo $$; while :; do sleep 0.05; done";

/// Whether an act is over, how, and whether it says what became of anybody.
fn act(stage: &Stage) -> Value {
    let acts = recorded(stage);
    assert_eq!(acts.len(), 1, "{acts:#?}");
    json!([
        acts[0]["kind"],
        acts[0]["word"],
        acts[0]["plan"].is_object()
    ])
}

/// A kill that takes long, whose signal has been sent.
fn under_way() -> (Stage, Driver, Daemon, Troupe, u32, Stream) {
    let Box {
        driver,
        daemon,
        stage,
    } = Box::new();
    let troupe = Troupe::run(&stage, STUBBORN);
    let [pid] = troupe.pids();
    driver.lists(&[pid]);
    eventually("it is listed", || {
        let list = stage.list();
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
    let client = Stream::start(&mut stage.client(&arguments));
    assert_eq!(troupe.says(), "TERM");
    // The intent stands there before the signal.
    assert_eq!(act(&stage), json!(["kill", null, true]));
    (stage, driver, daemon, troupe, pid, client)
}

/// Starts the daemon again, and sees that it leaves everybody in peace.
fn begins_anew(stage: &Stage, troupe: &Troupe, pid: u32) {
    let daemon = stage.start();
    becomes(&json!(["kill", "interrupted", true]), || act(stage));
    // It has looked at everything some times.
    eventually("some polls", || {
        let status = stage.json(&["status", "-o", "json"]);
        (status["polls"].as_u64()? > 10).then_some(())
    });
    assert_eq!(
        troupe.murmurs(),
        Vec::<String>::new(),
        "it got another signal"
    );
    assert!(!is_over(pid));
    daemon.stop();
    assert_eq!(act(stage), json!(["kill", "interrupted", true]));
}

#[test]
fn a_kill_that_a_stopped_daemon_leaves_is_interrupted_and_not_taken_up_again() {
    let (stage, _driver, daemon, troupe, pid, client) = under_way();
    let begun = std::time::Instant::now();
    daemon.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "it waited for the signal's time"
    );
    let (code, _, complaints) = client.end();
    assert!([1, 6].contains(&code), "{code} {complaints:?}");
    becomes(&json!(["kill", "interrupted", true]), || act(&stage));
    begins_anew(&stage, &troupe, pid);
}

#[test]
fn a_kill_that_a_killed_daemon_leaves_is_interrupted_and_not_taken_up_again() {
    let (stage, _driver, daemon, troupe, pid, client) = under_way();
    daemon.kill();
    let (code, _, complaints) = client.end();
    assert!([1, 6].contains(&code), "{code} {complaints:?}");
    assert_eq!(act(&stage), json!(["kill", null, true]));
    begins_anew(&stage, &troupe, pid);
}
