//! `cargo bench -p gpukill-tests --bench killed`: kills the daemon with SIGKILL,
//! 1,000 times, at random moments: while it starts, while it writes samples, and
//! while clients have it end processes. Each time both files have to be whole,
//! every process that it ended has to be in the record, with every act of a run
//! before settled, and the sums of runs, minutes and samples have to agree.
//!
//! The first number after `--` is how often it is killed instead; the second how
//! many boxes are killed side by side.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_tests::harness::{Actor, Driver, Stage, built, is_over};
use gpukilld::untrusted::times;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest that a daemon lives, from its socket on, in milliseconds.
const LONGEST: u64 = 1_500;

/// The processes that clients have it end, in each of its lives.
const ACTORS: usize = 3;

/// What was seen, added up.
#[derive(Debug, Default)]
struct Seen {
    kills: usize,
    /// Clients that were told that an act is recorded.
    told: usize,
    /// Processes that were ended, whether a client heard of it or not.
    ended: usize,
    /// Daemons that were killed while an act was under way.
    during_acts: usize,
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
    let _ = built();
    let begun = Instant::now();
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..boxes)
            .map(|number| {
                let share = times / boxes + usize::from(number < times % boxes);
                scope.spawn(move || kill_again_and_again(share, number as u64))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    });
    for seen in seen {
        println!("{seen:?}");
    }
    println!("all sound, {} s", begun.elapsed().as_secs());
}

fn kill_again_and_again(times: usize, number: u64) -> Seen {
    let stage = Stage::new();
    let driver = Driver::start(&stage, Duration::ZERO);
    let mut chance = Chance::new(number);
    let mut seen = Seen::default();
    let mut actors: Vec<Actor> = Vec::new();
    for _ in 0..times {
        actors.retain(|actor| !is_over(actor.pid()));
        while actors.len() < ACTORS {
            let actor = Actor::start("python train.py");
            driver.lists(&[actor.pid()]);
            actors.push(actor);
        }
        let pids: Vec<u32> = actors.iter().map(Actor::pid).collect();
        let daemon = stage.launch(&mut stage.daemon(), &stage.socket());
        let is_killed = AtomicBool::new(false);
        let told: Vec<u32> = std::thread::scope(|scope| {
            let clients: Vec<_> = pids
                .iter()
                .map(|pid| {
                    let (stage, is_killed) = (&stage, &is_killed);
                    let later = Duration::from_millis(chance.below(LONGEST / 2));
                    scope.spawn(move || {
                        std::thread::sleep(later);
                        has_it_ended(stage, *pid, is_killed).then_some(*pid)
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(chance.below(1_000 * LONGEST)));
            daemon.kill();
            is_killed.store(true, Ordering::Relaxed);
            let told = clients.into_iter().filter_map(|it| it.join().unwrap());
            told.collect()
        });
        seen.kills += 1;
        seen.told += told.len();
        let ended = pids.into_iter().filter(|pid| is_over(*pid));
        let mut must_be_there: Vec<u32> = ended.collect();
        seen.ended += must_be_there.len();
        must_be_there.extend(told);
        assert_sound(&stage, &must_be_there, &mut seen);
    }
    // The last one settles what is left.
    stage.start().stop();
    assert_sound(&stage, &[], &mut seen);
    let audit = Connection::open(stage.path("state/audit.db")).unwrap();
    let left = "SELECT count(*) FROM action WHERE finished_at IS NULL";
    assert_eq!(number_of(&audit, left), 0);
    let interrupted = "SELECT count(*) FROM action WHERE word = 'interrupted'";
    seen.interrupted = number_of(&audit, interrupted);
    seen
}

/// Has a process ended; whether it is told that this is recorded.
fn has_it_ended(stage: &Stage, pid: u32, is_killed: &AtomicBool) -> bool {
    while !is_killed.load(Ordering::Relaxed) {
        let ran = stage.ctl(&["kill", &pid.to_string(), "-o", "json"]);
        // Not listed yet, or nobody there any more: no document.
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

/// Looks at a copy of the files, so that the next daemon finds them as they were
/// left.
fn assert_sound(stage: &Stage, must_be_there: &[u32], seen: &mut Seen) {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(stage.path("state")).unwrap() {
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
        // Killed before its schema was there.
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('action', 'rolled')";
        (number_of(&database, tables) > 0).then_some(database)
    };
    let (audit, samples) = (opened("audit.db"), opened("samples.db"));
    assert!(audit.is_some() || must_be_there.is_empty());
    if let Some(audit) = audit {
        assert_acts(&audit, must_be_there, seen);
    }
    if let Some(samples) = samples {
        assert_sums(&samples, seen);
    }
}

fn assert_acts(audit: &Connection, must_be_there: &[u32], seen: &mut Seen) {
    for pid in must_be_there {
        let plan = format!("%\"pid\":{pid},%");
        let select = "SELECT count(*) FROM action WHERE plan LIKE ?1 AND word IS NOT 'refused'";
        let found: i64 = audit.query_row(select, [plan], |row| row.get(0)).unwrap();
        assert!(found > 0, "{pid} was ended and is not in the record");
    }
    let newest = "(SELECT run FROM action ORDER BY id DESC LIMIT 1)";
    let older =
        format!("SELECT count(*) FROM action WHERE finished_at IS NULL AND run IS NOT {newest}");
    assert_eq!(number_of(audit, &older), 0, "not settled");
    let odd = "SELECT count(*) FROM action WHERE (finished_at IS NULL) != (word IS NULL)
        OR (word NOT IN ('done', 'partly', 'failed', 'refused', 'interrupted', 'unrecorded'))";
    assert_eq!(number_of(audit, odd), 0);
    let under_way = "SELECT count(*) FROM action WHERE finished_at IS NULL";
    seen.during_acts += usize::from(number_of(audit, under_way) > 0);
    let actions = number_of(audit, "SELECT count(*) FROM action");
    assert!(
        actions >= seen.actions,
        "{actions} of {} are left",
        seen.actions
    );
    seen.actions = actions;
}

/// What runs come to is what the samples do that are in minutes, and what the
/// minutes do.
fn assert_sums(samples: &Connection, seen: &mut Seen) {
    let rolled = number_of(samples, "SELECT sample FROM rolled");
    let of_samples = added_up(samples, "sample", rolled);
    assert_eq!(added_up(samples, "minute", i64::MAX), of_samples);
    let hours = number_of(samples, "SELECT minute FROM rolled");
    let of_minutes = added_up(samples, "minute", hours);
    assert_eq!(added_up(samples, "hour", i64::MAX), of_minutes);
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
        number_of(samples, "SELECT count(*) FROM sample"),
        number_of(samples, "SELECT coalesce(max(id), 0) FROM sample"),
    );
    assert_eq!(count, newest, "each has its id, and none is lost");
    assert!(
        count >= seen.samples,
        "{count} of {} are left",
        seen.samples
    );
    seen.samples = count;
    seen.minutes = number_of(samples, "SELECT count(*) FROM minute");
}

/// The times of all runs in a table's rows up to this one.
fn added_up(samples: &Connection, table: &str, until: i64) -> BTreeMap<i64, [u64; 4]> {
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

fn number_of(database: &Connection, select: &str) -> i64 {
    database.query_row(select, [], |row| row.get(0)).unwrap()
}

/// Numbers that nobody foresees, and no more than that.
struct Chance(u64);

impl Chance {
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
