//! `cargo bench -p gpukill-tests --bench poll`: the daemon's cost on a host with 1,000 and
//! 10,000 processes of 26 descriptors each, on a box with NVIDIA GPUs, with AMD GPUs, and with
//! both; then the cost of AMD clients alone. The boxes have eight GPUs with eight processes
//! each, polled every 2 s (the default).
//!
//! The cost is the processor time of all threads, from `/proc/PID/task/*/schedstat`. The first
//! number after `--` is the duration of each row in seconds: any 20 s contain the same number
//! of listings of all processes. Further numbers are the processes of the host. A path is
//! another `gpukilld`, which is measured alternately with this one: on a busy machine only
//! measurements taken together are comparable.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "boxes.rs"]
mod boxes;
#[path = "host_processes.rs"]
mod host_processes;
#[path = "process.rs"]
mod process;
#[path = "threads.rs"]
mod threads;

use boxes::{BoxHardware, GpuUsers};
use gpukill_tests::harness::TestBox;
use host_processes::{HostProcesses, host_pids, open_descriptors};
use process::{process_file, status_field};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use threads::{thread_time_differences, thread_times};

const HOST_PROCESS_COUNTS: [usize; 2] = [1_000, 10_000];

/// The first polls read what later polls know, and the first scan reads every process.
const WARM_UP_TIME: Duration = Duration::from_secs(12);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = arguments.iter().filter_map(|it| it.parse().ok());
    let length = Duration::from_secs(numbers.next().unwrap_or(60));
    let mut on_the_host: Vec<usize> = numbers.filter_map(|it| it.try_into().ok()).collect();
    if on_the_host.is_empty() {
        on_the_host.extend(HOST_PROCESS_COUNTS);
    }
    let paths = arguments.iter().filter(|argument| argument.contains('/'));
    let daemons: Vec<PathBuf> = paths.map(PathBuf::from).collect();
    let measure = |kind, users: &GpuUsers| {
        measure(kind, users, length, None);
        for daemon in &daemons {
            measure(kind, users, length, Some(daemon));
        }
    };
    let users = GpuUsers::start();
    let mut host = HostProcesses::default();
    for many in on_the_host {
        host.grow_to(many);
        let open = open_descriptors();
        println!("{} processes with {open} descriptors", host_pids().len());
        print_heading();
        for kind in [BoxHardware::Nvidia, BoxHardware::Amd, BoxHardware::Mixed] {
            measure(kind, &users);
        }
    }
    drop(host);
    println!("simulated clients, and no other process");
    print_heading();
    measure(BoxHardware::AmdClients, &users);
}

fn print_heading() {
    println!(
        "{:<8} {:<10} {:>5} {:>5} {:>12} {:>12} {:>9} {:>9} {:>5}  by thread, ms a poll",
        "", "", "polls", "late", "ms a poll", "% of a core", "RSS kB", "anon kB", "fds"
    );
}

fn measure(kind: BoxHardware, users: &GpuUsers, length: Duration, other: Option<&PathBuf>) {
    let test_box = TestBox::new();
    let mut command = users.daemon_command(kind, &test_box);
    if let Some(program) = other {
        command = with_program(program, &command);
    }
    let daemon = test_box.start_with(&mut command);
    std::thread::sleep(WARM_UP_TIME);
    let pids = [daemon.pid(), daemon.sensor_pid()];
    let (before, polled) = (pids.map(thread_times), poll_counts(&test_box));
    std::thread::sleep(length);
    let (after, polled_since) = (pids.map(thread_times), poll_counts(&test_box));
    let polls = (polled_since.0 - polled.0) as f64;
    for at in 0..2 {
        let by_thread = thread_time_differences(&before[at], &after[at]);
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
            status_field(pids[at], "VmRSS:"),
            status_field(pids[at], "RssAnon:"),
            std::fs::read_dir(process_file(pids[at], "fd"))
                .unwrap()
                .count(),
        );
        for (thread, spent) in by_thread.iter().filter(|(_, spent)| spent / polls >= 0.1) {
            print!(" {thread} {:.2}", spent / polls);
        }
        println!();
    }
    daemon.stop();
}

/// The same command with another program.
fn with_program(program: &Path, command: &Command) -> Command {
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

/// The number of polls, and how many of them started late.
fn poll_counts(test_box: &TestBox) -> (u64, u64) {
    let status = test_box.json(&["status", "-o", "json"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
