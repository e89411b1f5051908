//! Resets that go wrong are reported as exactly that.

use super::{Box, Systemd, gpus, serve_and_kill};
use gpukill_tests::harness::becomes;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

fn is_up(it: &Box) -> bool {
    it.stage.list()["gpus"].as_array().unwrap().len() == 2
}

/// What becomes of a reset of the first GPU: exit code and outcome.
fn reset(it: &Box) -> (i32, Value) {
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    (ran.code, it.outcomes(&ran))
}

#[test]
fn a_gpu_that_does_not_come_back_is_called_unreachable() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    let lost = gpus(&json!({"lost": true}), &json!({}));
    it.write("lost.json", &lost.to_string());
    it.tool("command -p cp lost.json state.json");
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&true, || is_up(&it));
    let (code, outcomes) = reset(&it);
    assert_eq!(code, 1, "{outcomes}");
    assert_eq!(outcomes[0][1], "unreachable");
    let why = outcomes[0][2].as_str().unwrap();
    assert!(
        why.starts_with("its reset was done, and it does not answer now (GPU_IS_LOST): "),
        "{why}"
    );
    // The other one is read as before.
    let list = it.stage.list();
    assert_eq!(list["gpus"][1]["state"], "ok");
    daemon.stop();
}

#[test]
fn a_gpu_whose_driver_still_wants_a_reset_was_not_helped() {
    let it = Box::new();
    it.play(&json!({"recovery_action": 1}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&true, || is_up(&it));
    let why = "its reset was done, and its driver still advises: reset";
    assert_eq!(reset(&it), (1, json!([[0, "failed", why]])));
    daemon.stop();
}

#[test]
fn a_helper_that_is_killed_midway_is_no_success() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    it.tool("command -p sleep 5");
    let (arguments, program) = it.helper_and_its_arguments();
    let called = it.stage.path("called");
    let _systemd = Systemd::serving(&it.stage.path("reset.sock"), move |connection| {
        serve_and_kill(Command::new(&program).args(&arguments), connection, &called);
    });
    let daemon = it.start();
    becomes(&true, || is_up(&it));
    let why = "gpukill-reset ended before it said how it went";
    assert_eq!(reset(&it), (1, json!([[0, "failed", why]])));
    // The driver is not let go of for longer than that.
    becomes(&json!("ready"), || {
        it.stage.list()["backends"][0]["state"].clone()
    });
    daemon.stop();
}

#[test]
fn a_helper_that_answers_nonsense_is_not_believed() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    let answer = |connection: &mut UnixStream| {
        let mut request = [0; 64];
        let _ = connection.read(&mut request);
        let _ = connection.write_all(b"\x1b[2J all is well\n");
    };
    let _systemd = Systemd::serving(&it.stage.path("reset.sock"), move |mut connection| {
        answer(&mut connection);
    });
    let daemon = it.start();
    becomes(&true, || is_up(&it));
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    let planned = it.planned(&ran);
    assert_eq!((ran.code, &planned[0][1]), (5, &json!("unsupported")));
    let why = planned[0][2].as_str().unwrap();
    assert!(
        why.starts_with("gpukill-reset gave no answer, but "),
        "{why}"
    );
    assert!(!why.contains('\u{1b}'));
    daemon.stop();
}

#[test]
fn a_gpu_that_fell_off_the_bus_and_one_of_a_mig_box_are_told_apart_from_others() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&true, || is_up(&it));
    let mut state = gpus(&json!({"lost": true}), &json!({}));
    state["events"] = json!([{"id": 1, "gpu": 0, "type": 8, "data": 79}]);
    it.stage.play(&state);
    becomes(&json!("lost"), || {
        it.stage.list()["gpus"][0]["state"].clone()
    });
    becomes(&json!(79), || {
        it.stage.list()["gpus"][0]["last_xid"]["xid"].clone()
    });
    let ran = it.reset(&["--gpu", "0", "--yes"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stdout.contains("it has fallen off the bus (XID 79)"));
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
}
