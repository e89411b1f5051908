//! `cargo bench -p gpukill-tests --bench rogue`: the cost of the rogue detection with 64, 1,000
//! and 10,000 processes on eight GPUs, polled every 2 s and sampled every 10 s (the defaults):
//! at first, when all processes are new, and a minute later, when none is. Then the time of one
//! assessment, over the corpus.
//!
//! The cost is the processor time of each thread, from `/proc/PID/task/*/schedstat`. Numbers
//! after `--` replace the numbers of processes.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "../corpus/rogue.rs"]
#[allow(dead_code, reason = "the scenarios need more of it")]
mod corpus;
#[path = "process.rs"]
mod process;
#[path = "threads.rs"]
mod threads;

use corpus::cases;
use gpukill_tests::harness::{TestBox, TestProcess};
use process::status_field;
use serde_json::json;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};
use threads::{thread_time_differences, thread_times};

const PROCESSES: [usize; 3] = [64, 1_000, 10_000];

const GPUS: usize = 8;

/// The measurement while all processes are new.
const FIRST_TIME: Duration = Duration::from_secs(20);

/// The time until most of the periodic inspections are done.
const SETTLE_TIME: Duration = Duration::from_secs(60);

/// The measurement without new processes.
const LATER_TIME: Duration = Duration::from_secs(40);

/// How often the corpus is assessed.
const ROUNDS: u32 = 200;

fn main() {
    let numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let mut processes: Vec<usize> = numbers.collect();
    if processes.is_empty() {
        processes.extend(PROCESSES);
    }
    println!(
        "{:>9} {:<6} {:>5} {:>12} {:>9}  by thread, ms a poll",
        "processes", "", "polls", "ms a poll", "RSS kB"
    );
    for many in processes {
        measure_box(many);
    }
    measure_assessment();
}

/// Measures a box with this many processes on its GPUs.
fn measure_box(many: usize) {
    let sleeps = |_| TestProcess::spawn(Command::new("sleep").arg("100000"));
    let processes: Vec<TestProcess> = (0..many).map(sleeps).collect();
    let test_box = TestBox::new();
    let gpus: Vec<_> = (0..GPUS)
        .map(|gpu| {
            let its = processes.iter().skip(gpu).step_by(GPUS);
            let processes: Vec<_> = its
                .map(|process| json!({"pid": process.pid(), "memory": 1 << 20, "sm": 97}))
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
    let stretch = |name: &str, length| {
        let (before, polled) = (thread_times(daemon.pid()), polls(&test_box));
        std::thread::sleep(length);
        let by_thread = thread_time_differences(&before, &thread_times(daemon.pid()));
        let polls = (polls(&test_box) - polled) as f64;
        let all: f64 = by_thread.iter().map(|(_, spent)| spent).sum();
        print!(
            "{many:>9} {name:<6} {polls:>5} {:>12.3} {:>9} ",
            all / polls,
            status_field(daemon.pid(), "VmRSS:")
        );
        for (thread, spent) in by_thread.iter().filter(|(_, spent)| spent / polls >= 0.01) {
            print!(" {thread} {:.2}", spent / polls);
        }
        println!();
    };
    stretch("new", FIRST_TIME);
    std::thread::sleep(SETTLE_TIME);
    stretch("later", LATER_TIME);
    let status = test_box.json(&["status", "-o", "json", "--request-timeout", "60"]);
    println!("{:>9} watched {}", "", status["rogue"]["watched"]);
    daemon.stop();
}

fn polls(test_box: &TestBox) -> u64 {
    let status = test_box.json(&["status", "-o", "json", "--request-timeout", "60"]);
    status["polls"].as_u64().unwrap()
}

/// Measures one assessment.
fn measure_assessment() {
    let cases = cases();
    let started_at = Instant::now();
    for _ in 0..ROUNDS {
        for case in &cases {
            black_box(case.verdicts());
        }
    }
    let count = f64::from(ROUNDS) * cases.len() as f64;
    println!(
        "one assessment: {:.1} µs, over {} cases",
        started_at.elapsed().as_secs_f64() * 1e6 / count,
        cases.len()
    );
}
