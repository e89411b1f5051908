//! GPUs that disappear from the list of their driver, come back, and are forgotten.

use gpukill_tests::harness::{
    NOBODY_UID, TestBox, can_run_as_other_users, eventually_equals, run_as_user, skip,
};
use serde_json::{Value, json};

/// GPUs with these names, each with an address.
fn gpus(names: &[&str]) -> Value {
    let gpu = |name: &&str| {
        json!({
            "name": name,
            "uuid": format!("GPU-{name}"),
            "processes": [{"pid": std::process::id(), "memory": 1 << 20}],
        })
    };
    json!({"gpus": names.iter().map(gpu).collect::<Vec<_>>()})
}

/// The index, name and state of each GPU.
fn states(test_box: &TestBox) -> Vec<Value> {
    let list = test_box.list();
    let rows = list["gpus"].as_array().unwrap().iter();
    rows.map(|gpu| json!([gpu["gpu_index"], gpu["name"], gpu["state"]]))
        .collect()
}

/// Recorded events of GPUs and actions on them, the oldest first.
fn recorded_events_and_actions(test_box: &TestBox) -> Vec<Value> {
    let ran = test_box.ctl(&[
        "audit",
        "actions",
        "--kind",
        "device,forgotten",
        "-o",
        "json",
    ]);
    // Exit code 8 means that there are none.
    assert!([0, 8].contains(&ran.code), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let mut events: Vec<Value> = document["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["kind"], it["gpu_id"], it["what"]]))
        .collect();
    events.reverse();
    events
}

fn log_line_count(test_box: &TestBox, what: &str) -> usize {
    let log = std::fs::read_to_string(test_box.path("daemon.log")).unwrap();
    log.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn missing_gpu_keeps_its_row() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&gpus(&["a", "b", "c"]));
    let daemon = test_box.start();
    let all = |b: &str| {
        vec![
            json!([0, "a", "ok"]),
            json!([1, "b", b]),
            json!([2, "c", "ok"]),
        ]
    };
    eventually_equals(&all("ok"), || states(&test_box));
    test_box.set_driver_state(&gpus(&["a", "c"]));
    eventually_equals(&all("gone"), || states(&test_box));
    // No reading of it is shown as zero.
    let gone = test_box.list()["gpus"][1].clone();
    for field in [
        "mem_used_bytes",
        "mem_total_bytes",
        "util_pct",
        "pids",
        "temp_c",
    ] {
        let shown = json!([gone[field], gone["reasons"][field]]);
        assert_eq!(shown, json!([null, "failed: gone"]), "{field}");
    }
    assert!(gone["lost_since"].is_string(), "{gone}");
    let why = "its driver does not list it";
    assert_eq!(gone["lost_reason"], why);
    let what = format!("gone ({why}): if it will not return, run gpukillctl forget --gpu 1");
    assert_eq!(test_box.faults(), [("GPU 1".to_owned(), what)]);
    let table = test_box.table(&["list", "--width", "120"]);
    let row = table
        .lines()
        .find(|line| line.contains("gone since "))
        .unwrap();
    assert!(
        row.ends_with(&format!(" ({why}): gpukillctl forget --gpu 1")),
        "{table}"
    );
    assert_eq!(log_line_count(&test_box, "GPU 1 is gone"), 1);
    let left = json!(["device", "GPU-b", "GPU gone"]);
    eventually_equals(&vec![left.clone()], || {
        recorded_events_and_actions(&test_box)
    });

    test_box.set_driver_state(&gpus(&["a", "b", "c"]));
    eventually_equals(&all("ok"), || states(&test_box));
    assert_eq!(test_box.faults(), []);
    assert_eq!(log_line_count(&test_box, "GPU 1 is back"), 1);
    let back = json!(["device", "GPU-b", "GPU is back"]);
    eventually_equals(&vec![left, back], || recorded_events_and_actions(&test_box));
    daemon.stop();
}

#[test]
fn unloaded_driver_is_one_fault() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&gpus(&["a", "b"]));
    let daemon = test_box.start();
    let all = |state: &str| vec![json!([0, "a", state]), json!([1, "b", state])];
    eventually_equals(&all("ok"), || states(&test_box));
    if rustix::process::geteuid().is_root() {
        assert_eq!(test_box.ctl(&["quiesce", "--minutes", "30"]).code, 0);
        test_box.set_driver_state(&gpus(&["a"]));
        eventually_equals(&json!("quiesced"), || {
            test_box.list()["backends"][0]["state"].clone()
        });
        assert!(states(&test_box).iter().all(|gpu| gpu[2] != "gone"));
        test_box.set_driver_state(&gpus(&["a", "b"]));
        assert_eq!(test_box.ctl(&["resume"]).code, 0);
        eventually_equals(&all("ok"), || states(&test_box));
    }
    test_box.set_driver_state(&gpus(&[]));
    eventually_equals(&all("gone"), || states(&test_box));
    let what = "all 2 GPUs are gone: its driver was unloaded";
    assert_eq!(test_box.faults(), [("nvidia".to_owned(), what.to_owned())]);
    assert_eq!(recorded_events_and_actions(&test_box), Vec::<Value>::new());
    test_box.set_driver_state(&gpus(&["a", "b"]));
    eventually_equals(&all("ok"), || states(&test_box));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn admin_forgets_missing_gpu() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root is an admin here");
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.set_driver_state(&gpus(&["a", "b"]));
    let daemon = test_box.start();
    let both = |b: &str| vec![json!([0, "a", "ok"]), json!([1, "b", b])];
    eventually_equals(&both("ok"), || states(&test_box));
    let refused = test_box.ctl(&["forget", "--gpu", "1"]);
    let why = "gpukillctl: GPU 1 is not gone: its driver lists it\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (3, why));
    test_box.set_driver_state(&gpus(&["a"]));
    eventually_equals(&both("gone"), || states(&test_box));
    if can_run_as_other_users() {
        let denied = run_as_user(NOBODY_UID, &[], || test_box.ctl(&["forget", "--gpu", "1"]));
        assert_eq!(denied.code, 4, "{denied:?}");
        assert_eq!(states(&test_box), both("gone"));
    }
    let forgotten = test_box.ctl(&["forget", "--gpu", "1"]);
    let message = "GPU 1 (GPU-b) is not listed any more\n";
    assert_eq!((forgotten.code, forgotten.stdout.as_str()), (0, message));
    eventually_equals(&vec![json!([0, "a", "ok"])], || states(&test_box));
    assert_eq!(test_box.faults(), []);
    let expected = vec![
        json!(["device", "GPU-b", "GPU gone"]),
        json!(["forgotten", "GPU-b", "a GPU that is gone"]),
    ];
    eventually_equals(&expected, || recorded_events_and_actions(&test_box));
    // The GPU comes back with its index, like any new GPU.
    test_box.set_driver_state(&gpus(&["a", "b"]));
    eventually_equals(&both("ok"), || states(&test_box));
    eventually_equals(&expected, || recorded_events_and_actions(&test_box));
    // After a restart a GPU that is missing is unknown.
    test_box.set_driver_state(&gpus(&["a"]));
    eventually_equals(&both("gone"), || states(&test_box));
    daemon.stop();
    let daemon = test_box.start();
    eventually_equals(&vec![json!([0, "a", "ok"])], || states(&test_box));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

const B: &str = "GPU-bbbb0000-1111-2222-3333-444455556666";
const C: &str = "GPU-cccc0000-1111-2222-3333-444455556666";

/// GPUs with these names, and with UUIDs of the form that NVIDIA's have.
fn gpus_with_uuids(names: &[&str]) -> Value {
    let gpu = |name: &&str| {
        let uuid = match *name {
            "b" => B,
            "c" => C,
            _ => "GPU-aaaa0000-1111-2222-3333-444455556666",
        };
        json!({"name": name, "uuid": uuid})
    };
    json!({"gpus": names.iter().map(gpu).collect::<Vec<_>>()})
}

#[test]
fn two_missing_gpus_in_one_slot() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root is an admin here");
    }
    let test_box = TestBox::new();
    test_box.set_driver_state(&gpus_with_uuids(&["a", "b"]));
    let daemon = test_box.start();
    let rows = |others: &[Value]| [&[json!([0, "a", "ok"])], others].concat();
    eventually_equals(&rows(&[json!([1, "b", "ok"])]), || states(&test_box));
    // Another GPU takes the slot, and disappears too.
    test_box.set_driver_state(&gpus_with_uuids(&["a", "c"]));
    let sorted = || {
        let mut states = states(&test_box);
        states.sort_by_key(Value::to_string);
        states
    };
    eventually_equals(
        &rows(&[json!([1, "b", "gone"]), json!([1, "c", "ok"])]),
        sorted,
    );
    test_box.set_driver_state(&gpus_with_uuids(&["a"]));
    let both = rows(&[json!([1, "b", "gone"]), json!([1, "c", "gone"])]);
    eventually_equals(&both, sorted);
    let fault = |id: &str| {
        let why = "its driver does not list it";
        let what = format!("gone ({why}): if it will not return, run gpukillctl forget --gpu {id}");
        ("GPU 1".to_owned(), what)
    };
    assert_eq!(test_box.faults(), [fault(B), fault(C)]);
    let table = test_box.table(&["list", "--width", "160"]);
    for id in [B, C] {
        assert!(
            table.contains(&format!("gpukillctl forget --gpu {id}")),
            "{table}"
        );
    }
    for typed in ["1", "0-1", "bbbb,1"] {
        let refused = test_box.ctl(&["forget", "--gpu", typed]);
        assert_eq!(refused.code, 3, "{typed} {refused:?}");
        let which = "several GPUs have the number 1: name one by its UUID: ";
        assert!(refused.stderr.contains(which), "{refused:?}");
        assert!(refused.stderr.contains(&format!("{B}, {C}")), "{refused:?}");
        assert_eq!(sorted(), both);
    }
    let forgotten = test_box.ctl(&["forget", "--gpu", B]);
    let message = format!("GPU 1 ({B}) is not listed any more\n");
    assert_eq!(
        (forgotten.code, forgotten.stdout.as_str()),
        (0, message.as_str())
    );
    eventually_equals(&rows(&[json!([1, "c", "gone"])]), sorted);
    daemon.stop();
}
