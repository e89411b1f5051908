//! What people do with the store, told to programs and in the record.

use super::{database, records};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    Actor, Driver, NOBODY, Stage, acting_as, can_act_as_others, eventually,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::SystemTime;

fn one_gpu() -> Stage {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    stage
}

/// The entries of these kinds, the oldest first, without what differs from run to run.
fn acts(stage: &Stage, kind: &str) -> Vec<Value> {
    let ran = stage.ctl(&["audit", "actions", "--kind", kind, "-o", "json"]);
    let document: Value = match ran.code {
        0 => serde_json::from_str(&ran.stdout).unwrap(),
        8 => return Vec::new(),
        _ => panic!("{ran:?}"),
    };
    let acts = document["actions"].as_array().unwrap().iter().rev();
    acts.map(|act| {
        let of = ["kind", "uid", "what", "result", "why", "outcome"];
        json!(of.map(|field| &act[field]))
    })
    .collect()
}

#[test]
fn what_a_prune_counts_and_deletes_is_a_document() {
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    daemon.stop();
    let from = Timestamp::from(SystemTime::now()).plus_seconds(-3 * 3_600);
    let rows = "INSERT INTO sample (id, at, usage) VALUES
         (1001, FROM, x''), (1002, FROM + 2000, x'');
         INSERT INTO minute (id, at, usage) VALUES (1002, FROM, x'');
         UPDATE rolled SET sample = 1002, minute = 1002;";
    let file = database(&stage, "samples.db");
    file.execute_batch(&rows.replace("FROM", &from.0.to_string()))
        .unwrap();
    drop(file);
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let before = from.plus_seconds(10).to_rfc3339();
    let prune = |before: &str, more: &[&str]| {
        let arguments = ["audit", "prune", "--before", before, "-o", "json"];
        let ran = stage.ctl(&[&arguments, more].concat());
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
    // Nobody can be asked.
    assert_eq!(prune(&before, &[]), (3, expected(false)));
    assert_eq!(prune(&before, &["--yes"]), (0, expected(true)));
    // There is nothing that old any more: that is so without asking.
    let (code, nothing) = prune(&before, &[]);
    assert_eq!((code, &nothing["done"]), (0, &json!(true)));
    assert_eq!(nothing["deleted"]["samples"], 0);
    daemon.stop();
}

#[test]
fn who_made_a_copy_when_and_how_long_it_is_stands_in_the_record() {
    let stage = one_gpu();
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    let file = stage.path("copy.tar");
    let ran = stage.ctl(&["audit", "backup", file.to_str().unwrap()]);
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
        (acts(&stage, "backup") == expected).then_some(())
    });
    // For people it is in words.
    let ran = stage.ctl(&["audit", "actions", "--kind", "backup"]);
    let row = ran.stdout.lines().last().unwrap();
    assert!(
        row.contains("  backup of ") && row.contains("  done in "),
        "{row}"
    );

    // A copy that cannot be made, and one that is refused.
    let in_the_way = stage.path("state/copying");
    std::fs::write(&in_the_way, "").unwrap();
    let again = stage.path("again.tar");
    let ran = stage.ctl(&["audit", "backup", again.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    std::fs::remove_file(&in_the_way).unwrap();
    let failed = eventually("the failure is recorded", || {
        acts(&stage, "backup").pop().filter(|it| it[3] == "failed")
    });
    let why = failed[5]["why"].as_str().unwrap();
    assert!(ran.stderr.contains(why), "{why}: {ran:?}");
    expected.push(failed);
    if can_act_as_others() {
        stage.open_to_all();
        let ran = acting_as(NOBODY, &[], || {
            stage.ctl(&["audit", "backup", "/tmp/gpukill-test-never.tar"])
        });
        assert_eq!(ran.code, 4, "{ran:?}");
        let refused = eventually("the refusal is recorded", || {
            acts(&stage, "backup").into_iter().nth(2)
        });
        assert_eq!(
            (&refused[1], &refused[3]),
            (&json!(NOBODY), &json!("refused"))
        );
        expected.push(refused);
    }
    assert_eq!(acts(&stage, "backup"), expected);
    daemon.stop();

    // The copy itself holds no act without an end.
    let other = Stage::new();
    std::fs::create_dir(other.path("state")).unwrap();
    let unpacked = std::process::Command::new("tar")
        .arg("-xf")
        .arg(&file)
        .arg("-C")
        .arg(other.path("state"))
        .status();
    assert!(unpacked.unwrap().success());
    let select = "SELECT count(*) FROM action";
    let count: i64 = database(&other, "audit.db")
        .query_row(select, [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0);
}

#[test]
fn who_was_killed_just_before_the_daemon_stopped_is_told_as_killed() {
    let stage = Stage::new();
    let driver = Driver::start(&stage, std::time::Duration::from_millis(300));
    let actor = Actor::start("python");
    let pid = actor.pid();
    driver.lists(&[pid]);
    let daemon = stage.start();
    let run = || -> Option<(Option<String>, Option<i64>)> {
        let select = "SELECT ending, action FROM run JOIN process ON process.id = run.process
            WHERE pid = ?1";
        database(&stage, "samples.db")
            .query_row(select, [pid], |row| Ok((row.get(0)?, row.get(1)?)))
            .ok()
    };
    let before = eventually("it is in a sample", run);
    assert_eq!(before, (None, None));
    // From here on the next sample would come in an hour.
    let file = stage.path("gpukilld.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    let rare = settings.replace("sample_interval = \"1s\"", "sample_interval = \"1h\"");
    assert_ne!(rare, settings);
    std::fs::write(&file, rare).unwrap();
    daemon.signal(Signal::HUP);
    eventually("the settings are in force", || {
        (acts(&stage, "settings").len() == 2).then_some(())
    });
    let killed = stage.ctl(&["kill", &pid.to_string(), "--yes"]);
    assert_eq!(killed.code, 0, "{killed:?}");
    eventually("the kill's end is recorded", || {
        let select = "SELECT count(*) FROM action WHERE word = 'done'";
        let audit = database(&stage, "audit.db");
        let done: i64 = audit.query_row(select, [], |row| row.get(0)).ok()?;
        (done == 1).then_some(())
    });
    daemon.kill();
    std::fs::write(&file, settings).unwrap();
    let daemon = stage.start();
    let after = eventually("its end is told", || {
        run().filter(|(ending, _)| ending.as_deref() == Some("killed"))
    });
    assert_eq!(after, (Some("killed".to_owned()), Some(1)));
    daemon.stop();
}
