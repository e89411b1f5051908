//! A file that breaks is set aside, and what is known goes on in a new one.

use super::super::super::database::{Kind, SAMPLES};
use super::clock::sample;
use super::*;
use crate::faults::FaultCause;
use gpukill_proto::snapshot::FaultCode;
use std::os::unix::fs::FileExt as _;

/// A writer whose files have many pages, all of them in the files themselves.
fn filled(directory: &Path) -> Writer {
    let mut filled = writer(directory, "boot");
    let id = intend(&mut filled, "first").unwrap();
    settle(&mut filled, id, "{}");
    for number in 0..50 {
        filled.record(Event::SetAside("x".repeat(1_000), number.to_string()));
        filled.write(&sample(Timestamp(10_000 * number)));
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

/// Overwrites the pages of a file from this one on, as a disk that fails does.
fn break_from(directory: &Path, kind: &Kind, page: u64) {
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

/// The names of the files of this kind that were set aside.
fn aside(directory: &Path, kind: &Kind) -> Vec<PathBuf> {
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

/// Both files work, the file was set aside once, and that is told and recorded.
fn assert_healed(writer: &mut Writer, kind: &Kind) {
    let directory = writer.directory.clone();
    let [aside] = &aside(&directory, kind)[..] else {
        panic!("it is not set aside, or not alone")
    };
    intend(writer, "after").unwrap();
    writer.write(&sample(Timestamp(9_000_000)));
    writer.flush_events();
    assert!(writer.samples.is_some() && writer.audit.is_some());
    writer.look_around();
    writer.tell();
    let told = format!(
        "{} was broken and begun anew; it is set aside as {}: move it away",
        kind.file,
        aside.display()
    );
    assert_eq!(
        lock(&writer.shared).faults,
        [FaultCause::new(FaultCode::FileQuarantined, told)]
    );
    let connection = Connection::open(audit(&directory)).unwrap();
    let select = "SELECT detail FROM event WHERE kind = 'broken' ORDER BY id DESC LIMIT 1";
    let detail: String = connection.query_row(select, [], |row| row.get(0)).unwrap();
    let name = aside.file_name().unwrap().to_str().unwrap();
    assert!(detail.starts_with(&format!("{name}: ")), "{detail}");
    // Once somebody took it away all is well.
    std::fs::rename(aside, directory.join("taken away")).unwrap();
    writer.tell();
    assert_eq!(lock(&writer.shared).faults, []);
}

#[test]
fn a_file_that_is_found_broken_at_its_opening_is_set_aside() {
    for kind in [&SAMPLES, &AUDIT] {
        // No database, one whose schema is gone, one of which a table is.
        for page in 0..3 {
            let directory = tempfile::tempdir().unwrap();
            let mut before = filled(directory.path());
            before.finish();
            drop(before);
            break_from(directory.path(), kind, page);
            let bytes = std::fs::read(directory.path().join(kind.file)).unwrap();
            let mut after = writer(directory.path(), "boot");
            let aside = aside(directory.path(), kind);
            assert_eq!(std::fs::read(&aside[0]).unwrap(), bytes);
            assert_healed(&mut after, kind);
        }
    }
}

#[test]
fn a_file_that_breaks_while_it_is_written_is_set_aside_and_no_act_is_lost() {
    for kind in [&SAMPLES, &AUDIT] {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = filled(directory.path());
        let id = intend(&mut writer, "under way").unwrap();
        checkpoint(&writer);
        // Another connection's write makes it forget what it has read.
        let path = directory.path().join(kind.file);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE theirs(x)").unwrap();
        let all = "PRAGMA wal_checkpoint(TRUNCATE)";
        other.query_row(all, [], |_| Ok(())).unwrap();
        drop(other);
        break_from(directory.path(), kind, 1);
        writer.write(&sample(Timestamp(8_000_000)));
        intend(&mut writer, "meanwhile").unwrap();
        settle(&mut writer, id, "{}");
        writer.open_what_is_closed();
        let of_new = [done("under way"), under_way("meanwhile")];
        let all = rows(&audit(directory.path()));
        assert_eq!(all[all.len() - 2..], of_new);
        assert_eq!(
            lock(&writer.shared).dropped,
            u64::from(kind.file == SAMPLES.file)
        );
        assert_healed(&mut writer, kind);
    }
}

#[test]
fn a_file_that_somebody_could_not_read_is_looked_over_and_set_aside_where_it_is_broken() {
    for kind in [&SAMPLES, &AUDIT] {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = filled(directory.path());
        // There was another reason.
        lock(&writer.shared).suspected.insert(kind.file);
        writer.close_what_is_suspected();
        writer.open_what_is_closed();
        assert_eq!(aside(directory.path(), kind), Vec::<PathBuf>::new());
        checkpoint(&writer);
        break_from(directory.path(), kind, 3);
        for moment in [writer.suspect_at, None] {
            writer.suspect_at = moment;
            assert_eq!(aside(directory.path(), kind), Vec::<PathBuf>::new());
            lock(&writer.shared).suspected.insert(kind.file);
            writer.close_what_is_suspected();
            writer.open_what_is_closed();
        }
        assert_healed(&mut writer, kind);
    }
}

#[test]
fn what_breaks_again_and_again_stays_where_it_is_at_last() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(SAMPLES.file);
    for _ in 0..3 {
        std::fs::write(&file, vec![b'x'; 8_192]).unwrap();
        drop(writer(directory.path(), "boot"));
    }
    std::fs::write(&file, vec![b'x'; 8_192]).unwrap();
    let writer = writer(directory.path(), "boot");
    let why = "file is not a database; 3 such files are set aside already today: move it away";
    let told = format!("{}: {why}", file.display());
    assert_eq!(writer.samples_fault, Some(told));
    assert_eq!(std::fs::read(&file).unwrap(), vec![b'x'; 8_192]);
}

#[test]
fn a_reader_that_finds_a_broken_file_has_it_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let mut before = filled(directory.path());
    before.finish();
    drop(before);
    // Found by nobody who looks for a moment only.
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    let began = Instant::now();
    while store.report().samples.0 == 0 {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    break_from(directory.path(), &SAMPLES, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let query = gpukill_proto::audit::AuditQuery {
        filter: gpukill_proto::audit::AuditFilter {
            since: Timestamp(0),
            until: Timestamp(i64::MAX),
            user: None,
            process: None,
            gpu: None,
            container: None,
            job: None,
        },
        before: None,
        limit: 10,
    };
    while aside(directory.path(), &SAMPLES).is_empty() {
        assert!(began.elapsed() < LONG);
        let _ = runtime.block_on(store.page(query.clone()));
        store.wake().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    while runtime.block_on(store.page(query.clone())).is_err() {
        assert!(began.elapsed() < LONG);
        store.wake().unwrap();
    }
    close(&store);
}
