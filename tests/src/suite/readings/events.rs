//! Events of a GPU: in the list, in the log, in the store.

use gpukill_tests::harness::{Daemon, TestBox, eventually, eventually_equals};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An event in the state of the stand-in.
fn event(id: u32, gpu: u32, kind: u64, data: u64) -> Value {
    json!({"id": id, "gpu": gpu, "type": kind, "data": data})
}

fn state(events: &[Value]) -> Value {
    json!({"events": events, "gpus": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]})
}

/// Starts the daemon and waits until its sensor listens: earlier events do not count.
fn start_and_wait_for_listening(test_box: &TestBox) -> Daemon {
    test_box.set_driver_state(&state(&[]));
    let daemon = test_box.start();
    eventually_equals(&2, || test_box.list()["gpus"].as_array().unwrap().len());
    daemon
}

/// The kind, device, number and text of each recorded device event.
fn recorded_events(test_box: &TestBox) -> Vec<(String, String, Option<i64>, String)> {
    let database = crate::store::open_database(test_box, "audit.db");
    let mut statement = database
        .prepare(
            "SELECT kind, device, number, detail FROM event WHERE device IS NOT NULL ORDER BY id",
        )
        .unwrap();
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn xid_is_listed_logged_and_recorded_once() {
    let test_box = TestBox::new();
    let daemon = start_and_wait_for_listening(&test_box);
    let mut events = vec![event(1, 1, 8, 31), event(2, 1, 8, 79), event(3, 0, 2, 0)];
    test_box.set_driver_state(&state(&events));
    eventually_equals(&json!(79), || {
        test_box.list()["gpus"][1]["last_xid"]["xid"].clone()
    });
    assert_eq!(test_box.list()["gpus"][0]["last_xid"], Value::Null);
    let row = |kind: &str, device: &str, number, words: &str| {
        (kind.to_owned(), device.to_owned(), number, words.to_owned())
    };
    let mut expected = vec![
        row("xid", "GPU-b", Some(31), "XID 31"),
        row("xid", "GPU-b", Some(79), "XID 79"),
        row("device", "GPU-a", None, "uncorrected memory error"),
    ];
    eventually_equals(&expected, || recorded_events(&test_box));
    let lines = || -> Vec<String> {
        let log = daemon.log();
        let lines = log.lines().filter(|line| line.contains(" on GPU "));
        lines.map(str::to_owned).collect()
    };
    let log = eventually("the log has them", || (lines().len() == 3).then(lines));
    // An XID that a program causes is no warning.
    assert!(log[0].contains(" INFO XID 31 on GPU 1"), "{log:?}");
    assert!(log[1].contains(" WARN XID 79 on GPU 1"), "{log:?}");
    assert!(log[1].contains("gpu_uuid=GPU-b"), "{log:?}");
    assert!(
        log[1].contains("meaning=\"the GPU has fallen off the bus\""),
        "{log:?}"
    );
    assert!(
        log[2].contains(" WARN uncorrected memory error on GPU 0"),
        "{log:?}"
    );

    // A new sensor does not report the same events again.
    let sensor = daemon.sensor_pid();
    daemon.kill_sensor();
    eventually("another sensor", || {
        (daemon.sensor_pid() != sensor).then_some(())
    });
    eventually_equals(&json!("ready"), || {
        test_box.list()["backends"][0]["state"].clone()
    });
    // Readings older than the new sensor are still shown, so an event may come before the
    // sensor listens.
    let heard = eventually("it listens", || {
        let id = u32::try_from(events.len()).unwrap() + 1;
        events.push(event(id, 0, 8, 999_999));
        test_box.set_driver_state(&state(&events));
        Some(recorded_events(&test_box).split_off(expected.len())).filter(|later| !later.is_empty())
    });
    let again = row("xid", "GPU-a", Some(999_999), "XID 999999");
    assert!(heard.iter().all(|later| *later == again), "{heard:?}");
    expected.extend(heard);
    assert!(recorded_events(&test_box).starts_with(&expected));
    daemon.stop();
}

#[test]
fn lost_gpu_names_its_xid() {
    let test_box = TestBox::new();
    let daemon = start_and_wait_for_listening(&test_box);
    test_box.set_driver_state(&json!({"events": [event(1, 1, 8, 79)], "gpus": [
        {"uuid": "GPU-a"}, {"uuid": "GPU-b", "lost": true},
    ]}));
    eventually("it is lost", || {
        let table = test_box.table(&["list"]);
        table
            .contains(" (XID 79): needs a reset or a reboot")
            .then_some(())
    });
    daemon.stop();
}

#[test]
fn missing_event_support_is_a_fault() {
    let test_box = TestBox::new();
    let temperatures = || -> Vec<Value> {
        let list = test_box.list();
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter().map(|gpu| gpu["temp_c"].clone()).collect()
    };
    // First for one GPU, and then for all, as after a lost GPU.
    let cases = [
        (
            json!({"gpus": [
                {"temperature": 41, "errors": {"nvmlDeviceRegisterEvents": 999}},
                {"temperature": 42},
            ]}),
            "XIDs of a GPU are not received: NVML reports an unknown error (999)",
        ),
        (
            json!({"event_wait_error": 15, "gpus": [{"temperature": 41}, {"temperature": 42}]}),
            "XIDs and other events are not received: GPU_IS_LOST",
        ),
    ];
    for (state, fault) in cases {
        test_box.set_driver_state(&state);
        let daemon = test_box.start();
        eventually_equals(&vec![("nvidia".to_owned(), fault.to_owned())], || {
            test_box.faults()
        });
        assert_eq!(temperatures(), [json!(41), json!(42)]);
        daemon.stop();
    }
}

#[test]
fn event_before_crash_is_reported() {
    let test_box = TestBox::new();
    let daemon = start_and_wait_for_listening(&test_box);
    let is_ready = || {
        test_box.set_driver_state(&state(&[]));
        eventually_equals(&json!("ready"), || {
            test_box.list()["backends"][0]["state"].clone()
        });
    };
    // A poll in progress has read the events before this one, and crashes nevertheless.
    let heard = (1..=10).any(|id| {
        let crashes = daemon.log().matches("sensor failed").count();
        test_box.set_driver_state(&json!({
            "events": [event(id, 1, 8, 119)], "crash": ["nvmlDeviceGetUtilizationRates"],
            "gpus": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}],
        }));
        eventually("it crashes", || {
            (daemon.log().matches("sensor failed").count() > crashes).then_some(())
        });
        is_ready();
        daemon.log().contains("XID 119 on GPU 1")
    });
    assert!(heard, "{}", daemon.log());
    eventually("the violation is recorded", || {
        (!recorded_events(&test_box).is_empty()).then_some(())
    });
    assert_eq!(test_box.list()["gpus"][1]["last_xid"]["xid"], 119);
    daemon.stop();
}

#[test]
fn event_storm_is_bounded() {
    let test_box = TestBox::new();
    let daemon = start_and_wait_for_listening(&test_box);
    let events: Vec<Value> = (1..=3_000).map(|id| event(id, 0, 8, 63)).collect();
    test_box.set_driver_state(&state(&events));
    eventually_equals(&json!(63), || {
        test_box.list()["gpus"][0]["last_xid"]["xid"].clone()
    });
    let polls = || {
        test_box.json(&["status", "-o", "json"])["polls"]
            .as_u64()
            .unwrap()
    };
    let before = polls();
    eventually("polls go on", || (polls() > before + 10).then_some(()));
    eventually_equals(&json!(30), || test_box.list()["gpus"][0]["temp_c"].clone());
    let times = || {
        let database = crate::store::open_database(&test_box, "audit.db");
        let count = "SELECT sum(times), count(*) FROM event WHERE kind = 'xid'";
        let row = database.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)));
        row.unwrap_or((0, 0))
    };
    eventually_equals(&3_000, || times().0);
    let rows: i64 = times().1;
    assert!(rows < 50, "{rows}");
    daemon.stop();
}

#[test]
fn event_triggers_a_full_reading() {
    let test_box = TestBox::new();
    let daemon = start_and_wait_for_listening(&test_box);
    let rows = || test_box.list()["gpus"][1]["remapped_rows"]["uncorrectable"].clone();
    eventually_equals(&json!(0), rows);
    test_box.set_driver_state(&json!({"events": [event(1, 1, 8, 63)], "gpus": [
        {"uuid": "GPU-a"}, {"uuid": "GPU-b", "remapped_rows": {"uncorrectable": 7}},
    ]}));
    let written_at = Instant::now();
    eventually_equals(&json!(7), rows);
    // Without the event these readings would come after 16 s.
    let took = written_at.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    daemon.stop();
}
