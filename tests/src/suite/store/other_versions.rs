//! As after a downgrade: a store that another version of gpukilld wrote is left as it is,
//! and the fault says what to do, in commands that do it.

use super::{database, events, records};
use gpukill_tests::harness::{Stage, becomes, eventually};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Writes a version of the schema into a file.
fn set_schema(stage: &Stage, file: &str, schema: i64) {
    let database = database(stage, file);
    database
        .pragma_update(None, "user_version", schema)
        .unwrap();
    database
        .pragma_update(None, "journal_mode", "DELETE")
        .unwrap();
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Takes ten seconds, the store's pause before it tries again.
#[test]
fn a_store_of_another_version_is_left_as_it_is_and_the_fault_says_what_to_do() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{}]}));
    let daemon = stage.start();
    let before = eventually("a sample", || records(&stage, &[]).pop());
    daemon.stop();
    // In the order in which faults are told.
    let files = ["audit.db", "samples.db"];
    // A newer one's, and the last one's of before the first release.
    let schemas = [99, 5];
    for (file, schema) in files.into_iter().zip(schemas) {
        set_schema(&stage, file, schema);
    }
    let written = files.map(|file| bytes(&stage.path("state").join(file)));

    let daemon = stage.start();
    let state = stage.path("state").display().to_string();
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
    becomes(&expected, || stage.faults());
    assert_eq!(stage.ctl(&["list"]).code, 0);
    let left = files.map(|file| bytes(&stage.path("state").join(file)));
    assert_eq!(left, written);

    for file in files {
        let done = Command::new("sh").arg("-c").arg(command(file)).status();
        assert!(done.unwrap().success(), "{file}");
    }
    becomes(&Vec::new(), || stage.faults());
    eventually("a sample in a new file", || records(&stage, &[]).pop());
    // Twice would put one over the other.
    let again = Command::new("sh").arg("-c").arg(command(files[0])).output();
    assert!(!again.unwrap().status.success());
    daemon.stop();

    // As when that version is installed again, and what it wrote put back.
    for file in files {
        let state = stage.path("state");
        for part in ["", "-wal", "-shm"] {
            // Only the file itself is there for certain.
            let _ = std::fs::remove_file(state.join(format!("{file}{part}")));
        }
        std::fs::rename(state.join(format!("other-{file}/{file}")), state.join(file)).unwrap();
        set_schema(&stage, file, 1);
    }
    let daemon = stage.start();
    assert_eq!(stage.faults(), []);
    assert!(records(&stage, &[]).contains(&before));
    daemon.stop();
    let kinds: Vec<String> = events(&stage).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["started", "stopped", "started", "stopped"]);
}
