//! `cargo bench -p gpukill-tests --bench latency`: how long after the first poll that has
//! a process on a GPU that it may not use the guard warns, or sends the first signal; and
//! how long after the sample that the poll became a part of. At the default interval of
//! 2 s, and at 0.5 s; samples of 10 s, as by default. A warning counts when all terminals
//! were tried, a signal when the process has it. Each time a daemon of its own, and each
//! process comes at another moment of a sample.
//!
//! The number after `--` is how often each row is measured.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_tests::harness::{Daemon, Driver, Stage, Troupe, eventually};
use serde_json::Value;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As `audit.sample_interval` is by default.
const SAMPLE: Duration = Duration::from_secs(10);

/// A job that says its pid, and each SIGTERM.
const JOB: &str = r#"launcher -c 'trap "echo TERM; exit" TERM; echo $$; while :; do wait; sleep 0.01; done' & wait; true"#;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

#[derive(Clone, Copy)]
enum Mode {
    Soft,
    Enforce,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Soft => "warning",
            Self::Enforce => "signal",
        }
    }

    /// Whoever runs this may not use the GPU.
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

/// Milliseconds of a day, from the first poll and from the end of the sample.
struct Taken {
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
        for mode in [Mode::Soft, Mode::Enforce] {
            let taken: Vec<Taken> = (0..times)
                .map(|nth| once(mode, poll, SAMPLE * nth / times))
                .collect();
            println!(
                "{:<8} {:>9} {times:>5} {:>34} {:>34}",
                mode.name(),
                poll.as_millis(),
                said(&taken, poll, |it| it.of_poll),
                said(&taken, poll, |it| it.of_sample)
            );
        }
    }
}

fn said(taken: &[Taken], poll: Duration, of: impl Fn(&Taken) -> u64) -> String {
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

/// A process comes this long after a sample.
fn once(mode: Mode, poll: Duration, later: Duration) -> Taken {
    let stage = Stage::new();
    std::fs::write(stage.path("guard.toml"), mode.rules()).unwrap();
    let driver = Driver::start(&stage, Duration::ZERO);
    let mut command = stage.daemon();
    command
        .env(
            "GPUKILLD_DAEMON_POLL_INTERVAL",
            format!("{}ms", poll.as_millis()),
        )
        .env(
            "GPUKILLD_AUDIT_SAMPLE_INTERVAL",
            format!("{}s", SAMPLE.as_secs()),
        )
        // There is none: what is measured is the way there.
        .env("GPUKILLD_GUARD_TERMINALS", stage.path("dev"));
    let daemon = stage.start_with(&mut command);
    eventually("a sample is judged", || {
        let status = stage.json(&["guard", "status", "-o", "json"]);
        status["judged_at"].is_string().then_some(())
    });
    std::thread::sleep(later);
    let job = Troupe::run(&stage, JOB);
    let [pid] = job.pids();
    driver.lists(&[pid]);
    let polled = eventually("a poll has it", || {
        let list = stage.list();
        let mut rows = list["procs"].as_array()?.iter();
        rows.any(|row| row["pid"] == pid)
            .then(|| of_day(list["ts"].as_str().unwrap()))
    });
    let done = match mode {
        Mode::Soft => warned(&daemon),
        Mode::Enforce => {
            assert_eq!(job.says(), "TERM");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::try_from(now.as_millis()).unwrap() % DAY_MS
        }
    };
    let violated = violated(&stage);
    daemon.stop();
    Taken {
        of_poll: between(polled, done),
        of_sample: between(violated, done),
    }
}

/// When all terminals were tried.
fn warned(daemon: &Daemon) -> u64 {
    eventually("they are told", || {
        let log = daemon.log();
        let mut lines = log.lines();
        let told = lines.find(|line| line.contains("no terminal of whoever breaks a rule"))?;
        Some(of_day(told.split(' ').next().unwrap()))
    })
}

/// When the sample ended by which it was judged.
fn violated(stage: &Stage) -> u64 {
    eventually("it is recorded", || {
        let ran = stage.ctl(&["guard", "violations", "--limit", "0", "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).ok()?;
        let mut records = document["records"].as_array()?.iter();
        let violated = records.find(|it| it["step"] == "violated")?;
        Some(of_day(violated["timestamp"].as_str().unwrap()))
    })
}

/// The milliseconds of the day in `2026-01-31T12:34:56.789Z`.
fn of_day(moment: &str) -> u64 {
    let number = |range: Range<usize>| moment.get(range).unwrap().parse::<u64>().unwrap();
    let minutes = number(11..13) * 60 + number(14..16);
    (minutes * 60 + number(17..19)) * 1_000 + number(20..23)
}

/// Also over midnight.
fn between(from: u64, until: u64) -> u64 {
    (until + DAY_MS - from) % DAY_MS
}
