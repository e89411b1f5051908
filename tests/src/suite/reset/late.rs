//! A reset that has begun is never broken off midway, whoever ends meanwhile.

use super::alone::{names, recorded};
use super::{Box, FIRST, SECOND, Systemd, serve, serve_and_kill};
use gpukill_tests::harness::{becomes, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const EARLIER: &str = "an earlier reset goes on, of this GPU or another: nothing was done; try \
                       again when it has ended";

fn finished(it: &Box) -> Option<()> {
    it.stage.path("finished").exists().then_some(())
}

fn both_are_up(it: &Box) {
    becomes(&json!(["GPU-a", "GPU-b"]), || names(it));
}

#[test]
fn a_reset_whose_helper_was_killed_goes_on_and_no_other_begins_before_it_ends() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    it.slow_tool();
    let (arguments, program) = it.helper_and_its_arguments();
    let (called, killed) = (it.stage.path("called"), AtomicBool::new(false));
    let _systemd = Systemd::serving(&it.stage.path("reset.sock"), move |connection| {
        let mut helper = Command::new(&program);
        helper.args(&arguments);
        if killed.load(Ordering::Relaxed) {
            serve(&mut helper, connection).wait().unwrap();
        } else {
            let is_killed = serve_and_kill(&mut helper, connection, &called);
            killed.store(is_killed, Ordering::Relaxed);
        }
    });
    let daemon = it.start();
    both_are_up(&it);
    let reset = |gpu: &str| it.reset(&["--gpu", gpu, "--yes", "-o", "json"]);
    let ended = "gpukill-reset ended before it said how it went";
    assert_eq!(it.outcomes(&reset("0")), json!([[0, "failed", ended]]));
    let sensor = json!(["gpukilld's own sensor", "daemon"]);
    for gpu in [0, 1] {
        let ran = reset(&gpu.to_string());
        let blockers = json!([[EARLIER, "person"], sensor]);
        let blocked = json!([[gpu, "blocked", null, blockers]]);
        assert_eq!((ran.code, it.planned(&ran)), (1, blocked));
    }
    // The helper itself refuses too, whatever the daemon has asked it before.
    let request = format!("gpukill-reset 2 reset nvidia {SECOND}\n");
    assert_eq!(it.asked(request.as_bytes()), format!("busy {EARLIER}\n"));
    assert_eq!(it.called(), [format!("--gpu-reset -i {FIRST}")]);
    assert_eq!(finished(&it), None);
    it.go_on();
    eventually("the first reset ends", || finished(&it));
    assert_eq!(it.outcomes(&reset("1")), json!([[1, "reset", null]]));
    daemon.stop();
}

#[test]
fn a_daemon_that_stops_waits_for_the_reset_under_way_and_records_how_it_went() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    it.slow_tool();
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    both_are_up(&it);
    let ran = std::thread::scope(|scope| {
        let client = scope.spawn(|| it.reset(&["--all", "--yes"]));
        it.is_at_it();
        daemon.signal(Signal::TERM);
        eventually("nobody is served any more", || {
            (!it.stage.socket().exists()).then_some(())
        });
        it.go_on();
        daemon.stop();
        client.join().unwrap()
    });
    assert!(
        ran.stderr.contains("what became of the GPUs is not known"),
        "{ran:?}"
    );
    // The second is not begun, and the first is known to answer again.
    assert_eq!(it.called(), [format!("--gpu-reset -i {FIRST}")]);
    assert_eq!(
        recorded(&it),
        [("--all".to_owned(), Some("interrupted".to_owned()))]
    );
    let database = rusqlite::Connection::open(it.stage.path("state/audit.db")).unwrap();
    let outcome = "SELECT outcome FROM action WHERE kind = 'reset'";
    let outcome: String = database.query_row(outcome, [], |row| row.get(0)).unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    let of_each = outcome["outcomes"].as_array().unwrap().iter();
    let of_each: Value = of_each
        .map(|it| json!([it["gpu_index"], it["ending"]]))
        .collect();
    assert_eq!(of_each, json!([[0, "reset"]]));
}

#[test]
fn a_daemon_that_stops_at_the_last_device_has_done_all() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    it.slow_tool();
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    both_are_up(&it);
    std::thread::scope(|scope| {
        scope.spawn(|| it.reset(&["--gpu", "0", "--yes"]));
        it.is_at_it();
        daemon.signal(Signal::TERM);
        eventually("nobody is served any more", || {
            (!it.stage.socket().exists()).then_some(())
        });
        it.go_on();
        daemon.stop();
    });
    assert_eq!(
        recorded(&it),
        [("--gpu \"0\"".to_owned(), Some("done".to_owned()))]
    );
}

#[test]
fn a_daemon_that_is_killed_leaves_the_reset_to_the_helper_and_its_record_to_the_next() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    it.slow_tool();
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    both_are_up(&it);
    std::thread::scope(|scope| {
        scope.spawn(|| it.reset(&["--gpu", "0", "--yes"]));
        it.is_at_it();
        daemon.kill();
    });
    assert_eq!(recorded(&it), [("--gpu \"0\"".to_owned(), None)]);
    it.go_on();
    eventually("the reset ends", || finished(&it));
    let daemon = it.start();
    both_are_up(&it);
    daemon.stop();
    assert_eq!(
        recorded(&it),
        [("--gpu \"0\"".to_owned(), Some("interrupted".to_owned()))]
    );
}
