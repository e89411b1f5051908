//! Many processes at once.

use super::{Box, all, endings};
use gpukill_tests::harness::{Actor, Stage, is_over};
use std::time::{Duration, Instant};

const MANY: usize = 200;

/// How long one kill of these takes, and the time that the slowest of them took.
fn timed(it: &Box, actors: &[Actor]) -> (Duration, Duration) {
    let pids: Vec<u32> = actors.iter().map(Actor::pid).collect();
    it.lists(&pids);
    let begun = Instant::now();
    let (code, report) = it.kill(&["--gpu", "0", "--batch"]);
    let took = begun.elapsed();
    assert_eq!(
        (code, endings(&report)),
        (0, all(&pids, "ended", "SIGTERM"))
    );
    assert!(pids.iter().all(|pid| is_over(*pid)));
    let slowest = report["outcomes"].as_array().unwrap().iter();
    let slowest = slowest.filter_map(|it| it["after_ms"].as_u64()).max();
    (took, Duration::from_millis(slowest.unwrap()))
}

#[test]
fn two_hundred_end_about_as_fast_as_one() {
    let stage = Stage::new();
    let mut daemon = stage.daemon();
    // Half of this late is late, and no fault of a busy machine.
    daemon.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s");
    let it = Box::of(stage, daemon);
    let (one, _) = timed(&it, &[Actor::start("python")]);
    let actors: Vec<Actor> = (0..MANY).map(|_| Actor::start("python")).collect();
    let (many, slowest) = timed(&it, &actors);
    // One after the other they would take a hundred times as long.
    let limit = one * 5 + Duration::from_secs(3);
    assert!(
        many < limit,
        "one took {one:?}, {MANY} took {many:?}, the slowest {slowest:?}"
    );
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    let status = it.stage.json(&["status", "-o", "json"]);
    assert_eq!(status["polls_late"], 0, "{status:#}");
}
