//! A disk that is full, and has room again.

use super::super::super::space::Space;
use super::broken::spoil;
use super::clock::sample;
use super::*;

fn faults(writer: &mut Writer) -> Vec<String> {
    writer.tell();
    let faults = lock(&writer.shared).faults.clone().into_iter();
    faults.map(|fault| fault.what).collect()
}

/// A writer that has its reserve.
fn with_reserve(directory: &Path) -> Writer {
    let mut writer = writer(directory, "boot");
    writer.look_around();
    assert_eq!(faults(&mut writer), Vec::<String>::new());
    writer
}

#[test]
fn the_record_goes_on_from_its_reserve_and_gets_it_back() {
    // More than fits on the pages that there are.
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
            _ => writer.record(Event::SetAside(long.clone(), String::new())),
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
        let told = format!(
            "{}: the disk is full: the record goes on from its reserve",
            reserve.display()
        );
        // There is a little room only: it stays so, in the same words.
        for free in [0, 63, 79, 87] {
            writer.heed(Space::of_mib(free, 100_000));
            assert!(faults(&mut writer).contains(&told), "{free}");
            assert!(!reserve.exists());
        }
        writer.heed(Space::of_mib(88, 100_000));
        assert_eq!(faults(&mut writer), Vec::<String>::new());
        assert!(reserve.exists());
    }
}

#[test]
fn when_the_reserve_is_used_up_too_the_record_waits_and_loses_nothing() {
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
    writer.record(Event::Stopped);
    assert_eq!(faults(&mut writer), [why]);
    writer.retry_at = Instant::now();
    writer.open_what_is_closed();
    writer.look();
    writer.flush_events();
    writer.look_at_room();
    assert_eq!(rows(&file), [done("1"), under_way(&long)]);
    assert!(writer.pending.is_empty());
    assert_eq!(faults(&mut writer), Vec::<String>::new());
}

#[test]
fn samples_pause_while_others_still_have_room_and_none_is_deleted_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = with_reserve(directory.path());
    let count = |writer: &Writer| -> i64 {
        let connection = &writer.samples.as_ref().unwrap().connection;
        let select = "SELECT count(*) FROM sample";
        connection.query_row(select, [], |row| row.get(0)).unwrap()
    };
    writer.write(&sample(Timestamp(10_000)));
    // It is old, and in a minute already.
    let connection = &writer.samples.as_ref().unwrap().connection;
    let rolled = "UPDATE rolled SET sample = 1";
    connection.execute(rolled, []).unwrap();
    let before = std::fs::read(directory.path().join("samples.db-wal")).unwrap();
    for free in [63, 79] {
        writer.heed(Space::of_mib(free, 100_000));
        writer.write(&sample(Timestamp(20_000)));
        let told = format!(
            "{}: too little of the disk is free (less than 64 MiB, or an eighth): samples pause",
            directory.path().join("samples.db").display()
        );
        assert_eq!(faults(&mut writer), [told]);
        // The record is none the worse for it.
        intend(&mut writer, "1").unwrap();
    }
    assert_eq!(lock(&writer.shared).dropped, 2);
    assert_eq!(count(&writer), 1);
    // With next to nothing free, what is too old stays too.
    writer.heed(Space::of_mib(15, 100_000));
    writer.prune();
    let after = std::fs::read(directory.path().join("samples.db-wal")).unwrap();
    assert_eq!(after, before);
    writer.heed(Space::of_mib(80, 100_000));
    // The clock is right, as far as the record goes.
    writer.write(&sample(SystemTime::now().into()));
    assert_eq!(faults(&mut writer), Vec::<String>::new());
    assert_eq!(count(&writer), 2);
    writer.prune_at = Instant::now();
    writer.prune();
    assert_eq!(count(&writer), 1);
}

#[test]
fn samples_for_which_the_disk_has_no_room_are_counted_and_go_on_after() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = with_reserve(directory.path());
    writer.write(&sample(Timestamp(10_000)));
    let connection = &writer.samples.as_ref().unwrap().connection;
    let limited = connection.pragma_update_and_check(None, "max_page_count", 1, |_| Ok(()));
    limited.unwrap();
    let mut at = 10_000;
    while writer.samples.is_some() {
        at += 10_000;
        writer.write(&sample(Timestamp(at)));
    }
    let file = directory.path().join("samples.db");
    let why = format!("{}: database or disk is full", file.display());
    assert_eq!(faults(&mut writer), [why]);
    assert!(
        directory.path().join("reserve").exists(),
        "it is no sample's"
    );
    assert_eq!(lock(&writer.shared).dropped, 1);
    writer.retry_at = Instant::now();
    writer.open_what_is_closed();
    writer.write(&sample(Timestamp(at)));
    assert_eq!(faults(&mut writer), Vec::<String>::new());
    assert_eq!(lock(&writer.shared).dropped, 1);
}
