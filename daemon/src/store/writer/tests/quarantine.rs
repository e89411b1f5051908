//! A corrupt file is quarantined, and open actions continue in a new one.

use super::super::super::database::{DatabaseKind, SAMPLES};
use super::clock::sample;
use super::*;
use crate::fault::FaultCause;
use gpukill_proto::model::FaultCode;
use std::os::unix::fs::FileExt as _;

/// A writer of files with many pages and empty logs.
fn filled(directory: &Path) -> Writer {
    let mut filled = writer(directory, "boot");
    let id = intend(&mut filled, "first").unwrap();
    settle(&mut filled, id, "{}");
    for number in 0..50 {
        filled.push_event(RecordedEvent::Quarantined(
            "x".repeat(1_000),
            number.to_string(),
        ));
        filled.write_sample(&sample(Timestamp(10_000 * number)));
    }
    checkpoint(&filled);
    filled
}

fn checkpoint(writer: &Writer) {
    for opened in [&writer.samples, &writer.audit] {
        let connection = &opened.as_ref().unwrap().connection;
        let all = "PRAGMA wal_checkpoint(TRUNCATE)";
        connection.query_row(all, [], |_| Ok(())).unwrap();
    }
}

/// Overwrites the pages of a file from this one on, as a failing disk does.
fn break_from(directory: &Path, kind: &DatabaseKind, page: u64) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(directory.join(kind.file));
    let file = file.unwrap();
    let length = file.metadata().unwrap().len();
    let begin = 4_096 * page;
    assert!(begin < length);
    let garbage = vec![0xA5; usize::try_from(length - begin).unwrap()];
    file.write_all_at(&garbage, begin).unwrap();
}

/// The quarantined files of this kind.
fn quarantined(directory: &Path, kind: &DatabaseKind) -> Vec<PathBuf> {
    let prefix = format!("{}.broken-", kind.file);
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&prefix) && name.ends_with('Z')
        })
        .collect();
    found.sort();
    found
}

/// Asserts that both files work, and that the file was quarantined once, reported and recorded.
fn assert_healed(writer: &mut Writer, kind: &DatabaseKind) {
    let directory = writer.directory.clone();
    let [quarantined] = &quarantined(&directory, kind)[..] else {
        panic!("it is not set aside, or not alone")
    };
    intend(writer, "after").unwrap();
    writer.write_sample(&sample(Timestamp(9_000_000)));
    writer.flush_events();
    assert!(writer.samples.is_some() && writer.audit.is_some());
    writer.check_directory();
    writer.publish_status();
    let expected = format!(
        "{} was corrupt and was recreated; the old file is kept as {}: move it away",
        kind.file,
        quarantined.display()
    );
    assert_eq!(
        lock(&writer.status).faults,
        [FaultCause::new(FaultCode::FileQuarantined, expected)]
    );
    let connection = Connection::open(audit(&directory)).unwrap();
    let select = "SELECT detail FROM event WHERE kind = 'quarantined' ORDER BY id DESC LIMIT 1";
    let detail: String = connection.query_row(select, [], |row| row.get(0)).unwrap();
    let name = quarantined.file_name().unwrap().to_str().unwrap();
    assert!(detail.starts_with(&format!("{name}: ")), "{detail}");
    // Of the file in use.
    let first = "SELECT min(at) FROM event";
    let first = connection.query_row(first, [], |row| row.get(0)).unwrap();
    let recorded_since = lock(&writer.status).recorded_since;
    assert_eq!(recorded_since, Some(Timestamp(first)));
    // After the file is moved away, the fault is gone.
    std::fs::rename(quarantined, directory.join("taken away")).unwrap();
    writer.publish_status();
    assert_eq!(lock(&writer.status).faults, []);
}

#[test]
fn corrupt_file_is_quarantined_at_opening() {
    for kind in [&SAMPLES, &AUDIT] {
        // A file that is no database, one with a corrupt schema, and one with a corrupt table.
        for page in 0..3 {
            let directory = tempfile::tempdir().unwrap();
            let mut before = filled(directory.path());
            before.finish();
            drop(before);
            break_from(directory.path(), kind, page);
            let bytes = std::fs::read(directory.path().join(kind.file)).unwrap();
            let mut after = writer(directory.path(), "boot");
            let quarantined = quarantined(directory.path(), kind);
            assert_eq!(std::fs::read(&quarantined[0]).unwrap(), bytes);
            assert_healed(&mut after, kind);
        }
    }
}

#[test]
fn corruption_while_writing_loses_no_action() {
    for kind in [&SAMPLES, &AUDIT] {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = filled(directory.path());
        let id = intend(&mut writer, "under way").unwrap();
        checkpoint(&writer);
        // A write of another connection makes the writer reread the pages.
        let path = directory.path().join(kind.file);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE theirs(x)").unwrap();
        let all = "PRAGMA wal_checkpoint(TRUNCATE)";
        other.query_row(all, [], |_| Ok(())).unwrap();
        drop(other);
        break_from(directory.path(), kind, 1);
        writer.write_sample(&sample(Timestamp(8_000_000)));
        intend(&mut writer, "meanwhile").unwrap();
        settle(&mut writer, id, "{}");
        writer.open_closed_files();
        let of_new = [done("under way"), under_way("meanwhile")];
        let all = rows(&audit(directory.path()));
        assert_eq!(all[all.len() - 2..], of_new);
        assert_eq!(
            lock(&writer.status).samples_dropped,
            u64::from(kind.file == SAMPLES.file)
        );
        assert_healed(&mut writer, kind);
    }
}

#[test]
fn suspected_file_is_checked() {
    for kind in [&SAMPLES, &AUDIT] {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = filled(directory.path());
        // A false suspicion.
        lock(&writer.status).suspected.insert(kind.file);
        writer.close_suspected_files();
        writer.open_closed_files();
        assert_eq!(quarantined(directory.path(), kind), Vec::<PathBuf>::new());
        checkpoint(&writer);
        break_from(directory.path(), kind, 3);
        for moment in [writer.next_suspect_check, None] {
            writer.next_suspect_check = moment;
            assert_eq!(quarantined(directory.path(), kind), Vec::<PathBuf>::new());
            lock(&writer.status).suspected.insert(kind.file);
            writer.close_suspected_files();
            writer.open_closed_files();
        }
        assert_healed(&mut writer, kind);
    }
}

#[test]
fn repeated_corruption_stops_the_quarantine() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(SAMPLES.file);
    for _ in 0..3 {
        std::fs::write(&file, vec![b'x'; 8_192]).unwrap();
        drop(writer(directory.path(), "boot"));
    }
    std::fs::write(&file, vec![b'x'; 8_192]).unwrap();
    let writer = writer(directory.path(), "boot");
    let why = "file is not a database; 3 such files were already quarantined today: move it away";
    let expected = format!("{}: {why}", file.display());
    assert_eq!(writer.samples_fault, Some(expected));
    assert_eq!(std::fs::read(&file).unwrap(), vec![b'x'; 8_192]);
}

#[test]
fn reader_triggers_the_quarantine() {
    let directory = tempfile::tempdir().unwrap();
    let mut before = filled(directory.path());
    before.finish();
    drop(before);
    // A short check does not find it.
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    let started = Instant::now();
    while store.report().samples.0 == 0 {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    break_from(directory.path(), &SAMPLES, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let query = gpukill_proto::audit::AuditQuery {
        filter: gpukill_proto::audit::AuditFilter::for_period(Timestamp(0), Timestamp(i64::MAX)),
        before: None,
        limit: 10,
    };
    while quarantined(directory.path(), &SAMPLES).is_empty() {
        assert!(started.elapsed() < LONG);
        let _ = runtime.block_on(store.sample_page(query.clone(), |_, _| true));
        store.wake().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    while runtime
        .block_on(store.sample_page(query.clone(), |_, _| true))
        .is_err()
    {
        assert!(started.elapsed() < LONG);
        store.wake().unwrap();
    }
    close(&store);
}
