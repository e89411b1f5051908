//! `cargo bench -p gpukill-tests --bench poll`: what one poll costs beside 100,
//! 1,000 and 10,000 processes on the host. 8 GPUs with 8 real processes each,
//! polled every 2 s, as a daemon does by default.
//!
//! Processor time of all threads, from `/proc/PID/task/*/schedstat`, besides the
//! kernel's ticks of 10 ms in `/proc/PID/stat`. A number after `--` is how many
//! seconds each row takes.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "process.rs"]
mod process;

use gpukill_tests::harness::{Actor, Stage};
use process::{field, file};
use serde_json::json;
use std::time::Duration;

const ON_THE_HOST: [usize; 3] = [100, 1_000, 10_000];

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let length = Duration::from_secs(numbers.next_back().unwrap_or(60));
    let stage = Stage::new();
    let users: Vec<Actor> = (0..64)
        .map(|_| Actor::start("python train.py --model llama-70b"))
        .collect();
    let gpus: Vec<_> = users
        .chunks(8)
        .map(|users| {
            let processes: Vec<_> = users
                .iter()
                .map(|user| json!({"pid": user.pid(), "memory": 1u64 << 30, "sm": 12}))
                .collect();
            json!({"processes": processes})
        })
        .collect();
    stage.play(&json!({"gpus": gpus}));
    println!(
        "{:>9} {:<10} {:>6} {:>5} {:>12} {:>12} {:>10} {:>9} {:>9} {:>5}",
        "processes",
        "",
        "polls",
        "late",
        "ms a poll",
        "% of a core",
        "ticks",
        "RSS kB",
        "anon kB",
        "fds"
    );
    for many in ON_THE_HOST {
        let missing = many.saturating_sub(processes_on_the_host());
        let crowd: Vec<Actor> = (0..missing).map(|_| Actor::start("idle")).collect();
        let mut command = stage.daemon();
        command
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
        let daemon = stage.start_with(&mut command);
        // The first polls read what later ones know.
        std::thread::sleep(Duration::from_secs(6));
        let pids = [daemon.pid(), daemon.sensor()];
        let (before, polled) = (pids.map(Spent::of), polls(&stage));
        std::thread::sleep(length);
        let (after, polled_since) = (pids.map(Spent::of), polls(&stage));
        let polls = polled_since.0 - polled.0;
        for at in 0..2 {
            let milliseconds = (after[at].schedstat_ns - before[at].schedstat_ns) as f64 / 1e6;
            println!(
                "{:>9} {:<10} {polls:>6} {:>5} {:>12.3} {:>12.4} {:>10} {:>9} {:>9} {:>5}",
                processes_on_the_host(),
                ["gpukilld", "its sensor"][at],
                polled_since.1 - polled.1,
                milliseconds / polls as f64,
                milliseconds / length.as_secs_f64() / 10.0,
                after[at].ticks - before[at].ticks,
                field(pids[at], "VmRSS:"),
                field(pids[at], "RssAnon:"),
                std::fs::read_dir(file(pids[at], "fd")).unwrap().count(),
            );
        }
        daemon.stop();
        drop(crowd);
    }
}

/// Processor time that a process has used.
#[derive(Clone, Copy)]
struct Spent {
    schedstat_ns: u64,
    ticks: u64,
}

impl Spent {
    fn of(pid: u32) -> Self {
        let of_thread = |entry: std::io::Result<std::fs::DirEntry>| -> u64 {
            let text = std::fs::read_to_string(entry.unwrap().path().join("schedstat"));
            text.unwrap()
                .split_whitespace()
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let threads = std::fs::read_dir(file(pid, "task")).unwrap();
        let stat = std::fs::read_to_string(file(pid, "stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields = fields.split_whitespace().skip(14 - 3).take(2);
        Self {
            schedstat_ns: threads.map(of_thread).sum(),
            ticks: fields.map(|field| field.parse::<u64>().unwrap()).sum(),
        }
    }
}

fn processes_on_the_host() -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().parse::<u32>().is_ok())
        .count()
}

/// How many polls there were, and how many of them began late.
fn polls(stage: &Stage) -> (u64, u64) {
    let status = stage.json(&["status", "-o", "json"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
