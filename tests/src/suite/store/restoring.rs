//! Backups put in the place of the store by root, while no daemon runs: nothing that was
//! recorded is lost, and nothing but a backup of root's is taken.

mod killed;

mod refused;

use super::super::raw::Raw;
use super::{database, ids, records};
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{NOBODY, Ran, Stage, acting_as, can_act_as_others, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

pub(super) fn one_gpu() -> Stage {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    stage
}

/// Has something done that is recorded: of before this moment there is nothing.
fn act(stage: &Stage, before: i64) {
    let call = GpukillRequest::Prune {
        before: Timestamp(before),
        is_dry_run: false,
    };
    match Raw::welcomed(&stage.socket()).call(&call) {
        GpukillResponse::Prune(Ok(_)) => {}
        other => panic!("{other:?}"),
    }
    let asked = format!("--before {}", Timestamp(before).to_rfc3339());
    eventually("it is recorded", || {
        let done = (asked.clone(), Some("done".to_owned()));
        let mut told = recorded(stage).into_values();
        told.any(|entry| (entry.what, entry.word) == done)
            .then_some(())
    });
}

/// An entry of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    at: i64,
    kind: String,
    what: String,
    word: Option<String>,
}

/// The record, by table and id.
fn recorded(stage: &Stage) -> BTreeMap<(String, i64), Entry> {
    let file = database(stage, "audit.db");
    let select = "SELECT 'action', id, at, kind, asked, word FROM action
        UNION ALL SELECT 'event', id, at, kind, coalesce(detail, ''), NULL FROM event";
    let mut statement = file.prepare(select).unwrap();
    let rows = statement.query_map([], |row| {
        let entry = Entry {
            at: row.get(2)?,
            kind: row.get(3)?,
            what: row.get(4)?,
            word: row.get(5)?,
        };
        Ok(((row.get(0)?, row.get(1)?), entry))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Asserts that the record has these entries as they are here.
fn holds(stage: &Stage, entries: &BTreeMap<(String, i64), Entry>) {
    let there = recorded(stage);
    for (id, entry) in entries {
        assert_eq!(there.get(id), Some(entry), "{id:?}");
    }
}

/// The acts of a kind: what was asked for, and the word.
fn acts(stage: &Stage, kind: &str) -> Vec<(String, Option<String>)> {
    let entries = recorded(stage).into_values();
    let of_kind = entries.filter(|entry| entry.kind == kind);
    of_kind.map(|entry| (entry.what, entry.word)).collect()
}

/// A copy of the store as it is, in a file.
fn backup(stage: &Stage, name: &str) -> PathBuf {
    let file = stage.path(name);
    let ran = stage.ctl(&["audit", "backup", file.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    file
}

/// The command that restores a backup.
fn restoring(stage: &Stage, file: &Path, more: &[&str]) -> Command {
    let mut command = stage.daemon();
    if !rustix::process::geteuid().is_root() {
        // A person's own store is theirs.
        command.arg("--user");
    }
    command.arg("restore").arg(file).args(more);
    command
}

fn restore(stage: &Stage, file: &Path, more: &[&str]) -> Ran {
    Ran::of(&mut restoring(stage, file, more))
}

/// The names in the state directory, but for those that come and go with a connection.
fn state(stage: &Stage) -> BTreeSet<String> {
    let entries = std::fs::read_dir(stage.path("state")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm"))
        .collect()
}

/// Where what was there lies, by the names of the directories.
fn replaced(stage: &Stage) -> Vec<String> {
    let names = state(stage).into_iter();
    names.filter(|name| name.starts_with("replaced-")).collect()
}

/// Puts a sample of long ago into a store that no daemon has open.
fn remember(stage: &Stage) -> Timestamp {
    // Not so long that it goes by itself.
    let at = Timestamp::from(SystemTime::now()).plus_seconds(-3 * 3_600);
    let file = database(stage, "samples.db");
    let insert = "INSERT INTO sample (id, at, usage) VALUES (1001, ?1, x'');";
    file.execute(insert, [at.0]).unwrap();
    file.execute("UPDATE rolled SET sample = 1001, minute = 1001", [])
        .unwrap();
    at
}

/// The first or the last sample that began after this moment, when there is one.
fn sample_id(stage: &Stage, which: &str, after: Timestamp) -> i64 {
    let select = format!("SELECT {which}(id) FROM sample WHERE at > ?1");
    eventually("a sample after this", || {
        database(stage, "samples.db")
            .query_row(&select, [after.0], |row| row.get::<_, Option<i64>>(0))
            .unwrap()
    })
}

fn has_sample_at(stage: &Stage, at: Timestamp) -> bool {
    let select = "SELECT EXISTS (SELECT 1 FROM sample WHERE at = ?1)";
    database(stage, "samples.db")
        .query_row(select, [at.0], |row| row.get(0))
        .unwrap()
}

#[test]
fn a_backup_comes_back_and_nothing_that_was_recorded_since_is_lost() {
    let stage = one_gpu();
    stage.start().stop();
    let old = remember(&stage);
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    act(&stage, 1);
    let copy = backup(&stage, "copy.tar");
    let copied_at = Timestamp::from(SystemTime::now());
    // By hand, what the backup has: an error that a restore undoes.
    let deleted = GpukillRequest::Prune {
        before: old.plus_seconds(1),
        is_dry_run: false,
    };
    match Raw::welcomed(&stage.socket()).call(&deleted) {
        GpukillResponse::Prune(Ok(report)) => assert_eq!(report.deleted.samples, 1),
        other => panic!("{other:?}"),
    }
    assert!(!has_sample_at(&stage, old));
    let newest = ids(&records(&stage, &[]))[0];

    // Not while the daemon runs.
    let names = state(&stage);
    let ran = restore(&stage, &copy, &[]);
    let begin = "gpukilld: a gpukilld runs that stores in ";
    assert!(ran.code == 1 && ran.stderr.starts_with(begin), "{ran:?}");
    assert_eq!(state(&stage), names);
    daemon.stop();
    let before = recorded(&stage);
    let last_sample = sample_id(&stage, "max", Timestamp(0));

    let names = state(&stage);
    let ran = restore(&stage, &copy, &["--dry-run"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.starts_with("backup: made on "), "{ran:?}");
    assert!(
        ran.stdout.ends_with("dry run: nothing is changed\n"),
        "{ran:?}"
    );
    assert_eq!((state(&stage), recorded(&stage)), (names, before.clone()));

    let ran = restore(&stage, &copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let aside = replaced(&stage);
    assert_eq!(aside.len(), 1);
    let place = stage.path("state").join(&aside[0]);
    let last = format!(
        "restored; the store that was there is in {}",
        place.display()
    );
    assert_eq!(ran.stdout.lines().last(), Some(last.as_str()), "{ran:?}");
    assert!(has_sample_at(&stage, old));
    holds(&stage, &before);
    let done = (copy.display().to_string(), Some("done".to_owned()));
    assert_eq!(acts(&stage, "restore"), std::slice::from_ref(&done));
    let select = "SELECT uid, outcome FROM action WHERE kind = 'restore'";
    let (uid, outcome): (u32, String) = database(&stage, "audit.db")
        .query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    assert_eq!(uid, rustix::process::getuid().as_raw());
    assert_eq!(outcome["set_aside"], json!(place.display().to_string()));
    // The store that was there is whole.
    let aside = rusqlite::Connection::open(place.join("audit.db")).unwrap();
    let prunes = "SELECT count(*) FROM action WHERE kind = 'prune'";
    let count: i64 = aside.query_row(prunes, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    assert!(place.join("samples.db").exists());

    // The history goes on, with ids that were not given before.
    let after = recorded(&stage);
    let daemon = stage.start();
    eventually("samples go on", || {
        let newer = ids(&records(&stage, &[])).into_iter().next();
        newer.filter(|id| *id > newest)
    });
    assert!(sample_id(&stage, "min", copied_at) > last_sample);
    let told = stage.ctl(&["audit", "actions", "--kind", "restore"]).stdout;
    assert!(told.contains("restore"), "{told}");
    assert_eq!(stage.faults(), []);
    daemon.stop();
    holds(&stage, &after);
}

#[test]
fn a_backup_of_another_box_is_put_in_place_beside_what_was_recorded_here() {
    let (here, there) = (one_gpu(), one_gpu());
    let daemon = there.start();
    eventually("a sample", || records(&there, &[]).pop());
    act(&there, 1);
    act(&there, 2);
    let theirs = recorded(&there);
    let copy = backup(&there, "copy.tar");
    daemon.stop();
    let daemon = here.start();
    eventually("a sample", || records(&here, &[]).pop());
    act(&here, 3);
    daemon.stop();
    let ours: Vec<Entry> = recorded(&here).into_values().collect();
    let ran = restore(&here, &copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let after = recorded(&here);
    holds(&here, &theirs);
    for entry in &ours {
        assert!(after.values().any(|it| it == entry), "{entry:?}");
    }
    let daemon = here.start();
    eventually("samples go on", || records(&here, &[]).pop());
    daemon.stop();
}

#[test]
fn a_false_record_comes_in_by_root_alone_and_is_marked_as_restored() {
    if !can_act_as_others() {
        return;
    }
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    stage.open_to_all();
    let copy = backup(&stage, "copy.tar");
    let false_copy = stage.path("false.tar");
    let apart = refused::Apart::of(&copy);
    let lie = "INSERT INTO action (at, run, kind, uid, asked, plan, finished_at, word)
        VALUES (7, 'r', 'kill', 7, 'a lie', '{}', 8, 'done')";
    apart.open("audit.db").execute_batch(lie).unwrap();
    apart.together(&false_copy);
    daemon.stop();
    let names = state(&stage);
    let refuses = |why: &str, ran: Ran| {
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
        assert_eq!(state(&stage), names);
    };
    // An admin without root, and a file that is not root's alone.
    let by_admin = acting_as(NOBODY, &[], || restore_as_caller(&stage, &false_copy));
    refuses("only root restores a backup", by_admin);
    std::os::unix::fs::chown(&false_copy, Some(NOBODY), None).unwrap();
    refuses("it belongs to uid 65534", restore(&stage, &false_copy, &[]));
    std::os::unix::fs::chown(&false_copy, Some(0), None).unwrap();
    let mode = |mode| std::fs::set_permissions(&false_copy, PermissionsExt::from_mode(mode));
    mode(0o666).unwrap();
    refuses(
        "others than its owner may write it",
        restore(&stage, &false_copy, &[]),
    );
    mode(0o600).unwrap();
    let link = stage.path("link.tar");
    std::os::unix::fs::symlink(&false_copy, &link).unwrap();
    refuses("it is a symbolic link", restore(&stage, &link, &[]));
    refuses(
        "it is no regular file",
        restore(&stage, Path::new("/dev/null"), &[]),
    );
    // Root's word counts, and the record says whose it is.
    let ran = restore(&stage, &false_copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let lies = |it: &Entry| it.what == "a lie";
    assert!(recorded(&stage).values().any(lies));
    assert_eq!(acts(&stage, "restore").len(), 1);
    assert_eq!(replaced(&stage).len(), 1);
}

/// As the user that this thread is.
fn restore_as_caller(stage: &Stage, file: &Path) -> Ran {
    Ran::of(stage.daemon().arg("restore").arg(file))
}

#[test]
fn what_root_restores_belongs_to_the_user_of_the_store() {
    if !can_act_as_others() {
        return;
    }
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let copy = backup(&stage, "copy.tar");
    daemon.stop();
    stage.open_to_all();
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    give(&stage.path("state"));
    for name in state(&stage) {
        give(&stage.path("state").join(name));
    }
    // What a user of the store may put there is not written through.
    let root = stage.path("root");
    std::fs::write(&root, "root's").unwrap();
    let link = stage.path("state/copying");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    give(&link);
    let _ = restore(&stage, &copy, &[]);
    assert_eq!(std::fs::read_to_string(&root).unwrap(), "root's");
    let _ = std::fs::remove_file(&link);
    let ran = restore(&stage, &copy, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let mut names = state(&stage);
    names.insert(format!("{}/audit.db", replaced(&stage)[0]));
    for name in names {
        let metadata = stage.path("state").join(&name).symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY), "{name}");
    }
}

#[test]
fn the_client_says_how_a_backup_is_restored() {
    let stage = Stage::new();
    for arguments in [
        &["audit", "restore"][..],
        &["audit", "restore", "x.tar", "--yes"],
    ] {
        let ran = stage.ctl(arguments);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains("gpukilld restore FILE"), "{ran:?}");
    }
}
