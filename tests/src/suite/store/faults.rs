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

/// A box with a store that is broken in one way.
struct BrokenStore {
    test_box: TestBox,
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
        let test_box = TestBox::new();
        test_box.set_driver_state(&json!({"gpus": [{}]}));
        let cause = test_box.path(cause);
        spoil(&test_box, &cause);
        let bytes = std::fs::read(&cause).unwrap();
        let daemon = test_box.start();
        let text = |text: &str| text.replace("DIR", &test_box.path("state").display().to_string());
        let fault = eventually("the fault", || {
            let status = test_box.json(&["status", "-o", "json"]);
            let faults = status["faults"].as_array()?.clone();
            faults.into_iter().find(|fault| fault["part"] == "store")
        });
        assert_eq!(fault["what"], text(what));
        let reason = samples.map(text);
        Self {
            test_box,
            daemon,
            cause,
            bytes,
            reason,
        }
    }

    fn assert_only_store_fails(&self) {
        assert_eq!(self.test_box.ctl(&["list"]).code, 0);
        let ran = self.test_box.ctl(&["audit"]);
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
        let mut raw = RawConnection::connect_admitted(&self.test_box.socket());
        let store = eventually("the store is well again", || {
            let status = match raw.call(&GpukillRequest::Status {}) {
                GpukillResponse::Status(status) => status.unwrap(),
                other => panic!("{other:?}"),
            };
            status.faults.is_empty().then_some(status.store)
        });
        assert_ne!(store.samples.0, 0);
        eventually("a sample", || records(&self.test_box, &[]).pop());
        self.daemon.stop();
        let kinds: Vec<String> = events(&self.test_box)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        // Events that could not be recorded at once were recorded later.
        assert_eq!(kinds, ["started", "stopped"]);
    }
}

fn create_state_directory(test_box: &TestBox) {
    std::fs::create_dir(test_box.path("state")).unwrap();
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
        BrokenStore::new(
            "state/samples.db",
            foreign,
            Some(foreign),
            |test_box, path| {
                create_state_directory(test_box);
                let theirs = Connection::open(path).unwrap();
                theirs.execute_batch("CREATE TABLE theirs(x)").unwrap();
            },
        ),
    ];
    for broken in &boxes {
        broken.assert_only_store_fails();
    }
    for broken in &boxes {
        std::fs::rename(&broken.cause, broken.test_box.path("moved away")).unwrap();
    }
    for broken in boxes {
        broken.assert_recovers();
    }
}

#[test]
fn corrupt_file_is_quarantined_until_removed() {
    for file in ["samples.db", "audit.db"] {
        let test_box = TestBox::new();
        test_box.set_driver_state(&json!({"gpus": [{}]}));
        create_state_directory(&test_box);
        let bytes = vec![b'x'; 8_192];
        std::fs::write(test_box.path("state").join(file), &bytes).unwrap();
        let daemon = test_box.start();
        let aside = eventually("it is set aside", || quarantined_file(&test_box, file));
        assert_eq!(std::fs::read(&aside).unwrap(), bytes);
        let what = format!(
            "{file} was corrupt and was recreated; the old file is kept as {}: move it away",
            aside.display()
        );
        eventually_equals(&vec![("store".to_owned(), what)], || test_box.faults());
        eventually("a sample", || records(&test_box, &[]).pop());
        std::fs::rename(aside, test_box.path("taken away")).unwrap();
        eventually_equals(&Vec::new(), || test_box.faults());
        daemon.stop();
        let kinds: Vec<String> = events(&test_box)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        let mut sorted = kinds.clone();
        sorted.sort();
        assert_eq!(sorted, ["quarantined", "started", "stopped"], "{kinds:?}");
    }
}

fn quarantined_file(test_box: &TestBox, file: &str) -> Option<PathBuf> {
    let prefix = format!("{file}.broken-");
    let entries = std::fs::read_dir(test_box.path("state")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&prefix) && name.ends_with('Z')
    })
}

/// The pages are overwritten while the daemon has the file open, as on a failing disk.
#[test]
fn file_corrupted_while_open_is_quarantined() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    test_box.start().stop();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let path = test_box.path("state/samples.db");
    let length = std::fs::metadata(&path).unwrap().len();
    let garbage = vec![0xA5; usize::try_from(length).unwrap()];
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&garbage, 0).unwrap();
    let aside = eventually("it is set aside", || {
        // A reader notices the corruption as a writer does.
        let _ = test_box.ctl(&["audit"]);
        quarantined_file(&test_box, "samples.db")
    });
    eventually("a sample in a new file", || {
        let ran = test_box.ctl(&["audit", "--samples", "-o", "ndjson"]);
        (ran.code == 0 && !ran.stdout.is_empty()).then_some(())
    });
    assert_eq!(test_box.ctl(&["list"]).code, 0);
    std::fs::remove_file(aside).unwrap();
    eventually_equals(&Vec::new(), || test_box.faults());
    daemon.stop();
}

#[test]
fn deleted_files_are_created_again() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    let before = eventually("a sample", || records(&test_box, &[]).pop());
    for entry in std::fs::read_dir(test_box.path("state")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let after = eventually("a sample in a new file", || {
        let ran = test_box.ctl(&["audit", "--samples", "-o", "ndjson"]);
        let record: Value = serde_json::from_str(ran.stdout.lines().last()?).unwrap();
        (record["timestamp"] != before["timestamp"]).then_some(record)
    });
    assert_eq!(after["gpu_id"], before["gpu_id"]);
    assert_eq!(test_box.faults(), []);
    daemon.stop();
    let kinds: Vec<String> = events(&test_box)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["stopped"]);
}
