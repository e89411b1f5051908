//! `cargo bench -p gpukill-tests --bench store`: what 30 days of 8 GPUs with 64
//! processes leave on the disk, and how long questions about them take. Polls
//! every 2 s, samples every 10 s, through the code that gathers and writes; then
//! a daemon over the file, what its start costs, and whole clients.
//!
//! Beside it, of one day of the same samples: one JSON object a record, as
//! gpu-kill writes them, and one row a record in a plain table.
//!
//! A number after `--` is how many days instead.
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
#[allow(dead_code, reason = "other benches need more of it")]
mod process;

#[path = "budget/callgrind.rs"]
#[allow(dead_code, reason = "the bench `budget` needs more of it")]
mod callgrind;

#[path = "budget/life.rs"]
mod life;

use callgrind::Callgrind;
use gpukill_proto::snapshot::Snapshot;
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::Stage;
use gpukilld::gathered::Measured;
use life::{Reads, instructions};
use people::Box8;
use rusqlite::{Connection, params};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const POLL: u64 = 2;
const SAMPLE: u64 = 10;
const DAY: u64 = 86_400;

/// So often each question is asked.
const ROUNDS: usize = 20;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let days: u64 = numbers.next_back().unwrap_or(30);
    let stage = Stage::new();
    // Up to now: the daemon that is asked deletes what is old by its own clock.
    let now = Timestamp::from(SystemTime::now());
    let seconds = days * DAY;
    let start = now.plus_seconds(-i64::try_from(seconds).unwrap());
    let state = stage.path("state");
    write(&state, start, seconds);
    println!();
    beside(start);
    println!();
    print_start(&stage);
    println!();
    ask(&stage, days);
}

/// What starting over the history costs the daemon: a life of one poll, and its end.
fn print_start(stage: &Stage) {
    let once = stage.start_with(&mut daemon(stage));
    let Reads { bytes, calls } = Reads::by(&once);
    once.stop();
    let instructions = Callgrind::find().map_or_else(
        || "(no valgrind)".to_owned(),
        |callgrind| instructions(stage, &daemon(stage), &callgrind).to_string(),
    );
    println!("start: {instructions} instructions, {bytes} bytes in {calls} reads");
}

fn daemon(stage: &Stage) -> Command {
    let mut command = stage.daemon();
    command
        .env("GPUKILLD_DAEMON_STATE_DIR", stage.path("state"))
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
    command
}

/// Writes the history, and tells of each day that doubles it.
fn write(state: &Path, start: Timestamp, seconds: u64) {
    let mut people = Box8::new();
    let mut measured = Measured::open(state).unwrap();
    let begun = Instant::now();
    let mut tell_at = DAY;
    println!(
        "{:>5} {:>10} {:>12} {:>12} {:>10}",
        "days", "MB", "B a sample", "B a record", "written in"
    );
    for second in (0..seconds).step_by(usize::try_from(POLL).unwrap()) {
        let at = start.plus_seconds(i64::try_from(second).unwrap());
        let snapshot = Arc::new(people.poll(at));
        let steady = Duration::from_secs(second);
        measured.poll(&snapshot, steady).unwrap();
        let after = second + POLL;
        if after >= tell_at || after >= seconds {
            tell_at *= 2;
            let bytes = size(state);
            let samples = (after / SAMPLE) as f64;
            println!(
                "{:>5.1} {:>10.1} {:>12.0} {:>12.2} {:>8.0} s",
                after as f64 / DAY as f64,
                bytes as f64 / 1e6,
                bytes as f64 / samples,
                bytes as f64 / samples / 72.0,
                begun.elapsed().as_secs_f64()
            );
        }
    }
}

/// The file and its write-ahead log.
fn size(state: &Path) -> u64 {
    ["samples.db", "samples.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(state.join(name)).ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// What a day comes to in other forms.
fn beside(start: Timestamp) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain.db");
    let mut plain = Connection::open(&path).unwrap();
    plain
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
             CREATE TABLE record (id INTEGER PRIMARY KEY, at INTEGER, gpu INTEGER, pid INTEGER,
             user TEXT, name TEXT, memory INTEGER, utilization INTEGER, temperature INTEGER,
             power INTEGER) STRICT;",
        )
        .unwrap();
    let mut people = Box8::new();
    let (mut lines, mut records) = (0, 0_u64);
    for samples in 0..(DAY / SAMPLE / 60) {
        let transaction = plain.transaction().unwrap();
        for sample in 0..60 {
            let second = (samples * 60 + sample) * SAMPLE;
            let at = start.plus_seconds(i64::try_from(second).unwrap());
            let snapshot = people.poll(at);
            for record in flat(&snapshot) {
                records += 1;
                lines += record.to_string().len() as u64 + 1;
                let number = |key: &str| record[key].as_i64();
                transaction
                    .prepare_cached("INSERT INTO record VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)")
                    .unwrap()
                    .execute(params![
                        i64::try_from(records).unwrap(),
                        at.0,
                        number("gpu_index"),
                        number("pid"),
                        record["user"].as_str(),
                        record["process_name"].as_str(),
                        number("memory_used_mb"),
                        number("utilization_pct"),
                        number("temperature_c"),
                        number("power_w"),
                    ])
                    .unwrap();
            }
        }
        transaction.commit().unwrap();
    }
    plain
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let table = std::fs::metadata(&path).unwrap().len();
    for (what, bytes) in [("JSON lines", lines), ("plain rows", table)] {
        println!(
            "{what}: {:.1} MB a day, {:.0} B a record: 30 days of it are {:.0} MB",
            bytes as f64 / 1e6,
            bytes as f64 / records as f64,
            bytes as f64 * 30.0 / 1e6
        );
    }
}

/// The fields of a record that gpu-kill's documents name.
fn flat(snapshot: &Snapshot) -> Vec<serde_json::Value> {
    let record =
        |pid: Option<u32>, user: Option<&str>, name: Option<&str>, memory, index: usize| {
            serde_json::json!({
                "id": snapshot.taken_at.0, "timestamp": snapshot.taken_at.to_rfc3339(),
                "gpu_index": index, "gpu_name": "NVIDIA H100 80GB HBM3", "pid": pid, "user": user,
                "process_name": name, "memory_used_mb": memory, "utilization_pct": 97,
                "temperature_c": 71, "power_w": 688.0, "container": null,
            })
        };
    let index = |id: &gpukill_proto::snapshot::DeviceId| {
        let found = snapshot.devices.iter().position(|device| device.id == *id);
        found.unwrap_or(0)
    };
    let devices = snapshot.devices.iter().map(|device| {
        let memory = device.memory_used.known().map(|it| it.as_mib());
        record(None, None, None, memory, index(&device.id))
    });
    let processes = snapshot.processes.iter().map(|process| {
        let owner = process.owner.known().map(|owner| owner.name.as_str());
        let memory = process.memory.known().map(|it| it.as_mib());
        let name = process.name.known().map(String::as_str);
        record(
            Some(process.pid),
            owner,
            name,
            memory,
            index(&process.device),
        )
    });
    devices.chain(processes).collect()
}

/// Whole clients, which ask a daemon over this store.
fn ask(stage: &Stage, days: u64) {
    let daemon = stage.start_with(&mut daemon(stage));
    let all = format!("{days}d");
    println!("{:<36} {:>9} {:>9}", "whole client", "median", "longest");
    time(stage, "list", &["list"]);
    let shorter = [1, 7].into_iter().filter(|it| *it < days);
    for days in shorter.chain([days]) {
        let since = format!("{days}d");
        let what = format!("--summary, days: {days}");
        time(stage, &what, &["audit", "--summary", "--since", &since]);
    }
    for user in ["user3", "rare"] {
        let what = format!("--summary --user {user}");
        let question = ["audit", "--summary", "--user", user, "--since", &all];
        time(stage, &what, &question);
    }
    println!();
    println!(
        "{:<36} {:>9} {:>9} {:>12} {:>12}",
        "the newest 1,000 of all", "median", "longest", "from half on", "each further"
    );
    let filters: [&[&str]; 10] = [
        &[],
        &["--user", "user3"],
        &["--user", "rare"],
        &["--process", "pyth"],
        &["--process", "^jul"],
        &["--gpu", "3"],
        &["--container", "rarely"],
        &["--job", "docker/0123456789ab"],
        &["--user", "user3", "--gpu", "3"],
        &["--user", "nobody"],
    ];
    for filter in filters {
        time_pages(stage, filter, days);
    }
    daemon.stop();
}

/// How long pages take: the first, one from the middle of all days on, and what each
/// further one takes.
fn time_pages(stage: &Stage, filter: &[&str], days: u64) {
    let all = format!("{days}d");
    let half = format!("{}h ago", days * 12);
    let page = |limit: &str, more: &[&str]| {
        let mut question = vec!["audit", "--since", &all, "--limit", limit];
        question.extend(filter);
        question.extend(more);
        times(stage, &question)
    };
    let first = page("1000", &[]);
    let from_half = page("1000", &["--until", &half]);
    // Ten pages or somewhat more: of long records fewer are on each.
    let further = (median(&page("10000", &[])) - median(&first)) / 9.0;
    println!(
        "{:<36} {:>6.1} ms {:>6.1} ms {:>9.1} ms {:>9.1} ms",
        filter.join(" "),
        median(&first),
        longest(&first),
        median(&from_half),
        further
    );
}

fn time(stage: &Stage, what: &str, question: &[&str]) {
    let times = times(stage, question);
    println!(
        "{what:<36} {:>6.1} ms {:>6.1} ms",
        median(&times),
        longest(&times)
    );
}

/// What a client ends with where there is no such record.
const NOTHING_MATCHES: i32 = 8;

/// How long each round took, in milliseconds, the shortest first.
fn times(stage: &Stage, question: &[&str]) -> Vec<f64> {
    let round = |_| {
        let mut client = stage.client(question);
        client.stdout(Stdio::null());
        let begun = Instant::now();
        let status = client.status().unwrap();
        let is_answered = status.success() || status.code() == Some(NOTHING_MATCHES);
        assert!(is_answered, "{question:?}: {status}");
        begun.elapsed().as_secs_f64() * 1e3
    };
    let mut times: Vec<f64> = (0..ROUNDS).map(round).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

fn median(times: &[f64]) -> f64 {
    times[times.len() / 2]
}

fn longest(times: &[f64]) -> f64 {
    times[times.len() - 1]
}
