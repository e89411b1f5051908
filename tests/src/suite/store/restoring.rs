//! Copies put in the place of the store: nothing that was recorded is lost, whatever
//! happens meanwhile, and nothing but a copy is taken.

mod killed;

mod refused;

use super::super::raw::Raw;
use super::{database, ids, records};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    NOBODY, Stage, Terminal, acting_as, can_act_as_others, eventually, skip,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// How many entries the record has in a copy.
fn entries_in(copy: &Path) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.arg("-xf").arg(copy).arg("-C").arg(directory.path());
    assert!(tar.status().unwrap().success());
    let file = rusqlite::Connection::open(directory.path().join("audit.db")).unwrap();
    let select = "SELECT (SELECT count(*) FROM action) + (SELECT count(*) FROM event)";
    let count: i64 = file.query_row(select, [], |row| row.get(0)).unwrap();
    usize::try_from(count).unwrap()
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

fn restore(stage: &Stage, file: &Path, more: &[&str]) -> gpukill_tests::harness::Ran {
    let arguments = ["audit", "restore", file.to_str().unwrap()];
    stage.ctl(&[&arguments, more].concat())
}

/// The names in the state directory.
fn state(stage: &Stage) -> BTreeSet<String> {
    let entries = std::fs::read_dir(stage.path("state")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
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
fn a_copy_comes_back_and_nothing_that_was_recorded_since_is_lost() {
    let stage = one_gpu();
    stage.start().stop();
    let old = remember(&stage);
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    act(&stage, 1);
    let copy = backup(&stage, "copy.tar");
    let copied_at = Timestamp::from(SystemTime::now());
    act(&stage, 2);
    // By hand, what the copy has: an error that a restore undoes.
    let deleted = GpukillRequest::Prune {
        before: old.plus_seconds(1),
        is_dry_run: false,
    };
    match Raw::welcomed(&stage.socket()).call(&deleted) {
        GpukillResponse::Prune(Ok(report)) => assert_eq!(report.deleted.samples, 1),
        other => panic!("{other:?}"),
    }
    eventually("it is recorded", || {
        let acts = acts(&stage, "prune");
        let done = acts
            .iter()
            .filter(|(_, word)| word.as_deref() == Some("done"));
        (done.count() == 3).then_some(())
    });
    assert!(!has_sample_at(&stage, old));
    let before = recorded(&stage);
    let names = state(&stage);

    // Saying changes nothing, and nobody can be asked here.
    let copied = entries_in(&copy);
    for (more, code) in [(&["--dry-run"][..], 0), (&[], 3)] {
        // A fault of a busy box may be recorded at any time.
        let (ran, kept) = eventually("nothing is recorded meanwhile", || {
            let entries = recorded(&stage).len();
            let ran = restore(&stage, &copy, more);
            (recorded(&stage).len() == entries).then_some((ran, entries - copied))
        });
        assert_eq!(ran.code, code, "{ran:?}");
        let said: Vec<&str> = ran.stdout.lines().collect();
        assert!(said[0].starts_with("the copy was made on "), "{ran:?}");
        let place = "it would take the place of ";
        assert!(said[1].starts_with(place), "{ran:?}");
        assert!(kept >= 2);
        let kept = format!("{kept} entries that are recorded beyond it would be kept");
        assert_eq!(said[2], kept);
        assert_eq!(said[4], "what is there now would be set aside, whole");
        holds(&stage, &before);
        assert_eq!(state(&stage), names);
        assert!(!has_sample_at(&stage, old));
    }

    let newest = ids(&records(&stage, &[]))[0];
    let last_sample = sample_id(&stage, "max", Timestamp(0));
    let ran = restore(&stage, &copy, &["--yes"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let aside = replaced(&stage);
    assert_eq!(aside.len(), 1);
    let place = stage.path("state").join(&aside[0]);
    let last = format!("what was there lies in {}", place.display());
    assert_eq!(ran.stdout.lines().last(), Some(last.as_str()), "{ran:?}");
    assert!(has_sample_at(&stage, old));
    let after = recorded(&stage);
    holds(&stage, &before);
    let length = std::fs::metadata(&copy).unwrap().len();
    let done = (format!("a copy of {length} bytes"), Some("done".to_owned()));
    assert_eq!(acts(&stage, "restore"), std::slice::from_ref(&done));
    let outcome: String = database(&stage, "audit.db")
        .query_row(
            "SELECT outcome FROM action WHERE kind = 'restore'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    assert_eq!(outcome["set_aside"], json!(place.display().to_string()));
    // What was there is whole.
    let aside = rusqlite::Connection::open(place.join("audit.db")).unwrap();
    let count: i64 = aside
        .query_row(
            "SELECT count(*) FROM action WHERE kind = 'prune'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(count, 3);
    assert!(place.join("samples.db").exists());

    // The history goes on, with ids that were not given before.
    let went_on = eventually("samples go on", || {
        ids(&records(&stage, &[]))
            .into_iter()
            .next()
            .filter(|id| *id > newest)
    });
    assert!(sample_id(&stage, "min", copied_at) > last_sample);
    act(&stage, 3);
    daemon.stop();
    let daemon = stage.start();
    eventually("and on", || {
        ids(&records(&stage, &[]))
            .into_iter()
            .next()
            .filter(|id| *id > went_on)
    });
    assert_eq!(acts(&stage, "restore"), [done]);
    assert_eq!(acts(&stage, "prune").len(), 4);
    assert_eq!(stage.faults(), []);
    daemon.stop();
    holds(&stage, &after);
}

#[test]
fn a_copy_of_another_box_is_put_in_place_beside_what_was_recorded_here() {
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
    let ours: Vec<Entry> = recorded(&here).into_values().collect();
    let ran = restore(&here, &copy, &["--yes"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let after = recorded(&here);
    holds(&here, &theirs);
    for entry in &ours {
        assert!(after.values().any(|it| it == entry), "{entry:?}");
    }
    let words: Vec<_> = acts(&here, "restore").into_iter().map(|it| it.1).collect();
    assert_eq!(words, [Some("done".to_owned())]);
    eventually("samples go on", || records(&here, &[]).pop());
    daemon.stop();
}

#[test]
fn questions_are_answered_while_copies_are_put_in_place() {
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let copy = backup(&stage, "copy.tar");
    let is_over = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                for command in [&["audit"][..], &["audit", "actions"]] {
                    let ran = stage.ctl(command);
                    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
                }
                asked += 1;
            }
            asked
        });
        for _ in 0..5 {
            let ran = restore(&stage, &copy, &["--yes"]);
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        }
        is_over.store(true, Ordering::Relaxed);
        asker.join().unwrap()
    });
    assert!(asked > 0);
    // Each store that was there lies beside it, whole.
    assert_eq!(replaced(&stage).len(), 5);
    for name in replaced(&stage) {
        for file in ["samples.db", "audit.db"] {
            let old = stage.path("state").join(&name).join(file);
            let check = rusqlite::Connection::open(old).unwrap().pragma_query_value(
                None,
                "integrity_check",
                |row| row.get(0),
            );
            assert_eq!(check, Ok("ok".to_owned()), "{name}/{file}");
        }
    }
    assert_eq!(acts(&stage, "restore").len(), 5);
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn only_admins_restore_and_others_are_told_and_recorded() {
    if !can_act_as_others() {
        skip("only root can be somebody else");
        return;
    }
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    stage.open_to_all();
    let copy = backup(&stage, "copy.tar");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&copy, mode).unwrap();
    let ran = acting_as(NOBODY, &[], || restore(&stage, &copy, &["--yes"]));
    let expected = "gpukillctl: cannot put a copy in the store's place\n\
         hint: ask root, or someone in group gpukill-admin\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (4, expected));
    let refused = eventually("it is recorded", || acts(&stage, "restore").pop());
    let asked = "a copy".to_owned();
    assert_eq!(refused, (asked, Some("refused".to_owned())));
    assert_eq!(replaced(&stage), Vec::<String>::new());
    daemon.stop();
}

#[test]
fn a_person_is_asked_before_and_is_told_after() {
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let copy = backup(&stage, "copy.tar");
    for (answer, code, times) in [("n\n", 1, 0), ("y\n", 0, 1)] {
        let command = stage.client(&["audit", "restore", copy.to_str().unwrap()]);
        let Some(mut terminal) = Terminal::start(&command, 200, 50) else {
            return skip("there is no setsid");
        };
        let shown = terminal.until("put this copy in the place of the store? [y/N] ");
        assert!(shown.contains("it would take the place of "), "{shown}");
        terminal.types(answer);
        let ran = terminal.end();
        assert_eq!(ran.code, code, "{ran:?}");
        assert_eq!(replaced(&stage).len(), times, "{ran:?}");
    }
    daemon.stop();
}

/// The daemon's answer to a call of this kind.
fn begin(raw: &mut Raw, bytes: u64) -> Result<gpukill_proto::audit::CopyId, Refusal> {
    match raw.call(&GpukillRequest::BeginRestore { bytes }) {
        GpukillResponse::BeginRestore(answer) => answer,
        other => panic!("{other:?}"),
    }
}
