//! `cargo bench -p gpukill-tests --bench scan`: what it costs to know who has a
//! device open, of 1,000 and of 10,000 processes with 26 descriptors each.
//!
//! Processor time of the thread that searches, from
//! `/proc/self/task/TID/schedstat`. The first number after `--` is how many seconds
//! the search is watched for in each row, further ones how many processes there are.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "crowd.rs"]
mod crowd;

use crowd::{Crowd, open_descriptors, processes};
use gpukilld::measured::Measured;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, read_dir, read_to_string};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ON_THE_HOST: [usize; 2] = [1_000, 10_000];

/// `/dev/full` stands for a GPU: nobody else has it open.
const FULL: (u32, u32) = (1, 7);

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let length = Duration::from_secs(numbers.next().unwrap_or(60));
    let mut on_the_host: Vec<usize> = numbers.filter_map(|it| it.try_into().ok()).collect();
    if on_the_host.is_empty() {
        on_the_host.extend(ON_THE_HOST);
    }
    let mut crowd = Crowd::default();
    for many in on_the_host {
        crowd.grow_to(many);
        let open = open_descriptors();
        println!("{} processes with {open} descriptors", processes().len());
        measure(length);
    }
}

fn measure(length: Duration) {
    let began = Instant::now();
    let rounds = 20;
    for _ in 0..rounds {
        assert!(!processes().is_empty());
    }
    let listing = began.elapsed() / rounds;
    println!("  listing /proc {:>28.1} ms", milliseconds(listing));

    let before = spent("scan");
    naive();
    let naive = spent("scan") - before;
    println!(
        "  readlink and stat of all {:>17.1} ms, {:.1} % of a core every 2 s",
        milliseconds(naive),
        milliseconds(naive) / 20.0
    );

    let search = Measured::start(FULL.0, FULL.1).unwrap();
    let (first, took) = urgent(&search);
    println!(
        "  first look at all {:>24.1} ms of a core, after {:.1} s",
        milliseconds(first),
        took.as_secs_f64()
    );
    let (pass, took) = urgent(&search);
    println!(
        "  urgent look at all {:>23.1} ms of a core, after {:.1} s",
        milliseconds(pass),
        took.as_secs_f64()
    );

    println!("  rolling search {:>27.3} % of a core", rolling(length));
    let running = Running::start();
    println!("  while all have run {:>23.3} % of a core", rolling(length));
    running.end();

    let began = Instant::now();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let holder = Command::new("sleep")
        .arg("100000")
        .stdin(Stdio::null())
        .stdout(full)
        .spawn()
        .unwrap();
    let mut holder = Ended(holder);
    let pid = holder.0.id();
    while !search.holders().contains(&pid) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "  new holder found {:>25.2} s after it began",
        began.elapsed().as_secs_f64()
    );
    let began = Instant::now();
    holder.end();
    while search.holders().contains(&pid) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "  gone holder forgotten {:>20.2} s after it ended",
        began.elapsed().as_secs_f64()
    );
}

/// Percent of a core that the search takes when nobody asks.
fn rolling(length: Duration) -> f64 {
    let (cpu, began) = (spent("holders"), Instant::now());
    std::thread::sleep(length);
    let cpu = spent("holders") - cpu;
    cpu.as_secs_f64() * 100.0 / began.elapsed().as_secs_f64()
}

/// Makes each process of the crowd run a moment in every few seconds: what has
/// not run since the last look need not be looked at.
struct Running {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name("wakes".into());
        let thread = thread.spawn(move || {
            while !end.load(Ordering::Relaxed) {
                for pid in children() {
                    // A process that is stopped and goes on has run.
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

/// The crowd: its processes are this one's.
fn children() -> Vec<Pid> {
    let threads = read_dir("/proc/self/task").unwrap();
    let files = threads.map(|thread| thread.unwrap().path().join("children"));
    let texts = files.map(|file| read_to_string(file).unwrap_or_default());
    let pids = texts.flat_map(|text| {
        let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<i32>>()
    });
    pids.filter_map(Pid::from_raw).collect()
}

struct Ended(std::process::Child);

impl Ended {
    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

/// A look at all: what it costs, and how long it takes.
fn urgent(search: &Measured) -> (Duration, Duration) {
    let (cpu, began) = (spent("holders"), Instant::now());
    let wish = search.look_now();
    while !search.has_looked(wish) {
        std::thread::sleep(Duration::from_millis(5));
    }
    (spent("holders").saturating_sub(cpu), began.elapsed())
}

/// The way that needs no thought: every link of every process.
fn naive() {
    for pid in processes() {
        let Ok(entries) = read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            // Either may be gone.
            let _ = std::fs::read_link(&path);
            let _ = std::fs::metadata(&path);
        }
    }
}

/// Processor time of this process's threads of that name.
fn spent(thread: &str) -> Duration {
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
