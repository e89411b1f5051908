//! The store, archived and pruned.

use super::{open_database, records};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually, run_as_user,
};
use parquet::file::reader::SerializedFileReader;
use parquet::record::{Field, Row};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Moves everything that is stored to the hour after noon of three days ago. By whole hours: the
/// stored minutes and hours are those of the clock.
fn move_back(test_box: &TestBox) {
    let database = open_database(test_box, "samples.db");
    let select = "SELECT max(at) / 3600000 % 24 FROM sample";
    let hour: i64 = database.query_row(select, [], |row| row.get(0)).unwrap();
    for (table, times) in [
        ("sample", &["at"][..]),
        ("minute", &["at"]),
        ("hour", &["at"]),
        ("run", &["first_at", "last_at", "ended_at", "active_at"]),
    ] {
        for time in times {
            let shift = format!("UPDATE {table} SET {time} = {time} - ?1");
            let length = 3 * DAY_MS + (hour - 12) * HOUR_MS;
            database.execute(&shift, [length]).unwrap();
        }
    }
}

/// A daemon with samples of three days ago and of now, of a GPU and a process on it. Returns the
/// number of each kind of the old records.
fn with_old_samples(test_box: &TestBox, process: &TestProcess) -> (usize, usize) {
    let usage = json!({"pid": process.pid(), "memory": 1 << 30});
    test_box.set_driver_state(&json!({"gpus": [{"processes": [usage]}]}));
    let daemon = test_box.start();
    eventually("samples", || {
        (records(test_box, &[]).len() > 5).then_some(())
    });
    daemon.stop();
    move_back(test_box);
    let old = ["--since", "4d", "--until", "2d", "--limit", "0"];
    let daemon = test_box.start();
    let old = records(test_box, &old);
    daemon.stop();
    let devices = old.iter().filter(|record| record["pid"].is_null()).count();
    assert!(devices > 0 && devices < old.len(), "{old:#?}");
    (devices, old.len() - devices)
}

fn archive_directory(test_box: &TestBox) -> PathBuf {
    let directory = test_box.path("archive");
    std::fs::create_dir(&directory).unwrap();
    directory
}

/// The lines of the manifest.
fn manifest(directory: &Path) -> Vec<Value> {
    let mut found = std::fs::read_dir(directory).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        let is_manifest = path.to_str()?.ends_with(".manifest.ndjson");
        is_manifest.then_some(path)
    });
    let path = found.next().expect("there is a manifest");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The number of archived rows of a kind.
fn row_count(directory: &Path, kind: &str) -> usize {
    let lines = manifest(directory).into_iter();
    let lines = lines.filter(|line| line["kind"] == kind);
    let count: u64 = lines.map(|line| line["rows"].as_u64().unwrap()).sum();
    usize::try_from(count).unwrap()
}

#[test]
fn old_day_is_archived_and_then_pruned() {
    let test_box = TestBox::new();
    let process = TestProcess::start("python train.py");
    let (devices, processes) = with_old_samples(&test_box, &process);
    let directory = archive_directory(&test_box);
    let name = directory.to_str().unwrap();
    let daemon = test_box.start();
    let archive = |more: &[&str]| {
        let ran = test_box.ctl(&[&["audit", "archive", name], more].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        ran.stdout
    };
    // A sample of now closes the old day.
    eventually("the day is archived", || {
        archive(&[]).contains(" new").then_some(())
    });
    assert_eq!(row_count(&directory, "devices"), devices);
    assert_eq!(row_count(&directory, "processes"), processes);
    let lines = manifest(&directory);
    for line in lines.iter().filter(|line| !line["file"].is_null()) {
        let file = directory.join(line["file"].as_str().unwrap());
        assert_eq!(line["bytes"], json!(std::fs::metadata(file).unwrap().len()));
    }
    let second = archive(&["--verify"]);
    let all = format!(": {} archived before\n", lines.len());
    assert!(second.ends_with(&all), "{second}");

    let old_samples = || -> i64 {
        let select = "SELECT count(*) FROM sample WHERE at < (SELECT max(at) FROM sample) - ?1";
        let database = open_database(&test_box, "samples.db");
        let count = database.query_row(select, [DAY_MS], |row| row.get(0));
        count.unwrap()
    };
    assert!(old_samples() > 0);
    let ran = test_box.ctl(&["audit", "prune", "--archived", name, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(old_samples(), 0);
    assert!(!records(&test_box, &[]).is_empty());
    daemon.stop();
}

/// The rows of all archived runs.
fn archived_runs(directory: &Path) -> Vec<Row> {
    let lines = manifest(directory).into_iter();
    let files = lines.filter(|line| line["kind"] == "runs" && !line["file"].is_null());
    let rows = files.flat_map(|line| {
        let file = File::open(directory.join(line["file"].as_str().unwrap())).unwrap();
        SerializedFileReader::new(file).unwrap().into_iter()
    });
    rows.map(Result::unwrap).collect()
}

fn column<'a>(row: &'a Row, name: &str) -> &'a Field {
    let mut columns = row.get_column_iter();
    let found = columns.find(|(column, _)| *column == name);
    found.unwrap_or_else(|| panic!("{name}: {row}")).1
}

/// Whether a column has the value of a JSON field, with lists and reasons as texts.
fn is_same(field: &Field, value: &Value) -> bool {
    match (field, value) {
        (Field::Null, Value::Object(reasons)) => reasons.is_empty(),
        (Field::Null, value) => value.is_null(),
        (Field::Long(whole), value) => value == whole,
        (Field::Double(fraction), value) => (fraction - value.as_f64().unwrap()).abs() < 1e-9,
        (Field::TimestampMillis(at), value) => *value == Timestamp(*at).to_rfc3339(),
        (Field::Str(text), Value::Array(items)) => {
            let items = items
                .iter()
                .map(|item| item.as_str().map_or(item.to_string(), Into::into));
            *text == items.collect::<Vec<String>>().join(" ")
        }
        (Field::Str(text), value) => value == text,
        (other, _) => panic!("{other}"),
    }
}

#[test]
fn archived_runs_are_the_parts_of_runs_within_the_day() {
    let test_box = TestBox::new();
    let [train, eval] = ["python train.py", "python eval.py"].map(TestProcess::start);
    let set_processes = |pids: &[u32]| {
        let rows = pids
            .iter()
            .map(|pid| json!({"pid": pid, "memory": 1 << 30}));
        let rows: Vec<Value> = rows.collect();
        test_box.set_driver_state(&json!({"gpus": [{"processes": rows}]}));
    };
    let runs_of = |pid: u32, more: &[&str]| -> Option<Value> {
        let ran = test_box.ctl(&[&["audit", "-o", "json"], more].concat());
        let mut document: Value = serde_json::from_str(&ran.stdout).ok()?;
        let runs = document["runs"].as_array_mut()?;
        let is_of = |run: &&mut Value| run["pids"] == json!([pid]);
        Some(runs.iter_mut().find(is_of)?.take())
    };
    let [train_pid, eval_pid] = [&train, &eval].map(TestProcess::pid);
    set_processes(&[train_pid, eval_pid]);
    let daemon = test_box.start();
    eventually("samples of both", || {
        let held = runs_of(eval_pid, &["--processes"])?;
        (held["gpu_hours"].as_f64()? > 3.0 / 3600.0).then_some(())
    });
    drop(eval);
    set_processes(&[train_pid]);
    eventually("one has ended", || {
        let run = runs_of(eval_pid, &["--processes"])?;
        (run["end"] != "running").then_some(())
    });
    daemon.stop();
    // The processes of these tests belong to one job, and would be one run.
    let database = open_database(&test_box, "samples.db");
    let update = "UPDATE process SET job = NULL WHERE pid = ?1";
    database.execute(update, [eval_pid]).unwrap();
    drop(database);
    move_back(&test_box);

    let directory = archive_directory(&test_box);
    let name = directory.to_str().unwrap();
    let daemon = test_box.start();
    // The first samples after a start may lack the processes: their runs go on a moment later.
    eventually("the other one runs", || {
        let run = runs_of(train_pid, &["--processes"])?;
        (run["end"] == "running").then_some(())
    });
    let archive = || {
        let ran = test_box.ctl(&["audit", "archive", name, "--with-commands"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        ran.stdout
    };
    eventually("the day is archived", || {
        archive().contains("runs of ").then_some(())
    });
    let rows = archived_runs(&directory);
    let [running, ended] = ["running", "exited"].map(|end| {
        let mut found = rows.iter();
        let found = found.find(|row| *column(row, "end") == Field::Str(end.into()));
        found.unwrap_or_else(|| panic!("{end}: {rows:?}"))
    });
    assert_eq!(rows.len(), 2);

    // The run that ended on that day is as `audit` prints it.
    let mut days = manifest(&directory).into_iter();
    let is_day = |line: &Value| line["kind"] == "runs" && !line["file"].is_null();
    let day = days.find(is_day).unwrap();
    let [since, until] = ["since", "until"].map(|end| day[end].as_str().unwrap());
    let period = ["--since", since, "--until", until];
    let printed = runs_of(eval_pid, &period).unwrap();
    let columns = printed.as_object().unwrap();
    assert_eq!(ended.len(), columns.len());
    for (name, value) in columns {
        assert!(
            is_same(column(ended, name), value),
            "{name}: {ended} {value}"
        );
    }
    // Of the other one, which goes on, it is the part of that day.
    let whole = eventually("the other one goes on", || {
        let run = runs_of(train_pid, &period)?;
        let Field::Double(hours) = column(running, "gpu_hours") else {
            panic!("{running}");
        };
        (run["gpu_hours"].as_f64()? > *hours).then_some(run)
    });
    for name in ["id", "started_at", "ended_at", "end", "owner", "command"] {
        assert!(
            is_same(column(running, name), &whole[name]),
            "{name}: {running} {whole}"
        );
    }

    let summary = [&["audit", "--summary", "-o", "json"][..], &period].concat();
    let summary = test_box.json(&summary);
    for time in ["gpu_hours", "busy_hours", "idle_hours", "unknown_hours"] {
        let archived = rows.iter().map(|row| match column(row, time) {
            Field::Double(hours) => *hours,
            other => panic!("{other}"),
        });
        let owners = summary["owners"].as_array().unwrap().iter();
        let expected: f64 = owners.map(|owner| owner[time].as_f64().unwrap()).sum();
        assert!(
            (archived.sum::<f64>() - expected).abs() < 1e-9,
            "{time}: {summary}"
        );
    }
    assert!(!archive().contains(" new"));
    daemon.stop();
}

#[test]
fn plain_user_archives_but_deletes_nothing() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.configure("[access]\nhide_other_users = true");
    let process = TestProcess::start("python train.py");
    let (devices, processes) = with_old_samples(&test_box, &process);
    let directory = archive_directory(&test_box);
    test_box.make_world_accessible();
    chown(&directory, Some(NOBODY_UID), None).unwrap();
    let name = directory.to_str().unwrap();
    let daemon = test_box.start();
    eventually("the day is archived", || {
        let archive = ["audit", "archive", name, "--with-commands"];
        let ran = run_as_user(NOBODY_UID, &[], || test_box.ctl(&archive));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        ran.stdout.contains(" new").then_some(())
    });
    assert_eq!(row_count(&directory, "devices"), devices);
    assert_eq!(row_count(&directory, "processes"), processes);
    // Everybody may archive, and nobody but admins delete.
    let prune = ["audit", "prune", "--archived", name, "--yes"];
    let ran = run_as_user(NOBODY_UID, &[], || test_box.ctl(&prune));
    assert_eq!(ran.code, 4, "{ran:?}");
    daemon.stop();
}
