//! Actions on the store, in JSON documents and in the record.

use super::{open_database, records};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    FakeDriver, NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually, run_as_user,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::SystemTime;

fn one_gpu() -> TestBox {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    test_box
}

/// The recorded actions of this kind, the oldest first, without fields that differ from run
/// to run.
fn recorded_actions(test_box: &TestBox, kind: &str) -> Vec<Value> {
    let ran = test_box.ctl(&["audit", "actions", "--kind", kind, "-o", "json"]);
    let document: Value = match ran.code {
        0 => serde_json::from_str(&ran.stdout).unwrap(),
        8 => return Vec::new(),
        _ => panic!("{ran:?}"),
    };
    let actions = document["actions"].as_array().unwrap().iter().rev();
    actions
        .map(|action| {
            let of = ["kind", "uid", "what", "result", "why", "outcome"];
            json!(of.map(|field| &action[field]))
        })
        .collect()
}

#[test]
fn prune_result_is_a_document() {
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    daemon.stop();
    let from = Timestamp::from(SystemTime::now()).plus_seconds(-3 * 3_600);
    let rows = "INSERT INTO sample (id, at, usage) VALUES
         (1001, FROM, x''), (1002, FROM + 2000, x'');
         INSERT INTO minute (id, at, usage) VALUES (1002, FROM, x'');
         UPDATE rolled SET sample = 1002, minute = 1002;";
    let file = open_database(&test_box, "samples.db");
    file.execute_batch(&rows.replace("FROM", &from.0.to_string()))
        .unwrap();
    drop(file);
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let before = from.plus_seconds(10).to_rfc3339();
    let prune = |before: &str, more: &[&str]| {
        let arguments = ["audit", "prune", "--before", before, "-o", "json"];
        let ran = test_box.ctl(&[&arguments, more].concat());
        let mut document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let left = document["left"].take();
        assert!(left["since"].is_string(), "{left}");
        (ran.code, document)
    };
    let expected = |done| {
        json!({
            "schema": 1,
            "before": before,
            "done": done,
            "deleted": {
                "samples": 2, "minutes": 1, "hours": 0, "runs": 0, "actions": 0,
                "since": from.to_rfc3339(), "until": from.plus_seconds(2).to_rfc3339(),
            },
            "left": null,
        })
    };
    assert_eq!(prune(&before, &["--dry-run"]), (0, expected(false)));
    // Without a terminal the client cannot ask for consent.
    assert_eq!(prune(&before, &[]), (3, expected(false)));
    assert_eq!(prune(&before, &["--yes"]), (0, expected(true)));
    // Nothing that old is left, so no consent is needed.
    let (code, nothing) = prune(&before, &[]);
    assert_eq!((code, &nothing["done"]), (0, &json!(true)));
    assert_eq!(nothing["deleted"]["samples"], 0);
    daemon.stop();
}

#[test]
fn backup_is_recorded_with_user_and_size() {
    let test_box = one_gpu();
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    let file = test_box.path("copy.tar");
    let ran = test_box.ctl(&["audit", "backup", file.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let bytes = std::fs::metadata(&file).unwrap().len();
    let us = rustix::process::geteuid().as_raw();
    let mut expected = vec![json!([
        "backup",
        us,
        null,
        "done",
        null,
        json!({ "bytes": bytes })
    ])];
    eventually("the copy is recorded", || {
        (recorded_actions(&test_box, "backup") == expected).then_some(())
    });
    // `audit actions` shows it in words.
    let ran = test_box.ctl(&["audit", "actions", "--kind", "backup"]);
    let row = ran.stdout.lines().last().unwrap();
    assert!(
        row.contains("  backup of ") && row.contains("  done in "),
        "{row}"
    );

    // A backup that fails, and one that is refused.
    let in_the_way = test_box.path("state/copying");
    std::fs::write(&in_the_way, "").unwrap();
    let again = test_box.path("again.tar");
    let ran = test_box.ctl(&["audit", "backup", again.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    std::fs::remove_file(&in_the_way).unwrap();
    let failed = eventually("the failure is recorded", || {
        recorded_actions(&test_box, "backup")
            .pop()
            .filter(|it| it[3] == "failed")
    });
    let why = failed[5]["why"].as_str().unwrap();
    assert!(ran.stderr.contains(why), "{why}: {ran:?}");
    expected.push(failed);
    if can_run_as_other_users() {
        test_box.make_world_accessible();
        let ran = run_as_user(NOBODY_UID, &[], || {
            test_box.ctl(&["audit", "backup", "/tmp/gpukill-test-never.tar"])
        });
        assert_eq!(ran.code, 4, "{ran:?}");
        let refused = eventually("the refusal is recorded", || {
            recorded_actions(&test_box, "backup").into_iter().nth(2)
        });
        assert_eq!(
            (&refused[1], &refused[3]),
            (&json!(NOBODY_UID), &json!("refused"))
        );
        expected.push(refused);
    }
    assert_eq!(recorded_actions(&test_box, "backup"), expected);
    daemon.stop();

    // The backup itself contains no unfinished action.
    let other = TestBox::new();
    std::fs::create_dir(other.path("state")).unwrap();
    let unpacked = std::process::Command::new("tar")
        .arg("-xf")
        .arg(&file)
        .arg("-C")
        .arg(other.path("state"))
        .status();
    assert!(unpacked.unwrap().success());
    let select = "SELECT count(*) FROM action";
    let count: i64 = open_database(&other, "audit.db")
        .query_row(select, [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0);
}

#[test]
fn kill_before_a_crash_is_recorded_as_end() {
    let test_box = TestBox::new();
    let driver = FakeDriver::start(&test_box, std::time::Duration::from_millis(300));
    let process = TestProcess::start("python");
    let pid = process.pid();
    driver.add_processes(&[pid]);
    let daemon = test_box.start();
    let run = || -> Option<(Option<String>, Option<i64>)> {
        let select = "SELECT ending, action FROM run JOIN process ON process.id = run.process
            WHERE pid = ?1";
        open_database(&test_box, "samples.db")
            .query_row(select, [pid], |row| Ok((row.get(0)?, row.get(1)?)))
            .ok()
    };
    let before = eventually("it is in a sample", run);
    assert_eq!(before, (None, None));
    // From here on the next sample is an hour away.
    let file = test_box.path("gpukilld.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    let rare = settings.replace("sample_interval = \"1s\"", "sample_interval = \"1h\"");
    assert_ne!(rare, settings);
    std::fs::write(&file, rare).unwrap();
    daemon.signal(Signal::HUP);
    eventually("the settings are in force", || {
        (recorded_actions(&test_box, "settings").len() == 2).then_some(())
    });
    let killed = test_box.ctl(&["kill", &pid.to_string(), "--yes"]);
    assert_eq!(killed.code, 0, "{killed:?}");
    eventually("the kill's end is recorded", || {
        let select = "SELECT count(*) FROM action WHERE result = 'done'";
        let audit = open_database(&test_box, "audit.db");
        let done: i64 = audit.query_row(select, [], |row| row.get(0)).ok()?;
        (done == 1).then_some(())
    });
    daemon.kill();
    std::fs::write(&file, settings).unwrap();
    let daemon = test_box.start();
    let after = eventually("its end is reported", || {
        run().filter(|(ending, _)| ending.as_deref() == Some("killed"))
    });
    assert_eq!(after, (Some("killed".to_owned()), Some(1)));
    daemon.stop();
}
