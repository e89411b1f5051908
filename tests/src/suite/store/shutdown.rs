//! The state of the store after the daemon has ended, by a stop or by a kill.

use super::{events, number, open_database, records};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{TestBox, eventually};
use rusqlite::Connection;
use serde_json::json;
use std::time::{Duration, SystemTime};

#[test]
fn every_start_and_stop_is_recorded() {
    let test_box = TestBox::new();
    test_box.start().stop();
    let daemon = test_box.start();
    eventually("the second start is recorded", || {
        (events(&test_box).len() == 3).then_some(())
    });
    daemon.kill();
    test_box.start().stop();
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let started = || ("started".to_owned(), version.clone());
    let stopped = || ("stopped".to_owned(), None);
    let expected = [started(), stopped(), started(), started(), stopped()];
    assert_eq!(events(&test_box), expected);
}

#[test]
fn stopped_daemon_leaves_no_write_ahead_log() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    // The reader and the writer of the store have both opened it.
    eventually("a sample", || records(&test_box, &[]).pop());
    daemon.stop();
    let mut left: Vec<_> = std::fs::read_dir(test_box.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "audit.db",
            "guard.json",
            "lock",
            "reserve",
            "samples.db",
            "stopped"
        ]
    );
}

#[test]
fn killed_daemon_leaves_a_sound_store() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    let mut samples = 0;
    for round in 0..10 {
        let daemon = test_box.launch(&mut test_box.daemon_command(), &test_box.socket());
        // Every moment must do; a different one in each run covers more.
        let chance = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let moment = u64::from(chance.unwrap().subsec_nanos()) / 1_000 % 150 + 15 * round;
        std::thread::sleep(Duration::from_millis(moment));
        daemon.kill();
        let after = check_copy(&test_box);
        assert!(after >= samples, "{after} of {samples} samples are left");
        samples = after;
    }
    let daemon = test_box.start();
    let before = eventually("a sample", || records(&test_box, &["--limit", "0"]).pop());
    let newest = eventually("the history goes on", || {
        let records = records(&test_box, &["--limit", "0"]);
        (records.len() > 2 * usize::try_from(samples).unwrap()).then(|| records[0].clone())
    });
    assert!(number(&newest, "id") > number(&before, "id"));
    daemon.stop();
    let (starts, stops): (Vec<_>, Vec<_>) = events(&test_box)
        .into_iter()
        .partition(|(kind, _)| kind == "started");
    assert!(starts.len() <= 11 && stops.len() == 1);
    assert!(check_copy(&test_box) > samples);
}

/// Checks a copy of the files, so that the daemon finds them unchanged, and returns the
/// number of samples.
fn check_copy(test_box: &TestBox) -> i64 {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(test_box.path("state")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    for file in ["samples.db", "audit.db"] {
        let path = copy.path().join(file);
        if path.exists() {
            let found: String = Connection::open(path)
                .unwrap()
                .pragma_query_value(None, "integrity_check", |row| row.get(0))
                .unwrap();
            assert_eq!(found, "ok", "{file}");
        }
    }
    let samples = Connection::open(copy.path().join("samples.db")).unwrap();
    // The first daemon may have been killed before it created the table.
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'sample'";
    let tables: i64 = samples.query_row(tables, [], |row| row.get(0)).unwrap();
    let count = |()| samples.query_row("SELECT count(*) FROM sample", [], |row| row.get(0));
    (tables > 0)
        .then_some(())
        .map_or(0, |()| count(()).unwrap())
}

#[test]
fn wrong_clock_loses_no_history() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    daemon.stop();
    let now = Timestamp::from(SystemTime::now()).0;
    let hour = 3_600_000;
    // An hour ago; then two samples after a boot with the clock at 1970.
    let past = [(1_000, now - hour), (1_001, 60_000), (1_002, 70_000)];
    let samples = open_database(&test_box, "samples.db");
    for (id, at) in past {
        // A copy of a sample that a daemon wrote with the GPU in it, marked as rolled up
        // into minutes.
        let copy = "INSERT INTO sample SELECT ?1, ?2, usage FROM sample
                    ORDER BY length(usage) DESC LIMIT 1";
        assert_eq!(samples.execute(copy, [id, at]), Ok(1));
        samples
            .execute("UPDATE rolled SET sample = ?1", [id])
            .unwrap();
    }
    // All of them are marked as rolled up into minutes.
    let rolled = "UPDATE rolled SET sample = 1002";
    samples.execute(rolled, []).unwrap();
    drop(samples);
    let daemon = test_box.start();
    eventually("what is too old is deleted", || {
        let old = "SELECT count(*) FROM sample WHERE at < 100000";
        let samples = open_database(&test_box, "samples.db");
        let old: i64 = samples.query_row(old, [], |row| row.get(0)).unwrap();
        (old == 0).then_some(())
    });
    let left: Vec<i64> = records(&test_box, &["--limit", "0"])
        .iter()
        .map(|record| i64::try_from(number(record, "id") >> 20).unwrap())
        .collect();
    assert!(left.contains(&1_000), "{left:?}");
    daemon.stop();
}

#[test]
fn sample_ids_are_never_reused() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    let newest = eventually("a sample", || {
        Some(records(&test_box, &[]).first()?.clone())
    });
    daemon.stop();
    // The state after the daemon was off for longer than the retention period.
    let samples = open_database(&test_box, "samples.db");
    let all = "DELETE FROM sample; DELETE FROM minute; DELETE FROM hour;";
    samples.execute_batch(all).unwrap();
    drop(samples);
    let daemon = test_box.start();
    let next = eventually("another sample", || {
        Some(records(&test_box, &[]).first()?.clone())
    });
    assert!(number(&next, "id") > number(&newest, "id"), "{next}");
    daemon.stop();
}
