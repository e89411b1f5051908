//! A record that cannot be written, or was moved away.

use super::*;

/// Makes the open record fail by a pragma.
pub(super) fn spoil(writer: &Writer, pragma: &str, value: i64) {
    let connection = &writer.audit.as_ref().unwrap().connection;
    // The pragma returns its new value.
    let spoilt = connection.pragma_update_and_check(None, pragma, value, |_| Ok(()));
    assert!(matches!(
        spoilt,
        Ok(()) | Err(rusqlite::Error::QueryReturnedNoRows)
    ));
}

#[test]
fn unwritable_record_keeps_open_actions() {
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
        // More than fits on the existing pages.
        let long = "9".repeat(10_000);
        let why = Err(format!("{}: {error}", file.display()));
        assert_eq!(intend(&mut writer, &long), why);
        // And immediately from now on.
        assert_eq!(intend(&mut writer, "2"), why);
        settle(&mut writer, id, "{}");
        let refused = act("3");
        let now = Instant::now();
        let mut inbox = queue::lock(&writer.queue);
        inbox.refusals.add(
            refused,
            LimitGroup::Person(7),
            "no".into(),
            Timestamp(0),
            now,
        );
        drop(inbox);
        writer.process_queue();
        writer.push_event(RecordedEvent::Stopped);
        assert_eq!(rows(&file), [under_way("1")]);
        retry(&mut writer);
        writer.flush_events();
        assert_eq!(rows(&file), [done("1"), ended("3", "refused", "no")]);
        assert!(writer.pending.is_empty());
        intend(&mut writer, "4").unwrap();
    }
}

#[test]
fn full_disk_at_the_end_loses_nothing() {
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
fn moved_record_continues_in_a_new_file() {
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
    writer.close_moved_files();
    writer.open_closed_files();
    // The action is in the new file before it ends.
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
fn deleted_log_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let log = directory.path().join("audit.db-wal");
    let mut writer = writer(directory.path(), "boot");
    let reader = open_for_reading(directory.path(), &AUDIT).unwrap();
    let id = intend(&mut writer, "1").unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(!reader.is_log_in_place());
    // While another connection reads, the writer waits and keeps its file open.
    let reading = "BEGIN; SELECT count(*) FROM action";
    reader.connection.execute_batch(reading).unwrap();
    writer.close_moved_files();
    assert!(!log.exists());
    reader.connection.execute_batch("COMMIT").unwrap();
    writer.close_moved_files();
    writer.open_closed_files();
    // The files as a killed daemon would leave them.
    let left = killed::left_now(directory.path());
    assert_eq!(rows(&audit(left.path())), [under_way("1")]);
    settle(&mut writer, id, "{}");
    intend(&mut writer, "2").unwrap();
    let left = killed::left_now(directory.path());
    assert_eq!(rows(&audit(left.path())), [done("1"), under_way("2")]);
    drop(reader);
    let reader = open_for_reading(directory.path(), &AUDIT).unwrap();
    assert!(reader.is_log_in_place());
    drop((writer, reader));
    assert_eq!(rows(&file), [done("1"), under_way("2")]);
}

#[test]
fn falsely_failed_commit_is_unrecorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut writer = writer(directory.path(), "boot");
    let kept = intend(&mut writer, "1").unwrap();
    // As if the commit had been reported as failed.
    let mut failed = OpenActions::new(writer.daemon_run.clone());
    let connection = &writer.audit.as_ref().unwrap().connection;
    failed.begin(connection, act("2"), Timestamp(0)).unwrap();
    writer.audit = None;
    retry(&mut writer);
    settle(&mut writer, kept, "{}");
    let expected = [done("1"), ended("2", "unrecorded", TOO_LATE)];
    assert_eq!(rows(&file), expected);
}

/// Makes the writer retry at once.
fn retry(writer: &mut Writer) {
    writer.retry_at = Instant::now();
    writer.open_closed_files();
    writer.process_queue();
}

#[test]
fn refusals_are_bounded_without_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "in the way").unwrap();
    let mut writer = writer(&path, "boot");
    for hour in 0..5 {
        let now = Instant::now() + Duration::from_secs(3_600 * hour);
        let mut inbox = queue::lock(&writer.queue);
        for uid in 0..1_000 {
            let refused = Action { uid, ..act("1") };
            inbox.refusals.add(
                refused,
                LimitGroup::Person(uid),
                hour.to_string(),
                Timestamp(0),
                now,
            );
        }
        drop(inbox);
        writer.process_queue();
    }
    assert_eq!(writer.pending.len(), MAX_PENDING_FOR_REFUSALS);
    // The limit for events is higher.
    writer.push_event(RecordedEvent::Stopped);
    assert_eq!(writer.pending.len(), MAX_PENDING_FOR_REFUSALS + 1);
}
