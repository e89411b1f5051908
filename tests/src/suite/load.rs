//! More load than a real box has: clients, attackers, processes.

mod attacks;
mod clients;
mod processes;
mod under_attack;

use gpukill_tests::harness::{Daemon, TestBox, eventually, eventually_equals};
use serde_json::{Value, json};
use std::time::Duration;

/// A box with two GPUs and this many processes on them.
fn box_with_processes(processes: u32) -> TestBox {
    let test_box = TestBox::new();
    // Higher than any pid that Linux assigns, so these processes do not exist.
    let first = 5_000_000;
    let of_gpu = |gpu: u32| -> Vec<Value> {
        let pids = (first..first + processes).filter(|pid| pid % 2 == gpu);
        pids.map(|pid| json!({"pid": pid, "memory": 1 << 20}))
            .collect()
    };
    let gpus = json!([{"processes": of_gpu(0)}, {"processes": of_gpu(1)}]);
    test_box.set_driver_state(&json!({"gpus": gpus}));
    test_box
}

/// The numbers of open descriptors and of threads of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResourceUsage {
    descriptors: usize,
    threads: usize,
}

/// Measures the resources now. A poll opens files for moments, so the result is the minimum
/// of several measurements.
fn measure_resources(daemon: &Daemon) -> ResourceUsage {
    let count = |what: &str| {
        let entries = std::fs::read_dir(format!("/proc/{}/{what}", daemon.pid()));
        entries.expect("the daemon runs").count()
    };
    let counts = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        (count("fd"), count("task"))
    });
    let (descriptors, threads) = counts.unzip::<_, _, Vec<_>, Vec<_>>();
    let least = |counts: Vec<usize>| counts.into_iter().min().expect("some counts");
    ResourceUsage {
        descriptors: least(descriptors),
        threads: least(threads),
    }
}

/// Measures the resources after all parts of the daemon have started: the store opens its
/// files at the first write, and again at the first query.
fn measure_resources_at_rest(test_box: &TestBox, daemon: &Daemon) -> ResourceUsage {
    eventually("the first sample is stored", || {
        let records = test_box.ctl(&[
            "audit",
            "--samples",
            "-o",
            "ndjson",
            "--request-timeout",
            "30",
        ]);
        (!records.stdout.is_empty()).then_some(())
    });
    measure_resources(daemon)
}

/// Waits until the daemon uses no more resources than before.
fn assert_resources_released(daemon: &Daemon, before: ResourceUsage) {
    eventually_equals(&Ok(()), || {
        let now = measure_resources(daemon);
        let no_more = now.descriptors <= before.descriptors && now.threads <= before.threads;
        if no_more { Ok(()) } else { Err((now, before)) }
    });
}

/// The number of polls, and the number of late ones among them.
fn poll_counts(test_box: &TestBox) -> (u64, u64) {
    let status = test_box.json(&["status", "-o", "json", "--request-timeout", "30"]);
    let number = |field: &str| status[field].as_u64().expect("a number");
    (number("polls"), number("polls_late"))
}

/// One vendor, eight GPUs, and no clients.
#[test]
fn healthy_daemon_has_at_most_16_threads() {
    let test_box = TestBox::new();
    test_box.set_driver_state(
        &json!({"gpus": vec![json!({"processes": [{"pid": 5_000_000, "memory": 1 << 20}]}); 8]}),
    );
    let daemon = test_box.start();
    let threads = |pid: u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
        let name = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()
        };
        threads.filter_map(name).collect::<Vec<_>>()
    };
    // The first names are resolved at the start, which takes more threads.
    eventually_equals(&Ok(()), || {
        let all = [threads(daemon.pid()), threads(daemon.sensor_pid())].concat();
        if all.len() <= 16 { Ok(()) } else { Err(all) }
    });
}
