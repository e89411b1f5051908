//! `cargo bench -p gpukill-tests --bench churn`: what the daemon holds while made-up
//! processes come to eight GPUs and go, and after that. First 12,000 of a second each, 200 at
//! once; then 48 at a time, of which the oldest goes and a new one comes at each poll.
//!
//! Numbers after `--` are how many come instead, of each kind. Fails where the second kind
//! leaves more behind than its bound; it is no test, because a busy machine takes minutes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it prints its measurements")]

use gpukill_tests::harness::{Churn, Daemon, Stage};
use std::process::ExitCode;
use std::time::Duration;

/// What 48 at a time may leave behind, of the daemon's own memory; 1.0 MB was measured for
/// 1,300 of them in a release build, and 19 MB before little was kept.
const BOUND_KB: u64 = 3_000;

/// How many rows are printed of each kind.
const ROWS: u32 = 8;

fn main() -> ExitCode {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let batches = numbers.next().unwrap_or(12_000);
    let rolling = numbers.next().unwrap_or(1_500);
    run("a second each", batches, (200, 200), 1_000);
    let left = run("48 at a time", rolling, (1, 48), 100);
    println!("left behind: {left} kB of at most {BOUND_KB} kB");
    match left <= BOUND_KB {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Lets so many come, `come` at once, so that `stay` stay until the next do. Returns how
/// many kB of the daemon's own memory are left behind.
fn run(what: &str, many: u32, (come, stay): (usize, usize), pause_ms: u64) -> u64 {
    let stage = Stage::new();
    let mut churn = Churn::on(&stage);
    let daemon = stage.start_with(&mut churn.daemon());
    churn.turn_over(stay, stay);
    std::thread::sleep(Duration::from_secs(3));
    println!("{what}\n{:>10} {:>9} {:>9}", "came", "RSS kB", "anon kB");
    let start = print_row("start", &daemon);
    let mut next = churn.came();
    while churn.came() < many {
        churn.turn_over(come, stay);
        std::thread::sleep(Duration::from_millis(pause_ms));
        if churn.came() >= next {
            print_row(&churn.came().to_string(), &daemon);
            next += many / ROWS;
        }
    }
    churn.turn_over(0, 0);
    let looks = [5, 10, 15, 20].map(|seconds| {
        std::thread::sleep(Duration::from_secs(5));
        print_row(&format!("{seconds} s later"), &daemon)
    });
    daemon.stop();
    let least = looks.into_iter().min().unwrap_or_default();
    least.saturating_sub(start)
}

/// Prints one row and returns the daemon's own memory in kB.
fn print_row(when: &str, daemon: &Daemon) -> u64 {
    let (resident, own) = (daemon.resident() / 1024, daemon.anonymous() / 1024);
    println!("{when:>10} {resident:>9} {own:>9}");
    own
}
