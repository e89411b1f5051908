//! Time on a GPU goes on when gpukilld is started again, and every screen says the same.

use super::database;
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{Daemon, Invented, Procfs, Stage, becomes, between, eventually};
use serde_json::{Value, json};
use std::time::SystemTime;

const PID: u32 = 48_213;

/// More than any test takes.
const HOUR_MS: i64 = 3_600_000;

/// A box with one process on one GPU, which started long ago.
fn stage() -> (Stage, Procfs) {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    procfs.invent(Invented {
        pid: PID,
        name: "python",
        uid: 0,
        start_ticks: 1000,
        cmdline: "python\0train.py\0",
        cgroup: "0::/\n",
    });
    uses(&stage, 5);
    (stage, procfs)
}

/// The process uses the GPU so much from now on.
fn uses(stage: &Stage, percent: u32) {
    stage.play(&json!({"gpus": [{"processes": [{"pid": PID, "memory": 1 << 30, "sm": percent}]}]}));
}

fn start((stage, procfs): &(Stage, Procfs)) -> Daemon {
    let mut daemon = stage.daemon();
    stage.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()))
}

/// The fields of the process, in the list and as it is explained, once they are known.
fn told(stage: &Stage) -> Value {
    let of = |document: &Value| {
        let row = &document["procs"][0];
        let fields = ["first_seen", "last_active_at"].map(|field| row[field].clone());
        let known = row["first_seen"].is_string() && row["reasons"]["last_active_at"].is_null();
        known.then(|| Value::from_iter(fields))
    };
    eventually("it is known since when it uses the GPU", || {
        let listed = of(&stage.list())?;
        let explained = of(&stage.json(&["explain", &PID.to_string(), "-o", "json"]))?;
        (listed == explained).then_some(listed)
    })
}

/// The process uses the GPU for two samples, and then not any more: what is told then.
fn works(stage: &Stage) -> Value {
    let samples = || {
        let found = super::records(stage, &["--limit", "0"]);
        found.iter().filter(|record| record["pid"] == PID).count()
    };
    uses(stage, 5);
    let before = samples();
    eventually("two samples", || (samples() >= before + 2).then_some(()));
    uses(stage, 0);
    becomes(&json!(0), || stage.list()["procs"][0]["util_pct"].clone());
    told(stage)
}

fn now() -> String {
    Timestamp::from(SystemTime::now()).to_rfc3339()
}

#[test]
fn time_on_a_gpu_and_idle_time_go_on_however_the_daemon_ended() {
    let place = stage();
    let stage = &place.0;
    let mut daemon = start(&place);
    for is_killed in [false, true] {
        let before = works(stage);
        match is_killed {
            false => daemon.stop(),
            true => daemon.kill(),
        }
        daemon = start(&place);
        let after = told(stage);
        assert_eq!(after[0], before[0], "killed: {is_killed}");
        // To the end of the sample in which it was used last.
        let later = between(&before[1], &after[1]);
        assert!(
            (-500..2_500).contains(&later),
            "killed: {is_killed}: {later} ms"
        );
    }
    daemon.stop();
}

#[test]
fn every_screen_and_the_guard_have_the_time_that_the_store_has() {
    let place = stage();
    let stage = &place.0;
    std::fs::write(
        stage.path("guard.toml"),
        "[global]\ndefault_duration_limit_hours = \"30m\"\n",
    )
    .unwrap();
    let daemon = start(&place);
    works(stage);
    daemon.stop();
    // An hour ago it came, and half an hour ago it did something last.
    let first = Timestamp::from(SystemTime::now()).plus_seconds(-HOUR_MS / 1_000);
    let active = first.plus_seconds(HOUR_MS / 2_000);
    let file = database(stage, "samples.db");
    file.execute(
        "UPDATE run SET first_at = ?1, active_at = ?2",
        [first.0, active.0],
    )
    .unwrap();
    file.execute_batch(
        "UPDATE rolled SET sample = (SELECT max(id) FROM sample); DELETE FROM sample;
         DELETE FROM minute; DELETE FROM hour;",
    )
    .unwrap();
    drop(file);
    // The guard does not remember it either.
    std::fs::remove_file(stage.path("state/guard.json")).unwrap();

    let daemon = start(&place);
    assert_eq!(
        told(stage),
        json!([first.to_rfc3339(), active.to_rfc3339()])
    );
    let value = eventually("the guard has judged it", || {
        let ran = stage.ctl(&["guard", "violations", "-o", "json"]);
        let told: Value = serde_json::from_str(&ran.stdout).ok()?;
        told["records"][0]["evidence"]["value"].as_i64()
    });
    let since_then = Timestamp::from(SystemTime::now()).0 - first.0;
    assert!((HOUR_MS..=since_then).contains(&value), "{value}");
    let pid = PID.to_string();
    let screens: [(&[&str], &[&str]); 3] = [
        (&["list"], &["idle 3"]),
        (&["list", "-d"], &[" 1h "]),
        (&["explain", &pid], &[" for 1h ", ", last used "]),
    ];
    for (arguments, expected) in screens {
        becomes(&String::new(), || {
            let screen = stage.ctl(arguments).stdout;
            let lacks = expected.iter().any(|it| !screen.contains(it));
            if lacks { screen } else { String::new() }
        });
    }
    daemon.stop();
}

#[test]
fn without_a_store_the_guard_remembers_and_else_it_counts_from_the_start() {
    let place = stage();
    let stage = &place.0;
    let daemon = start(&place);
    let before = works(stage);
    daemon.stop();
    let breaks = || std::fs::write(stage.path("state/samples.db"), [7; 9_000]).unwrap();
    breaks();
    let daemon = start(&place);
    assert_eq!(told(stage)[0], before[0]);
    daemon.stop();

    breaks();
    std::fs::remove_file(stage.path("state/guard.json")).unwrap();
    let restarted = now();
    let daemon = start(&place);
    let after = told(stage);
    assert!(after[0].as_str() >= Some(&restarted), "{after}");
    assert_eq!(after[1], Value::Null);
    daemon.stop();
}
