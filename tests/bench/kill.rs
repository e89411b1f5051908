//! `cargo bench -p gpukill-tests --bench kill`: the time to end 1, 20 and 200 processes at
//! once, from the client's start to its end; the time of the slowest process, which is the
//! lower bound for the whole kill; and whether polls were late. The driver releases memory at
//! once.
//!
//! Processes of the second kind ignore SIGTERM, have a second for it, and are ended by force.
//! The number after `--` is how often each row is measured; the median is printed.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_tests::harness::{FakeDriver, TestBox, TestProcess, eventually};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const AT_ONCE: [usize; 3] = [1, 20, 200];

/// How a process handles SIGTERM.
#[derive(Clone, Copy)]
enum SigtermHandling {
    Ends,
    Ignores,
}

impl SigtermHandling {
    fn name(self) -> &'static str {
        match self {
            Self::Ends => "end by SIGTERM",
            Self::Ignores => "ignore SIGTERM",
        }
    }

    fn start(self) -> TestProcess {
        match self {
            Self::Ends => TestProcess::start("python"),
            // An ignored signal stays ignored after exec.
            Self::Ignores => {
                let script = "trap '' TERM; exec sleep 1000";
                TestProcess::spawn(Command::new("sh").args(["-c", script]))
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
    for kind in [SigtermHandling::Ends, SigtermHandling::Ignores] {
        for many in AT_ONCE {
            measure(kind, many, times);
        }
    }
}

fn measure(kind: SigtermHandling, many: usize, times: usize) {
    let test_box = TestBox::new();
    let mut daemon = test_box.daemon_command();
    let daemon = test_box.start_with(daemon.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s"));
    let driver = FakeDriver::start(&test_box, Duration::ZERO);
    let (mut walls, mut slowest, mut planned) = (Vec::new(), Vec::new(), Vec::new());
    let before = poll_counts(&test_box);
    for _ in 0..times {
        let processes: Vec<TestProcess> = (0..many).map(|_| kind.start()).collect();
        let pids: Vec<u32> = processes.iter().map(TestProcess::pid).collect();
        driver.add_processes(&pids);
        eventually("the processes are listed", || {
            let list = test_box.list();
            (list["procs"].as_array()?.len() == many).then_some(())
        });
        let arguments = ["kill", "--gpu", "0", "--batch", "--force"];
        let more = ["--timeout-secs", "1", "-o", "json"];
        let started_at = Instant::now();
        let _ = test_box.json(&[&arguments[..], &more[..], &["--dry-run"]].concat());
        planned.push(started_at.elapsed());
        let started_at = Instant::now();
        let report = test_box.json(&[&arguments[..], &more[..]].concat());
        walls.push(started_at.elapsed());
        slowest.push(slowest_process(&report, many));
    }
    let after = poll_counts(&test_box);
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

fn slowest_process(report: &Value, many: usize) -> Duration {
    let outcomes = report["outcomes"].as_array().unwrap();
    let ended = outcomes.iter().filter(|it| it["outcome"] == "ended");
    assert_eq!(ended.count(), many, "{report:#}");
    let times = outcomes.iter().filter_map(|it| it["after_ms"].as_u64());
    Duration::from_millis(times.max().unwrap())
}

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort_unstable();
    times.get(times.len() / 2).unwrap().as_millis()
}

/// The number of polls, and how many of them started late.
fn poll_counts(test_box: &TestBox) -> (u64, u64) {
    let status = test_box.json(&["status", "-o", "json"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
