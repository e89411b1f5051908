//! `cargo bench -p gpukill-tests --bench kill`: how long it takes to end 1, 20 and
//! 200 processes at once, from the client's start to its end; what the slowest of
//! them took, which no kill of all can undercut; and whether polls came late for
//! it. The driver gives memory back at once.
//!
//! Those of the second kind ignore SIGTERM, have a second for it, and are ended by
//! force. The number after `--` is how often each row is measured; the median is
//! printed.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_tests::harness::{Actor, Driver, Stage, eventually};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const AT_ONCE: [usize; 3] = [1, 20, 200];

/// What a process does about SIGTERM.
#[derive(Clone, Copy)]
enum Kind {
    Ends,
    Ignores,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ends => "end by SIGTERM",
            Self::Ignores => "ignore SIGTERM",
        }
    }

    fn start(self) -> Actor {
        match self {
            Self::Ends => Actor::start("python"),
            // What is ignored stays so in what is executed.
            Self::Ignores => {
                let script = "trap '' TERM; exec sleep 1000";
                Actor::of(Command::new("sh").args(["-c", script]))
            }
        }
    }
}

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let times: usize = numbers.next().unwrap_or(5);
    println!(
        "{:<16} {:>5} {:>9} {:>12} {:>12} {:>6} {:>5}",
        "processes", "many", "wall, ms", "slowest, ms", "planned, ms", "polls", "late"
    );
    for kind in [Kind::Ends, Kind::Ignores] {
        for many in AT_ONCE {
            measure(kind, many, times);
        }
    }
}

fn measure(kind: Kind, many: usize, times: usize) {
    let stage = Stage::new();
    let mut daemon = stage.daemon();
    let daemon = stage.start_with(daemon.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s"));
    let driver = Driver::start(&stage, Duration::ZERO);
    let (mut walls, mut slowest, mut planned) = (Vec::new(), Vec::new(), Vec::new());
    let before = polls(&stage);
    for _ in 0..times {
        let actors: Vec<Actor> = (0..many).map(|_| kind.start()).collect();
        let pids: Vec<u32> = actors.iter().map(Actor::pid).collect();
        driver.lists(&pids);
        eventually("they are listed", || {
            let list = stage.list();
            (list["procs"].as_array()?.len() == many).then_some(())
        });
        let arguments = ["kill", "--gpu", "0", "--batch", "--force"];
        let more = ["--timeout-secs", "1", "-o", "json"];
        let begun = Instant::now();
        let _ = stage.json(&[&arguments[..], &more[..], &["--dry-run"]].concat());
        planned.push(begun.elapsed());
        let begun = Instant::now();
        let report = stage.json(&[&arguments[..], &more[..]].concat());
        walls.push(begun.elapsed());
        slowest.push(slowest_of(&report, many));
    }
    let after = polls(&stage);
    println!(
        "{:<16} {many:>5} {:>9} {:>12} {:>12} {:>6} {:>5}",
        kind.name(),
        median(walls),
        median(slowest),
        median(planned),
        after.0 - before.0,
        after.1 - before.1
    );
    daemon.stop();
}

fn slowest_of(report: &Value, many: usize) -> Duration {
    let outcomes = report["outcomes"].as_array().unwrap();
    let ended = outcomes.iter().filter(|it| it["ending"] == "ended");
    assert_eq!(ended.count(), many, "{report:#}");
    let times = outcomes.iter().filter_map(|it| it["after_ms"].as_u64());
    Duration::from_millis(times.max().unwrap())
}

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort_unstable();
    times.get(times.len() / 2).unwrap().as_millis()
}

/// How many polls there were, and how many of them began late.
fn polls(stage: &Stage) -> (u64, u64) {
    let status = stage.json(&["status", "-o", "json"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
