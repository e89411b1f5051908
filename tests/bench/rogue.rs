//! `cargo bench -p gpukill-tests --bench rogue`: what the watch for rogues costs where 64,
//! 1,000 and 10,000 processes use eight GPUs, polled every 2 s and sampled every 10 s as
//! by default: at first, when all of them are new, and a minute later, when nothing is.
//! Then how long one judgement takes, over the corpus.
//!
//! Processor time of each thread, from `/proc/PID/task/*/schedstat`. Numbers after `--` are
//! how many processes instead.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "process.rs"]
mod process;

#[path = "threads.rs"]
mod threads;

#[path = "../corpus/rogue.rs"]
#[allow(dead_code, reason = "the stories need more of it")]
mod corpus;

use corpus::cases;
use gpukill_tests::harness::{Actor, Stage};
use process::field;
use serde_json::json;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};
use threads::{since, spent};

const PROCESSES: [usize; 3] = [64, 1_000, 10_000];

const GPUS: usize = 8;

/// All are new.
const FIRST: Duration = Duration::from_secs(20);

/// Until most of what is read again was.
const SETTLE: Duration = Duration::from_secs(60);

/// Nothing is.
const LATER: Duration = Duration::from_secs(40);

/// How often the corpus is judged.
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
        watched(many);
    }
    judged();
}

/// A box on which so many processes use the GPUs.
fn watched(many: usize) {
    let sleeps = |_| Actor::of(Command::new("sleep").arg("100000"));
    let actors: Vec<Actor> = (0..many).map(sleeps).collect();
    let stage = Stage::new();
    let gpus: Vec<_> = (0..GPUS)
        .map(|gpu| {
            let its = actors.iter().skip(gpu).step_by(GPUS);
            let processes: Vec<_> = its
                .map(|actor| json!({"pid": actor.pid(), "memory": 1 << 20, "sm": 97}))
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
    let stretch = |name: &str, length| {
        let (before, polled) = (spent(daemon.pid()), polls(&stage));
        std::thread::sleep(length);
        let by_thread = since(&before, &spent(daemon.pid()));
        let polls = (polls(&stage) - polled) as f64;
        let all: f64 = by_thread.iter().map(|(_, spent)| spent).sum();
        print!(
            "{many:>9} {name:<6} {polls:>5} {:>12.3} {:>9} ",
            all / polls,
            field(daemon.pid(), "VmRSS:")
        );
        for (thread, spent) in by_thread.iter().filter(|(_, spent)| spent / polls >= 0.01) {
            print!(" {thread} {:.2}", spent / polls);
        }
        println!();
    };
    stretch("new", FIRST);
    std::thread::sleep(SETTLE);
    stretch("later", LATER);
    let status = stage.json(&["status", "-o", "json", "--request-timeout", "60"]);
    println!("{:>9} watched {}", "", status["rogue"]["watched"]);
    daemon.stop();
}

fn polls(stage: &Stage) -> u64 {
    let status = stage.json(&["status", "-o", "json", "--request-timeout", "60"]);
    status["polls"].as_u64().unwrap()
}

/// One judgement.
fn judged() {
    let cases = cases();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        for case in &cases {
            black_box(case.verdicts());
        }
    }
    let count = f64::from(ROUNDS) * cases.len() as f64;
    println!(
        "one judgement: {:.1} µs, of {} cases",
        began.elapsed().as_secs_f64() * 1e6 / count,
        cases.len()
    );
}
