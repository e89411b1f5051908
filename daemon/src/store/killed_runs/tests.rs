//! Runs that kills ended are marked, whichever file has its row first.

use super::super::database::{AUDIT, SAMPLES, open};
use super::*;
use serde_json::json;

const KEY: ProcessKey = ProcessKey {
    pid: 7,
    start_ticks: 9,
};

/// A database with one process, and its runs on two devices.
fn file() -> (tempfile::TempDir, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let connection = open(directory.path(), &SAMPLES).unwrap().connection;
    connection
        .execute_batch(
            "INSERT INTO process (id, boot, pid, start_ticks) VALUES
             (1, 'boot', 7, 9), (2, 'boot', 7, 10), (3, 'before', 7, 9);
             INSERT INTO run (process, device, instance, first_at, last_at, first_sample, last_sample)
             VALUES (1, 1, '', 0, 0, 1, 1), (1, 2, '', 0, 0, 1, 1),
                    (2, 1, '', 0, 0, 1, 1), (3, 1, '', 0, 0, 1, 1);",
        )
        .unwrap();
    (directory, connection)
}

fn depart(connection: &Connection, device: i64, ending: &str, at: i64) {
    let update = "UPDATE run SET ended_at = ?3, ending = ?2 WHERE device = ?1";
    let departed = rusqlite::params![device, ending, at];
    connection.execute(update, departed).unwrap();
}

/// The ending and the kill of each run.
fn endings(connection: &Connection) -> Vec<(Option<String>, Option<i64>)> {
    let mut select = connection
        .prepare("SELECT ending, action FROM run ORDER BY id")
        .unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// When each run ended, and when it was last observed.
fn ends(connection: &Connection) -> Vec<(Option<i64>, i64)> {
    let mut select = connection
        .prepare("SELECT ended_at, last_at FROM run ORDER BY id")
        .unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

fn was(ending: &str) -> (Option<String>, Option<i64>) {
    (Some(ending.into()), None)
}

fn killed() -> (Option<String>, Option<i64>) {
    (Some("killed".into()), Some(42))
}

fn taken() -> KilledRuns {
    let mut all = KilledRuns::default();
    all.add(42, Timestamp(500), &[KEY], Instant::now());
    all
}

#[test]
fn outcome_yields_the_ended_processes() {
    let outcome = |pid: u32, ending: &str| json!({"pid": pid, "start_ticks": 9, "outcome": ending});
    let report = json!({"stage": "done", "outcomes": [
        outcome(7, "ended"), outcome(8, "survived"), outcome(9, "gone"), outcome(10, "zombie"),
    ]});
    assert_eq!(ended_processes(&report.to_string()), [KEY]);
    for nothing in ["", "[]", "{\"outcomes\": [{}]}", "{\"stage\": \"done\"}"] {
        assert_eq!(ended_processes(nothing), [], "{nothing}");
    }
}

#[test]
fn short_outcome_keeps_the_ended_processes() {
    let many = |count: u32| -> Vec<ProcessKey> {
        let keys = (1..=count).map(|pid| ProcessKey {
            pid,
            start_ticks: u64::MAX,
        });
        keys.collect()
    };
    let short = || "{\"too_long\": {}}".to_owned();
    assert_eq!(add_ended_processes(short(), &[]), short());
    let kept = add_ended_processes(short(), &many(3));
    assert_eq!(ended_processes(&kept), many(3));
    // It is bounded.
    let kept = add_ended_processes(short(), &many(4_000));
    assert_eq!(ended_processes(&kept), many(64));
    assert!(kept.len() < 2_000, "{}", kept.len());
}

#[test]
fn departure_before_the_outcome_is_marked() {
    let (_directory, mut connection) = file();
    for device in [1, 2] {
        depart(&connection, device, "ended", 1_000);
    }
    taken().mark_runs(&mut connection, "boot").unwrap();
    // Neither a process with a reused pid nor a process of another boot.
    let expected = [killed(), killed(), was("ended"), was("ended")];
    assert_eq!(endings(&connection), expected);
}

#[test]
fn run_ends_after_its_kill() {
    let (_directory, mut connection) = file();
    let mut all = KilledRuns::default();
    let kill = 2 * EARLIER_KILL_MS;
    all.add(42, Timestamp(kill), &[KEY], Instant::now());
    // The last poll before the kill still had it.
    depart(&connection, 1, "ended", kill - 1_500);
    // The clock was set forward in between.
    depart(&connection, 2, "ended", 1_000);
    all.mark_runs(&mut connection, "boot").unwrap();
    let found = ends(&connection);
    assert_eq!(found[..2], [(Some(kill), 0), (Some(1_000), 0)]);
}

#[test]
fn departure_after_the_outcome_is_marked() {
    let (_directory, mut connection) = file();
    let mut all = taken();
    all.mark_runs(&mut connection, "boot").unwrap();
    assert_eq!(endings(&connection), vec![(None, None); 4]);
    all.count_sample(Instant::now());
    depart(&connection, 1, "ended", 1_000);
    all.mark_runs(&mut connection, "boot").unwrap();
    assert_eq!(endings(&connection)[..2], [killed(), (None, None)]);
    all.count_sample(Instant::now());
    depart(&connection, 2, "released", 1_010);
    all.mark_runs(&mut connection, "boot").unwrap();
    assert_eq!(endings(&connection)[..2], [killed(), killed()]);
}

#[test]
fn earlier_departures_stay() {
    let (_directory, mut connection) = file();
    depart(&connection, 1, "released", 499);
    depart(&connection, 2, "unobserved", 499);
    taken().mark_runs(&mut connection, "boot").unwrap();
    assert_eq!(
        endings(&connection)[..2],
        [was("released"), was("unobserved")]
    );
}

#[test]
fn kill_before_a_stop_is_marked() {
    let (directory, mut connection) = file();
    let audit = open(directory.path(), &AUDIT).unwrap().connection;
    let outcome = json!({"outcomes": [{"pid": 7, "start_ticks": 9, "outcome": "ended"}]});
    let insert = "INSERT INTO action (id, at, run, kind, request, finished_at, result, outcome)
        VALUES (?1, ?2, ?3, ?4, '', 0, 'done', ?5)";
    for (id, at, run, kind) in [
        (41, 1_900_000, "boot/1000000", "reset"),
        (42, 2_000_000, "boot/1000000", "kill"),
        (43, 2_000_000, "boot/3000000", "kill"),
        (44, 1_000_000, "boot/1000000", "kill"),
        (45, 2_000_000, "another time", "kill"),
    ] {
        let row = rusqlite::params![id, at, run, kind, outcome.to_string()];
        audit.execute(insert, row).unwrap();
    }
    let last = "INSERT INTO sample (at, usage) VALUES (1990000, x'')";
    connection.execute(last, []).unwrap();
    let marked = |connection: &mut Connection| {
        let mut all = KilledRuns::default();
        for _ in 0..2 {
            let files = (&audit, &*connection);
            all.add_earlier_kills(files, "boot/3000000", Instant::now())
                .unwrap();
        }
        assert_eq!(all.waiting.len(), 1);
        all.mark_runs(connection, "boot").unwrap();
        endings(connection)
    };
    // On one device the run was observed by the daemon that killed, on the other by an earlier one.
    depart(&connection, 1, "unobserved", 1_990_000);
    depart(&connection, 2, "unobserved", 999_999);
    let expected = [
        killed(),
        was("unobserved"),
        was("unobserved"),
        was("unobserved"),
    ];
    assert_eq!(marked(&mut connection), expected);
    // A device that a surviving process left before the kill was not left because of it.
    let undo = "UPDATE run SET action = NULL";
    connection.execute(undo, []).unwrap();
    depart(&connection, 1, "released", 1_990_000);
    assert_eq!(marked(&mut connection)[0], was("released"));
}

#[test]
fn many_kills_of_one_caller_hide_no_other() {
    let (directory, connection) = file();
    let audit = open(directory.path(), &AUDIT).unwrap().connection;
    let outcome = json!({"outcomes": [{"pid": 7, "start_ticks": 9, "outcome": "ended"}]});
    let insert = "INSERT INTO action (at, run, kind, uid, request, finished_at, result, outcome)
        VALUES (?1, 'boot/1', 'kill', ?2, '', 0, 'done', ?3)";
    for at in 0..100 {
        let uid = if at == 0 { 1_000 } else { 1_001 };
        let row = rusqlite::params![at, uid, outcome.to_string()];
        audit.execute(insert, row).unwrap();
    }
    let last = "INSERT INTO sample (at, usage) VALUES (50, x'')";
    connection.execute(last, []).unwrap();
    let mut all = KilledRuns::default();
    all.add_earlier_kills((&audit, &connection), "boot/2", Instant::now())
        .unwrap();
    assert_eq!(all.waiting.len(), 65);
    assert!(all.waiting.iter().any(|run| run.at == Timestamp(0)));
}

#[test]
fn kill_before_a_reboot_is_marked() {
    let (directory, mut connection) = file();
    let audit = open(directory.path(), &AUDIT).unwrap().connection;
    let outcome = json!({"outcomes": [{"pid": 7, "start_ticks": 9, "outcome": "ended"}]});
    let insert = "INSERT INTO action (id, at, run, kind, request, finished_at, result, outcome)
        VALUES (42, 2000000, 'before/1000000', 'kill', '', 0, 'done', ?1)";
    audit.execute(insert, [outcome.to_string()]).unwrap();
    let last = "INSERT INTO sample (at, usage) VALUES (1990000, x'')";
    connection.execute(last, []).unwrap();
    depart(&connection, 1, "unobserved", 1_990_000);
    let mut all = KilledRuns::default();
    let files = (&audit, &connection);
    all.add_earlier_kills(files, "boot/3000000", Instant::now())
        .unwrap();
    all.mark_runs(&mut connection, "boot").unwrap();
    let expected = [was("unobserved"), (None, None), was("unobserved"), killed()];
    assert_eq!(endings(&connection), expected);
}

#[test]
fn search_is_bounded() {
    let mut all = taken();
    let now = Instant::now();
    for _ in 0..2 * MIN_SEARCH_SAMPLES {
        all.count_sample(now);
    }
    assert_eq!(all.waiting.len(), 1);
    all.count_sample(now + MIN_SEARCH_TIME + Duration::from_secs(1));
    assert!(all.waiting.is_empty());
    // With long samples, that many samples.
    all.add(42, Timestamp(500), &[KEY], now);
    all.count_sample(now + 2 * MIN_SEARCH_TIME);
    assert_eq!(all.waiting.len(), 1);
    all.add(43, Timestamp(500), &vec![KEY; MAX_PROCESSES], now);
    assert_eq!(all.waiting.len(), MAX_PROCESSES);
    // One kill of very many processes displaces no other.
    assert!(all.waiting.iter().any(|run| run.action == 42));
}
