//! Files that are no backup of a store, or none that this version takes.

use super::{act, backup, holds, one_gpu, recorded, records, replaced, restore, restoring, state};
use gpukill_tests::harness::{Ran, eventually, skip};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file as an archive has it, in the form that a backup writes.
fn entry(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", bytes.len()));
    put(136, "15300322167");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(bytes);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// A copy that was taken apart.
pub(super) struct Apart(tempfile::TempDir);

impl Apart {
    pub(super) fn of(copy: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(copy).arg("-C").arg(directory.path());
        assert!(tar.status().unwrap().success());
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn open(&self, name: &str) -> Connection {
        Connection::open(self.path(name)).unwrap()
    }

    /// Puts it together again, with a manifest that says what is in it.
    pub(super) fn together(&self, into: &Path) {
        let read = |name: &str| std::fs::read(self.path(name)).unwrap();
        let mut manifest: Value = serde_json::from_slice(&read("manifest.json")).unwrap();
        let mut files = Vec::new();
        for name in ["samples.db", "audit.db"] {
            let bytes = read(name);
            let version: i64 = Connection::open(self.path(name))
                .unwrap()
                .pragma_query_value(None, "user_version", |row| row.get(0))
                .unwrap_or(1);
            manifest[name] = json!({ "bytes": bytes.len(), "schema": version });
            files.extend(entry(name, &bytes));
        }
        let mut all = entry("manifest.json", manifest.to_string().as_bytes());
        all.extend(files);
        all.extend([0; 1024]);
        std::fs::write(into, all).unwrap();
    }
}

type Spoil = fn(&Apart);

#[test]
fn what_is_no_copy_of_ours_is_refused_in_words_and_changes_nothing() {
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    act(&stage, 1);
    let copy = backup(&stage, "copy.tar");
    let other = stage.path("other.tar");
    daemon.stop();
    let before = recorded(&stage);
    let names = state(&stage);
    let unmade = "is not as gpukilld makes it";
    let never = "has numbers or times that gpukilld never gives";
    let cases: [(Spoil, &str); 11] = [
        (
            |apart| {
                let newer = apart.open("audit.db");
                newer.pragma_update(None, "user_version", 99).unwrap();
            },
            "its audit.db was made by another version of gpukilld (schema 99, this one knows 1): \
             restore it with that version",
        ),
        (
            |apart| {
                let older = apart.open("samples.db");
                older.pragma_update(None, "user_version", 0).unwrap();
            },
            "its samples.db was made by another version of gpukilld (schema 0, this one knows 1): \
             restore it with that version",
        ),
        (
            |apart| {
                let foreign = apart.open("samples.db");
                foreign.pragma_update(None, "application_id", 7).unwrap();
            },
            "its samples.db is not a file of gpukill",
        ),
        (
            |apart| std::fs::write(apart.path("samples.db"), vec![b'x'; 4_096]).unwrap(),
            "its samples.db is broken: file is not a database",
        ),
        (
            |apart| {
                apart
                    .open("audit.db")
                    .execute_batch("DROP TRIGGER event_stays")
                    .unwrap();
            },
            &format!("its audit.db {unmade}"),
        ),
        (
            |apart| {
                let more = "CREATE TRIGGER more AFTER INSERT ON event
                    BEGIN DELETE FROM action; END";
                apart.open("audit.db").execute_batch(more).unwrap();
            },
            &format!("its audit.db {unmade}"),
        ),
        (
            |apart| {
                let view = "CREATE VIEW more AS SELECT 1";
                apart.open("samples.db").execute_batch(view).unwrap();
            },
            &format!("its samples.db {unmade}"),
        ),
        (
            |apart| {
                let far = "UPDATE sqlite_sequence SET seq = 9223372036854775807";
                apart.open("samples.db").execute_batch(far).unwrap();
            },
            &format!("its samples.db {never}"),
        ),
        (
            |apart| {
                let last = "INSERT INTO event (at, kind) VALUES (9223372036854775807, 'x')";
                apart.open("audit.db").execute_batch(last).unwrap();
            },
            &format!("its audit.db {never}"),
        ),
        (
            |apart| {
                let none = "DELETE FROM rolled";
                apart.open("samples.db").execute_batch(none).unwrap();
            },
            &format!("its samples.db {never}"),
        ),
        (
            |apart| {
                let less = "DROP TABLE finding";
                apart.open("audit.db").execute_batch(less).unwrap();
            },
            &format!("its audit.db {unmade}"),
        ),
    ];
    let refuses = |expected: &str| {
        for more in [&["--dry-run"][..], &[]] {
            let ran = restore(&stage, &other, more);
            let expected = format!("gpukilld: the backup cannot be used: {expected}\n");
            assert_eq!((ran.code, ran.stderr), (1, expected));
        }
        assert_eq!(state(&stage), names);
    };
    for (spoil, expected) in cases {
        let apart = Apart::of(&copy);
        spoil(&apart);
        apart.together(&other);
        refuses(expected);
    }
    // A page of zeros in the middle.
    let apart = Apart::of(&copy);
    let mut bytes = std::fs::read(apart.path("audit.db")).unwrap();
    let middle = 4_096;
    bytes[middle..middle + 4_096].fill(0);
    std::fs::write(apart.path("audit.db"), bytes).unwrap();
    apart.together(&other);
    let ran = restore(&stage, &other, &["--dry-run"]);
    let broken = "gpukilld: the backup cannot be used: its audit.db is broken: ";
    assert!(ran.code == 1 && ran.stderr.starts_with(broken), "{ran:?}");

    let whole = std::fs::read(&copy).unwrap();
    std::fs::write(&other, &whole[..whole.len() - 512]).unwrap();
    refuses("it is cut short: its end is missing");
    std::fs::write(&other, &whole[..whole.len() / 2]).unwrap();
    refuses("it is cut short: samples.db is not whole");
    std::fs::write(&other, [whole.as_slice(), b"more"].concat()).unwrap();
    refuses("something stands behind its end");
    std::fs::write(&other, "{}").unwrap();
    refuses("it is too short to be a copy of a store");
    std::fs::write(&other, "").unwrap();
    refuses("it is too short to be a copy of a store");

    assert_eq!(replaced(&stage), Vec::<String>::new());
    holds(&stage, &before);
}

#[test]
fn a_disk_without_room_takes_no_copy() {
    let elsewhere = one_gpu();
    let daemon = elsewhere.start();
    eventually("a sample", || records(&elsewhere, &[]).pop());
    let copy = backup(&elsewhere, "copy.tar");
    daemon.stop();
    let stage = one_gpu();
    std::fs::create_dir(stage.path("state")).unwrap();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"";
    let mounted = |words: &Command| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        command.arg(stage.path("state"));
        command.arg(words.get_program()).args(words.get_args());
        command
    };
    let trial = mounted(&Command::new("true"))
        .stderr(Stdio::null())
        .status();
    if !trial.is_ok_and(|status| status.success()) {
        return skip("only root can mount a small file system");
    }
    let ran = Ran::of(&mut mounted(&restoring(&stage, &copy, &[])));
    let begin = format!(
        "gpukilld: {}: a restore needs ",
        stage.path("state").display()
    );
    assert!(ran.code == 1 && ran.stderr.starts_with(&begin), "{ran:?}");
}
