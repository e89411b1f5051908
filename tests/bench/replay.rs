//! `cargo bench -p gpukill-tests --bench replay`: the cost of testing rules on the past. 30
//! days of 8 GPUs with 64 processes, written by the code of the sampler and the store; a daemon
//! over them that polls every 2 s; whole clients that ask for 7 and for 30 days, and two such
//! clients at once; and a scan for rogue processes over the same history.
//!
//! A number after `--` replaces the number of days; a path is a state directory with an
//! existing history, which is copied.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "people.rs"]
mod people;
#[path = "process.rs"]
mod process;

use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{Daemon, TestBox};
use gpukilld::bench_api::SamplerBench;
use people::EightGpuBox;
use process::{process_file, status_field};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const POLL: u64 = 2;
const DAY: u64 = 86_400;

/// Rules of every kind for a common box; many processes violate them.
const COMMON: &str = r#"
[global]
default_memory_limit_gb = 16
default_utilization_limit_pct = 80
default_duration_limit_hours = 12
default_max_concurrent_processes = 100
default_idle_limit_minutes = 30
default_idle_min_memory_gb = 1

[[rules]]
name = "waste"
processes = ["python*"]
command = "train"
waste_below_pct = 5
waste_min_memory_gb = 4
waste_hours = 2

[[rules]]
name = "growth"
processes = ["python*"]
command = "train"
growth_gb = 8
growth_hours = 2
"#;

/// The shipped rules for a box that several people share.
const LAB: &str = include_str!("../../packaging/guard/lab.toml");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = arguments.iter().filter_map(|it| it.parse().ok());
    let days: u64 = numbers.next_back().unwrap_or(30);
    let test_box = TestBox::new();
    let state = test_box.path("state");
    let written = arguments.iter().map(PathBuf::from);
    match written
        .into_iter()
        .find(|it| it.join("samples.db").exists())
    {
        Some(written) => copy_history(&written, &state),
        None => write_history(&state, days),
    }
    test_box.configure("");
    let mut command = test_box.daemon_command();
    command
        .env("GPUKILLD_DAEMON_STATE_DIR", &state)
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s");
    let daemon = test_box.start_with(&mut command);
    println!(
        "{:<24} {:>7} {:>9} {:>10} {:>7} {:>6}",
        "", "s", "CPU s", "peak MiB", "polls", "late"
    );
    for (name, rules) in [("a lab's rules", LAB), ("limits and behaviours", COMMON)] {
        let file = test_box.path("rules.toml");
        std::fs::write(&file, rules).unwrap();
        for since in [1, 7, days] {
            let since = format!("{since}d");
            measure(&test_box, &daemon, &format!("{name}, {since}"), || {
                vec![start_replay(&test_box, &file, &since)]
            });
        }
        measure(&test_box, &daemon, "two at once, 7d", || {
            let ask = || start_replay(&test_box, &file, "7d");
            vec![ask(), ask()]
        });
    }
    for hours in [24, 24 * 7, 24 * days.min(31)] {
        measure(
            &test_box,
            &daemon,
            &format!("rogue scan, {hours} h"),
            || {
                let hours = hours.to_string();
                let mut client =
                    test_box.client_command(&["rogue", "scan", "--hours", &hours, "-o", "json"]);
                vec![client.stdout(Stdio::null()).spawn().unwrap()]
            },
        );
    }
    daemon.stop();
}

fn write_history(state: &Path, days: u64) {
    let now = Timestamp::from(SystemTime::now());
    let seconds = days * DAY;
    let start = now.plus_seconds(-i64::try_from(seconds).unwrap());
    let mut people = EightGpuBox::new();
    let mut measured = SamplerBench::open(state).unwrap();
    for second in (0..seconds).step_by(usize::try_from(POLL).unwrap()) {
        let at = start.plus_seconds(i64::try_from(second).unwrap());
        let snapshot = Arc::new(people.poll(at));
        measured
            .poll(&snapshot, Duration::from_secs(second))
            .unwrap();
    }
}

fn copy_history(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn start_replay(test_box: &TestBox, rules: &Path, since: &str) -> Child {
    let rules = rules.to_str().unwrap();
    let mut client =
        test_box.client_command(&["guard", "replay", "--rules", rules, "--since", since]);
    client.stdout(Stdio::null()).spawn().unwrap()
}

/// Measures the duration of the clients, the cost to the daemon, and whether it polled
/// meanwhile.
fn measure(test_box: &TestBox, daemon: &Daemon, name: &str, clients: impl FnOnce() -> Vec<Child>) {
    // Resets the peak of resident memory (proc_pid_clear_refs(5)).
    std::fs::write(process_file(daemon.pid(), "clear_refs"), "5").unwrap();
    let (polls, late) = poll_counts(test_box);
    let (before, started_at) = (processor_seconds(daemon), Instant::now());
    let refused = clients()
        .into_iter()
        .filter_map(|mut client| client.wait().unwrap().code())
        .filter(|code| *code != 0)
        .count();
    let (wall, spent) = (started_at.elapsed(), processor_seconds(daemon) - before);
    let peak = status_field(daemon.pid(), "VmHWM:");
    let (polls_after, late_after) = poll_counts(test_box);
    println!(
        "{name:<24} {:>7.2} {:>9.2} {:>10} {:>7} {:>6}{}",
        wall.as_secs_f64(),
        spent,
        peak / 1024,
        polls_after - polls,
        late_after - late,
        if refused > 0 {
            format!("  {refused} not answered")
        } else {
            String::new()
        }
    );
}

/// The processor seconds that the daemon has used (fields 14 and 15 of proc_pid_stat(5)).
fn processor_seconds(daemon: &Daemon) -> f64 {
    let stat = std::fs::read_to_string(process_file(daemon.pid(), "stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|it| it.parse::<u64>().unwrap()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The number of polls, and how many of them were late.
fn poll_counts(test_box: &TestBox) -> (u64, u64) {
    let status = test_box.json(&["status", "-o", "json"]);
    let number = |field: &str| status[field].as_u64().unwrap();
    (number("polls"), number("polls_late"))
}
