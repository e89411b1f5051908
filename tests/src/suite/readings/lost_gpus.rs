//! GPUs that are lost, removed and added.

use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{TestBox, eventually, eventually_equals, failed_readings};
use serde_json::{Value, json};
use std::time::SystemTime;

const LOST_ERROR: &str = "GPU_IS_LOST";

fn states(list: &Value) -> Vec<(Value, Value)> {
    let gpus = list["gpus"].as_array().unwrap();
    gpus.iter()
        .map(|gpu| (gpu["name"].clone(), gpu["state"].clone()))
        .collect()
}

fn three_gpus(second_is_lost: bool) -> Value {
    json!({"gpus": [
        {"name": "first"}, {"name": "second", "lost": second_is_lost}, {"name": "third"},
    ]})
}

fn expected_states(second: &str) -> Vec<(Value, Value)> {
    vec![
        (json!("first"), json!("ok")),
        (json!("second"), json!(second)),
        (json!("third"), json!("ok")),
    ]
}

#[test]
fn lost_gpu_recovers() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&three_gpus(false));
    let daemon = test_box.start();
    eventually_equals(&expected_states("ok"), || states(&test_box.list()));
    test_box.set_driver_state(&three_gpus(true));
    eventually_equals(&expected_states("lost"), || states(&test_box.list()));

    let list = test_box.list();
    let lost = &list["gpus"][1];
    assert_eq!(lost["lost_reason"], LOST_ERROR);
    assert!(lost["lost_since"].is_string());
    assert_eq!(lost["util_pct"], Value::Null);
    assert_eq!(lost["reasons"]["util_pct"], format!("failed: {LOST_ERROR}"));
    assert_eq!(failed_readings(&list["gpus"][2]), json!({}));
    assert_eq!(
        test_box.faults(),
        [(
            "GPU 1".to_owned(),
            format!("lost ({LOST_ERROR}): needs a reset or a reboot")
        )]
    );
    let table = test_box.table(&["list"]);
    let row = table.lines().nth(2).unwrap();
    let (before, after) = row.split_once("lost since ").unwrap();
    assert_eq!(before, "  !1  second  ");
    let (time, sentence) = after.split_at("hh:mm:ss".len());
    assert_eq!(time.matches(':').count(), 2, "{row}");
    assert_eq!(
        sentence,
        format!(" ({LOST_ERROR}): needs a reset or a reboot")
    );
    let status = test_box.ctl(&["status"]).stdout;
    assert!(
        status.lines().any(|line| line.starts_with(" GPU 1 ")
            && line.ends_with("lost (GPU_IS_LOST): needs a reset or a reboot")),
        "{status}"
    );

    test_box.set_driver_state(&three_gpus(false));
    eventually_equals(&expected_states("ok"), || states(&test_box.list()));
    assert_eq!(test_box.list()["gpus"][1]["lost_since"], Value::Null);
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn lost_gpu_survives_sensor_restart() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&three_gpus(false));
    let daemon = test_box.start();
    eventually_equals(&expected_states("ok"), || states(&test_box.list()));
    test_box.set_driver_state(&three_gpus(true));
    eventually_equals(&expected_states("lost"), || states(&test_box.list()));
    let since = test_box.list()["gpus"][1]["lost_since"].clone();

    let sensor = daemon.sensor_pid();
    daemon.kill_sensor();
    eventually("another sensor", || {
        (daemon.sensor_pid() != sensor).then_some(())
    });
    let fresh = || {
        let list = test_box.list();
        (states(&list), failed_readings(&list["gpus"][0]))
    };
    eventually_equals(&(expected_states("lost"), json!({})), fresh);
    assert_eq!(test_box.list()["gpus"][1]["lost_since"], since);
    daemon.stop();
}

#[test]
fn gpu_lost_before_start_is_a_fault() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&three_gpus(true));
    let daemon = test_box.start();
    let reset = "its name is unknown: nvidia-smi --gpu-reset -i 1, or a reboot";
    let what = format!("GPU at index 1: {LOST_ERROR}: {reset}");
    let fault = ("nvidia".to_owned(), what);
    eventually_equals(&vec![fault], || test_box.faults());
    let others = vec![(json!("first"), json!("ok")), (json!("third"), json!("ok"))];
    eventually_equals(&others, || states(&test_box.list()));
    daemon.stop();
}

#[test]
fn hotplugged_gpus_keep_names_and_indices() {
    let test_box = TestBox::new();
    let [a, b, c] =
        ["a", "b", "c"].map(|name| json!({"name": name, "uuid": format!("GPU-{name}")}));
    let shown = || -> Vec<String> {
        let list = test_box.list();
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter()
            .map(|gpu| match gpu["state"] == "gone" {
                true => format!("{}: {}, gone", gpu["gpu_index"], gpu["id"]),
                false => format!(
                    "{}: {}, {}",
                    gpu["gpu_index"],
                    gpu["id"],
                    failed_readings(gpu)
                ),
            })
            .collect()
    };
    let is = |gpus: &[(u32, &str, &str)]| -> Vec<String> {
        let gpus = gpus.iter();
        gpus.map(|(index, name, how)| format!("{index}: \"GPU-{name}\", {how}"))
            .collect()
    };
    test_box.set_driver_state(&json!({"gpus": [a]}));
    let daemon = test_box.start();
    // An index that a user may have just read is not given to another GPU.
    for (gpus, names) in [
        (
            json!([a, b, c]),
            [(0, "a", "{}"), (1, "b", "{}"), (2, "c", "{}")],
        ),
        (
            json!([b, c]),
            [(0, "a", "gone"), (1, "b", "{}"), (2, "c", "{}")],
        ),
        (
            json!([]),
            [(0, "a", "gone"), (1, "b", "gone"), (2, "c", "gone")],
        ),
        (
            json!([c, a]),
            [(0, "a", "{}"), (1, "b", "gone"), (2, "c", "{}")],
        ),
    ] {
        test_box.set_driver_state(&json!({"gpus": gpus}));
        eventually_equals(&is(&names), shown);
    }
    let faults = test_box.faults().into_iter().map(|(part, _)| part);
    assert_eq!(faults.collect::<Vec<_>>(), ["GPU 1"]);
    daemon.stop();
}

#[test]
fn lost_code_of_getters_marks_gpu_lost() {
    let test_box = TestBox::new();
    let state =
        |errors: &Value| json!({"gpus": [{"name": "first"}, {"name": "second", "errors": errors}]});
    test_box.set_driver_state(&state(&json!({})));
    let daemon = test_box.start();
    let shown = || states(&test_box.list());
    let is = |second: &str| {
        vec![
            (json!("first"), json!("ok")),
            (json!("second"), json!(second)),
        ]
    };
    eventually_equals(&is("ok"), shown);
    for code in [15, 16] {
        test_box.set_driver_state(&state(
            &json!({"nvmlDeviceGetPowerUsage": code, "nvmlDeviceGetName": code}),
        ));
        eventually_equals(&is("lost"), shown);
        test_box.set_driver_state(&state(&json!({})));
        eventually_equals(&is("ok"), shown);
    }
    daemon.stop();
}

#[test]
fn single_handle_failure_keeps_row_and_times() {
    let test_box = TestBox::new();
    let state = |errors: &Value| {
        json!({"gpus": [{
            "name": "first", "errors": errors,
            "processes": [{"pid": std::process::id(), "memory": 1}],
        }]})
    };
    test_box.set_driver_state(&state(&json!({})));
    let daemon = test_box.start();
    let first_seen = || test_box.list()["procs"][0]["first_seen"].clone();
    eventually_equals(&true, || first_seen().is_string());
    let before = first_seen();
    test_box.set_driver_state(&state(&json!({"nvmlDeviceGetHandleByIndex_v2": 999})));
    eventually_equals(&vec![(json!("first"), json!("unknown"))], || {
        states(&test_box.list())
    });
    test_box.set_driver_state(&state(&json!({})));
    eventually_equals(&vec![(json!("first"), json!("ok"))], || {
        states(&test_box.list())
    });
    eventually_equals(&before, first_seen);
    daemon.stop();
}

fn three_gpus_with_error(errors: &Value) -> Value {
    json!({"gpus": [
        {"name": "first"},
        {"name": "second", "uuid": "GPU-second", "errors": errors},
        {"name": "third"},
    ]})
}

#[test]
fn lost_gpu_keeps_row_when_handle_fails() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&three_gpus_with_error(
        &json!({"nvmlDeviceGetMemoryInfo_v2": 15}),
    ));
    let daemon = test_box.start();
    eventually_equals(&expected_states("lost"), || states(&test_box.list()));
    test_box.set_driver_state(&three_gpus_with_error(
        &json!({"nvmlDeviceGetHandleByIndex_v2": 4}),
    ));
    eventually_equals(&expected_states("not_permitted"), || {
        states(&test_box.list())
    });
    let what = "not permitted (the driver denies access (4)): see the modes of /dev/nvidia*";
    let faults = [("GPU 1".to_owned(), what.to_owned())];
    assert_eq!(test_box.faults(), faults);
    assert_eq!(test_box.list()["gpus"][1]["id"], "GPU-second");
    daemon.stop();
}

fn time_after(text: &str, words: &str) -> Option<String> {
    let (_, behind) = text.split_once(words)?;
    behind.get(.."hh:mm:ss".len()).map(str::to_owned)
}

#[test]
fn every_screen_has_same_time_for_a_state() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&three_gpus_with_error(&json!({})));
    let daemon = test_box.start();
    eventually_equals(&expected_states("ok"), || states(&test_box.list()));
    let beginning = |words: &str| {
        let list = test_box.table(&["list"]);
        let listed = time_after(&list, &format!("{words} since ")).unwrap();
        let status = test_box.ctl(&["status"]).stdout;
        let mut lines = status.lines();
        let line = lines
            .find(|line| line.contains(&format!(": {words} (")))
            .unwrap();
        assert_eq!(
            time_after(line, "fault since "),
            Some(listed.clone()),
            "{list}{status}"
        );
        listed
    };
    let handle = |code: u32| three_gpus_with_error(&json!({"nvmlDeviceGetHandleByIndex_v2": code}));
    let second = || Timestamp::from(SystemTime::now()).0 / 1_000;
    let another_second = || {
        let now = second();
        eventually("another second", || (second() > now).then_some(()));
    };
    test_box.set_driver_state(&handle(15));
    eventually_equals(&expected_states("lost"), || states(&test_box.list()));
    let lost = beginning("lost");
    another_second();
    // Another reason for the same state.
    test_box.set_driver_state(&handle(16));
    eventually_equals(&json!("GPU_REQUIRES_RESET"), || {
        test_box.list()["gpus"][1]["lost_reason"].clone()
    });
    assert_eq!(beginning("lost"), lost);
    test_box.set_driver_state(&handle(4));
    eventually_equals(&expected_states("not_permitted"), || {
        states(&test_box.list())
    });
    assert_ne!(beginning("not permitted"), lost);
    daemon.stop();
}
