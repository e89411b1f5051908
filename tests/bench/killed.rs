//! `cargo bench -p gpukill-tests --bench killed`: kills the daemon with SIGKILL 1,000 times at
//! random moments: while it starts, while it writes samples, and while clients end processes.
//! After each kill both files must be intact, every ended process must be in the record, every
//! action of an earlier run must be settled, and the sums of runs, minutes and samples must
//! agree.
//!
//! The first number after `--` replaces the number of kills; the second is how many boxes run
//! in parallel.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_tests::harness::{FakeDriver, TestBox, TestProcess, binaries, process_has_ended};
use gpukilld::fuzz_api::times;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest life of a daemon after its socket exists, in milliseconds.
const MAX_LIFE_MS: u64 = 1_500;

/// The processes that clients end in each life of the daemon.
const PROCESSES_PER_LIFE: usize = 3;

/// The totals of all runs.
#[derive(Debug, Default)]
struct Totals {
    kills: usize,
    /// Clients that received an answer that their action is recorded.
    recorded_answers: usize,
    /// Processes that were ended, whether or not a client received the answer.
    ended: usize,
    /// Daemons that were killed while an action was in progress.
    during_actions: usize,
    actions: i64,
    interrupted: i64,
    samples: i64,
    minutes: i64,
}

fn main() {
    let numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let times = numbers.first().copied().unwrap_or(1_000);
    let boxes = numbers.get(1).copied().unwrap_or(2).max(1);
    let _ = binaries();
    let started_at = Instant::now();
    let seen: Vec<Totals> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..boxes)
            .map(|number| {
                let share = times / boxes + usize::from(number < times % boxes);
                scope.spawn(move || kill_repeatedly(share, number as u64))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    });
    for seen in seen {
        println!("{seen:?}");
    }
    println!("all sound, {} s", started_at.elapsed().as_secs());
}

fn kill_repeatedly(times: usize, number: u64) -> Totals {
    let test_box = TestBox::new();
    let driver = FakeDriver::start(&test_box, Duration::ZERO);
    let mut chance = MomentGenerator::new(number);
    let mut seen = Totals::default();
    let mut processes: Vec<TestProcess> = Vec::new();
    for _ in 0..times {
        processes.retain(|process| !process_has_ended(process.pid()));
        while processes.len() < PROCESSES_PER_LIFE {
            let process = TestProcess::start("python train.py");
            driver.add_processes(&[process.pid()]);
            processes.push(process);
        }
        let pids: Vec<u32> = processes.iter().map(TestProcess::pid).collect();
        let daemon = test_box.launch(&mut test_box.daemon_command(), &test_box.socket());
        let is_killed = AtomicBool::new(false);
        let answered: Vec<u32> = std::thread::scope(|scope| {
            let clients: Vec<_> = pids
                .iter()
                .map(|pid| {
                    let (test_box, is_killed) = (&test_box, &is_killed);
                    let later = Duration::from_millis(chance.below(MAX_LIFE_MS / 2));
                    scope.spawn(move || {
                        std::thread::sleep(later);
                        end_process(test_box, *pid, is_killed).then_some(*pid)
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(chance.below(1_000 * MAX_LIFE_MS)));
            daemon.kill();
            is_killed.store(true, Ordering::Relaxed);
            let answered = clients.into_iter().filter_map(|it| it.join().unwrap());
            answered.collect()
        });
        seen.kills += 1;
        seen.recorded_answers += answered.len();
        let ended = pids.into_iter().filter(|pid| process_has_ended(*pid));
        let mut must_be_there: Vec<u32> = ended.collect();
        seen.ended += must_be_there.len();
        must_be_there.extend(answered);
        assert_intact(&test_box, &must_be_there, &mut seen);
    }
    // The last daemon settles the actions that are open.
    test_box.start().stop();
    assert_intact(&test_box, &[], &mut seen);
    let audit = Connection::open(test_box.path("state/audit.db")).unwrap();
    let left = "SELECT count(*) FROM action WHERE finished_at IS NULL";
    assert_eq!(query_number(&audit, left), 0);
    let interrupted = "SELECT count(*) FROM action WHERE result = 'interrupted'";
    seen.interrupted = query_number(&audit, interrupted);
    seen
}

/// Ends a process. Returns whether the client received an answer that the action is recorded.
fn end_process(test_box: &TestBox, pid: u32, is_killed: &AtomicBool) -> bool {
    while !is_killed.load(Ordering::Relaxed) {
        let ran = test_box.ctl(&["kill", &pid.to_string(), "-o", "json"]);
        // The output is no document if the process is not listed yet, or no daemon runs.
        let document: Result<Value, _> = serde_json::from_str(&ran.stdout);
        if let Ok(document) = document
            && document["outcomes"].is_array()
        {
            assert_eq!(document["recorded"], true, "{document:#}");
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Inspects a copy of the files, so that the next daemon finds them as they were left.
fn assert_intact(test_box: &TestBox, must_be_there: &[u32], seen: &mut Totals) {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(test_box.path("state")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(!name.contains(".broken-"), "{name}");
        if name.contains(".db") {
            std::fs::copy(&path, copy.path().join(name)).unwrap();
        }
    }
    let opened = |file: &str| {
        let path = copy.path().join(file);
        let database = path.exists().then(|| Connection::open(path).unwrap())?;
        let found: String = database
            .pragma_query_value(None, "integrity_check", |row| row.get(0))
            .unwrap();
        assert_eq!(found, "ok", "{file}");
        // The daemon was killed before it created the schema.
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('action', 'rolled')";
        (query_number(&database, tables) > 0).then_some(database)
    };
    let (audit, samples) = (opened("audit.db"), opened("samples.db"));
    assert!(audit.is_some() || must_be_there.is_empty());
    if let Some(audit) = audit {
        assert_actions(&audit, must_be_there, seen);
    }
    if let Some(samples) = samples {
        assert_sums(&samples, seen);
    }
}

fn assert_actions(audit: &Connection, must_be_there: &[u32], seen: &mut Totals) {
    for pid in must_be_there {
        let plan = format!("%\"pid\":{pid},%");
        let select = "SELECT count(*) FROM action WHERE plan LIKE ?1 AND result IS NOT 'refused'";
        let found: i64 = audit.query_row(select, [plan], |row| row.get(0)).unwrap();
        assert!(found > 0, "{pid} was ended and is not in the record");
    }
    let newest = "(SELECT run FROM action ORDER BY id DESC LIMIT 1)";
    let older =
        format!("SELECT count(*) FROM action WHERE finished_at IS NULL AND run IS NOT {newest}");
    assert_eq!(query_number(audit, &older), 0, "not settled");
    let odd = "SELECT count(*) FROM action WHERE (finished_at IS NULL) != (result IS NULL)
        OR (result NOT IN ('done', 'partly', 'failed', 'refused', 'interrupted', 'unrecorded'))";
    assert_eq!(query_number(audit, odd), 0);
    let under_way = "SELECT count(*) FROM action WHERE finished_at IS NULL";
    seen.during_actions += usize::from(query_number(audit, under_way) > 0);
    let actions = query_number(audit, "SELECT count(*) FROM action");
    assert!(
        actions >= seen.actions,
        "{actions} of {} are left",
        seen.actions
    );
    seen.actions = actions;
}

/// The sums of runs, of minutes, and of the samples that are rolled up into minutes must agree.
fn assert_sums(samples: &Connection, seen: &mut Totals) {
    let rolled = query_number(samples, "SELECT sample FROM rolled");
    let of_samples = sum_usage(samples, "sample", rolled);
    assert_eq!(sum_usage(samples, "minute", i64::MAX), of_samples);
    let hours = query_number(samples, "SELECT minute FROM rolled");
    let of_minutes = sum_usage(samples, "minute", hours);
    assert_eq!(sum_usage(samples, "hour", i64::MAX), of_minutes);
    let select = "SELECT id, held_ms, busy_ms, idle_ms, unknown_ms FROM run";
    let mut statement = samples.prepare(select).unwrap();
    let rows = statement.query_map([], |row| {
        let ms = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
        Ok((row.get(0)?, [ms(1)?, ms(2)?, ms(3)?, ms(4)?]))
    });
    let mut of_runs: BTreeMap<i64, [u64; 4]> = rows.unwrap().map(Result::unwrap).collect();
    of_runs.retain(|_, times| *times != [0; 4]);
    assert_eq!(of_runs, of_samples);
    let (count, newest) = (
        query_number(samples, "SELECT count(*) FROM sample"),
        query_number(samples, "SELECT coalesce(max(id), 0) FROM sample"),
    );
    assert_eq!(count, newest, "every sample has its id, and none is lost");
    assert!(
        count >= seen.samples,
        "only {count} of {} samples are left",
        seen.samples
    );
    seen.samples = count;
    seen.minutes = query_number(samples, "SELECT count(*) FROM minute");
}

/// The times of all runs in the rows of a table up to `until`.
fn sum_usage(samples: &Connection, table: &str, until: i64) -> BTreeMap<i64, [u64; 4]> {
    let select = format!("SELECT usage FROM {table} WHERE id <= ?1");
    let mut statement = samples.prepare(&select).unwrap();
    let rows = statement.query_map([until], |row| row.get::<_, Vec<u8>>(0));
    let mut sums: BTreeMap<i64, [u64; 4]> = BTreeMap::new();
    for blob in rows.unwrap() {
        for (run, more) in times(&blob.unwrap()).expect("a sample") {
            let sum = sums.entry(run).or_default();
            *sum = std::array::from_fn(|at| sum[at] + more[at]);
        }
    }
    sums.retain(|_, times| *times != [0; 4]);
    sums
}

fn query_number(database: &Connection, select: &str) -> i64 {
    database.query_row(select, [], |row| row.get(0)).unwrap()
}

/// Random numbers; their quality is sufficient for the choice of moments.
struct MomentGenerator(u64);

impl MomentGenerator {
    fn new(number: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(u64::from(now.subsec_nanos()) << 8 | number << 1 | 1)
    }

    /// Marsaglia's xorshift with these shifts.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
