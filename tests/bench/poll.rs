//! `cargo bench -p gpukill-tests --bench poll`: what the daemon costs beside 1,000
//! and 10,000 processes on the host with 26 descriptors each, on a box with
//! NVIDIA's GPUs, with AMD's, and with both; then what AMD's clients cost alone.
//! Eight GPUs with eight processes each, polled every 2 s, as by default.
//!
//! Processor time of all threads, from `/proc/PID/task/*/schedstat`. The first
//! number after `--` is how many seconds each row takes: 20 s have as many
//! listings of all processes as any other. Further ones are how many processes
//! the host has. A path is of another `gpukilld`, which is measured in turn with
//! this one: on a busy machine only what was measured together can be compared.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "process.rs"]
mod process;

#[path = "threads.rs"]
mod threads;

#[path = "crowd.rs"]
mod crowd;

#[path = "boxes.rs"]
mod boxes;

use boxes::{Kind, Users};
use crowd::{Crowd, open_descriptors, processes};
use gpukill_tests::harness::Stage;
use process::{field, file};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use threads::{since, spent};

const ON_THE_HOST: [usize; 2] = [1_000, 10_000];

/// The first polls read what later ones know, and the first search looks at
/// every process.
const FIRST: Duration = Duration::from_secs(12);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = arguments.iter().filter_map(|it| it.parse().ok());
    let length = Duration::from_secs(numbers.next().unwrap_or(60));
    let mut on_the_host: Vec<usize> = numbers.filter_map(|it| it.try_into().ok()).collect();
    if on_the_host.is_empty() {
        on_the_host.extend(ON_THE_HOST);
    }
    let paths = arguments.iter().filter(|argument| argument.contains('/'));
    let daemons: Vec<PathBuf> = paths.map(PathBuf::from).collect();
    let measure = |kind, users: &Users| {
        measure(kind, users, length, None);
        for daemon in &daemons {
            measure(kind, users, length, Some(daemon));
        }
    };
    let users = Users::start();
    let mut crowd = Crowd::default();
    for many in on_the_host {
        crowd.grow_to(many);
        let open = open_descriptors();
        println!("{} processes with {open} descriptors", processes().len());
        print_heading();
        for kind in [Kind::Nvidia, Kind::Amd, Kind::Mixed] {
            measure(kind, &users);
        }
    }
    drop(crowd);
    println!("made-up clients, and no other process");
    print_heading();
    measure(Kind::AmdClients, &users);
}

fn print_heading() {
    println!(
        "{:<8} {:<10} {:>5} {:>5} {:>12} {:>12} {:>9} {:>9} {:>5}  by thread, ms a poll",
        "", "", "polls", "late", "ms a poll", "% of a core", "RSS kB", "anon kB", "fds"
    );
}

fn measure(kind: Kind, users: &Users, length: Duration, other: Option<&PathBuf>) {
    let stage = Stage::new();
    let mut command = users.daemon(kind, &stage);
    if let Some(program) = other {
        command = same_for(program, &command);
    }
    let daemon = stage.start_with(&mut command);
    std::thread::sleep(FIRST);
    let pids = [daemon.pid(), daemon.sensor()];
    let (before, polled) = (pids.map(spent), polls(&stage));
    std::thread::sleep(length);
    let (after, polled_since) = (pids.map(spent), polls(&stage));
    let polls = (polled_since.0 - polled.0) as f64;
    for at in 0..2 {
        let by_thread = since(&before[at], &after[at]);
        let milliseconds: f64 = by_thread.iter().map(|(_, spent)| spent).sum();
        print!(
            "{:<8} {:<10} {polls:>5} {:>5} {:>12.3} {:>12.4} {:>9} {:>9} {:>5} ",
            kind.name(),
            [
                if other.is_some() {
                    "the other"
                } else {
                    "gpukilld"
                },
                "its sensor"
            ][at],
            polled_since.1 - polled.1,
            milliseconds / polls,
            milliseconds / length.as_secs_f64() / 10.0,
            field(pids[at], "VmRSS:"),
            field(pids[at], "RssAnon:"),
            std::fs::read_dir(file(pids[at], "fd")).unwrap().count(),
        );
        for (thread, spent) in by_thread.iter().filter(|(_, spent)| spent / polls >= 0.1) {
            print!(" {thread} {:.2}", spent / polls);
        }
        println!();
    }
    daemon.stop();
}

/// The same command, of another program.
fn same_for(program: &Path, command: &Command) -> Command {
    let mut same = Command::new(program);
    same.args(command.get_args()).env_clear();
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => same.env(key, value),
            None => same.env_remove(key),
        };
    }
    same
}

/// How many polls there were, and how many of them began late.
fn polls(stage: &Stage) -> (u64, u64) {
    let status = stage.json(&["status", "-o", "json"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
