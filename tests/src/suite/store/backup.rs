//! The store as a whole: exported, backed up, pruned.

use super::super::raw::RawConnection;
use super::{open_database, records};
use gpukill_proto::audit::CopyId;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    NOBODY_UID, TestBox, can_run_as_other_users, eventually, run_as_user,
};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

fn one_gpu() -> TestBox {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    test_box
}

/// Inserts rows of these ten seconds into a store that no daemon has open: three samples,
/// two minutes and an hour.
fn insert_old_rows(test_box: &TestBox, from: Timestamp) {
    let file = open_database(test_box, "samples.db");
    let rows = "INSERT INTO sample (id, at, usage) VALUES
             (1001, FROM + 1000, x''), (1002, FROM + 2000, x''), (1003, FROM + 3000, x'');
         INSERT INTO minute (id, at, usage) VALUES
             (1001, FROM + 1000, x''), (1003, FROM + 2000, x'');
         INSERT INTO hour (id, at, usage) VALUES (1003, FROM + 1000, x'');
         UPDATE rolled SET sample = 1003, minute = 1003;";
    file.execute_batch(&rows.replace("FROM", &from.0.to_string()))
        .unwrap();
}

fn old_row_count(test_box: &TestBox, from: Timestamp) -> i64 {
    let select = "SELECT (SELECT count(*) FROM sample WHERE at < ?1)
        + (SELECT count(*) FROM minute WHERE at < ?1)
        + (SELECT count(*) FROM hour WHERE at < ?1)";
    let file = open_database(test_box, "samples.db");
    file.query_row(select, [from.plus_seconds(10).0], |row| row.get(0))
        .unwrap()
}

/// The recorded actions: kind, request, result.
fn recorded_actions(test_box: &TestBox) -> Vec<(String, String, Option<String>)> {
    let file = open_database(test_box, "audit.db");
    let mut statement = file
        .prepare("SELECT kind, request, result FROM action ORDER BY id")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn prune_counts_deletes_and_is_recorded() {
    let test_box = one_gpu();
    test_box.start().stop();
    // Old, but younger than the retention period.
    let from = Timestamp::from(SystemTime::now()).plus_seconds(-3 * 3_600);
    insert_old_rows(&test_box, from);
    let before = from.plus_seconds(10).to_rfc3339();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let prune = |more: &[&str]| {
        let arguments = ["audit", "prune", "--before", &before];
        test_box.ctl(&[&arguments, more].concat())
    };
    let goes = "3 samples, 2 sums of minutes, 1 sum of an hour from before ";
    for arguments in [&["--dry-run"][..], &[]] {
        let ran = prune(arguments);
        let first = ran.stdout.lines().next().unwrap_or_default();
        assert!(first.starts_with(goes), "{ran:?}");
        assert!(first.ends_with(" would be deleted"), "{ran:?}");
        // Without a terminal the client cannot ask for consent.
        assert_eq!(
            ran.code,
            if arguments.is_empty() { 3 } else { 0 },
            "{ran:?}"
        );
        assert_eq!(old_row_count(&test_box, from), 6);
    }
    assert_eq!(recorded_actions(&test_box), []);

    let ran = prune(&["--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = ran.stdout.lines().next().unwrap_or_default();
    assert!(first.starts_with(goes) && first.ends_with(" are deleted"));
    assert_eq!(old_row_count(&test_box, from), 0);
    let asked = || format!("--before {before}");
    let word = |word: &str| Some(word.to_owned());
    let done = ("prune".to_owned(), asked(), word("done"));
    eventually("the end is recorded", || {
        (recorded_actions(&test_box) == [done.clone()]).then_some(())
    });

    // Records of the future cannot be deleted, and plain users delete nothing.
    let ran = test_box.ctl(&[
        "audit",
        "prune",
        "--before",
        "2100-01-01T00:00:00Z",
        "--yes",
    ]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr
            .contains("2100-01-01T00:00:00.000Z is in the future")
    );
    assert!(!records(&test_box, &[]).is_empty());
    if can_run_as_other_users() {
        test_box.make_world_accessible();
        let ran = run_as_user(NOBODY_UID, &[], || prune(&["--yes"]));
        let expected = "gpukillctl: cannot delete from the store\n\
             hint: ask root, or someone in group suite:admins\n";
        assert_eq!((ran.code, ran.stderr.as_str()), (4, expected));
    }
    daemon.stop();
}

fn unpack(file: &Path, into: &Path) {
    std::fs::create_dir(into).unwrap();
    let done = Command::new("tar")
        .arg("-xf")
        .arg(file)
        .arg("-C")
        .arg(into)
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn backup_of_running_daemon_is_a_store() {
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let file = test_box.path("copy.tar");
    let name = file.to_str().unwrap();
    let ran = test_box.ctl(&["audit", "backup", name]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    let before = std::fs::read(&file).unwrap();
    let ran = test_box.ctl(&["audit", "backup", name]);
    let expected = format!("gpukillctl: {name} is there already\nhint: --force replaces it\n");
    assert_eq!((ran.code, ran.stderr), (1, expected));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(test_box.ctl(&["audit", "backup", name, "--force"]).code, 0);
    // No temporary file stays beside the store or beside the backup.
    assert!(!test_box.path("state/copying").exists());
    assert!(!test_box.path("copy.tar.partial").exists());
    daemon.stop();

    let other = one_gpu();
    unpack(&file, &other.path("state"));
    let manifest = std::fs::read_to_string(other.path("state/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    for database in ["samples.db", "audit.db"] {
        let length = std::fs::metadata(other.path("state").join(database)).unwrap();
        assert_eq!(manifest[database]["bytes"], json!(length.len()));
        let schema: i64 = open_database(&test_box, database)
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(manifest[database]["schema"], json!(schema));
    }
    let rows = "SELECT (SELECT count(*) FROM sample), (SELECT min(id) FROM sample)";
    let (count, first): (i64, i64) = open_database(&other, "samples.db")
        .query_row(rows, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert!(count > 0);
    let daemon = other.start();
    let last = eventually("the history goes on", || records(&other, &[]).pop());
    assert_eq!(other.faults(), []);
    daemon.stop();
    assert!(!last.is_null());
    let still: i64 = open_database(&other, "samples.db")
        .query_row("SELECT min(id) FROM sample", [], |row| row.get(0))
        .unwrap();
    assert_eq!(still, first);
}

#[test]
fn one_backup_at_a_time_per_connection() {
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let backup = |raw: &mut RawConnection| match raw.call(&GpukillRequest::Backup {}) {
        GpukillResponse::Backup(made) => made,
        other => panic!("{other:?}"),
    };
    let part = |raw: &mut RawConnection, copy: u64| {
        let (copy, offset) = (CopyId(copy), 0);
        match raw.call(&GpukillRequest::PartOfBackup { copy, offset }) {
            GpukillResponse::PartOfBackup(part) => part.map(|part| part.len()),
            other => panic!("{other:?}"),
        }
    };
    let mut one = RawConnection::connect_admitted(&test_box.socket());
    let first = backup(&mut one).unwrap();
    let mut other = RawConnection::connect_admitted(&test_box.socket());
    let busy = "another copy is in progress: one at a time".to_owned();
    assert_eq!(backup(&mut other), Err(Refusal::Unavailable(busy)));
    assert_eq!(part(&mut other, first.id.0), Err(Refusal::Expired));
    assert_eq!(part(&mut one, first.id.0), Ok(48 << 10));
    // The next backup of a connection replaces its last one.
    let second = backup(&mut one).unwrap();
    assert_eq!(part(&mut one, first.id.0), Err(Refusal::Expired));
    assert_eq!(part(&mut one, second.id.0), Ok(48 << 10));
    drop(one);
    eventually("the place is free", || backup(&mut other).ok());
    daemon.stop();
}

#[test]
fn export_file_is_complete_or_absent() {
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("records", || {
        (records(&test_box, &[]).len() > 3).then_some(())
    });
    // Until a time in the past, so that no records are added.
    let until = records(&test_box, &[])[0]["timestamp"]
        .as_str()
        .unwrap()
        .to_owned();
    let of = |arguments: &[&str]| {
        let ran = test_box.ctl(&[&["audit"], arguments, &["--until", &until]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        ran.stdout
    };
    let export = |name: &str| {
        let path = test_box.path(name);
        let output = of(&["export", path.to_str().unwrap()]);
        assert!(output.contains("newest first"), "{output}");
        std::fs::read(path).unwrap()
    };
    let csv = of(&["--samples", "-o", "csv", "--limit", "0"]);
    assert!(csv.lines().count() > 1);
    assert_eq!(String::from_utf8(export("a.csv")).unwrap(), csv);
    assert_eq!(of(&["export", "-", "--format", "csv"]), csv);
    let lines = of(&["--samples", "-o", "ndjson", "--limit", "0"]);
    assert_eq!(String::from_utf8(export("a.jsonl")).unwrap(), lines);
    let columns = export("a.parquet");
    assert!(columns.starts_with(b"PAR1") && columns.ends_with(b"PAR1"));

    // Without matching records there is no file.
    let nobody = test_box.path("nobody.csv");
    let ran = test_box.ctl(&[
        "audit",
        "export",
        nobody.to_str().unwrap(),
        "--process",
        "^no such$",
    ]);
    assert_eq!(ran.code, 8, "{ran:?}");
    daemon.stop();
    let gone = test_box.path("gone.csv");
    assert_eq!(
        test_box
            .ctl(&["audit", "export", gone.to_str().unwrap()])
            .code,
        6
    );
    let left = std::fs::read_dir(test_box.path("")).unwrap();
    let mut left: Vec<_> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            [".csv", ".jsonl", ".parquet", ".partial"]
                .iter()
                .any(|end| name.ends_with(end))
        })
        .collect();
    left.sort();
    assert_eq!(left, ["a.csv", "a.jsonl", "a.parquet"]);
}
