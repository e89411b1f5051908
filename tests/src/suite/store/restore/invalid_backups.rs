//! Files that are no backup of a store, or none that this version accepts.

use super::{
    assert_entries_are_kept, make_backup, one_gpu, record_prune, recorded_entries, records,
    replaced_directories, restore, restore_command, state_file_names,
};
use gpukill_tests::harness::{CommandOutput, eventually, skip};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An archive entry, in the form that a backup has.
fn archive_entry(name: &str, bytes: &[u8]) -> Vec<u8> {
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

pub(super) struct UnpackedBackup(tempfile::TempDir);

impl UnpackedBackup {
    pub(super) fn unpack(copy: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(copy).arg("-C").arg(directory.path());
        assert!(tar.status().unwrap().success());
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn open_database(&self, name: &str) -> Connection {
        Connection::open(self.path(name)).unwrap()
    }

    /// Packs the files again, with a manifest that matches them.
    pub(super) fn pack(&self, into: &Path) {
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
            files.extend(archive_entry(name, &bytes));
        }
        let mut all = archive_entry("manifest.json", manifest.to_string().as_bytes());
        all.extend(files);
        all.extend([0; 1024]);
        std::fs::write(into, all).unwrap();
    }
}

type Damage = fn(&UnpackedBackup);

#[test]
fn invalid_backups_are_refused_and_change_nothing() {
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    record_prune(&test_box, 1);
    let copy = make_backup(&test_box, "copy.tar");
    let other = test_box.path("other.tar");
    daemon.stop();
    let before = recorded_entries(&test_box);
    let names = state_file_names(&test_box);
    let unmade = "does not have the schema of gpukilld";
    let never = "has ids or times that gpukilld never issues";
    let cases: [(Damage, &str); 11] = [
        (
            |apart| {
                let newer = apart.open_database("audit.db");
                newer.pragma_update(None, "user_version", 99).unwrap();
            },
            "its audit.db was made by another version of gpukilld (schema 99, this one knows 1): \
             restore it with that version",
        ),
        (
            |apart| {
                let older = apart.open_database("samples.db");
                older.pragma_update(None, "user_version", 0).unwrap();
            },
            "its samples.db was made by another version of gpukilld (schema 0, this one knows 1): \
             restore it with that version",
        ),
        (
            |apart| {
                let foreign = apart.open_database("samples.db");
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
                    .open_database("audit.db")
                    .execute_batch("DROP TRIGGER event_stays")
                    .unwrap();
            },
            &format!("its audit.db {unmade}"),
        ),
        (
            |apart| {
                let more = "CREATE TRIGGER more AFTER INSERT ON event
                    BEGIN DELETE FROM action; END";
                apart.open_database("audit.db").execute_batch(more).unwrap();
            },
            &format!("its audit.db {unmade}"),
        ),
        (
            |apart| {
                let view = "CREATE VIEW more AS SELECT 1";
                apart
                    .open_database("samples.db")
                    .execute_batch(view)
                    .unwrap();
            },
            &format!("its samples.db {unmade}"),
        ),
        (
            |apart| {
                let far = "UPDATE sqlite_sequence SET seq = 9223372036854775807";
                apart
                    .open_database("samples.db")
                    .execute_batch(far)
                    .unwrap();
            },
            &format!("its samples.db {never}"),
        ),
        (
            |apart| {
                let last = "INSERT INTO event (at, kind) VALUES (9223372036854775807, 'x')";
                apart.open_database("audit.db").execute_batch(last).unwrap();
            },
            &format!("its audit.db {never}"),
        ),
        (
            |apart| {
                let none = "DELETE FROM rolled";
                apart
                    .open_database("samples.db")
                    .execute_batch(none)
                    .unwrap();
            },
            &format!("its samples.db {never}"),
        ),
        (
            |apart| {
                let less = "DROP TABLE finding";
                apart.open_database("audit.db").execute_batch(less).unwrap();
            },
            &format!("its audit.db {unmade}"),
        ),
    ];
    let refuses = |expected: &str| {
        for more in [&["--dry-run"][..], &[]] {
            let ran = restore(&test_box, &other, more);
            let expected = format!("gpukilld: the backup cannot be used: {expected}\n");
            assert_eq!((ran.code, ran.stderr), (1, expected));
        }
        assert_eq!(state_file_names(&test_box), names);
    };
    for (spoil, expected) in cases {
        let apart = UnpackedBackup::unpack(&copy);
        spoil(&apart);
        apart.pack(&other);
        refuses(expected);
    }
    // A page of zeros in the middle.
    let apart = UnpackedBackup::unpack(&copy);
    let mut bytes = std::fs::read(apart.path("audit.db")).unwrap();
    let middle = 4_096;
    bytes[middle..middle + 4_096].fill(0);
    std::fs::write(apart.path("audit.db"), bytes).unwrap();
    apart.pack(&other);
    let ran = restore(&test_box, &other, &["--dry-run"]);
    let broken = "gpukilld: the backup cannot be used: its audit.db is broken: ";
    assert!(ran.code == 1 && ran.stderr.starts_with(broken), "{ran:?}");

    let whole = std::fs::read(&copy).unwrap();
    std::fs::write(&other, &whole[..whole.len() - 512]).unwrap();
    refuses("it is cut short: its end is missing");
    std::fs::write(&other, &whole[..whole.len() / 2]).unwrap();
    refuses("it is cut short: samples.db is incomplete");
    std::fs::write(&other, [whole.as_slice(), b"more"].concat()).unwrap();
    refuses("unexpected data after its end");
    std::fs::write(&other, "{}").unwrap();
    refuses("it is too short to be a copy of a store");
    std::fs::write(&other, "").unwrap();
    refuses("it is too short to be a copy of a store");

    assert_eq!(replaced_directories(&test_box), Vec::<String>::new());
    assert_entries_are_kept(&test_box, &before);
}

#[test]
fn full_disk_accepts_no_backup() {
    let elsewhere = one_gpu();
    let daemon = elsewhere.start();
    eventually("a sample", || records(&elsewhere, &[]).pop());
    let copy = make_backup(&elsewhere, "copy.tar");
    daemon.stop();
    let test_box = one_gpu();
    std::fs::create_dir(test_box.path("state")).unwrap();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"";
    let mounted = |words: &Command| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        command.arg(test_box.path("state"));
        command.arg(words.get_program()).args(words.get_args());
        command
    };
    let trial = mounted(&Command::new("true"))
        .stderr(Stdio::null())
        .status();
    if !trial.is_ok_and(|status| status.success()) {
        return skip("only root can mount a small file system");
    }
    let ran = CommandOutput::run(&mut mounted(&restore_command(&test_box, &copy, &[])));
    let begin = format!(
        "gpukilld: {}: a restore needs ",
        test_box.path("state").display()
    );
    assert!(ran.code == 1 && ran.stderr.starts_with(&begin), "{ran:?}");
}
