//! A store that cannot be used is a fault with a reason; the rest goes on, and
//! so does the store when the reason is gone.

use super::super::raw::Raw;
use super::{events, records};
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_tests::harness::{Daemon, Stage, becomes, eventually};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// One box whose store is broken in one way.
struct Broken {
    stage: Stage,
    daemon: Daemon,
    /// What must be moved away, with what it must still hold then.
    cause: PathBuf,
    bytes: Vec<u8>,
    /// Why samples cannot be read, where they cannot.
    reason: Option<String>,
}

impl Broken {
    /// `spoil` puts the cause where it belongs.
    fn new(
        cause: &str,
        what: &str,
        samples: Option<&str>,
        spoil: impl FnOnce(&Stage, &Path),
    ) -> Self {
        let stage = Stage::new();
        stage.play(&json!({"gpus": [{}]}));
        let cause = stage.path(cause);
        spoil(&stage, &cause);
        let bytes = std::fs::read(&cause).unwrap();
        let daemon = stage.start();
        let text = |text: &str| text.replace("DIR", &stage.path("state").display().to_string());
        let fault = eventually("the fault", || {
            let status = stage.json(&["status", "-o", "json"]);
            let faults = status["faults"].as_array()?.clone();
            faults.into_iter().find(|fault| fault["part"] == "store")
        });
        assert_eq!(fault["what"], text(what));
        let reason = samples.map(text);
        Self {
            stage,
            daemon,
            cause,
            bytes,
            reason,
        }
    }

    fn degrades_alone(&self) {
        assert_eq!(self.stage.ctl(&["list"]).code, 0);
        let ran = self.stage.ctl(&["audit"]);
        match &self.reason {
            Some(reason) => {
                assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
                let expected = format!("gpukillctl: {reason}\nhint: see gpukillctl status\n");
                assert_eq!(ran.stderr, expected);
            }
            None => assert_eq!(ran.code, 0, "{ran:?}"),
        }
        assert_eq!(std::fs::read(&self.cause).unwrap(), self.bytes);
    }

    fn heals(self) {
        let mut raw = Raw::welcomed(&self.stage.socket());
        let store = eventually("the store is well again", || {
            let status = match raw.call(&GpukillRequest::Status {}) {
                GpukillResponse::Status(status) => status.unwrap(),
                other => panic!("{other:?}"),
            };
            status.faults.is_empty().then_some(status.store)
        });
        assert_ne!(store.samples.0, 0);
        eventually("a sample", || records(&self.stage, &[]).pop());
        self.daemon.stop();
        let kinds: Vec<String> = events(&self.stage)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        // What could not be recorded at once was recorded later.
        assert_eq!(kinds, ["started", "stopped"]);
    }
}

fn make_state(stage: &Stage) {
    std::fs::create_dir(stage.path("state")).unwrap();
}

/// Takes ten seconds, the store's pause before it tries again.
#[test]
fn a_broken_store_is_said_left_alone_and_healed() {
    let foreign = "DIR/samples.db: is not a file of gpukill: move it away";
    let boxes = [
        Broken::new(
            "state",
            "cannot make the directory DIR: File exists (os error 17)",
            Some("unable to open database file: DIR/samples.db"),
            |_, path| std::fs::write(path, "a note of somebody").unwrap(),
        ),
        Broken::new("state/samples.db", foreign, Some(foreign), |stage, path| {
            make_state(stage);
            let theirs = Connection::open(path).unwrap();
            theirs.execute_batch("CREATE TABLE theirs(x)").unwrap();
        }),
    ];
    for broken in &boxes {
        broken.degrades_alone();
    }
    for broken in &boxes {
        std::fs::rename(&broken.cause, broken.stage.path("moved away")).unwrap();
    }
    for broken in boxes {
        broken.heals();
    }
}

#[test]
fn a_broken_file_is_set_aside_and_told_of_until_somebody_takes_it_away() {
    for file in ["samples.db", "audit.db"] {
        let stage = Stage::new();
        stage.play(&json!({"gpus": [{}]}));
        make_state(&stage);
        let bytes = vec![b'x'; 8_192];
        std::fs::write(stage.path("state").join(file), &bytes).unwrap();
        let daemon = stage.start();
        let aside = eventually("it is set aside", || aside(&stage, file));
        assert_eq!(std::fs::read(&aside).unwrap(), bytes);
        let what = format!(
            "{file} was broken and begun anew; it is set aside as {}: move it away",
            aside.display()
        );
        becomes(&vec![("store".to_owned(), what)], || stage.faults());
        eventually("a sample", || records(&stage, &[]).pop());
        std::fs::rename(aside, stage.path("taken away")).unwrap();
        becomes(&Vec::new(), || stage.faults());
        daemon.stop();
        let kinds: Vec<String> = events(&stage).into_iter().map(|(kind, _)| kind).collect();
        let mut sorted = kinds.clone();
        sorted.sort();
        assert_eq!(sorted, ["broken", "started", "stopped"], "{kinds:?}");
    }
}

/// The file of this name that was set aside.
fn aside(stage: &Stage, file: &str) -> Option<PathBuf> {
    let prefix = format!("{file}.broken-");
    let entries = std::fs::read_dir(stage.path("state")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&prefix) && name.ends_with('Z')
    })
}

/// Its pages go bad under the daemon that has it open, as on a disk that fails.
#[test]
fn a_file_that_breaks_under_a_running_daemon_is_set_aside_too() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{}]}));
    stage.start().stop();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let path = stage.path("state/samples.db");
    let length = std::fs::metadata(&path).unwrap().len();
    let garbage = vec![0xA5; usize::try_from(length).unwrap()];
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&garbage, 0).unwrap();
    let aside = eventually("it is set aside", || {
        // Whoever reads finds it as whoever writes does.
        let _ = stage.ctl(&["audit"]);
        aside(&stage, "samples.db")
    });
    eventually("a sample in a new file", || {
        let ran = stage.ctl(&["audit", "-o", "ndjson"]);
        (ran.code == 0 && !ran.stdout.is_empty()).then_some(())
    });
    assert_eq!(stage.ctl(&["list"]).code, 0);
    std::fs::remove_file(aside).unwrap();
    becomes(&Vec::new(), || stage.faults());
    daemon.stop();
}

#[test]
fn files_that_were_deleted_under_a_running_daemon_are_begun_anew() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{}]}));
    let daemon = stage.start();
    let before = eventually("a sample", || records(&stage, &[]).pop());
    for entry in std::fs::read_dir(stage.path("state")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let after = eventually("a sample in a new file", || {
        let ran = stage.ctl(&["audit", "-o", "ndjson"]);
        let record: Value = serde_json::from_str(ran.stdout.lines().last()?).unwrap();
        (record["timestamp"] != before["timestamp"]).then_some(record)
    });
    assert_eq!(after["gpu_id"], before["gpu_id"]);
    assert_eq!(stage.faults(), []);
    daemon.stop();
    let kinds: Vec<String> = events(&stage).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["stopped"]);
}
