//! The time on a GPU continues over restarts of gpukilld, and every screen shows the same.

use super::open_database;
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    Daemon, FakeProcess, FakeProcfs, TestBox, eventually, eventually_equals, milliseconds_between,
};
use serde_json::{Value, json};
use std::time::SystemTime;

const PID: u32 = 48_213;

/// Longer than any test takes.
const HOUR_MS: i64 = 3_600_000;

/// A box with one process on one GPU, which started long ago.
fn box_with_process() -> (TestBox, FakeProcfs) {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    procfs.add_process(FakeProcess {
        pid: PID,
        name: "python",
        uid: 0,
        start_ticks: 1000,
        cmdline: "python\0train.py\0",
        cgroup: "0::/\n",
    });
    set_utilization(&test_box, 5);
    (test_box, procfs)
}

fn set_utilization(test_box: &TestBox, percent: u32) {
    test_box.set_driver_state(
        &json!({"gpus": [{"processes": [{"pid": PID, "memory": 1 << 30, "sm": percent}]}]}),
    );
}

fn start((test_box, procfs): &(TestBox, FakeProcfs)) -> Daemon {
    let mut daemon = test_box.daemon_command();
    test_box.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()))
}

/// The times of the process in `list` and `explain`, once they are known and equal.
fn reported_times(test_box: &TestBox) -> Value {
    let of = |document: &Value| {
        let row = &document["procs"][0];
        let fields = ["first_seen", "last_active_at"].map(|field| row[field].clone());
        let known = row["first_seen"].is_string() && row["reasons"]["last_active_at"].is_null();
        known.then(|| Value::from_iter(fields))
    };
    eventually("it is known since when it uses the GPU", || {
        let listed = of(&test_box.list())?;
        let explained = of(&test_box.json(&["explain", &PID.to_string(), "-o", "json"]))?;
        (listed == explained).then_some(listed)
    })
}

/// Uses the GPU for two samples, and then stops. Returns the times that are reported then.
fn use_gpu_then_idle(test_box: &TestBox) -> Value {
    let samples = || {
        let found = super::records(test_box, &["--limit", "0"]);
        found.iter().filter(|record| record["pid"] == PID).count()
    };
    set_utilization(test_box, 5);
    let before = samples();
    eventually("two samples", || (samples() >= before + 2).then_some(()));
    set_utilization(test_box, 0);
    eventually_equals(&json!(0), || {
        test_box.list()["procs"][0]["util_pct"].clone()
    });
    reported_times(test_box)
}

fn now() -> String {
    Timestamp::from(SystemTime::now()).to_rfc3339()
}

#[test]
fn gpu_time_and_idle_time_survive_restarts() {
    let place = box_with_process();
    let test_box = &place.0;
    let mut daemon = start(&place);
    for is_killed in [false, true] {
        let before = use_gpu_then_idle(test_box);
        match is_killed {
            false => daemon.stop(),
            true => daemon.kill(),
        }
        daemon = start(&place);
        let after = reported_times(test_box);
        assert_eq!(after[0], before[0], "killed: {is_killed}");
        // The reported time moves to the end of the sample in which the process last used
        // the GPU.
        let later = milliseconds_between(&before[1], &after[1]);
        assert!(
            (-500..2_500).contains(&later),
            "killed: {is_killed}: {later} ms"
        );
    }
    daemon.stop();
}

#[test]
fn every_screen_uses_the_stored_times() {
    let place = box_with_process();
    let test_box = &place.0;
    std::fs::write(
        test_box.path("guard.toml"),
        "[global]\ndefault_duration_limit_hours = \"30m\"\n",
    )
    .unwrap();
    let daemon = start(&place);
    use_gpu_then_idle(test_box);
    daemon.stop();
    // The process first held the GPU an hour ago, and last used it half an hour ago.
    let first = Timestamp::from(SystemTime::now()).plus_seconds(-HOUR_MS / 1_000);
    let active = first.plus_seconds(HOUR_MS / 2_000);
    let file = open_database(test_box, "samples.db");
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
    // The state file of the guard does not have these times either.
    std::fs::remove_file(test_box.path("state/guard.json")).unwrap();

    let daemon = start(&place);
    assert_eq!(
        reported_times(test_box),
        json!([first.to_rfc3339(), active.to_rfc3339()])
    );
    let value = eventually("the guard has evaluated it", || {
        let ran = test_box.ctl(&["guard", "violations", "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).ok()?;
        document["records"][0]["evidence"]["value"].as_i64()
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
        eventually_equals(&String::new(), || {
            let screen = test_box.ctl(arguments).stdout;
            let lacks = expected.iter().any(|it| !screen.contains(it));
            if lacks { screen } else { String::new() }
        });
    }
    daemon.stop();
}

#[test]
fn guard_state_replaces_a_lost_store() {
    let place = box_with_process();
    let test_box = &place.0;
    let daemon = start(&place);
    let before = use_gpu_then_idle(test_box);
    daemon.stop();
    let breaks = || std::fs::write(test_box.path("state/samples.db"), [7; 9_000]).unwrap();
    breaks();
    let daemon = start(&place);
    assert_eq!(reported_times(test_box)[0], before[0]);
    daemon.stop();

    breaks();
    std::fs::remove_file(test_box.path("state/guard.json")).unwrap();
    let restarted = now();
    let daemon = start(&place);
    let after = reported_times(test_box);
    assert!(after[0].as_str() >= Some(&restarted), "{after}");
    assert_eq!(after[1], Value::Null);
    daemon.stop();
}
