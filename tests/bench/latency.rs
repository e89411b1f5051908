//! `cargo bench -p gpukill-tests --bench latency`: the delay of the guard's warning or first
//! signal after the first poll that has a process on a GPU that it may not use, and after the
//! sample with this poll. Poll intervals of 2 s (the default) and 0.5 s; samples of 10 s (the
//! default). A warning counts when all terminals were tried, a signal when the process receives
//! it. Each run has a daemon of its own, and each process starts at another moment of a sample.
//!
//! The number after `--` is how often each row is measured.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_tests::harness::{Daemon, FakeDriver, Script, TestBox, eventually};
use serde_json::Value;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The default of `audit.sample_interval`.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// A job that prints its pid and each SIGTERM.
const JOB: &str = r#"launcher -c 'trap "echo TERM; exit" TERM; echo $$; while :; do wait; sleep 0.01; done' & wait; true"#;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

#[derive(Clone, Copy)]
enum MeasuredMode {
    Soft,
    Enforce,
}

impl MeasuredMode {
    fn name(self) -> &'static str {
        match self {
            Self::Soft => "warning",
            Self::Enforce => "signal",
        }
    }

    /// Blocks the user who runs this bench from the GPU.
    fn rules(self) -> String {
        let enforcement = match self {
            Self::Soft => "soft_enforcement = true\nhard_enforcement = false",
            Self::Enforce => "soft_enforcement = false\nhard_enforcement = true",
        };
        let us = rustix::process::geteuid().as_raw();
        format!(
            "[global]\ndry_run = false\n[enforcement]\n{enforcement}\n\
            [gpu_policies.0]\nblocked_users = [\"{us}\"]\n"
        )
    }
}

/// The delays in milliseconds, from the first poll and from the end of the sample.
struct Delays {
    of_poll: u64,
    of_sample: u64,
}

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let times: u32 = numbers.next().unwrap_or(10);
    println!(
        "{:<8} {:>9} {:>5} {:>34} {:>34}",
        "", "", "", "from the poll", "from the sample"
    );
    println!(
        "{:<8} {:>9} {:>5} {:>34} {:>34}",
        "", "poll, ms", "runs", "mean and longest: ms (polls)", "mean and longest: ms (polls)"
    );
    for poll in [Duration::from_secs(2), Duration::from_millis(500)] {
        for mode in [MeasuredMode::Soft, MeasuredMode::Enforce] {
            let taken: Vec<Delays> = (0..times)
                .map(|nth| measure_once(mode, poll, SAMPLE_INTERVAL * nth / times))
                .collect();
            println!(
                "{:<8} {:>9} {times:>5} {:>34} {:>34}",
                mode.name(),
                poll.as_millis(),
                format_delays(&taken, poll, |it| it.of_poll),
                format_delays(&taken, poll, |it| it.of_sample)
            );
        }
    }
}

fn format_delays(taken: &[Delays], poll: Duration, of: impl Fn(&Delays) -> u64) -> String {
    let all: Vec<u64> = taken.iter().map(of).collect();
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    let longest = all.into_iter().max().unwrap_or(0) as f64;
    let polls = |ms: f64| ms / poll.as_millis() as f64;
    format!(
        "{mean:.0} ({:.2}), {longest:.0} ({:.2})",
        polls(mean),
        polls(longest)
    )
}

/// Starts a process this long after a sample.
fn measure_once(mode: MeasuredMode, poll: Duration, later: Duration) -> Delays {
    let test_box = TestBox::new();
    std::fs::write(test_box.path("guard.toml"), mode.rules()).unwrap();
    let driver = FakeDriver::start(&test_box, Duration::ZERO);
    let mut command = test_box.daemon_command();
    command
        .env(
            "GPUKILLD_DAEMON_POLL_INTERVAL",
            format!("{}ms", poll.as_millis()),
        )
        .env(
            "GPUKILLD_AUDIT_SAMPLE_INTERVAL",
            format!("{}s", SAMPLE_INTERVAL.as_secs()),
        )
        // There are no terminals: the bench measures the time up to the warning.
        .env("GPUKILLD_GUARD_TERMINALS", test_box.path("dev"));
    let daemon = test_box.start_with(&mut command);
    eventually("a sample is evaluated", || {
        let status = test_box.json(&["guard", "status", "-o", "json"]);
        status["evaluated_at"].is_string().then_some(())
    });
    std::thread::sleep(later);
    let job = Script::run(&test_box, JOB);
    let [pid] = job.next_pids();
    driver.add_processes(&[pid]);
    let polled = eventually("a poll has it", || {
        let list = test_box.list();
        let mut rows = list["procs"].as_array()?.iter();
        rows.any(|row| row["pid"] == pid)
            .then(|| milliseconds_of_day(list["ts"].as_str().unwrap()))
    });
    let done = match mode {
        MeasuredMode::Soft => time_of_warning(&daemon),
        MeasuredMode::Enforce => {
            assert_eq!(job.next_line(), "TERM");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::try_from(now.as_millis()).unwrap() % DAY_MS
        }
    };
    let violated = time_of_violation(&test_box);
    daemon.stop();
    Delays {
        of_poll: difference(polled, done),
        of_sample: difference(violated, done),
    }
}

/// The time of day when all terminals were tried, in milliseconds.
fn time_of_warning(daemon: &Daemon) -> u64 {
    eventually("the warning is logged", || {
        let log = daemon.log();
        let mut lines = log.lines();
        let entry =
            lines.find(|line| line.contains("no terminal of the user who breaks a rule"))?;
        Some(milliseconds_of_day(entry.split(' ').next().unwrap()))
    })
}

/// The end of the sample that violated the rule, as time of day in milliseconds.
fn time_of_violation(test_box: &TestBox) -> u64 {
    eventually("the violation is recorded", || {
        let ran = test_box.ctl(&["guard", "violations", "--limit", "0", "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).ok()?;
        let mut records = document["records"].as_array()?.iter();
        let violated = records.find(|it| it["step"] == "violated")?;
        Some(milliseconds_of_day(violated["timestamp"].as_str().unwrap()))
    })
}

/// The milliseconds of the day in `2026-01-31T12:34:56.789Z`.
fn milliseconds_of_day(moment: &str) -> u64 {
    let number = |range: Range<usize>| moment.get(range).unwrap().parse::<u64>().unwrap();
    let minutes = number(11..13) * 60 + number(14..16);
    (minutes * 60 + number(17..19)) * 1_000 + number(20..23)
}

/// The difference of two times of day, also over midnight.
fn difference(from: u64, until: u64) -> u64 {
    (until + DAY_MS - from) % DAY_MS
}
