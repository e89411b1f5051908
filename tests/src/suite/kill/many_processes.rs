//! Kills of many processes at once.

use super::{KillBox, all_with_ending, outcomes};
use gpukill_tests::harness::{TestBox, TestProcess, process_has_ended};
use std::time::{Duration, Instant};

const MANY_PROCESSES: u32 = 200;

/// The duration of one kill, and the time of its slowest process.
fn time_kill(it: &KillBox, processes: &[TestProcess]) -> (Duration, Duration) {
    let pids: Vec<u32> = processes.iter().map(TestProcess::pid).collect();
    it.add_gpu_processes(&pids);
    let started_at = Instant::now();
    let (code, report) = it.kill_json(&["--gpu", "0", "--batch"]);
    let took = started_at.elapsed();
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&pids, "ended", "SIGTERM"))
    );
    assert!(pids.iter().all(|pid| process_has_ended(*pid)));
    let slowest = report["outcomes"].as_array().unwrap().iter();
    let slowest = slowest.filter_map(|it| it["after_ms"].as_u64()).max();
    (took, Duration::from_millis(slowest.unwrap()))
}

#[test]
fn two_hundred_end_in_parallel() {
    let test_box = TestBox::new();
    let mut daemon = test_box.daemon_command();
    // A poll is late after half of the interval; with 4 s a busy machine does not delay it that
    // long.
    daemon.env("GPUKILLD_DAEMON_POLL_INTERVAL", "4s");
    let it = KillBox::start(test_box, daemon);
    let (one, _) = time_kill(&it, &[TestProcess::start("python")]);
    let processes: Vec<TestProcess> = (0..MANY_PROCESSES)
        .map(|_| TestProcess::start("python"))
        .collect();
    let (many, slowest) = time_kill(&it, &processes);
    // In sequence the kill would take two hundred times as long.
    let limit = (one * (MANY_PROCESSES / 4)).max(Duration::from_secs(10));
    assert!(
        many < limit && slowest < limit,
        "one took {one:?}, {MANY_PROCESSES} took {many:?}, the slowest {slowest:?}"
    );
    let status = it.test_box.json(&["status", "-o", "json"]);
    assert_eq!(status["polls_late"], 0, "{status:#}");
}
