//! A full disk, and one with space again.

use super::super::super::disk_space::DiskSpace;
use super::clock::sample;
use super::failing::spoil;
use super::*;

fn faults(writer: &mut Writer) -> Vec<String> {
    writer.publish_status();
    let faults = lock(&writer.status).faults.clone().into_iter();
    faults.map(|fault| fault.what).collect()
}

/// A writer with its reserve.
fn with_reserve(directory: &Path) -> Writer {
    let mut writer = writer(directory, "boot");
    writer.check_directory();
    assert_eq!(faults(&mut writer), Vec::<String>::new());
    writer
}

#[test]
fn record_uses_its_reserve_and_restores_it() {
    // More than fits on the existing pages.
    let long = "9".repeat(10_000);
    // An intent, an end, an event.
    for step in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let (file, reserve) = (audit(directory.path()), directory.path().join("reserve"));
        let mut writer = with_reserve(directory.path());
        assert!(reserve.exists());
        let id = intend(&mut writer, "1").unwrap();
        spoil(&writer, "max_page_count", 1);
        match step {
            0 => {
                intend(&mut writer, &long).unwrap();
            }
            1 => settle(&mut writer, id, &json!(long).to_string()),
            _ => writer.push_event(RecordedEvent::Quarantined(long.clone(), String::new())),
        }
        assert!(!reserve.exists());
        assert!(writer.pending.is_empty());
        let outcome = Some(json!(long).to_string());
        let expected = match step {
            0 => vec![under_way("1"), under_way(&long)],
            1 => vec![("1".into(), Some("done".into()), outcome, None)],
            _ => vec![under_way("1")],
        };
        assert_eq!(rows(&file), expected);
        let expected = format!(
            "{}: the disk is full: recording continues from the reserve",
            reserve.display()
        );
        // With only a little space the fault stays, with the same text.
        for free in [0, 63, 79, 87] {
            writer.apply_space(DiskSpace::from_mib(free, 100_000));
            assert!(faults(&mut writer).contains(&expected), "{free}");
            assert!(!reserve.exists());
        }
        writer.apply_space(DiskSpace::from_mib(88, 100_000));
        assert_eq!(faults(&mut writer), Vec::<String>::new());
        assert!(reserve.exists());
    }
}

#[test]
fn record_waits_without_a_reserve() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut writer = with_reserve(directory.path());
    let id = intend(&mut writer, "1").unwrap();
    let long = "9".repeat(10_000);
    spoil(&writer, "max_page_count", 1);
    intend(&mut writer, &long).unwrap();
    spoil(&writer, "max_page_count", 1);
    let why = format!("{}: database or disk is full", file.display());
    assert_eq!(intend(&mut writer, &"8".repeat(10_000)), Err(why.clone()));
    settle(&mut writer, id, "{}");
    writer.push_event(RecordedEvent::Stopped);
    assert_eq!(faults(&mut writer), [why]);
    writer.retry_at = Instant::now();
    writer.open_closed_files();
    writer.process_queue();
    writer.flush_events();
    writer.check_space();
    assert_eq!(rows(&file), [done("1"), under_way(&long)]);
    assert!(writer.pending.is_empty());
    assert_eq!(faults(&mut writer), Vec::<String>::new());
}

#[test]
fn samples_pause_before_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = with_reserve(directory.path());
    let count = |writer: &Writer| -> i64 {
        let connection = &writer.samples.as_ref().unwrap().connection;
        let select = "SELECT count(*) FROM sample";
        connection.query_row(select, [], |row| row.get(0)).unwrap()
    };
    writer.write_sample(&sample(Timestamp(10_000)));
    // The sample is old and already in a minute.
    let connection = &writer.samples.as_ref().unwrap().connection;
    let rolled = "UPDATE rolled SET sample = 1";
    connection.execute(rolled, []).unwrap();
    let before = std::fs::read(directory.path().join("samples.db-wal")).unwrap();
    for free in [63, 79] {
        writer.apply_space(DiskSpace::from_mib(free, 100_000));
        writer.write_sample(&sample(Timestamp(20_000)));
        let expected = format!(
            "{}: too little disk space is free (less than 64 MiB, or an eighth): samples are \
             paused",
            directory.path().join("samples.db").display()
        );
        assert_eq!(faults(&mut writer), [expected]);
        // The record still works.
        intend(&mut writer, "1").unwrap();
    }
    assert_eq!(lock(&writer.status).samples_dropped, 2);
    assert_eq!(count(&writer), 1);
    // With almost no space, old rows stay too.
    writer.apply_space(DiskSpace::from_mib(15, 100_000));
    writer.prune();
    let after = std::fs::read(directory.path().join("samples.db-wal")).unwrap();
    assert_eq!(after, before);
    writer.apply_space(DiskSpace::from_mib(80, 100_000));
    // A sample with the current time, so that the clock is trusted.
    writer.write_sample(&sample(SystemTime::now().into()));
    assert_eq!(faults(&mut writer), Vec::<String>::new());
    assert_eq!(count(&writer), 2);
    writer.prune_at = Instant::now();
    writer.prune();
    assert_eq!(count(&writer), 1);
}

#[test]
fn unwritable_samples_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = with_reserve(directory.path());
    writer.write_sample(&sample(Timestamp(10_000)));
    let connection = &writer.samples.as_ref().unwrap().connection;
    let limited = connection.pragma_update_and_check(None, "max_page_count", 1, |_| Ok(()));
    limited.unwrap();
    let mut at = 10_000;
    while writer.samples.is_some() {
        at += 10_000;
        writer.write_sample(&sample(Timestamp(at)));
    }
    let file = directory.path().join("samples.db");
    let why = format!("{}: database or disk is full", file.display());
    assert_eq!(faults(&mut writer), [why]);
    assert!(
        directory.path().join("reserve").exists(),
        "it is no sample's"
    );
    assert_eq!(lock(&writer.status).samples_dropped, 1);
    writer.retry_at = Instant::now();
    writer.open_closed_files();
    writer.write_sample(&sample(Timestamp(at)));
    assert_eq!(faults(&mut writer), Vec::<String>::new());
    assert_eq!(lock(&writer.status).samples_dropped, 1);
}
