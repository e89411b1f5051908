//! `cargo bench -p gpukill-tests --bench store`: the disk space of 30 days of 8 GPUs with 64
//! processes, and the time of queries about them. Polls every 2 s and samples every 10 s,
//! through the code of the sampler and the store; then the start of a daemon over the file, and
//! whole clients.
//!
//! For comparison, one day of the same samples: one JSON object a record, as gpu-kill writes
//! them, and one row a record in a plain table.
//!
//! A number after `--` replaces the number of days.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "budget/callgrind.rs"]
#[allow(dead_code, reason = "the bench `budget` needs more of it")]
mod callgrind;
#[path = "budget/daemon_life.rs"]
mod daemon_life;
#[path = "people.rs"]
mod people;
#[path = "process.rs"]
#[allow(dead_code, reason = "other benches need more of it")]
mod process;

use callgrind::Callgrind;
use daemon_life::{Reads, life_instructions};
use gpukill_proto::model::Snapshot;
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::TestBox;
use gpukilld::bench_api::SamplerBench;
use people::EightGpuBox;
use rusqlite::{Connection, params};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const POLL: u64 = 2;
const SAMPLE: u64 = 10;
const DAY: u64 = 86_400;

/// How often each query runs.
const ROUNDS: usize = 20;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let days: u64 = numbers.next_back().unwrap_or(30);
    let test_box = TestBox::new();
    // The history ends now, because the daemon deletes old samples by its own clock.
    let now = Timestamp::from(SystemTime::now());
    let seconds = days * DAY;
    let start = now.plus_seconds(-i64::try_from(seconds).unwrap());
    let state = test_box.path("state");
    write_history(&state, start, seconds);
    println!();
    print_other_formats(start);
    println!();
    print_start(&test_box);
    println!();
    measure_queries(&test_box, days);
    println!();
    measure_archive(&test_box);
}

/// Prints the cost of a daemon that starts over the history, polls once and ends.
fn print_start(test_box: &TestBox) {
    let once = test_box.start_with(&mut daemon(test_box));
    let Reads { bytes, calls } = Reads::read_from(&once);
    once.stop();
    let instructions = Callgrind::find().map_or_else(
        || "(no valgrind)".to_owned(),
        |callgrind| life_instructions(test_box, &daemon(test_box), &callgrind).to_string(),
    );
    println!("start: {instructions} instructions, {bytes} bytes in {calls} reads");
}

fn daemon(test_box: &TestBox) -> Command {
    let mut command = test_box.daemon_command();
    command
        .env("GPUKILLD_DAEMON_STATE_DIR", test_box.path("state"))
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
    command
}

/// Writes the history, and prints a row for days 1, 2, 4, 8 and so on.
fn write_history(state: &Path, start: Timestamp, seconds: u64) {
    let mut people = EightGpuBox::new();
    let mut measured = SamplerBench::open(state).unwrap();
    let started_at = Instant::now();
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
            let bytes = store_bytes(state);
            let samples = (after / SAMPLE) as f64;
            println!(
                "{:>5.1} {:>10.1} {:>12.0} {:>12.2} {:>8.0} s",
                after as f64 / DAY as f64,
                bytes as f64 / 1e6,
                bytes as f64 / samples,
                bytes as f64 / samples / 72.0,
                started_at.elapsed().as_secs_f64()
            );
        }
    }
}

/// The size of the file and its write-ahead log.
fn store_bytes(state: &Path) -> u64 {
    ["samples.db", "samples.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(state.join(name)).ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// Prints the size of a day in other formats.
fn print_other_formats(start: Timestamp) {
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
    let mut people = EightGpuBox::new();
    let (mut lines, mut records) = (0, 0_u64);
    for samples in 0..(DAY / SAMPLE / 60) {
        let transaction = plain.transaction().unwrap();
        for sample in 0..60 {
            let second = (samples * 60 + sample) * SAMPLE;
            let at = start.plus_seconds(i64::try_from(second).unwrap());
            let snapshot = people.poll(at);
            for record in flat_records(&snapshot) {
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

/// The fields of a record according to gpu-kill's documents.
fn flat_records(snapshot: &Snapshot) -> Vec<serde_json::Value> {
    let record =
        |pid: Option<u32>, user: Option<&str>, name: Option<&str>, memory, index: usize| {
            serde_json::json!({
                "id": snapshot.taken_at.0, "timestamp": snapshot.taken_at.to_rfc3339(),
                "gpu_index": index, "gpu_name": "NVIDIA H100 80GB HBM3", "pid": pid, "user": user,
                "process_name": name, "memory_used_mb": memory, "utilization_pct": 97,
                "temperature_c": 71, "power_w": 688.0, "container": null,
            })
        };
    let index = |id: &gpukill_proto::model::DeviceId| {
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

/// Measures whole clients that query a daemon over this store.
fn measure_queries(test_box: &TestBox, days: u64) {
    let daemon = test_box.start_with(&mut daemon(test_box));
    let all = format!("{days}d");
    println!("{:<36} {:>9} {:>9}", "whole client", "median", "longest");
    print_query_times(test_box, "list", &["list"]);
    let shorter = [1, 7].into_iter().filter(|it| *it < days);
    for days in shorter.chain([days]) {
        let since = format!("{days}d");
        let what = format!("--summary, days: {days}");
        print_query_times(test_box, &what, &["audit", "--summary", "--since", &since]);
    }
    let long_ago = format!("{}h ago", days * 24 - 12);
    let timelines: [&[&str]; 5] = [
        &["--gpu", "3", "--hours", "24"],
        &["--gpu", "3", "--since", &all, "--until", &long_ago],
        &["--user", "user3", "--hours", "24"],
        &["--user", "rare", "--since", &all],
        &["--job", "docker/0123456789ab", "--since", &all],
    ];
    for selection in timelines {
        let what = format!("timeline {}", selection.join(" "));
        let question = [&["audit", "timeline"], selection].concat();
        print_query_times(test_box, &what, &question);
    }
    for user in ["user3", "rare"] {
        let what = format!("--summary --user {user}");
        let question = ["audit", "--summary", "--user", user, "--since", &all];
        print_query_times(test_box, &what, &question);
    }
    for user in [None, Some("user3"), Some("rare")] {
        let mut question = vec!["audit", "--since", &all];
        question.extend(user.iter().flat_map(|user| ["--user", *user]));
        print_query_times(test_box, &question.join(" "), &question);
    }
    let page = [
        "audit", "--user", "user3", "--limit", "100", "--since", &all,
    ];
    print_query_times(test_box, "a page of runs of user3", &page);
    // A process that never used a GPU, and one that does not exist.
    for pid in ["1", "4194304"] {
        print_query_times(test_box, &format!("explain {pid}"), &["explain", pid]);
    }
    for by in ["gpu", "user", "job"] {
        let what = format!("series --by {by}, 300 buckets");
        let question = [
            "audit",
            "series",
            "--by",
            by,
            "--buckets",
            "300",
            "--since",
            &all,
        ];
        print_query_times(test_box, &what, &question);
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
        time_pages(test_box, filter, days);
    }
    daemon.stop();
}

/// Measures the archive of all days that are over.
fn measure_archive(test_box: &TestBox) {
    let daemon = test_box.start_with(&mut daemon(test_box));
    // A sample of now closes them.
    std::thread::sleep(Duration::from_secs(2 * SAMPLE));
    let directory = test_box.path("archive");
    std::fs::create_dir(&directory).unwrap();
    let name = directory.to_str().unwrap();
    for what in ["archive", "archive again", "archive --verify"] {
        let mut arguments = vec!["audit", "archive", name];
        arguments.extend((what == "archive --verify").then_some("--verify"));
        let started_at = Instant::now();
        let ran = test_box.ctl(&arguments);
        let seconds = started_at.elapsed().as_secs_f64();
        assert_eq!(ran.code, 0, "{ran:?}");
        println!("{what}: {seconds:.2} s\n{}", ran.stdout);
    }
    daemon.stop();
}

/// Measures pages: the first page, a page from the middle of all days, and each further page.
fn time_pages(test_box: &TestBox, filter: &[&str], days: u64) {
    let all = format!("{days}d");
    let half = format!("{}h ago", days * 12);
    let page = |limit: &str, more: &[&str]| {
        let mut question = vec!["audit", "--samples", "--since", &all, "--limit", limit];
        question.extend(filter);
        question.extend(more);
        query_times(test_box, &question)
    };
    let first = page("1000", &[]);
    let from_half = page("1000", &["--until", &half]);
    // Ten pages or a few more: a page holds fewer long records.
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

fn print_query_times(test_box: &TestBox, what: &str, question: &[&str]) {
    let times = query_times(test_box, question);
    println!(
        "{what:<36} {:>6.1} ms {:>6.1} ms",
        median(&times),
        longest(&times)
    );
}

/// The client's exit code if no record matches.
const NOTHING_MATCHES: i32 = 8;

/// The duration of each round in milliseconds, the shortest first.
fn query_times(test_box: &TestBox, question: &[&str]) -> Vec<f64> {
    let round = |_| {
        let mut client = test_box.client_command(question);
        client.stdout(Stdio::null());
        let started_at = Instant::now();
        let status = client.status().unwrap();
        let is_answered = status.success() || status.code() == Some(NOTHING_MATCHES);
        assert!(is_answered, "{question:?}: {status}");
        started_at.elapsed().as_secs_f64() * 1e3
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
