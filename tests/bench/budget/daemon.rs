//! What the daemon and its sensor hold: threads, and memory before and after heavy work.

use super::compare::Count;
use super::junk::{large_patterns, refuses_hostile_files};
use super::process::{field, file};
use super::training::Training;
use gpukill_tests::harness::{Daemon, Stage, eventually};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// As long the threads are looked at: some begin with the daemon and end when they have
/// nothing to do.
const LOOKED_AT: Duration = Duration::from_secs(15);

/// After so many polls, ten of them a second, the daemon holds what it keeps.
const SETTLED: u64 = 150;

/// After so many polls all is known of the processes, and answers stay as long as they are.
pub(crate) const KNOWN: u64 = 5;

/// Processes on each GPU where memory is measured.
const EACH: usize = 8;

/// The threads of both processes while nothing happens.
pub(crate) fn threads(daemon: &Daemon) -> Count {
    let pids = [daemon.pid(), daemon.sensor()];
    let until = Instant::now() + LOOKED_AT;
    let mut least = u64::MAX;
    while Instant::now() < until {
        let now = pids.map(|pid| field(pid, "Threads:"));
        least = least.min(now.iter().sum());
        std::thread::sleep(Duration::from_millis(200));
    }
    Count::new("threads", least)
}

/// The memory of both processes with 64 processes on the GPUs.
pub(crate) fn memory() -> Vec<Count> {
    let stage = Stage::new();
    let training = Training::on(&stage, EACH);
    let daemon = stage.start_with(&mut training.daemon(&stage));
    settle(&stage, SETTLED);
    let mut counts = resident("resident", &daemon);
    work_hard(&stage, &daemon);
    settle(&stage, SETTLED);
    counts.extend(resident("resident_after_work", &daemon));
    daemon.stop();
    counts
}

/// Waits for so many polls more.
pub(crate) fn settle(stage: &Stage, polls_more: u64) {
    let until = polls(stage) + polls_more;
    eventually("it polls", || {
        // Answers cost too.
        std::thread::sleep(Duration::from_millis(500));
        (polls(stage) >= until).then_some(())
    });
}

/// How often it has polled.
pub(crate) fn polls(stage: &Stage) -> u64 {
    stage.json(&["status", "-o", "json"])["polls"]
        .as_u64()
        .unwrap()
}

/// All pages that they have, and those with the part of each that shared pages come to
/// (proc_pid_smaps(5)). The least of several looks, for a poll needs some for a moment.
fn resident(key: &str, daemon: &Daemon) -> Vec<Count> {
    let pids = [daemon.pid(), daemon.sensor()];
    let looks = (0..10).map(|_| {
        std::thread::sleep(Duration::from_millis(130));
        ["Rss:", "Pss:"].map(|name| pids.map(|pid| rollup(pid, name)).iter().sum::<u64>())
    });
    let least = looks.reduce(|one, other| [one[0].min(other[0]), one[1].min(other[1])]);
    let [all, shared] = least.unwrap();
    vec![
        Count::new(format!("{key}_bytes"), all),
        Count::new(format!("{key}_pss_bytes"), shared),
    ]
}

fn rollup(pid: u32, name: &str) -> u64 {
    let rollup = std::fs::read_to_string(file(pid, "smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Rules of others that are tried, on now and on the past; the whole store read; files of
/// rules that are refused.
fn work_hard(stage: &Stage, daemon: &Daemon) {
    let foreign = stage.path("foreign.toml");
    let name = foreign.to_str().unwrap();
    std::fs::write(&foreign, large_patterns(900)).unwrap();
    let exported = stage.path("exported.ndjson");
    let rules = stage.path("guard.toml");
    for _ in 0..3 {
        let tried: [&[&str]; 2] = [
            &["guard", "test", "--rules", name],
            &["guard", "replay", "--rules", name, "--since", "1h"],
        ];
        for arguments in tried {
            let ran = stage.ctl(arguments);
            assert!([0, 3].contains(&ran.code), "{ran:?}");
        }
        let ran = stage.ctl(&["audit", "export", exported.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{ran:?}");
        std::fs::remove_file(&exported).unwrap();
    }
    refuses_hostile_files(stage, daemon, &rules);
    std::fs::remove_file(&rules).unwrap();
    daemon.signal(Signal::HUP);
}
