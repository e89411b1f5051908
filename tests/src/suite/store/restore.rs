//! Root restores backups while no daemon runs: nothing that was recorded is lost, and only
//! a backup file of root is accepted.

mod interrupted;
mod invalid_backups;

use super::super::raw::RawConnection;
use super::{ids, open_database, records};
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    CommandOutput, NOBODY_UID, TestBox, can_run_as_other_users, eventually, run_as_user,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

pub(super) fn one_gpu() -> TestBox {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    test_box
}

/// Runs an action that is recorded: a prune of the time before `before`, which deletes
/// nothing.
fn record_prune(test_box: &TestBox, before: i64) {
    let call = GpukillRequest::Prune {
        before: Timestamp(before),
        is_dry_run: false,
    };
    match RawConnection::connect_admitted(&test_box.socket()).call(&call) {
        GpukillResponse::Prune(Ok(_)) => {}
        other => panic!("{other:?}"),
    }
    let asked = format!("--before {}", Timestamp(before).to_rfc3339());
    eventually("the violation is recorded", || {
        let done = (asked.clone(), Some("done".to_owned()));
        let mut entries = recorded_entries(test_box).into_values();
        entries
            .any(|entry| (entry.what, entry.result) == done)
            .then_some(())
    });
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordedEntry {
    at: i64,
    kind: String,
    what: String,
    result: Option<String>,
}

/// All recorded entries, by table and id.
fn recorded_entries(test_box: &TestBox) -> BTreeMap<(String, i64), RecordedEntry> {
    let file = open_database(test_box, "audit.db");
    let select = "SELECT 'action', id, at, kind, request, result FROM action
        UNION ALL SELECT 'event', id, at, kind, coalesce(detail, ''), NULL FROM event";
    let mut statement = file.prepare(select).unwrap();
    let rows = statement.query_map([], |row| {
        let entry = RecordedEntry {
            at: row.get(2)?,
            kind: row.get(3)?,
            what: row.get(4)?,
            result: row.get(5)?,
        };
        Ok(((row.get(0)?, row.get(1)?), entry))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn assert_entries_are_kept(test_box: &TestBox, entries: &BTreeMap<(String, i64), RecordedEntry>) {
    let there = recorded_entries(test_box);
    for (id, entry) in entries {
        assert_eq!(there.get(id), Some(entry), "{id:?}");
    }
}

/// The recorded actions of a kind: the request and the result.
fn recorded_actions(test_box: &TestBox, kind: &str) -> Vec<(String, Option<String>)> {
    let entries = recorded_entries(test_box).into_values();
    let of_kind = entries.filter(|entry| entry.kind == kind);
    of_kind.map(|entry| (entry.what, entry.result)).collect()
}

fn make_backup(test_box: &TestBox, name: &str) -> PathBuf {
    let file = test_box.path(name);
    let ran = test_box.ctl(&["audit", "backup", file.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    file
}

fn restore_command(test_box: &TestBox, file: &Path, more: &[&str]) -> Command {
    let mut command = test_box.daemon_command();
    if !rustix::process::geteuid().is_root() {
        // A personal store belongs to the user of the test.
        command.arg("--user");
    }
    command.arg("restore").arg(file).args(more);
    command
}

fn restore(test_box: &TestBox, file: &Path, more: &[&str]) -> CommandOutput {
    CommandOutput::run(&mut restore_command(test_box, file, more))
}

/// The names in the state directory, without those of files that exist only while a
/// database is open.
fn state_file_names(test_box: &TestBox) -> BTreeSet<String> {
    let entries = std::fs::read_dir(test_box.path("state")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm"))
        .collect()
}

/// The names of the directories that hold replaced stores.
fn replaced_directories(test_box: &TestBox) -> Vec<String> {
    let names = state_file_names(test_box).into_iter();
    names.filter(|name| name.starts_with("replaced-")).collect()
}

/// Inserts an old sample into a store that no daemon has open.
fn insert_old_sample(test_box: &TestBox) -> Timestamp {
    // Younger than the retention period.
    let at = Timestamp::from(SystemTime::now()).plus_seconds(-3 * 3_600);
    let file = open_database(test_box, "samples.db");
    let insert = "INSERT INTO sample (id, at, usage) VALUES (1001, ?1, x'');";
    file.execute(insert, [at.0]).unwrap();
    file.execute("UPDATE rolled SET sample = 1001, minute = 1001", [])
        .unwrap();
    at
}

/// Waits for a sample that started after this time, and returns the first or the last id.
fn sample_id(test_box: &TestBox, which: &str, after: Timestamp) -> i64 {
    let select = format!("SELECT {which}(id) FROM sample WHERE at > ?1");
    eventually("a sample after this", || {
        open_database(test_box, "samples.db")
            .query_row(&select, [after.0], |row| row.get::<_, Option<i64>>(0))
            .unwrap()
    })
}

fn has_sample_at(test_box: &TestBox, at: Timestamp) -> bool {
    let select = "SELECT EXISTS (SELECT 1 FROM sample WHERE at = ?1)";
    open_database(test_box, "samples.db")
        .query_row(select, [at.0], |row| row.get(0))
        .unwrap()
}

#[test]
fn restored_backup_keeps_later_records() {
    let test_box = one_gpu();
    test_box.start().stop();
    let old = insert_old_sample(&test_box);
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    record_prune(&test_box, 1);
    let copy = make_backup(&test_box, "copy.tar");
    let copied_at = Timestamp::from(SystemTime::now());
    // A prune deletes by mistake what the backup has, and the restore undoes that.
    let deleted = GpukillRequest::Prune {
        before: old.plus_seconds(1),
        is_dry_run: false,
    };
    match RawConnection::connect_admitted(&test_box.socket()).call(&deleted) {
        GpukillResponse::Prune(Ok(report)) => assert_eq!(report.deleted.samples, 1),
        other => panic!("{other:?}"),
    }
    assert!(!has_sample_at(&test_box, old));
    let newest = ids(&records(&test_box, &[]))[0];

    // A restore is refused while the daemon runs.
    let names = state_file_names(&test_box);
    let ran = restore(&test_box, &copy, &[]);
    let begin = "gpukilld: a running gpukilld uses the store in ";
    assert!(ran.code == 1 && ran.stderr.starts_with(begin), "{ran:?}");
    assert_eq!(state_file_names(&test_box), names);
    daemon.stop();
    let before = recorded_entries(&test_box);
    let last_sample = sample_id(&test_box, "max", Timestamp(0));

    let names = state_file_names(&test_box);
    let ran = restore(&test_box, &copy, &["--dry-run"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.starts_with("backup: made on "), "{ran:?}");
    assert!(
        ran.stdout.ends_with("dry run: nothing is changed\n"),
        "{ran:?}"
    );
    assert_eq!(
        (state_file_names(&test_box), recorded_entries(&test_box)),
        (names, before.clone())
    );

    let ran = restore(&test_box, &copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let aside = replaced_directories(&test_box);
    assert_eq!(aside.len(), 1);
    let place = test_box.path("state").join(&aside[0]);
    let last = format!("restored; the previous store is in {}", place.display());
    assert_eq!(ran.stdout.lines().last(), Some(last.as_str()), "{ran:?}");
    assert!(has_sample_at(&test_box, old));
    assert_entries_are_kept(&test_box, &before);
    let done = (copy.display().to_string(), Some("done".to_owned()));
    assert_eq!(
        recorded_actions(&test_box, "restore"),
        std::slice::from_ref(&done)
    );
    let select = "SELECT uid, outcome FROM action WHERE kind = 'restore'";
    let (uid, outcome): (u32, String) = open_database(&test_box, "audit.db")
        .query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    assert_eq!(uid, rustix::process::getuid().as_raw());
    assert_eq!(outcome["set_aside"], json!(place.display().to_string()));
    // The replaced store is complete.
    let aside = rusqlite::Connection::open(place.join("audit.db")).unwrap();
    let prunes = "SELECT count(*) FROM action WHERE kind = 'prune'";
    let count: i64 = aside.query_row(prunes, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    assert!(place.join("samples.db").exists());

    // The history goes on, with new ids.
    let after = recorded_entries(&test_box);
    let daemon = test_box.start();
    eventually("samples go on", || {
        let newer = ids(&records(&test_box, &[])).into_iter().next();
        newer.filter(|id| *id > newest)
    });
    assert!(sample_id(&test_box, "min", copied_at) > last_sample);
    let actions = test_box
        .ctl(&["audit", "actions", "--kind", "restore"])
        .stdout;
    assert!(actions.contains("restore"), "{actions}");
    assert_eq!(test_box.faults(), []);
    daemon.stop();
    assert_entries_are_kept(&test_box, &after);
}

#[test]
fn backup_of_another_box_is_restored() {
    let (here, there) = (one_gpu(), one_gpu());
    let daemon = there.start();
    eventually("a sample", || records(&there, &[]).pop());
    record_prune(&there, 1);
    record_prune(&there, 2);
    let theirs = recorded_entries(&there);
    let copy = make_backup(&there, "copy.tar");
    daemon.stop();
    let daemon = here.start();
    eventually("a sample", || records(&here, &[]).pop());
    record_prune(&here, 3);
    daemon.stop();
    let ours: Vec<RecordedEntry> = recorded_entries(&here).into_values().collect();
    let ran = restore(&here, &copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let after = recorded_entries(&here);
    assert_entries_are_kept(&here, &theirs);
    for entry in &ours {
        assert!(after.values().any(|it| it == entry), "{entry:?}");
    }
    let daemon = here.start();
    eventually("samples go on", || records(&here, &[]).pop());
    daemon.stop();
}

#[test]
fn false_record_needs_root_and_is_marked() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    test_box.make_world_accessible();
    let copy = make_backup(&test_box, "copy.tar");
    let false_copy = test_box.path("false.tar");
    let apart = invalid_backups::UnpackedBackup::unpack(&copy);
    let lie = "INSERT INTO action (at, run, kind, uid, request, plan, finished_at, result)
        VALUES (7, 'r', 'kill', 7, 'a lie', '{}', 8, 'done')";
    apart.open_database("audit.db").execute_batch(lie).unwrap();
    apart.pack(&false_copy);
    daemon.stop();
    let names = state_file_names(&test_box);
    let refuses = |why: &str, ran: CommandOutput| {
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
        assert_eq!(state_file_names(&test_box), names);
    };
    // An admin without root, and a file that other users may change.
    let by_admin = run_as_user(NOBODY_UID, &[], || {
        restore_as_caller(&test_box, &false_copy)
    });
    refuses("only root may restore a backup", by_admin);
    std::os::unix::fs::chown(&false_copy, Some(NOBODY_UID), None).unwrap();
    refuses(
        "it belongs to uid 65534",
        restore(&test_box, &false_copy, &[]),
    );
    std::os::unix::fs::chown(&false_copy, Some(0), None).unwrap();
    let mode = |mode| std::fs::set_permissions(&false_copy, PermissionsExt::from_mode(mode));
    mode(0o666).unwrap();
    refuses(
        "users other than its owner may write it",
        restore(&test_box, &false_copy, &[]),
    );
    mode(0o600).unwrap();
    let link = test_box.path("link.tar");
    std::os::unix::fs::symlink(&false_copy, &link).unwrap();
    refuses("it is a symbolic link", restore(&test_box, &link, &[]));
    refuses(
        "it is not a regular file",
        restore(&test_box, Path::new("/dev/null"), &[]),
    );
    // Root's backup is accepted, and the restore itself is recorded.
    let ran = restore(&test_box, &false_copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let lies = |it: &RecordedEntry| it.what == "a lie";
    assert!(recorded_entries(&test_box).values().any(lies));
    assert_eq!(recorded_actions(&test_box, "restore").len(), 1);
    assert_eq!(replaced_directories(&test_box).len(), 1);
}

/// Restores as the current user of this thread.
fn restore_as_caller(test_box: &TestBox, file: &Path) -> CommandOutput {
    CommandOutput::run(test_box.daemon_command().arg("restore").arg(file))
}

#[test]
fn restored_files_belong_to_the_store_user() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let copy = make_backup(&test_box, "copy.tar");
    daemon.stop();
    test_box.make_world_accessible();
    let give =
        |path: &Path| std::os::unix::fs::lchown(path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    give(&test_box.path("state"));
    for name in state_file_names(&test_box) {
        give(&test_box.path("state").join(name));
    }
    // A link that the user of the store creates is not written through.
    let root = test_box.path("root");
    std::fs::write(&root, "root's").unwrap();
    let link = test_box.path("state/copying");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    give(&link);
    let _ = restore(&test_box, &copy, &[]);
    assert_eq!(std::fs::read_to_string(&root).unwrap(), "root's");
    let _ = std::fs::remove_file(&link);
    let ran = restore(&test_box, &copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let mut names = state_file_names(&test_box);
    names.insert(format!("{}/audit.db", replaced_directories(&test_box)[0]));
    for name in names {
        let metadata = test_box
            .path("state")
            .join(&name)
            .symlink_metadata()
            .unwrap();
        assert_eq!(
            (metadata.uid(), metadata.gid()),
            (NOBODY_UID, NOBODY_UID),
            "{name}"
        );
    }
}

#[test]
fn client_says_how_to_restore() {
    let test_box = TestBox::new();
    for arguments in [
        &["audit", "restore"][..],
        &["audit", "restore", "x.tar", "--yes"],
    ] {
        let ran = test_box.ctl(arguments);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains("gpukilld restore FILE"), "{ran:?}");
    }
}
