//! GPUs that are lost, that go and that come.

use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{Stage, becomes, eventually, wrong};
use serde_json::{Value, json};
use std::time::SystemTime;

const LOST: &str = "GPU_IS_LOST";

fn states(list: &Value) -> Vec<(Value, Value)> {
    let gpus = list["gpus"].as_array().unwrap();
    gpus.iter()
        .map(|gpu| (gpu["name"].clone(), gpu["state"].clone()))
        .collect()
}

fn three(second_is_lost: bool) -> Value {
    json!({"gpus": [
        {"name": "first"}, {"name": "second", "lost": second_is_lost}, {"name": "third"},
    ]})
}

fn expected(second: &str) -> Vec<(Value, Value)> {
    vec![
        (json!("first"), json!("ok")),
        (json!("second"), json!(second)),
        (json!("third"), json!("ok")),
    ]
}

#[test]
fn a_lost_gpu_says_so_leaves_the_others_alone_and_is_well_again_when_it_is_back() {
    let stage = Stage::new();
    stage.play(&three(false));
    let daemon = stage.start();
    becomes(&expected("ok"), || states(&stage.list()));
    stage.play(&three(true));
    becomes(&expected("lost"), || states(&stage.list()));

    let list = stage.list();
    let lost = &list["gpus"][1];
    assert_eq!(lost["lost_reason"], LOST);
    assert!(lost["lost_since"].is_string());
    assert_eq!(lost["util_pct"], Value::Null);
    assert_eq!(lost["reasons"]["util_pct"], format!("failed: {LOST}"));
    assert_eq!(wrong(&list["gpus"][2]), json!({}));
    assert_eq!(
        stage.faults(),
        [(
            "GPU 1".to_owned(),
            format!("lost ({LOST}): needs a reset or a reboot")
        )]
    );
    let table = stage.table(&["list"]);
    let row = table.lines().nth(2).unwrap();
    let (before, after) = row.split_once("lost since ").unwrap();
    assert_eq!(before, "   1  second  ");
    let (time, sentence) = after.split_at("hh:mm:ss".len());
    assert_eq!(time.matches(':').count(), 2, "{row}");
    assert_eq!(sentence, format!(" ({LOST}): needs a reset or a reboot"));
    let status = stage.ctl(&["status"]).stdout;
    assert!(
        status.lines().any(|line| line.starts_with(" GPU 1 ")
            && line.ends_with("lost (GPU_IS_LOST): needs a reset or a reboot")),
        "{status}"
    );

    stage.play(&three(false));
    becomes(&expected("ok"), || states(&stage.list()));
    assert_eq!(stage.list()["gpus"][1]["lost_since"], Value::Null);
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_lost_gpu_stays_in_the_list_when_the_sensor_is_replaced() {
    let stage = Stage::new();
    stage.play(&three(false));
    let daemon = stage.start();
    becomes(&expected("ok"), || states(&stage.list()));
    stage.play(&three(true));
    becomes(&expected("lost"), || states(&stage.list()));
    let since = stage.list()["gpus"][1]["lost_since"].clone();

    let sensor = daemon.sensor();
    daemon.kill_sensor();
    eventually("another sensor", || {
        (daemon.sensor() != sensor).then_some(())
    });
    let fresh = || {
        let list = stage.list();
        (states(&list), wrong(&list["gpus"][0]))
    };
    becomes(&(expected("lost"), json!({})), fresh);
    assert_eq!(stage.list()["gpus"][1]["lost_since"], since);
    daemon.stop();
}

#[test]
fn a_gpu_that_was_lost_before_the_daemon_came_is_a_fault() {
    let stage = Stage::new();
    stage.play(&three(true));
    let daemon = stage.start();
    let reset = "it has no name here: nvidia-smi --gpu-reset -i 1, or a reboot";
    let what = format!("GPU at index 1: {LOST}: {reset}");
    let fault = ("nvidia".to_owned(), what);
    becomes(&vec![fault], || stage.faults());
    let others = vec![(json!("first"), json!("ok")), (json!("third"), json!("ok"))];
    becomes(&others, || states(&stage.list()));
    daemon.stop();
}

#[test]
fn gpus_come_and_go_while_the_daemon_runs_and_keep_their_names_and_numbers() {
    let stage = Stage::new();
    let [a, b, c] =
        ["a", "b", "c"].map(|name| json!({"name": name, "uuid": format!("GPU-{name}")}));
    let shown = || -> Vec<String> {
        let list = stage.list();
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter()
            .map(|gpu| match gpu["state"] == "gone" {
                true => format!("{}: {}, gone", gpu["gpu_index"], gpu["id"]),
                false => format!("{}: {}, {}", gpu["gpu_index"], gpu["id"], wrong(gpu)),
            })
            .collect()
    };
    let is = |gpus: &[(u32, &str, &str)]| -> Vec<String> {
        let gpus = gpus.iter();
        gpus.map(|(index, name, how)| format!("{index}: \"GPU-{name}\", {how}"))
            .collect()
    };
    stage.play(&json!({"gpus": [a]}));
    let daemon = stage.start();
    // A number that somebody may have just read names no other GPU.
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
        stage.play(&json!({"gpus": gpus}));
        becomes(&is(&names), shown);
    }
    let faults = stage.faults().into_iter().map(|(part, _)| part);
    assert_eq!(faults.collect::<Vec<_>>(), ["GPU 1"]);
    daemon.stop();
}

#[test]
fn a_gpu_that_only_its_getters_call_lost_is_lost_too() {
    let stage = Stage::new();
    let state =
        |errors: &Value| json!({"gpus": [{"name": "first"}, {"name": "second", "errors": errors}]});
    stage.play(&state(&json!({})));
    let daemon = stage.start();
    let shown = || states(&stage.list());
    let is = |second: &str| {
        vec![
            (json!("first"), json!("ok")),
            (json!("second"), json!(second)),
        ]
    };
    becomes(&is("ok"), shown);
    for code in [15, 16] {
        stage.play(&state(
            &json!({"nvmlDeviceGetPowerUsage": code, "nvmlDeviceGetName": code}),
        ));
        becomes(&is("lost"), shown);
        stage.play(&state(&json!({})));
        becomes(&is("ok"), shown);
    }
    daemon.stop();
}

#[test]
fn a_gpu_whose_handle_fails_for_once_keeps_its_row_and_its_processes_their_time() {
    let stage = Stage::new();
    let state = |errors: &Value| {
        json!({"gpus": [{
            "name": "first", "errors": errors,
            "processes": [{"pid": std::process::id(), "memory": 1}],
        }]})
    };
    stage.play(&state(&json!({})));
    let daemon = stage.start();
    let first_seen = || stage.list()["procs"][0]["first_seen"].clone();
    becomes(&true, || first_seen().is_string());
    let before = first_seen();
    stage.play(&state(&json!({"nvmlDeviceGetHandleByIndex_v2": 999})));
    becomes(&vec![(json!("first"), json!("unknown"))], || {
        states(&stage.list())
    });
    stage.play(&state(&json!({})));
    becomes(&vec![(json!("first"), json!("ok"))], || {
        states(&stage.list())
    });
    becomes(&before, first_seen);
    daemon.stop();
}

/// Three GPUs of which the driver answers these codes about the second.
fn second_fails(errors: &Value) -> Value {
    json!({"gpus": [
        {"name": "first"},
        {"name": "second", "uuid": "GPU-second", "errors": errors},
        {"name": "third"},
    ]})
}

#[test]
fn a_gpu_that_is_lost_from_the_first_keeps_its_row_when_its_handle_fails_too() {
    let stage = Stage::new();
    stage.play(&second_fails(&json!({"nvmlDeviceGetMemoryInfo_v2": 15})));
    let daemon = stage.start();
    becomes(&expected("lost"), || states(&stage.list()));
    stage.play(&second_fails(&json!({"nvmlDeviceGetHandleByIndex_v2": 4})));
    becomes(&expected("not_permitted"), || states(&stage.list()));
    let what = "not permitted (the driver denies access (4)): see the modes of /dev/nvidia*";
    let faults = [("GPU 1".to_owned(), what.to_owned())];
    assert_eq!(stage.faults(), faults);
    assert_eq!(stage.list()["gpus"][1]["id"], "GPU-second");
    daemon.stop();
}

/// The time that stands behind these words.
fn time_behind(text: &str, words: &str) -> Option<String> {
    let (_, behind) = text.split_once(words)?;
    behind.get(.."hh:mm:ss".len()).map(str::to_owned)
}

#[test]
fn every_screen_has_one_time_for_one_state_of_a_gpu() {
    let stage = Stage::new();
    stage.play(&second_fails(&json!({})));
    let daemon = stage.start();
    becomes(&expected("ok"), || states(&stage.list()));
    let beginning = |words: &str| {
        let list = stage.table(&["list"]);
        let listed = time_behind(&list, &format!("{words} since ")).unwrap();
        let status = stage.ctl(&["status"]).stdout;
        let mut lines = status.lines();
        let line = lines
            .find(|line| line.contains(&format!(": {words} (")))
            .unwrap();
        assert_eq!(
            time_behind(line, "fault since "),
            Some(listed.clone()),
            "{list}{status}"
        );
        listed
    };
    let handle = |code: u32| second_fails(&json!({"nvmlDeviceGetHandleByIndex_v2": code}));
    let second = || Timestamp::from(SystemTime::now()).0 / 1_000;
    let another_second = || {
        let now = second();
        eventually("another second", || (second() > now).then_some(()));
    };
    stage.play(&handle(15));
    becomes(&expected("lost"), || states(&stage.list()));
    let lost = beginning("lost");
    another_second();
    // Another reason for the same state.
    stage.play(&handle(16));
    becomes(&json!("GPU_REQUIRES_RESET"), || {
        stage.list()["gpus"][1]["lost_reason"].clone()
    });
    assert_eq!(beginning("lost"), lost);
    stage.play(&handle(4));
    becomes(&expected("not_permitted"), || states(&stage.list()));
    assert_ne!(beginning("not permitted"), lost);
    daemon.stop();
}
