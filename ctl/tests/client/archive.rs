//! `audit archive`, and `audit prune --archived`.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::fake_store::{FakeStore, SECRET};
use crate::{client, stderr, stdout};
use gpukill_proto::units::Timestamp;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// The start of a day of November 2026, in UTC.
pub(crate) fn midnight(day: i64) -> Timestamp {
    Timestamp(1_793_491_200_000 + (day - 1) * 86_400_000)
}

pub(crate) fn hours(hours: i64) -> i64 {
    3_600 * hours
}

/// A store with samples of three days, of which one has none, up to 14:00 of the fourth: at most
/// 72 records of devices, and as many of processes.
pub(crate) fn three_days() -> FakeStore {
    let mut store = FakeStore {
        host: "box",
        ..FakeStore::default()
    };
    for hour in (0..24).chain(48..86) {
        store.sample(midnight(1).plus_seconds(hours(hour) + 7), 1);
    }
    for second in [hours(3), hours(50)] {
        store.action(midnight(1).plus_seconds(second));
    }
    store.written_at = Some(midnight(4).plus_seconds(hours(14)));
    store.now = midnight(4).plus_seconds(hours(14));
    store
}

/// A daemon with a store, and the directory of an archive.
pub(crate) struct ArchiveBox {
    directory: tempfile::TempDir,
    daemon: FakeDaemon,
}

impl ArchiveBox {
    pub(crate) fn new(store: FakeStore) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let script = Script {
            store: Mutex::new(Some(store)),
            ..Script::default()
        };
        let daemon = FakeDaemon::start(directory.path(), script);
        std::fs::create_dir(directory.path().join("archive")).expect("a directory");
        Self { directory, daemon }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("archive").join(name)
    }

    fn file(&self, kind: &str, date: &str) -> PathBuf {
        self.path(&format!("kind={kind}/date={date}/box.parquet"))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut FakeStore)) {
        let mut store = self.daemon.script.store.lock().expect("not poisoned");
        change(store.as_mut().expect("it has one"));
    }

    fn store(&self) -> FakeStore {
        let store = self.daemon.script.store.lock().expect("not poisoned");
        store.clone().expect("it has one")
    }

    /// `audit archive` with more arguments.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let archive = self.path("").display().to_string();
        client(
            &self.daemon.socket,
            &format!("audit archive {archive} {arguments}"),
        )
    }

    pub(crate) fn archive(&self, arguments: &str) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// Archives without a mistake and returns the last line.
    pub(crate) fn archived(&self, arguments: &str) -> String {
        let output = self.archive(arguments);
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (Some(0), String::new())
        );
        let shown = stdout(&output);
        let last = shown.lines().last().unwrap_or_default();
        let before = format!("days in {}, each kind counted: ", self.path("").display());
        last.strip_prefix(&before).unwrap_or(last).to_owned()
    }

    fn prune(&self, arguments: &str) -> Output {
        let archive = self.path("").display().to_string();
        let arguments = format!("audit prune --archived {archive} {arguments}");
        crate::run(&self.daemon.socket, &arguments)
    }

    /// The lines of the manifest; each has a file that matches it.
    pub(crate) fn checked_manifest(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("box.manifest.ndjson")).unwrap_or_default();
        let lines = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            if let Some(file) = line["file"].as_str() {
                let bytes = std::fs::read(self.path(file)).expect("the file is there");
                assert_eq!(line["bytes"], bytes.len() as u64, "{line}");
                assert_eq!(line["sha256"], format!("{:x}", Sha256::digest(&bytes)));
                assert_eq!(line["rows"], rows(&self.path(file)).len() as u64);
            }
            line
        });
        lines.collect()
    }

    /// The number of rows of each kind and day in the manifest.
    fn counts(&self) -> BTreeMap<String, u64> {
        let lines = self.checked_manifest().into_iter().map(|line| {
            let day = format!(
                "{} {}",
                line["kind"].as_str().expect("a text"),
                line["date"].as_str().expect("a text")
            );
            (day, line["rows"].as_u64().expect("a number"))
        });
        lines.collect()
    }

    /// Every file in the archive, with its inode.
    fn files(&self) -> BTreeMap<PathBuf, u64> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.path("")];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => left.push(path),
                    false => {
                        let inode = std::fs::metadata(&path).expect("it is there").ino();
                        found.insert(path, inode);
                    }
                }
            }
        }
        found
    }

    pub(crate) fn has_partial_files(&self) -> bool {
        let is_partial = |path: &PathBuf| path.extension().is_some_and(|it| it == "partial");
        self.files().keys().any(is_partial)
    }
}

/// The rows of a file: names and values.
fn rows(path: &Path) -> Vec<Vec<(String, Field)>> {
    let file = File::open(path).expect("it is there");
    let reader = SerializedFileReader::new(file).expect("it is whole");
    assert!(reader.num_row_groups() > 0);
    let rows = reader.into_iter().map(|row| row.expect("a row"));
    rows.map(Row::into_columns).collect()
}

fn column(path: &Path, name: &str) -> Vec<Field> {
    let rows = rows(path).into_iter();
    rows.map(|row| {
        let found = row.into_iter().find(|(column, _)| column == name);
        found.expect("the column is there").1
    })
    .collect()
}

#[test]
fn closed_days_are_archived_once() {
    let archive = ArchiveBox::new(three_days());
    let output = archive.archive("");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
    let shown = stdout(&output);
    assert_eq!(shown.lines().count(), 9, "{shown}");
    assert!(
        shown.starts_with("devices of 2026-11-01: 24 rows, "),
        "{shown}"
    );
    let expected = [
        ("actions 2026-11-01", 1),
        ("actions 2026-11-02", 0),
        ("actions 2026-11-03", 1),
        ("devices 2026-11-01", 24),
        ("devices 2026-11-02", 0),
        ("devices 2026-11-03", 24),
        ("processes 2026-11-01", 24),
        ("processes 2026-11-02", 0),
        ("processes 2026-11-03", 24),
        ("runs 2026-11-01", 1),
        ("runs 2026-11-02", 0),
        ("runs 2026-11-03", 1),
    ];
    let expected: BTreeMap<String, u64> = expected
        .into_iter()
        .map(|(day, rows)| (day.to_owned(), rows))
        .collect();
    assert_eq!(archive.counts(), expected);
    let first = &archive.checked_manifest()[0];
    assert_eq!(first["since"], "2026-11-01T00:00:00.000Z");
    assert_eq!(first["until"], "2026-11-02T00:00:00.000Z");
    assert_eq!(first["oldest"], "2026-11-01T00:00:07.000Z");
    assert_eq!(first["newest"], "2026-11-01T23:00:07.000Z");
    let devices = archive.file("devices", "2026-11-03");
    let newest = Field::TimestampMillis(midnight(3).plus_seconds(hours(23) + 7).0);
    assert_eq!(column(&devices, "timestamp")[0], newest);
    assert_eq!(column(&devices, "power_w")[0], Field::Double(688.125));
    let mode = std::fs::metadata(&devices).expect("it is there").mode();
    assert_eq!(mode & 0o027, 0, "{mode:o}");

    // A day without rows has no file, and nothing is written twice.
    let files = archive.files();
    assert!(!archive.file("devices", "2026-11-02").exists());
    assert_eq!(archive.archived(""), "12 archived before");
    assert_eq!(archive.archived("--verify"), "12 archived before");
    let mut again = archive.files();
    let manifest = archive.path("box.manifest.ndjson");
    again.insert(manifest.clone(), files[&manifest]);
    assert_eq!(again, files);
    assert!(!archive.has_partial_files());

    // Only the new day is added, and the store is not changed.
    archive.change(|store| {
        store.now = midnight(5).plus_seconds(hours(2));
        store.written_at = Some(store.now);
    });
    assert_eq!(
        archive.archived(""),
        "3 new, 1 without rows, 12 archived before"
    );
    assert_eq!(archive.store().pruned, []);
}

/// Samples are archived after ten minutes, runs and actions after two hours: the outcome of a kill
/// and the repeats of a fault may be recorded that much later.
#[test]
fn day_is_archived_some_time_after_its_end() {
    let archive = ArchiveBox::new(three_days());
    let nothing = "no day is over since the oldest row";
    archive.change(|store| store.now = midnight(9));
    for (written_at, expected) in [
        (None, nothing),
        (Some(599), nothing),
        (Some(600), "2 new"),
        (Some(7_199), "2 archived before"),
        (Some(7_200), "2 new, 2 archived before"),
    ] {
        let written_at = written_at.map(|seconds| midnight(2).plus_seconds(seconds));
        archive.change(|store| store.written_at = written_at);
        let last = archive.archived("");
        assert!(last.ends_with(expected), "{last}");
    }
    // The newest sample is of the future: the clock was set back.
    archive.change(|store| store.written_at = Some(midnight(9)));
    for (now, expected) in [
        (599, "4 archived before"),
        (600, "2 without rows, 4 archived before"),
        (7_200, "2 without rows, 6 archived before"),
    ] {
        archive.change(|store| store.now = midnight(3).plus_seconds(now));
        assert_eq!(archive.archived(""), expected);
    }
}

#[test]
fn days_follow_the_clocks_of_the_host() {
    let mut store = FakeStore {
        host: "box",
        ..FakeStore::default()
    };
    // 2026-10-22 12:00 UTC, and 2026-03-26 12:00 UTC: an hour apart for a week each.
    for first in [1_774_526_400_000, 1_792_670_400_000] {
        for hour in 0..7 * 24 {
            store.sample(Timestamp(first).plus_seconds(hours(hour)), 0);
        }
    }
    store.now = midnight(1);
    store.written_at = Some(store.now);
    let archive = ArchiveBox::new(store);
    let mut command = archive.command("");
    command.env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3");
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let counts = archive.counts();
    for (date, rows) in [
        ("2026-03-28", 24),
        ("2026-03-29", 23),
        ("2026-03-30", 24),
        ("2026-06-01", 0),
        ("2026-10-24", 24),
        ("2026-10-25", 25),
        ("2026-10-26", 24),
    ] {
        assert_eq!(counts[&format!("devices {date}")], rows, "{date}");
    }
    assert_eq!(counts.values().sum::<u64>(), 2 * 7 * 24);
    assert_no_gaps(&archive);
}

/// Each day of a kind starts where the one before ended.
fn assert_no_gaps(archive: &ArchiveBox) {
    let manifest = archive.checked_manifest();
    for pair in manifest.windows(2) {
        if pair[0]["kind"] == pair[1]["kind"] {
            assert_eq!(pair[0]["until"], pair[1]["since"], "{pair:?}");
        }
    }
}

#[test]
fn change_of_the_time_zone_leaves_no_gap() {
    for zone in ["XXX-9", "XXX+9"] {
        let archive = ArchiveBox::new(three_days());
        archive.change(|store| {
            store.now = midnight(2).plus_seconds(hours(2));
            store.written_at = Some(store.now);
        });
        assert_eq!(archive.archived(""), "4 new");
        archive.change(|store| {
            store.now = midnight(4).plus_seconds(hours(14));
            store.written_at = Some(store.now);
        });
        let mut command = archive.command("");
        let output = command.env("TZ", zone).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_no_gaps(&archive);
        let manifest = archive.checked_manifest();
        let devices = manifest.iter().filter(|line| line["kind"] == "devices");
        let until = devices
            .clone()
            .next_back()
            .map(|line| line["until"].clone());
        let archived: u64 = devices.filter_map(|line| line["rows"].as_u64()).sum();
        let until = until.and_then(|it| it.as_str().map(str::to_owned));
        let stored = archive.store().records.into_iter().filter(|record| {
            record.at.to_rfc3339() < until.clone().expect("it has days")
                && matches!(
                    record.subject,
                    gpukill_proto::audit::AuditSubject::Device { .. }
                )
        });
        assert_eq!(archived, stored.count() as u64, "{zone}");
    }
}

#[test]
fn command_lines_are_archived_on_request_only() {
    for (arguments, is_there) in [("", false), ("--with-commands", true)] {
        let archive = ArchiveBox::new(three_days());
        archive.archived(arguments);
        let processes = archive.file("processes", "2026-11-01");
        let command = match is_there {
            true => Field::Str(SECRET.into()),
            false => Field::Null,
        };
        let column_of = |path: &Path, name| column(path, name).remove(0);
        assert_eq!(column_of(&processes, "command"), command);
        let runs = archive.file("runs", "2026-11-01");
        assert_eq!(column_of(&runs, "command"), command);
        // The label is made of the command line too.
        let label = if is_there {
            "python secret.py"
        } else {
            "python"
        };
        assert_eq!(column_of(&runs, "label"), Field::Str(label.into()));
        let Field::Str(plan) = column_of(&archive.file("actions", "2026-11-01"), "plan") else {
            panic!("it has a plan");
        };
        assert_eq!(plan.contains(SECRET), is_there, "{plan}");
        assert!(plan.contains("\"pid\":1"), "{plan}");
        for line in archive.checked_manifest() {
            let expected = line["file"]
                .as_str()
                .map_or(Value::Null, |_| is_there.into());
            assert_eq!(line["with_commands"], expected);
        }
    }
}

#[test]
fn damaged_file_is_written_again_if_its_rows_are_there() {
    let archive = ArchiveBox::new(three_days());
    archive.archived("");
    let manifest = archive.checked_manifest();
    let path = archive.file("processes", "2026-11-03");
    let whole = std::fs::read(&path).expect("it is there");
    let repaired = |arguments| {
        let output = archive.archive(arguments);
        let shown = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        assert!(stdout(&output).ends_with("1 new, 11 archived before\n"));
        assert_eq!(std::fs::read(&path).expect("it is there"), whole);
        assert_eq!(archive.checked_manifest(), manifest);
        shown
    };
    std::fs::write(&path, &whole[..100]).expect("it is written");
    let shown = repaired("");
    assert!(shown.contains("is not the archived file"), "{shown}");
    std::fs::remove_file(&path).expect("it is there");
    let shown = repaired("");
    assert!(shown.contains("box.parquet is missing"), "{shown}");
    // Only the hash shows this.
    let mut changed = whole.clone();
    changed[50] ^= 1;
    std::fs::write(&path, &changed).expect("it is written");
    assert_eq!(archive.archived(""), "12 archived before");
    repaired("--verify");

    // The store has forgotten most of the day.
    std::fs::write(&path, &whole[..100]).expect("it is written");
    let text = std::fs::read_to_string(archive.path("box.manifest.ndjson"));
    archive.change(|store| {
        let limit = midnight(3).plus_seconds(hours(20));
        store.records.retain(|record| record.at >= limit);
    });
    let output = archive.archive("");
    assert_eq!(output.status.code(), Some(7));
    let shown = stderr(&output);
    assert!(
        shown.contains("the store has only 4 of its 24 rows"),
        "{shown}"
    );
    assert!(stdout(&output).ends_with("11 archived before, 1 damaged\n"));
    let left = std::fs::read_to_string(archive.path("box.manifest.ndjson"));
    assert_eq!(left.ok(), text.ok());
    assert!(!archive.has_partial_files());
}

#[test]
fn runs_have_the_columns_of_csv() {
    let archive = ArchiveBox::new(three_days());
    archive.archived("");
    let file = archive.file("runs", "2026-11-03");
    let text = |text: &str| Field::Str(text.into());
    for (name, expected) in [
        ("id", Field::Long(7)),
        (
            "started_at",
            Field::TimestampMillis(midnight(3).plus_seconds(7).0),
        ),
        ("ended_at", Field::Null),
        ("duration_secs", Field::Double(86_393.0)),
        ("pids", text("100 101")),
        ("gpu_indices", text("0")),
        ("job", text("slurm 7")),
        ("gpu_hours", Field::Double(240.0 / 3600.0)),
        ("end", text("running")),
    ] {
        assert_eq!(column(&file, name), [expected], "{name}");
    }
}

#[test]
fn day_with_samples_that_are_being_deleted_is_read_again() {
    let mut store = three_days();
    store.records.clear();
    for hour in 0..48 {
        store.sample(midnight(1).plus_seconds(hours(hour) + 7), 3);
    }
    let at = |hour| midnight(1).plus_seconds(hours(hour));
    // Between the two pages of the first reading of the first day.
    store.deletions = vec![at(2)];
    let archive = ArchiveBox::new(store);
    assert_eq!(archive.archived(""), "8 new, 4 without rows");
    let counts = archive.counts();
    assert_eq!(counts["devices 2026-11-01"], 22);
    assert_eq!(counts["processes 2026-11-01"], 3 * 22);
    assert_eq!(counts["devices 2026-11-02"], 24);
    assert!(!archive.has_partial_files());
}

#[test]
fn day_is_postponed_if_each_reading_is_disturbed() {
    let mut store = three_days();
    store.records.clear();
    for hour in 0..48 {
        store.sample(midnight(1).plus_seconds(hours(hour) + 7), 3);
    }
    let at = |hour| midnight(1).plus_seconds(hours(hour));
    store.deletions = vec![at(3), at(2), at(1)];
    let archive = ArchiveBox::new(store);
    let output = archive.archive("");
    assert_eq!(output.status.code(), Some(7));
    let because = "of 2026-11-01 are not archived yet: their samples were deleted from the store \
                   while they were read";
    let expected = format!("warning: devices {because}\nwarning: processes {because}\n");
    assert_eq!(stderr(&output), expected);
    let shown = stdout(&output);
    assert!(shown.ends_with(", 2 postponed\n"), "{shown}");
    assert!(!archive.counts().contains_key("devices 2026-11-01"));
    assert!(!archive.has_partial_files());
    // Nothing disturbs the next run.
    archive.archived("");
    let counts = archive.counts();
    assert_eq!(counts["devices 2026-11-01"], 21);
    assert_eq!(counts["processes 2026-11-01"], 3 * 21);
}

#[test]
fn day_with_too_many_runs_does_not_stop_the_archive() {
    let mut store = three_days();
    store.slow_runs = vec![midnight(1)];
    let archive = ArchiveBox::new(store);
    let output = archive.archive("");
    assert_eq!(output.status.code(), Some(7));
    let expected = "warning: runs of 2026-11-01 are not archived yet: reading this many runs took \
                    too long\n";
    assert_eq!(stderr(&output), expected);
    let shown = stdout(&output);
    assert!(shown.ends_with(", 1 postponed\n"), "{shown}");
    let counts = archive.counts();
    assert!(!counts.contains_key("runs 2026-11-01"));
    assert_eq!(counts["runs 2026-11-03"], 1);
    assert_eq!(counts["actions 2026-11-01"], 1);
    assert!(!archive.has_partial_files());
    archive.change(|store| store.slow_runs.clear());
    archive.archived("");
    assert_eq!(archive.counts()["runs 2026-11-01"], 1);
}

#[test]
fn second_run_at_the_same_time_is_refused() {
    let archive = ArchiveBox::new(three_days());
    let lock = File::create(archive.path(".box.lock")).expect("it is made");
    lock.lock().expect("nobody has it");
    let output = archive.archive("");
    assert_eq!(output.status.code(), Some(6));
    let expected = format!(
        "gpukillctl: another gpukillctl archives into {}\nhint: try again when it has ended\n",
        archive.path("").display()
    );
    assert_eq!(stderr(&output), expected);
    drop(lock);

    archive.change(|store| store.page_time = std::time::Duration::from_millis(20));
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let mut command = archive.command("");
            command.stdout(std::process::Stdio::piped());
            command.stderr(std::process::Stdio::piped());
            command.spawn().expect("it runs")
        })
        .collect();
    let codes = runs.into_iter().map(|run| {
        let output = run.wait_with_output().expect("it ends");
        output.status.code()
    });
    let codes: Vec<_> = codes.collect();
    assert!(codes.contains(&Some(0)), "{codes:?}");
    assert!(
        codes.iter().all(|code| matches!(code, Some(0 | 6))),
        "{codes:?}"
    );
    assert_eq!(archive.archived("--verify"), "12 archived before");
    archive.checked_manifest();
}

#[test]
fn day_in_the_manifest_is_not_written_again() {
    let archive = ArchiveBox::new(three_days());
    archive.archived("");
    let files = archive.files();
    // The clock was set back into a day that was archived.
    archive.change(|store| {
        store.sample(midnight(3).plus_seconds(hours(23) + 1_800), 1);
        store.written_at = Some(midnight(4).plus_seconds(hours(2)));
        store.now = midnight(4).plus_seconds(hours(2));
    });
    assert_eq!(archive.archived("--verify"), "12 archived before");
    assert_eq!(
        archive.files()[&archive.file("devices", "2026-11-03")],
        files[&archive.file("devices", "2026-11-03")]
    );
    // What was recorded since is not deleted.
    let output = archive.prune("--yes");
    let shown = stderr(&output);
    assert!(
        shown.contains("not deleted: 2026-11-03 went on after it was archived"),
        "{shown}"
    );
    assert_eq!(archive.store().pruned, [midnight(3).plus_seconds(-7_500)]);
}

#[test]
fn prune_deletes_only_what_is_archived() {
    let archive = ArchiveBox::new(three_days());
    let refused = |why: &str| {
        let output = archive.prune("--yes");
        assert_eq!(output.status.code(), Some(1));
        let expected = format!(
            "gpukillctl: nothing was deleted: {why}\n\
             hint: archive it first: gpukillctl audit archive {}; if it is archived already, use \
             a new directory\n",
            archive.path("").display()
        );
        assert_eq!(
            (stderr(&output), stdout(&output)),
            (expected, String::new())
        );
        assert_eq!(archive.store().pruned, []);
    };
    refused("devices of 2026-11-01 are not archived");
    archive.archived("");
    let path = archive.file("processes", "2026-11-01");
    let whole = std::fs::read(&path).expect("it is there");
    let mut changed = whole.clone();
    changed[50] ^= 1;
    std::fs::write(&path, &changed).expect("it is written");
    refused("the file of processes of 2026-11-01 is not the archived file");
    std::fs::remove_file(&path).expect("it is there");
    refused("the file of processes of 2026-11-01 is missing");
    std::fs::write(&path, &whole).expect("it is written");

    // A missing day ends what is deleted.
    let manifest = archive.path("box.manifest.ndjson");
    let text = std::fs::read_to_string(&manifest).expect("it is there");
    let lines = text.lines().filter(|line| {
        !(line.contains("\"date\":\"2026-11-02\"") && line.contains("\"processes\""))
    });
    let without: String = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(&manifest, without).expect("it is written");
    let output = archive.prune("--dry-run");
    assert_eq!(output.status.code(), Some(0));
    let shown = stdout(&output);
    assert!(
        shown.contains(" from before 2026-11-01 21:55:00 would be deleted"),
        "{shown}"
    );
    let notice = "warning: not deleted: processes of 2026-11-02 are not archived\n";
    assert_eq!(stderr(&output), notice);
    std::fs::write(&manifest, text).expect("it is written");

    let output = archive.prune("--yes");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // That the current day stays needs no warning.
    assert_eq!(stderr(&output), "");
    let before = midnight(4).plus_seconds(-7_500);
    assert_eq!(archive.store().pruned, [before]);
    assert!(archive.store().records.iter().all(|it| it.at >= before));
    // The archive still has what was deleted, and stays as it is.
    assert_eq!(archive.archived("--verify"), "12 archived before");
}

#[test]
fn hostile_manifest_is_refused() {
    let archive = ArchiveBox::new(three_days());
    let path = archive.path("box.manifest.ndjson");
    let outside = "{\"file\":\"../../etc/passwd\"}\n";
    for text in ["{", "[]\n", outside, "\u{0}\n"] {
        std::fs::write(&path, text).expect("it is written");
        for output in [archive.archive(""), archive.prune("--yes")] {
            assert_eq!(output.status.code(), Some(1), "{text}");
            let shown = stderr(&output);
            assert!(shown.contains("cannot read "), "{shown}");
            let hint = "hint: delete that line: the next archive writes its day again";
            assert!(shown.contains(hint), "{shown}");
        }
        let left = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(left, text);
    }
    archive.change(|store| store.host = "../elsewhere");
    assert_eq!(archive.archive("").status.code(), Some(3));
}

#[test]
fn link_in_place_of_a_directory_is_refused() {
    let archive = ArchiveBox::new(three_days());
    let elsewhere = tempfile::tempdir().expect("a directory");
    let link = archive.path("kind=runs");
    std::os::unix::fs::symlink(elsewhere.path(), &link).expect("a link");
    let output = archive.archive("");
    assert_eq!(output.status.code(), Some(1));
    let shown = stderr(&output).to_lowercase();
    assert!(shown.contains("kind=runs"), "{shown}");
    let mut written = std::fs::read_dir(elsewhere.path()).expect("a directory");
    assert!(written.next().is_none());
}

#[test]
fn full_disk_leaves_no_wrong_entry() {
    let mut store = three_days();
    // Texts that zstd cannot make small: some MiB.
    let mut state = 1_u64;
    for record in &mut store.records {
        let text = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{state:016x}")
        });
        record.gpu_name = Some(text.take(1_000).collect());
    }
    let archive = ArchiveBox::new(store);
    let mount = |arguments: &[&str]| {
        let mut command = Command::new("mount");
        command.args(arguments).arg(archive.path(""));
        command.output().is_ok_and(|output| output.status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=300k", "tmpfs"]) {
        eprintln!("skipped: a small file system needs root");
        return;
    }
    let output = archive.archive("");
    let manifest = archive.checked_manifest();
    let has_partial_files = archive.has_partial_files();
    let is_larger = mount(&["-o", "remount,size=100m"]);
    let again = archive.archive("");
    let complete = archive.checked_manifest();
    // Another test that starts a program just now has this directory's files open until it does.
    let mut unmount = Command::new("umount");
    let unmounted = unmount.arg("--lazy").arg(archive.path("")).status();
    assert!(is_larger && unmounted.is_ok_and(|status| status.success()));
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let shown = stderr(&output).to_lowercase();
    assert!(shown.contains("no space left on device"), "{shown}");
    assert!(!has_partial_files && manifest.len() < 12);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!(complete.len(), 12);
}

#[test]
fn other_programs_read_the_files() {
    let archive = ArchiveBox::new(three_days());
    archive.archived("");
    let kind = archive.path("kind=devices").display().to_string();
    let pyarrow = format!(
        "import pyarrow.dataset as d; t = d.dataset({kind:?}, partitioning='hive').to_table(); \
         print(t.num_rows, t.schema.field('timestamp').type, t['power_w'][0].as_py())"
    );
    let pandas = format!(
        "import pandas as p; t = p.read_parquet({kind:?}); print(len(t), t['power_w'].max())"
    );
    let duckdb = format!(
        "import duckdb; print(*duckdb.sql(\"SELECT count(*), any_value(typeof(timestamp)), \
         max(power_w) FROM read_parquet('{kind}/*/*.parquet', hive_partitioning = true)\"
         ).fetchall()[0])"
    );
    // The commands of the page, with the only run of this store, which goes on after each day.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let commands = page.lines().filter_map(|line| {
        let query = line.strip_prefix("$ duckdb -c \"")?.strip_suffix('"')?;
        let path = archive.path("").display().to_string();
        let query = query.replace("\\\"", "\"").replace("HOST", "box");
        Some(query.replace("DIR", path.trim_end_matches('/')))
    });
    let queries: Vec<String> = commands.collect();
    let documented =
        format!("import duckdb\nfor q in {queries:?}: print(len(duckdb.sql(q).fetchall()))");
    let mut count = 0;
    for (module, program, expected) in [
        ("pyarrow", pyarrow, "48 timestamp[ms, tz=UTC] 688.125\n"),
        ("pandas, pyarrow", pandas, "48 688.125\n"),
        ("duckdb", duckdb, "48 TIMESTAMP WITH TIME ZONE 688.125\n"),
        ("duckdb", documented, "2\n1\n2\n"),
    ] {
        let python = |program: &str| Command::new("python3").args(["-c", program]).output();
        if !python(&format!("import {module}")).is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: python3 has no {module}");
            continue;
        }
        let output = python(&program).expect("it runs");
        assert_eq!(stdout(&output), expected, "{}", stderr(&output));
        count += 1;
    }
    println!("read by {count} other programs");
}
