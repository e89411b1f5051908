//! `cargo bench -p gpukill-tests --bench day`: the daemon over a long life. It makes 43,200
//! polls, as many as in a day with a poll every 2 s, at the shortest interval of 100 ms: 72
//! minutes. The box has 8 GPUs; every 3 s other processes use them.
//!
//! A number after `--` replaces the number of polls.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "process.rs"]
mod process;

use gpukill_tests::harness::{Daemon, TestBox, TestProcess};
use process::{process_file, status_field};
use serde_json::json;
use std::time::Duration;

const POLLS_PER_DAY: u64 = 43_200;

const ROWS: u64 = 24;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let most = numbers.next_back().unwrap_or(POLLS_PER_DAY);
    let test_box = TestBox::new();
    let mut processes = start_processes(&test_box);
    let mut command = test_box.daemon_command();
    // Half as often relative to the polls as by default: this is the shortest interval.
    command.env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "1s");
    let daemon = test_box.start_with(&mut command);
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
    let (mut sensor, mut restarts, mut next) = (daemon.sensor_pid(), 0, 0);
    loop {
        let status = test_box.json(&["status", "-o", "json"]);
        let number = |field: &str| status[field].as_u64().unwrap();
        let polls = number("polls");
        if daemon.sensor_pid() != sensor {
            sensor = daemon.sensor_pid();
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
        processes = replace_processes(&test_box, processes);
    }
    daemon.stop();
}

/// Puts other processes on the GPUs. The old ones end afterwards: as on a real box, the driver
/// may list a pid for a moment after its end.
fn replace_processes(test_box: &TestBox, old: Vec<TestProcess>) -> Vec<TestProcess> {
    let new = start_processes(test_box);
    drop(old);
    new
}

fn start_processes(test_box: &TestBox) -> Vec<TestProcess> {
    let processes: Vec<TestProcess> = (0..64)
        .map(|_| TestProcess::start("python train.py"))
        .collect();
    let gpus: Vec<_> = processes
        .chunks(8)
        .map(|processes| {
            let processes: Vec<_> = processes
                .iter()
                .map(|process| json!({"pid": process.pid(), "memory": 1u64 << 30, "sm": 12}))
                .collect();
            json!({"processes": processes})
        })
        .collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    processes
}

fn print_row(daemon: &Daemon, sensor: u32, polls: &[u64; 3], stored: u64) {
    let pid = daemon.pid();
    println!(
        "{:>7} {:>5} {:>8} {:>9} {:>9} {:>5} {:>8} {:>10} {:>10} {:>8} {:>10}",
        polls[0],
        polls[1],
        polls[2],
        status_field(pid, "VmRSS:"),
        status_field(pid, "RssAnon:"),
        std::fs::read_dir(process_file(pid, "fd")).unwrap().count(),
        status_field(pid, "Threads:"),
        status_field(sensor, "VmRSS:"),
        status_field(sensor, "RssAnon:"),
        std::fs::read_dir(process_file(sensor, "fd"))
            .unwrap()
            .count(),
        stored / 1024
    );
}
