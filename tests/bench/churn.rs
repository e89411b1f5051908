//! `cargo bench -p gpukill-tests --bench churn`: the daemon's memory while simulated processes
//! start and end on eight GPUs, and afterwards. First 12,000 processes that live one second
//! each, 200 at a time; then 48 at a time, of which at each poll the oldest ends and a new
//! process starts.
//!
//! Numbers after `--` replace the number of processes of the two kinds. The bench fails if the
//! second kind leaves more memory behind than its bound. It is no test, because a busy machine
//! takes minutes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it prints its measurements")]

use gpukill_tests::harness::{Daemon, ProcessChurn, TestBox};
use std::process::ExitCode;
use std::time::Duration;

/// How much of the daemon's own memory the second kind may leave behind. A release build left
/// 1.0 MB after 1,300 processes, and 19 MB before the daemon retained little of each.
const BOUND_KB: u64 = 3_000;

/// How many rows are printed of each kind.
const ROWS: u32 = 8;

fn main() -> ExitCode {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let batches = numbers.next().unwrap_or(12_000);
    let rolling = numbers.next().unwrap_or(1_500);
    measure("a second each", batches, (200, 200), 1_000);
    let left = measure("48 at a time", rolling, (1, 48), 100);
    println!("left behind: {left} kB of at most {BOUND_KB} kB");
    match left <= BOUND_KB {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Adds `many` processes in steps: each step adds `come`, then keeps the newest `stay`. Returns
/// how many kB of the daemon's own memory remain in use.
fn measure(what: &str, many: u32, (come, stay): (usize, usize), pause_ms: u64) -> u64 {
    let test_box = TestBox::new();
    let mut churn = ProcessChurn::new(&test_box);
    let daemon = test_box.start_with(&mut churn.daemon_command());
    churn.replace_processes(stay, stay);
    std::thread::sleep(Duration::from_secs(3));
    println!("{what}\n{:>10} {:>9} {:>9}", "came", "RSS kB", "anon kB");
    let start = print_row("start", &daemon);
    let mut next = churn.started_count();
    while churn.started_count() < many {
        churn.replace_processes(come, stay);
        std::thread::sleep(Duration::from_millis(pause_ms));
        if churn.started_count() >= next {
            print_row(&churn.started_count().to_string(), &daemon);
            next += many / ROWS;
        }
    }
    churn.replace_processes(0, 0);
    let counts = [5, 10, 15, 20].map(|seconds| {
        std::thread::sleep(Duration::from_secs(5));
        print_row(&format!("{seconds} s later"), &daemon)
    });
    daemon.stop();
    let least = counts.into_iter().min().unwrap_or_default();
    least.saturating_sub(start)
}

fn print_row(when: &str, daemon: &Daemon) -> u64 {
    let (resident, own) = (
        daemon.resident_bytes() / 1024,
        daemon.anonymous_bytes() / 1024,
    );
    println!("{when:>10} {resident:>9} {own:>9}");
    own
}
