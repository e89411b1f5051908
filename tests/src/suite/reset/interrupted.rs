//! A reset that has started is never interrupted, whichever process ends meanwhile.

use super::free_gpus::{gpu_ids, recorded_resets};
use super::{FIRST_GPU, FakeSystemd, ResetBox, SECOND_GPU, serve_and_kill_helper, start_helper};
use gpukill_tests::harness::{eventually, eventually_equals};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const EARLIER_RESET_RUNS: &str = "another reset is running, of this GPU or another: nothing was \
done; try again when it has ended";

fn reset_finished(it: &ResetBox) -> Option<()> {
    it.test_box.path("finished").exists().then_some(())
}

fn wait_until_both_up(it: &ResetBox) {
    eventually_equals(&json!(["GPU-a", "GPU-b"]), || gpu_ids(it));
}

#[test]
fn next_reset_waits_for_one_without_helper() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    it.install_slow_tool();
    let (arguments, program) = it.helper_and_its_arguments();
    let (called, killed) = (it.test_box.path("called"), AtomicBool::new(false));
    let _systemd =
        FakeSystemd::new_with_handler(&it.test_box.path("reset.sock"), move |connection| {
            let mut helper = Command::new(&program);
            helper.args(&arguments);
            if killed.load(Ordering::Relaxed) {
                start_helper(&mut helper, connection).wait().unwrap();
            } else {
                let is_killed = serve_and_kill_helper(&mut helper, connection, &called);
                killed.store(is_killed, Ordering::Relaxed);
            }
        });
    let daemon = it.start();
    wait_until_both_up(&it);
    let reset = |gpu: &str| it.reset(&["--gpu", gpu, "--yes", "-o", "json"]);
    let ended = "gpukill-reset ended before it reported a result";
    assert_eq!(it.outcomes(&reset("0")), json!([[0, "failed", ended]]));
    let sensor = json!(["gpukilld's own sensor", "daemon"]);
    for gpu in [0, 1] {
        let ran = reset(&gpu.to_string());
        let blockers = json!([[EARLIER_RESET_RUNS, "person"], sensor]);
        let blocked = json!([[gpu, "blocked", null, blockers]]);
        assert_eq!((ran.code, it.planned(&ran)), (1, blocked));
    }
    // The helper refuses too, whatever the daemon requested from it before.
    let request = format!("gpukill-reset 2 reset nvidia {SECOND_GPU}\n");
    assert_eq!(
        it.request_helper(request.as_bytes()),
        format!("busy {EARLIER_RESET_RUNS}\n")
    );
    assert_eq!(it.recorded_calls(), [format!("--gpu-reset -i {FIRST_GPU}")]);
    assert_eq!(reset_finished(&it), None);
    it.finish_reset();
    eventually("the first reset ends", || reset_finished(&it));
    assert_eq!(it.outcomes(&reset("1")), json!([[1, "reset", null]]));
    daemon.stop();
}

#[test]
fn stopping_daemon_finishes_current_reset() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    it.install_slow_tool();
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    wait_until_both_up(&it);
    let ran = std::thread::scope(|scope| {
        let client = scope.spawn(|| it.reset(&["--all", "--yes"]));
        it.wait_for_reset_start();
        daemon.signal(Signal::TERM);
        eventually("the socket is gone", || {
            (!it.test_box.socket().exists()).then_some(())
        });
        it.finish_reset();
        daemon.stop();
        client.join().unwrap()
    });
    assert!(
        ran.stderr.contains("the outcome for the GPUs is not known"),
        "{ran:?}"
    );
    // The second reset did not start, and the first GPU is known to answer again.
    assert_eq!(it.recorded_calls(), [format!("--gpu-reset -i {FIRST_GPU}")]);
    assert_eq!(
        recorded_resets(&it),
        [("--all".to_owned(), Some("interrupted".to_owned()))]
    );
    let database = crate::store::open_database(&it.test_box, "audit.db");
    let outcome = "SELECT outcome FROM action WHERE kind = 'reset'";
    let outcome: String = database.query_row(outcome, [], |row| row.get(0)).unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    let of_each = outcome["outcomes"].as_array().unwrap().iter();
    let of_each: Value = of_each
        .map(|it| json!([it["gpu_index"], it["outcome"]]))
        .collect();
    assert_eq!(of_each, json!([[0, "reset"]]));
}

#[test]
fn stop_at_last_device_is_complete() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    it.install_slow_tool();
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    wait_until_both_up(&it);
    std::thread::scope(|scope| {
        scope.spawn(|| it.reset(&["--gpu", "0", "--yes"]));
        it.wait_for_reset_start();
        daemon.signal(Signal::TERM);
        eventually("the socket is gone", || {
            (!it.test_box.socket().exists()).then_some(())
        });
        it.finish_reset();
        daemon.stop();
    });
    assert_eq!(
        recorded_resets(&it),
        [("--gpu \"0\"".to_owned(), Some("done".to_owned()))]
    );
}

#[test]
fn killed_daemon_leaves_reset_to_helper() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    it.install_slow_tool();
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    wait_until_both_up(&it);
    std::thread::scope(|scope| {
        scope.spawn(|| it.reset(&["--gpu", "0", "--yes"]));
        it.wait_for_reset_start();
        daemon.kill();
    });
    assert_eq!(recorded_resets(&it), [("--gpu \"0\"".to_owned(), None)]);
    it.finish_reset();
    eventually("the reset ends", || reset_finished(&it));
    let daemon = it.start();
    wait_until_both_up(&it);
    daemon.stop();
    assert_eq!(
        recorded_resets(&it),
        [("--gpu \"0\"".to_owned(), Some("interrupted".to_owned()))]
    );
}
