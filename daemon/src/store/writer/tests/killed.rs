//! A daemon that ends, orderly or not, with open actions.

use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A copy of the files as a daemon that is killed now would leave them.
pub(super) fn left_now(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn death_at_any_step_keeps_every_action() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut first = writer(directory.path(), "boot-1");
    let mut left = vec![left_now(directory.path())];
    let id = intend(&mut first, "1").unwrap();
    left.push(left_now(directory.path()));
    let other = intend(&mut first, "2").unwrap();
    left.push(left_now(directory.path()));
    settle(&mut first, id, "{}");
    left.push(left_now(directory.path()));
    settle(&mut first, other, "{}");
    left.push(left_now(directory.path()));
    let expected = |run: &str| {
        let interrupted = |asked| ended(asked, "interrupted", run);
        [
            vec![],
            vec![interrupted("1")],
            vec![interrupted("1"), interrupted("2")],
            vec![done("1"), interrupted("2")],
            vec![done("1"), done("2")],
        ]
    };
    for (step, left) in left.iter().enumerate() {
        let next = writer(left.path(), "boot-2");
        let run = found_by(&next);
        assert_eq!(rows(&audit(left.path())), expected(&run)[step]);
        drop(next);
        // The interruption is recorded once.
        drop(writer(left.path(), "boot-3"));
        assert_eq!(rows(&audit(left.path())), expected(&run)[step]);
    }
    assert_eq!(rows(&file), [done("1"), done("2")]);
}

#[test]
fn interrupted_kill_has_its_recovery() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = writer(directory.path(), "boot");
    intend(&mut first, "1").unwrap();
    let reset = Action {
        kind: ActionKind::Reset,
        ..act("2")
    };
    let connection = &first.audit.as_ref().unwrap().connection;
    first
        .open_actions
        .begin(connection, reset, Timestamp(7))
        .unwrap();
    drop(first);
    let new = |recovered: &str| {
        let directory = directory.path().to_owned();
        let new = Writer::new(
            directory,
            "boot".into(),
            KEEP,
            Arc::default(),
            Arc::default(),
        );
        let mut new = new.with_recovered_kills(Some(recovered.into()));
        new.open_closed_files();
        new
    };
    let next = new("let go on: 7");
    let found = found_by(&next);
    let done = format!("{found}; let go on: 7");
    let expected = [
        ended("1", "interrupted", &done),
        ended("2", "interrupted", &found),
    ];
    assert_eq!(rows(&audit(directory.path())), expected);
    drop(next);
    new("let go on: 8");
    assert_eq!(rows(&audit(directory.path())), expected);
}

const CHILD: &str = "GPUKILL_TEST_RECORDS_IN";

/// The killed daemon: records actions and prints those that are recorded.
fn record_for_ever(directory: &str) {
    let store = Store::start(directory.into(), "boot".into(), KEEP, None).unwrap();
    for number in 0_u64.. {
        // A loaded host may be too slow.
        if let Ok(id) = store.record_intent(act(&number.to_string())) {
            println!("\nrecorded {number}");
            id.settle("done", "{}".into());
        }
    }
}

#[test]
fn sigkill_loses_no_recorded_action() {
    if let Ok(directory) = std::env::var(CHILD) {
        return record_for_ever(&directory);
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = "sigkill_loses_no_recorded_action";
    for round in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut recorded = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| Some(line.strip_prefix("recorded ")?.to_owned()));
        let mut said: Vec<String> = recorded.by_ref().take(3 + 7 * round).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that were printed before the kill and not read yet.
        said.extend(recorded);
        let next = writer(directory.path(), "boot-2");
        let found: BTreeMap<String, Row> = rows(&audit(directory.path()))
            .into_iter()
            .map(|row| (row.0.clone(), row))
            .collect();
        assert!(said.len() >= 3 + 7 * round);
        for asked in &said {
            let row = &found[asked];
            let interrupted = ended(asked, "interrupted", &found_by(&next));
            assert!([done(asked), interrupted].contains(row), "{row:?}");
        }
    }
}

#[test]
fn stop_records_unfinished_actions() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    store
        .send_intent(act("1"), SystemTime::now().into(), LONG)
        .unwrap();
    close(&store);
    let why = "gpukilld was stopped before it was done";
    let expected = [ended("1", "interrupted", why)];
    assert_eq!(rows(&audit(directory.path())), expected);
}
