//! A record that cannot be written, or is not there any more.

use super::*;

/// Makes the open record fail as a statement says.
pub(super) fn spoil(writer: &Writer, pragma: &str, value: i64) {
    let connection = &writer.audit.as_ref().unwrap().connection;
    // It answers with its new value.
    let spoilt = connection.pragma_update_and_check(None, pragma, value, |_| Ok(()));
    assert!(matches!(
        spoilt,
        Ok(()) | Err(rusqlite::Error::QueryReturnedNoRows)
    ));
}

#[test]
fn on_a_full_or_read_only_disk_nothing_begins_as_recorded_and_what_was_begun_is_kept() {
    let broken = [
        ("max_page_count", 1, "database or disk is full"),
        ("query_only", 1, "attempt to write a readonly database"),
    ];
    for (pragma, value, error) in broken {
        let directory = tempfile::tempdir().unwrap();
        let file = audit(directory.path());
        let mut writer = writer(directory.path(), "boot");
        let id = intend(&mut writer, "1").unwrap();
        spoil(&writer, pragma, value);
        // More than fits on the pages that there are.
        let long = "9".repeat(10_000);
        let why = Err(format!("{}: {error}", file.display()));
        assert_eq!(intend(&mut writer, &long), why);
        // And at once from now on.
        assert_eq!(intend(&mut writer, "2"), why);
        settle(&mut writer, id, "{}");
        let refused = act("3");
        let now = Instant::now();
        let mut inbox = inbox::open(&writer.inbox);
        inbox.refusals.take(
            refused,
            LimitGroup::Person(7),
            "no".into(),
            Timestamp(0),
            now,
        );
        drop(inbox);
        writer.look();
        writer.record(Event::Stopped);
        assert_eq!(rows(&file), [under_way("1")]);
        retry(&mut writer);
        writer.flush_events();
        assert_eq!(rows(&file), [done("1"), ended("3", "refused", "no")]);
        assert!(writer.pending.is_empty());
        intend(&mut writer, "4").unwrap();
    }
}

#[test]
fn a_disk_that_fills_up_as_an_act_ends_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut writer = writer(directory.path(), "boot");
    let id = intend(&mut writer, "1").unwrap();
    spoil(&writer, "max_page_count", 1);
    let outcome = json!("x".repeat(100_000)).to_string();
    settle(&mut writer, id, &outcome);
    assert!(writer.audit.is_none());
    assert_eq!(rows(&file), [under_way("1")]);
    retry(&mut writer);
    let done = ("1".into(), Some("done".into()), Some(outcome), None);
    assert_eq!(rows(&file), [done]);
}

#[test]
fn an_act_whose_record_is_moved_away_is_in_the_next_one_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut writer = writer(directory.path(), "boot");
    let earlier = intend(&mut writer, "1").unwrap();
    let id = intend(&mut writer, "2").unwrap();
    settle(&mut writer, earlier, "{}");
    for suffix in ["", "-wal", "-shm"] {
        let from = directory.path().join(format!("audit.db{suffix}"));
        let to = directory.path().join(format!("moved.db{suffix}"));
        std::fs::rename(from, to).unwrap();
    }
    writer.close_what_was_taken_away();
    writer.open_what_is_closed();
    // It is in the new one before it ends.
    assert_eq!(rows(&file), [under_way("2")]);
    let next = intend(&mut writer, "3").unwrap();
    settle(&mut writer, id, "{}");
    assert_eq!(rows(&file), [done("2"), under_way("3")]);
    settle(&mut writer, next, "{}");
    assert_eq!(rows(&file), [done("2"), done("3")]);
    let moved = directory.path().join("moved.db");
    assert_eq!(rows(&moved), [done("1"), under_way("2")]);
}

#[test]
fn nothing_is_lost_with_a_log_that_somebody_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let log = directory.path().join("audit.db-wal");
    let mut writer = writer(directory.path(), "boot");
    let reader = open_for_reading(directory.path(), &AUDIT).unwrap();
    let id = intend(&mut writer, "1").unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(!reader.has_its_log());
    // Somebody reads: it waits for them, and goes on as it is meanwhile.
    let reading = "BEGIN; SELECT count(*) FROM action";
    reader.connection.execute_batch(reading).unwrap();
    writer.close_what_was_taken_away();
    assert!(!log.exists());
    reader.connection.execute_batch("COMMIT").unwrap();
    writer.close_what_was_taken_away();
    writer.open_what_is_closed();
    // As they are found by whoever comes after a daemon that was killed.
    let left = killed::left_now(directory.path());
    assert_eq!(rows(&audit(left.path())), [under_way("1")]);
    settle(&mut writer, id, "{}");
    intend(&mut writer, "2").unwrap();
    let left = killed::left_now(directory.path());
    assert_eq!(rows(&audit(left.path())), [done("1"), under_way("2")]);
    drop(reader);
    let reader = open_for_reading(directory.path(), &AUDIT).unwrap();
    assert!(reader.has_its_log());
    drop((writer, reader));
    assert_eq!(rows(&file), [done("1"), under_way("2")]);
}

#[test]
fn an_act_whose_commit_failed_and_is_there_all_the_same_is_told_as_unrecorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut writer = writer(directory.path(), "boot");
    let kept = intend(&mut writer, "1").unwrap();
    // As if this had been told as an error.
    let mut failed = Acts::new(writer.daemon_run.clone());
    let connection = &writer.audit.as_ref().unwrap().connection;
    failed.begin(connection, act("2"), Timestamp(0)).unwrap();
    writer.audit = None;
    retry(&mut writer);
    settle(&mut writer, kept, "{}");
    let expected = [done("1"), ended("2", "unrecorded", TOO_LATE)];
    assert_eq!(rows(&file), expected);
}

/// Lets the writer try again at once what failed.
fn retry(writer: &mut Writer) {
    writer.retry_at = Instant::now();
    writer.open_what_is_closed();
    writer.look();
}

#[test]
fn refusals_take_little_memory_while_the_record_does_not_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "in the way").unwrap();
    let mut writer = writer(&path, "boot");
    for hour in 0..5 {
        let now = Instant::now() + Duration::from_secs(3_600 * hour);
        let mut inbox = inbox::open(&writer.inbox);
        for uid in 0..1_000 {
            let refused = Act { uid, ..act("1") };
            inbox.refusals.take(
                refused,
                LimitGroup::Person(uid),
                hour.to_string(),
                Timestamp(0),
                now,
            );
        }
        drop(inbox);
        writer.look();
    }
    assert_eq!(writer.pending.len(), MOST_BEFORE_REFUSALS);
    // Events have more room.
    writer.record(Event::Stopped);
    assert_eq!(writer.pending.len(), MOST_BEFORE_REFUSALS + 1);
}
