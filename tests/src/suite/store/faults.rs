//! A store that cannot be used is a fault with a reason. All other parts go on, and the
//! store goes on when the reason is gone.

use super::super::raw::RawConnection;
use super::{events, records};
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_tests::harness::{Daemon, TestBox, eventually, eventually_equals};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A box whose store is broken in one way.
struct BrokenStore {
    stage: TestBox,
    daemon: Daemon,
    /// The file that prevents the store from working, and the contents that it must keep.
    cause: PathBuf,
    bytes: Vec<u8>,
    /// The reason why samples cannot be read, where they cannot.
    reason: Option<String>,
}

impl BrokenStore {
    /// `spoil` creates the file at `cause`.
    fn new(
        cause: &str,
        what: &str,
        samples: Option<&str>,
        spoil: impl FnOnce(&TestBox, &Path),
    ) -> Self {
        let stage = TestBox::new();
        stage.set_driver_state(&json!({"gpus": [{}]}));
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

    fn assert_only_store_fails(&self) {
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

    fn assert_recovers(self) {
        let mut raw = RawConnection::connect_admitted(&self.stage.socket());
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
        // Events that could not be recorded at once were recorded later.
        assert_eq!(kinds, ["started", "stopped"]);
    }
}

fn create_state_directory(stage: &TestBox) {
    std::fs::create_dir(stage.path("state")).unwrap();
}

/// Takes ten seconds, the pause of the store before it tries again.
#[test]
fn broken_store_is_reported_kept_and_recovers() {
    let foreign = "DIR/samples.db: is not a file of gpukill: move it away";
    let boxes = [
        BrokenStore::new(
            "state",
            "cannot make the directory DIR: File exists (os error 17)",
            Some("unable to open database file: DIR/samples.db"),
            |_, path| std::fs::write(path, "a note of somebody").unwrap(),
        ),
        BrokenStore::new("state/samples.db", foreign, Some(foreign), |stage, path| {
            create_state_directory(stage);
            let theirs = Connection::open(path).unwrap();
            theirs.execute_batch("CREATE TABLE theirs(x)").unwrap();
        }),
    ];
    for broken in &boxes {
        broken.assert_only_store_fails();
    }
    for broken in &boxes {
        std::fs::rename(&broken.cause, broken.stage.path("moved away")).unwrap();
    }
    for broken in boxes {
        broken.assert_recovers();
    }
}

#[test]
fn corrupt_file_is_quarantined_until_removed() {
    for file in ["samples.db", "audit.db"] {
        let stage = TestBox::new();
        stage.set_driver_state(&json!({"gpus": [{}]}));
        create_state_directory(&stage);
        let bytes = vec![b'x'; 8_192];
        std::fs::write(stage.path("state").join(file), &bytes).unwrap();
        let daemon = stage.start();
        let aside = eventually("it is set aside", || quarantined_file(&stage, file));
        assert_eq!(std::fs::read(&aside).unwrap(), bytes);
        let what = format!(
            "{file} was corrupt and was recreated; the old file is kept as {}: move it away",
            aside.display()
        );
        eventually_equals(&vec![("store".to_owned(), what)], || stage.faults());
        eventually("a sample", || records(&stage, &[]).pop());
        std::fs::rename(aside, stage.path("taken away")).unwrap();
        eventually_equals(&Vec::new(), || stage.faults());
        daemon.stop();
        let kinds: Vec<String> = events(&stage).into_iter().map(|(kind, _)| kind).collect();
        let mut sorted = kinds.clone();
        sorted.sort();
        assert_eq!(sorted, ["broken", "started", "stopped"], "{kinds:?}");
    }
}

fn quarantined_file(stage: &TestBox, file: &str) -> Option<PathBuf> {
    let prefix = format!("{file}.broken-");
    let entries = std::fs::read_dir(stage.path("state")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&prefix) && name.ends_with('Z')
    })
}

/// The pages are overwritten while the daemon has the file open, as on a failing disk.
#[test]
fn file_corrupted_while_open_is_quarantined() {
    let stage = TestBox::new();
    stage.set_driver_state(&json!({"gpus": [{}]}));
    stage.start().stop();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let path = stage.path("state/samples.db");
    let length = std::fs::metadata(&path).unwrap().len();
    let garbage = vec![0xA5; usize::try_from(length).unwrap()];
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&garbage, 0).unwrap();
    let aside = eventually("it is set aside", || {
        // A reader notices the corruption as a writer does.
        let _ = stage.ctl(&["audit"]);
        quarantined_file(&stage, "samples.db")
    });
    eventually("a sample in a new file", || {
        let ran = stage.ctl(&["audit", "-o", "ndjson"]);
        (ran.code == 0 && !ran.stdout.is_empty()).then_some(())
    });
    assert_eq!(stage.ctl(&["list"]).code, 0);
    std::fs::remove_file(aside).unwrap();
    eventually_equals(&Vec::new(), || stage.faults());
    daemon.stop();
}

#[test]
fn deleted_files_are_created_again() {
    let stage = TestBox::new();
    stage.set_driver_state(&json!({"gpus": [{}]}));
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
