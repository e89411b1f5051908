//! `cargo bench -p gpukill-tests --bench load`: a thousand `gpukillctl list` at once, ten
//! thousand in sequence, and both while a hundred hostile connections are open. The box has 8
//! GPUs with 8 processes each, polled every 2 s.
//!
//! A number after `--` is the number of clients in sequence.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "../src/suite/load/attacks.rs"]
mod attacks;
#[path = "../src/suite/raw.rs"]
#[allow(dead_code, reason = "the scenarios need more of it")]
mod raw;

use gpukill_tests::harness::{Daemon, TestBox};
use serde_json::json;
use std::process::Stdio;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const AT_ONCE: usize = 1_000;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let in_sequence = numbers.next_back().unwrap_or(10_000);
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    let gpus: Vec<_> = (0..8)
        .map(|gpu| {
            let pids = (0..8).map(|n| 5_000_000 + gpu * 8 + n);
            let processes: Vec<_> = pids
                .map(|pid| json!({"pid": pid, "memory": 1 << 30}))
                .collect();
            json!({"processes": processes})
        })
        .collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let mut command = test_box.daemon_command();
    command
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
    let daemon = test_box.start_with(&mut command);
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
        daemon.resident_bytes() / 1024
    );
    let named = |timeout: &str| {
        measure(
            &test_box,
            &daemon,
            &format!("1,000 at once, request timeout {timeout} s"),
            || run_at_once(&test_box, timeout),
        );
    };
    named("5");
    named("60");
    measure(&test_box, &daemon, "one after the other", || {
        run_in_sequence(&test_box, in_sequence)
    });
    let (_, let_in) = attacks::run_under_attack(&test_box.socket(), || {
        measure(
            &test_box,
            &daemon,
            "1,000 at once, beside 100 hostile",
            || run_at_once(&test_box, "60"),
        );
    });
    println!("{:<34} {let_in} times let in", "  the hostile ones");
    let (_, let_in) = attacks::run_under_attack(&test_box.socket(), || {
        measure(
            &test_box,
            &daemon,
            "in sequence, beside 100 hostile",
            || run_in_sequence(&test_box, in_sequence),
        );
    });
    println!("{:<34} {let_in} times let in", "  the hostile ones");
    std::thread::sleep(Duration::from_secs(15));
    println!(
        "{:<34} {:>75} {:>8}",
        "(15 s after)",
        "",
        daemon.resident_bytes() / 1024
    );
    daemon.stop();
}

/// The duration of one client, and whether it was answered.
type ClientResult = (Duration, bool);

fn run_list(test_box: &TestBox, timeout: &str) -> ClientResult {
    let mut client = test_box.client_command(&["list", "--request-timeout", timeout]);
    client.stdout(Stdio::null()).stderr(Stdio::null());
    let started_at = Instant::now();
    let answered = client.status().unwrap().success();
    (started_at.elapsed(), answered)
}

fn run_at_once(test_box: &TestBox, timeout: &str) -> Vec<ClientResult> {
    let start = Barrier::new(AT_ONCE);
    std::thread::scope(|scope| {
        let one = || {
            start.wait();
            run_list(test_box, timeout)
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn run_in_sequence(test_box: &TestBox, runs: usize) -> Vec<ClientResult> {
    (0..runs).map(|_| run_list(test_box, "60")).collect()
}

fn measure(
    test_box: &TestBox,
    daemon: &Daemon,
    name: &str,
    work: impl FnOnce() -> Vec<ClientResult>,
) {
    let before = poll_counts(test_box);
    let started_at = Instant::now();
    let took = work();
    let wall = started_at.elapsed().as_secs_f64();
    let after = poll_counts(test_box);
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
        daemon.resident_bytes() / 1024
    );
}

/// The number of polls, and how many of them started late.
fn poll_counts(test_box: &TestBox) -> (u64, u64) {
    let status = test_box.json(&["status", "-o", "json", "--request-timeout", "60"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
