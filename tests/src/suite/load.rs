//! More of everything than a box has: clients, attackers, processes.

mod attacks;

mod clients;

mod processes;

mod siege;

use gpukill_tests::harness::{Daemon, Stage, becomes, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// A box of two GPUs with so many processes on them.
fn stage_with(processes: u32) -> Stage {
    let stage = Stage::new();
    // Above every pid that Linux gives: they do not exist.
    let first = 5_000_000;
    let of_gpu = |gpu: u32| -> Vec<Value> {
        let pids = (first..first + processes).filter(|pid| pid % 2 == gpu);
        pids.map(|pid| json!({"pid": pid, "memory": 1 << 20}))
            .collect()
    };
    stage.play(&json!({"gpus": [{"processes": of_gpu(0)}, {"processes": of_gpu(1)}]}));
    stage
}

/// What a daemon holds of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holds {
    descriptors: usize,
    threads: usize,
}

/// What it holds now. A poll has files open for moments, so it is the least of
/// several looks.
fn holds(daemon: &Daemon) -> Holds {
    let count = |what: &str| {
        let entries = std::fs::read_dir(format!("/proc/{}/{what}", daemon.pid()));
        entries.expect("the daemon runs").count()
    };
    let looks = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        (count("fd"), count("task"))
    });
    let (descriptors, threads) = looks.unzip::<_, _, Vec<_>, Vec<_>>();
    let least = |looks: Vec<usize>| looks.into_iter().min().expect("it looked");
    Holds {
        descriptors: least(descriptors),
        threads: least(threads),
    }
}

/// What it holds when all its parts have begun: the store opens its files when
/// it first writes, and again when it is first asked.
fn holds_at_rest(stage: &Stage, daemon: &Daemon) -> Holds {
    eventually("the first sample is stored", || {
        let records = stage.ctl(&["audit", "-o", "ndjson", "--request-timeout", "30"]);
        (!records.stdout.is_empty()).then_some(())
    });
    holds(daemon)
}

/// Waits until it holds no more than before.
fn assert_given_back(daemon: &Daemon, before: Holds) {
    becomes(&Ok(()), || {
        let now = holds(daemon);
        let no_more = now.descriptors <= before.descriptors && now.threads <= before.threads;
        if no_more { Ok(()) } else { Err((now, before)) }
    });
}

/// How many polls there were, and how many of them began late.
fn polls(stage: &Stage) -> (u64, u64) {
    let status = stage.json(&["status", "-o", "json", "--request-timeout", "30"]);
    let number = |field: &str| status[field].as_u64().expect("a number");
    (number("polls"), number("polls_late"))
}

/// One vendor, eight GPUs, and nobody who asks.
#[test]
fn a_healthy_box_takes_sixteen_threads_at_most() {
    let stage = Stage::new();
    stage.play(
        &json!({"gpus": vec![json!({"processes": [{"pid": 5_000_000, "memory": 1 << 20}]}); 8]}),
    );
    let daemon = stage.start();
    let threads = |pid: u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
        let name = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()
        };
        threads.filter_map(name).collect::<Vec<_>>()
    };
    // The first names are asked for at the start.
    becomes(&Ok(()), || {
        let all = [threads(daemon.pid()), threads(daemon.sensor())].concat();
        if all.len() <= 16 { Ok(()) } else { Err(all) }
    });
}
