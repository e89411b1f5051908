//! `cargo bench -p gpukill-tests --bench day`: what a long life does to the
//! daemon. 43,200 polls, as many as a day has at one every 2 s, at the shortest
//! interval of 100 ms: 72 minutes. 8 GPUs; every 3 s other processes use them.
//!
//! A number after `--` is how many polls to make instead.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "process.rs"]
mod process;

use gpukill_tests::harness::{Actor, Daemon, Stage};
use process::{field, file};
use serde_json::json;
use std::time::Duration;

/// The polls of a day.
const DAY: u64 = 43_200;

const ROWS: u64 = 24;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let most = numbers.next_back().unwrap_or(DAY);
    let stage = Stage::new();
    let mut actors = other_actors(&stage);
    let mut command = stage.daemon();
    // Half as often beside the polls as by default: the shortest there is.
    command.env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "1s");
    let daemon = stage.start_with(&mut command);
    println!(
        "{:>7} {:>5} {:>8} {:>9} {:>9} {:>5} {:>8} {:>10} {:>10} {:>8} {:>10}",
        "polls",
        "late",
        "restarts",
        "RSS kB",
        "anon kB",
        "fds",
        "threads",
        "sensor kB",
        "anon kB",
        "fds",
        "store kB"
    );
    let (mut sensor, mut restarts, mut next) = (daemon.sensor(), 0, 0);
    loop {
        let status = stage.json(&["status", "-o", "json"]);
        let number = |field: &str| status[field].as_u64().unwrap();
        let polls = number("polls");
        if daemon.sensor() != sensor {
            sensor = daemon.sensor();
            restarts += 1;
        }
        if polls >= next {
            print_row(
                &daemon,
                sensor,
                &[polls, number("polls_late"), restarts],
                number("store_samples_bytes"),
            );
            next += (most / ROWS).max(1);
        }
        if polls >= most {
            break;
        }
        std::thread::sleep(Duration::from_secs(3));
        actors = turned_over(&stage, actors);
    }
    daemon.stop();
}

/// Other processes on the GPUs from now on. The old ones end after that: as on a
/// real box, the driver may name a pid a moment too long.
fn turned_over(stage: &Stage, old: Vec<Actor>) -> Vec<Actor> {
    let new = other_actors(stage);
    drop(old);
    new
}

fn other_actors(stage: &Stage) -> Vec<Actor> {
    let actors: Vec<Actor> = (0..64).map(|_| Actor::start("python train.py")).collect();
    let gpus: Vec<_> = actors
        .chunks(8)
        .map(|actors| {
            let processes: Vec<_> = actors
                .iter()
                .map(|actor| json!({"pid": actor.pid(), "memory": 1u64 << 30, "sm": 12}))
                .collect();
            json!({"processes": processes})
        })
        .collect();
    stage.play(&json!({"gpus": gpus}));
    actors
}

fn print_row(daemon: &Daemon, sensor: u32, polls: &[u64; 3], stored: u64) {
    let pid = daemon.pid();
    println!(
        "{:>7} {:>5} {:>8} {:>9} {:>9} {:>5} {:>8} {:>10} {:>10} {:>8} {:>10}",
        polls[0],
        polls[1],
        polls[2],
        field(pid, "VmRSS:"),
        field(pid, "RssAnon:"),
        std::fs::read_dir(file(pid, "fd")).unwrap().count(),
        field(pid, "Threads:"),
        field(sensor, "VmRSS:"),
        field(sensor, "RssAnon:"),
        std::fs::read_dir(file(sensor, "fd")).unwrap().count(),
        stored / 1024
    );
}
