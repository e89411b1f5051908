//! `cargo bench -p gpukill-tests --bench load`: a thousand `gpukillctl list` at
//! once, ten thousand one after the other, and both beside a hundred hostile
//! connections. 8 GPUs with 8 processes each, polled every 2 s.
//!
//! A number after `--` is how many clients run one after the other.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "../src/suite/raw.rs"]
#[allow(dead_code, reason = "the stories need more of it")]
mod raw;

#[path = "../src/suite/load/attacks.rs"]
mod attacks;

use gpukill_tests::harness::{Daemon, Stage};
use serde_json::json;
use std::process::Stdio;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const AT_ONCE: usize = 1_000;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let in_sequence = numbers.next_back().unwrap_or(10_000);
    let stage = Stage::new();
    stage.open_to_all();
    let gpus: Vec<_> = (0..8)
        .map(|gpu| {
            let pids = (0..8).map(|n| 5_000_000 + gpu * 8 + n);
            let processes: Vec<_> = pids
                .map(|pid| json!({"pid": pid, "memory": 1 << 30}))
                .collect();
            json!({"processes": processes})
        })
        .collect();
    stage.play(&json!({"gpus": gpus}));
    let mut command = stage.daemon();
    command
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
    let daemon = stage.start_with(&mut command);
    println!(
        "{:<34} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>5} {:>8}",
        "gpukillctl list",
        "runs",
        "answered",
        "wall s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "polls",
        "late",
        "RSS kB"
    );
    println!(
        "{:<34} {:>75} {:>8}",
        "(before)",
        "",
        daemon.resident() / 1024
    );
    let named = |timeout: &str| {
        measured(
            &stage,
            &daemon,
            &format!("1,000 at once, {timeout} s of patience"),
            || at_once(&stage, timeout),
        );
    };
    named("5");
    named("60");
    measured(&stage, &daemon, "one after the other", || {
        sequence(&stage, in_sequence)
    });
    let (_, let_in) = attacks::beside(&stage.socket(), || {
        measured(&stage, &daemon, "1,000 at once, beside 100 hostile", || {
            at_once(&stage, "60")
        });
    });
    println!("{:<34} {let_in} times let in", "  the hostile ones");
    let (_, let_in) = attacks::beside(&stage.socket(), || {
        measured(&stage, &daemon, "in sequence, beside 100 hostile", || {
            sequence(&stage, in_sequence)
        });
    });
    println!("{:<34} {let_in} times let in", "  the hostile ones");
    std::thread::sleep(Duration::from_secs(15));
    println!(
        "{:<34} {:>75} {:>8}",
        "(15 s after)",
        "",
        daemon.resident() / 1024
    );
    daemon.stop();
}

/// How long one client took, and whether it was answered.
type Took = (Duration, bool);

fn list(stage: &Stage, timeout: &str) -> Took {
    let mut client = stage.client(&["list", "--request-timeout", timeout]);
    client.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let answered = client.status().unwrap().success();
    (began.elapsed(), answered)
}

fn at_once(stage: &Stage, timeout: &str) -> Vec<Took> {
    let start = Barrier::new(AT_ONCE);
    std::thread::scope(|scope| {
        let one = || {
            start.wait();
            list(stage, timeout)
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn sequence(stage: &Stage, runs: usize) -> Vec<Took> {
    (0..runs).map(|_| list(stage, "60")).collect()
}

fn measured(stage: &Stage, daemon: &Daemon, name: &str, work: impl FnOnce() -> Vec<Took>) {
    let before = polls(stage);
    let began = Instant::now();
    let took = work();
    let wall = began.elapsed().as_secs_f64();
    let after = polls(stage);
    let answered = took.iter().filter(|(_, answered)| *answered).count();
    let mut times: Vec<Duration> = took.into_iter().map(|(time, _)| time).collect();
    times.sort_unstable();
    let at =
        |thousandths: usize| times[(times.len() - 1) * thousandths / 1_000].as_secs_f64() * 1_000.0;
    println!(
        "{name:<34} {:>6} {answered:>8} {wall:>8.2} {:>8.1} {:>8.1} {:>8.1} {:>6} {:>5} {:>8}",
        times.len(),
        at(500),
        at(990),
        at(1_000),
        after.0 - before.0,
        after.1 - before.1,
        daemon.resident() / 1024
    );
}

/// How many polls there were, and how many of them began late.
fn polls(stage: &Stage) -> (u64, u64) {
    let status = stage.json(&["status", "-o", "json", "--request-timeout", "60"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
