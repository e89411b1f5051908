//! `cargo bench -p gpukill-tests --bench scan`: the cost of the file descriptor scan, with
//! 1,000 and with 10,000 processes of 26 descriptors each.
//!
//! The cost is the processor time of the scanning thread, from `/proc/self/task/TID/schedstat`.
//! The first number after `--` is the duration of each row in seconds, further numbers are the
//! numbers of processes.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "host_processes.rs"]
mod host_processes;

use gpukilld::bench_api::FdScanBench;
use host_processes::{HostProcesses, host_pids, open_descriptors};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, read_dir, read_to_string};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const HOST_PROCESS_COUNTS: [usize; 2] = [1_000, 10_000];

/// `/dev/full` stands for a GPU: no other process has it open.
const FULL: (u32, u32) = (1, 7);

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let length = Duration::from_secs(numbers.next().unwrap_or(60));
    let mut on_the_host: Vec<usize> = numbers.filter_map(|it| it.try_into().ok()).collect();
    if on_the_host.is_empty() {
        on_the_host.extend(HOST_PROCESS_COUNTS);
    }
    let mut host = HostProcesses::default();
    for many in on_the_host {
        host.grow_to(many);
        let open = open_descriptors();
        println!("{} processes with {open} descriptors", host_pids().len());
        measure(length);
    }
}

fn measure(length: Duration) {
    let started_at = Instant::now();
    let rounds = 20;
    for _ in 0..rounds {
        assert!(!host_pids().is_empty());
    }
    let listing = started_at.elapsed() / rounds;
    println!("  listing /proc {:>28.1} ms", milliseconds(listing));

    let before = thread_time("scan");
    read_all_links();
    let naive = thread_time("scan") - before;
    println!(
        "  readlink and stat of all {:>17.1} ms, {:.1} % of a core every 2 s",
        milliseconds(naive),
        milliseconds(naive) / 20.0
    );

    let search = FdScanBench::start(FULL.0, FULL.1).unwrap();
    let (first, took) = full_scan(&search);
    println!(
        "  first full scan {:>26.1} ms of a core, after {:.1} s",
        milliseconds(first),
        took.as_secs_f64()
    );
    let (pass, took) = full_scan(&search);
    println!(
        "  urgent full scan {:>25.1} ms of a core, after {:.1} s",
        milliseconds(pass),
        took.as_secs_f64()
    );

    println!(
        "  rolling scan {:>29.3} % of a core",
        rolling_scan_percent(length)
    );
    let running = ProcessWaker::start();
    println!(
        "  while all have run {:>23.3} % of a core",
        rolling_scan_percent(length)
    );
    running.end();

    let started_at = Instant::now();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let holder = Command::new("sleep")
        .arg("100000")
        .stdin(Stdio::null())
        .stdout(full)
        .spawn()
        .unwrap();
    let mut holder = EndedOnDrop(holder);
    let pid = holder.0.id();
    while !search.holders().contains(&pid) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "  new holder found {:>25.2} s after its start",
        started_at.elapsed().as_secs_f64()
    );
    let started_at = Instant::now();
    holder.end();
    while search.holders().contains(&pid) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "  ended holder removed {:>21.2} s after its end",
        started_at.elapsed().as_secs_f64()
    );
}

/// Percent of a core that the scan takes without requests.
fn rolling_scan_percent(length: Duration) -> f64 {
    let (cpu, started_at) = (thread_time("fd-scan"), Instant::now());
    std::thread::sleep(length);
    let cpu = thread_time("fd-scan") - cpu;
    cpu.as_secs_f64() * 100.0 / started_at.elapsed().as_secs_f64()
}

/// Makes each process run for a moment every few seconds: the scan skips a process that has not
/// run since its last inspection.
struct ProcessWaker {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ProcessWaker {
    fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name("wakes".into());
        let thread = thread.spawn(move || {
            while !end.load(Ordering::Relaxed) {
                for pid in child_pids() {
                    // A process that is stopped and continued has run.
                    for signal in [Signal::STOP, Signal::CONT] {
                        kill_process(pid, signal).unwrap();
                    }
                }
                std::thread::park_timeout(Duration::from_secs(10));
            }
        });
        Self {
            ended,
            thread: thread.unwrap(),
        }
    }

    fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap();
    }
}

/// The host processes: they are children of this process.
fn child_pids() -> Vec<Pid> {
    let threads = read_dir("/proc/self/task").unwrap();
    let files = threads.map(|thread| thread.unwrap().path().join("children"));
    let texts = files.map(|file| read_to_string(file).unwrap_or_default());
    let pids = texts.flat_map(|text| {
        let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<i32>>()
    });
    pids.filter_map(Pid::from_raw).collect()
}

struct EndedOnDrop(std::process::Child);

impl EndedOnDrop {
    fn end(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        self.end();
    }
}

/// The cost and duration of a full scan.
fn full_scan(search: &FdScanBench) -> (Duration, Duration) {
    let (cpu, started_at) = (thread_time("fd-scan"), Instant::now());
    let request = search.request_scan();
    while !search.has_scanned(request) {
        std::thread::sleep(Duration::from_millis(5));
    }
    (
        thread_time("fd-scan").saturating_sub(cpu),
        started_at.elapsed(),
    )
}

/// The simple way: reads every link of every process.
fn read_all_links() {
    for pid in host_pids() {
        let Ok(entries) = read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            // The process or the descriptor may be gone.
            let _ = std::fs::read_link(&path);
            let _ = std::fs::metadata(&path);
        }
    }
}

/// The processor time of this process's threads with this name.
fn thread_time(thread: &str) -> Duration {
    let mut sum = 0;
    for entry in read_dir("/proc/self/task").unwrap() {
        let directory = entry.unwrap().path();
        let name = read_to_string(directory.join("comm")).unwrap_or_default();
        if name.trim_end().starts_with(thread) {
            let text = read_to_string(directory.join("schedstat")).unwrap_or_default();
            let ran = text.split_whitespace().next().unwrap_or("0");
            sum += ran.parse::<u64>().unwrap();
        }
    }
    Duration::from_nanos(sum)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
