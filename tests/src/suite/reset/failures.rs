//! Failing resets are reported as failed.

use super::{FakeSystemd, ResetBox, gpu_states, serve_and_kill_helper};
use gpukill_tests::harness::eventually_equals;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

fn has_both_gpus(it: &ResetBox) -> bool {
    it.test_box.list()["gpus"].as_array().unwrap().len() == 2
}

/// Resets the first GPU. Returns the exit code and the outcome.
fn reset_first_gpu(it: &ResetBox) -> (i32, Value) {
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    (ran.code, it.outcomes(&ran))
}

#[test]
fn gpu_that_stays_away_is_unreachable() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    let lost = gpu_states(&json!({"lost": true}), &json!({}));
    it.write_file("lost.json", &lost.to_string());
    it.install_tool("command -p cp lost.json state.json");
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&true, || has_both_gpus(&it));
    let (code, outcomes) = reset_first_gpu(&it);
    assert_eq!(code, 1, "{outcomes}");
    assert_eq!(outcomes[0][1], "unreachable");
    let why = outcomes[0][2].as_str().unwrap();
    assert!(
        why.starts_with("its reset was done, and it does not answer now (GPU_IS_LOST): "),
        "{why}"
    );
    // The other GPU is read as before.
    let list = it.test_box.list();
    assert_eq!(list["gpus"][1]["state"], "ok");
    daemon.stop();
}

#[test]
fn gpu_that_still_needs_a_reset_has_failed() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({"recovery_action": 1}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&true, || has_both_gpus(&it));
    let why = "its reset was done, and its driver still advises: reset";
    assert_eq!(reset_first_gpu(&it), (1, json!([[0, "failed", why]])));
    daemon.stop();
}

#[test]
fn killed_helper_is_no_success() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    it.install_tool("command -p sleep 5");
    let (arguments, program) = it.helper_and_its_arguments();
    let called = it.test_box.path("called");
    let _systemd =
        FakeSystemd::new_with_handler(&it.test_box.path("reset.sock"), move |connection| {
            serve_and_kill_helper(Command::new(&program).args(&arguments), connection, &called);
        });
    let daemon = it.start();
    eventually_equals(&true, || has_both_gpus(&it));
    let why = "gpukill-reset ended before it reported a result";
    assert_eq!(reset_first_gpu(&it), (1, json!([[0, "failed", why]])));
    // The driver is released only for the duration of the reset.
    eventually_equals(&json!("ready"), || {
        it.test_box.list()["backends"][0]["state"].clone()
    });
    daemon.stop();
}

#[test]
fn invalid_helper_answer_is_a_failure() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    let answer = |connection: &mut UnixStream| {
        let mut request = [0; 64];
        let _ = connection.read(&mut request);
        let _ = connection.write_all(b"\x1b[2J all is well\n");
    };
    let _systemd =
        FakeSystemd::new_with_handler(&it.test_box.path("reset.sock"), move |mut connection| {
            answer(&mut connection);
        });
    let daemon = it.start();
    eventually_equals(&true, || has_both_gpus(&it));
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    let planned = it.planned(&ran);
    assert_eq!((ran.code, &planned[0][1]), (5, &json!("unsupported")));
    let why = planned[0][2].as_str().unwrap();
    assert!(
        why.starts_with("gpukill-reset gave an invalid answer: "),
        "{why}"
    );
    assert!(!why.contains('\u{1b}'));
    daemon.stop();
}

#[test]
fn missing_and_mig_gpus_cannot_be_reset() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&true, || has_both_gpus(&it));
    let mut state = gpu_states(&json!({"lost": true}), &json!({}));
    state["events"] = json!([{"id": 1, "gpu": 0, "type": 8, "data": 79}]);
    it.test_box.set_driver_state(&state);
    eventually_equals(&json!("lost"), || {
        it.test_box.list()["gpus"][0]["state"].clone()
    });
    eventually_equals(&json!(79), || {
        it.test_box.list()["gpus"][0]["last_xid"]["xid"].clone()
    });
    let ran = it.reset(&["--gpu", "0", "--yes"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stdout.contains("it has fallen off the bus (XID 79)"));
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
}
