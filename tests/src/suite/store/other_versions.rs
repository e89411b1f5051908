//! A store that another version of gpukilld wrote, as after a downgrade: it stays as it is,
//! and the fault contains the commands that help.

use super::{events, open_database, records};
use gpukill_tests::harness::{TestBox, eventually, eventually_equals};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Sets the schema version of a database file.
fn set_schema(test_box: &TestBox, file: &str, schema: i64) {
    let database = open_database(test_box, file);
    database
        .pragma_update(None, "user_version", schema)
        .unwrap();
    database
        .pragma_update(None, "journal_mode", "DELETE")
        .unwrap();
}

fn read_bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Takes ten seconds, the pause of the store before it tries again.
#[test]
fn store_of_other_version_is_kept_and_explained() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    let before = eventually("a sample", || records(&test_box, &[]).pop());
    daemon.stop();
    // The order in which the faults are reported.
    let files = ["audit.db", "samples.db"];
    // A newer schema, and the last one before the first release.
    let schemas = [99, 5];
    for (file, schema) in files.into_iter().zip(schemas) {
        set_schema(&test_box, file, schema);
    }
    let written = files.map(|file| read_bytes(&test_box.path("state").join(file)));

    let daemon = test_box.start();
    let state = test_box.path("state").display().to_string();
    let command = |file: &str| {
        format!("mkdir {state}/other-{file} && mv {state}/{file}* {state}/other-{file}/")
    };
    let fault = |(file, schema): (&str, i64)| {
        let what = format!(
            "{state}/{file}: was written by another version of gpukilld (schema {schema}, this \
             one knows 1) and is left as it is, so nothing is lost: install that version again, \
             or go on without what is in it: {}",
            command(file)
        );
        ("store".to_owned(), what)
    };
    let expected: Vec<_> = files.into_iter().zip(schemas).map(fault).collect();
    eventually_equals(&expected, || test_box.faults());
    assert_eq!(test_box.ctl(&["list"]).code, 0);
    let left = files.map(|file| read_bytes(&test_box.path("state").join(file)));
    assert_eq!(left, written);

    for file in files {
        let done = Command::new("sh").arg("-c").arg(command(file)).status();
        assert!(done.unwrap().success(), "{file}");
    }
    eventually_equals(&Vec::new(), || test_box.faults());
    eventually("a sample in a new file", || records(&test_box, &[]).pop());
    // A second run of the command would overwrite the files moved by the first.
    let again = Command::new("sh").arg("-c").arg(command(files[0])).output();
    assert!(!again.unwrap().status.success());
    daemon.stop();

    // That version is installed again, and its files are moved back.
    for file in files {
        let state = test_box.path("state");
        for part in ["", "-wal", "-shm"] {
            // Only the database file itself is certain to exist.
            let _ = std::fs::remove_file(state.join(format!("{file}{part}")));
        }
        std::fs::rename(state.join(format!("other-{file}/{file}")), state.join(file)).unwrap();
        set_schema(&test_box, file, 1);
    }
    let daemon = test_box.start();
    assert_eq!(test_box.faults(), []);
    assert!(records(&test_box, &[]).contains(&before));
    daemon.stop();
    let kinds: Vec<String> = events(&test_box)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["started", "stopped", "started", "stopped"]);
}
