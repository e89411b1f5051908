//! Threads of the daemon and its sensor, and their memory before and after heavy work.

use super::comparison::Count;
use super::hostile_files::{large_patterns, refuses_hostile_files};
use super::process::{process_file, status_field};
use super::training::Training;
use gpukill_tests::harness::{Daemon, TestBox, eventually};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// How long threads are observed: some start with the daemon and end when they have nothing to
/// do.
const OBSERVATION_TIME: Duration = Duration::from_secs(15);

/// After this many polls, ten a second, the daemon has filled its caches.
const POLLS_TO_FILL_CACHES: u64 = 150;

/// After this many polls the daemon knows all about the processes, and the size of its answers
/// stays the same.
pub(crate) const POLLS_TO_KNOW_PROCESSES: u64 = 5;

/// Processes on each GPU in the memory measurement.
const PROCESSES_PER_GPU: usize = 8;

/// The threads of both processes while the daemon is idle.
pub(crate) fn count_threads(daemon: &Daemon) -> Count {
    Count::new("threads", least_threads(&both(daemon)))
}

/// The daemon and its sensor.
fn both(daemon: &Daemon) -> [u32; 2] {
    [daemon.pid(), daemon.sensor_pid()]
}

/// The fewest threads that these processes had together.
pub(crate) fn least_threads(pids: &[u32]) -> u64 {
    let until = Instant::now() + OBSERVATION_TIME;
    let mut least = u64::MAX;
    while Instant::now() < until {
        let now = pids.iter().map(|pid| status_field(*pid, "Threads:"));
        least = least.min(now.sum());
        std::thread::sleep(Duration::from_millis(200));
    }
    least
}

/// The memory of both processes with 64 processes on the GPUs.
pub(crate) fn measure_memory() -> Vec<Count> {
    let test_box = TestBox::new();
    let training = Training::start(&test_box, PROCESSES_PER_GPU);
    let daemon = test_box.start_with(&mut training.daemon_command(&test_box));
    wait_for_polls(&test_box, POLLS_TO_FILL_CACHES);
    let mut counts = resident_counts("resident", &both(&daemon));
    work_hard(&test_box, &daemon);
    wait_for_polls(&test_box, POLLS_TO_FILL_CACHES);
    counts.extend(resident_counts("resident_after_work", &both(&daemon)));
    daemon.stop();
    counts
}

/// Waits for this many more polls.
pub(crate) fn wait_for_polls(test_box: &TestBox, polls_more: u64) {
    let until = poll_count(test_box) + polls_more;
    eventually("it polls", || {
        // Answers cost memory too, so the bench asks rarely.
        std::thread::sleep(Duration::from_millis(500));
        (poll_count(test_box) >= until).then_some(())
    });
}

/// The number of polls so far.
pub(crate) fn poll_count(test_box: &TestBox) -> u64 {
    test_box.json(&["status", "-o", "json"])["polls"]
        .as_u64()
        .unwrap()
}

/// Resident memory, and proportional set size, which divides shared pages among their processes
/// (proc_pid_smaps(5)). The minimum of several readings, because a poll needs some pages for a
/// moment.
pub(crate) fn resident_counts(key: &str, pids: &[u32]) -> Vec<Count> {
    let counts = (0..10).map(|_| {
        std::thread::sleep(Duration::from_millis(130));
        ["Rss:", "Pss:"].map(|name| {
            let sizes = pids.iter().map(|pid| smaps_rollup_field(*pid, name));
            sizes.sum::<u64>()
        })
    });
    let least = counts.reduce(|one, other| [one[0].min(other[0]), one[1].min(other[1])]);
    let [all, shared] = least.unwrap();
    vec![
        Count::new(format!("{key}_bytes"), all),
        Count::new(format!("{key}_pss_bytes"), shared),
    ]
}

fn smaps_rollup_field(pid: u32, name: &str) -> u64 {
    let rollup = std::fs::read_to_string(process_file(pid, "smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Tests rules on the present and on the past, exports the whole store, and sends rule files
/// that the daemon refuses.
fn work_hard(test_box: &TestBox, daemon: &Daemon) {
    let foreign = test_box.path("foreign.toml");
    let name = foreign.to_str().unwrap();
    std::fs::write(&foreign, large_patterns(900)).unwrap();
    let exported = test_box.path("exported.ndjson");
    let rules = test_box.path("guard.toml");
    for _ in 0..3 {
        let tried: [&[&str]; 2] = [
            &["guard", "test", "--rules", name],
            &["guard", "replay", "--rules", name, "--since", "1h"],
        ];
        for arguments in tried {
            let ran = test_box.ctl(arguments);
            assert!([0, 3].contains(&ran.code), "{ran:?}");
        }
        let ran = test_box.ctl(&["audit", "export", exported.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{ran:?}");
        std::fs::remove_file(&exported).unwrap();
    }
    refuses_hostile_files(test_box, daemon, &rules);
    std::fs::remove_file(&rules).unwrap();
    daemon.signal(Signal::HUP);
}
