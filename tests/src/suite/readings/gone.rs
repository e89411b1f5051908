//! GPUs that leave their driver's list, come back, and are dropped from ours.

use gpukill_tests::harness::{NOBODY, Stage, acting_as, becomes, can_act_as_others, skip};
use serde_json::{Value, json};

/// GPUs of these names, each with the address of its place.
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

/// Number, name and state of each GPU.
fn states(stage: &Stage) -> Vec<Value> {
    let list = stage.list();
    let rows = list["gpus"].as_array().unwrap().iter();
    rows.map(|gpu| json!([gpu["gpu_index"], gpu["name"], gpu["state"]]))
        .collect()
}

/// What happened to GPUs, and what was asked of them, the oldest first.
fn events(stage: &Stage) -> Vec<Value> {
    let ran = stage.ctl(&[
        "audit",
        "actions",
        "--kind",
        "device,forgotten",
        "-o",
        "json",
    ]);
    // Where there is none, it says so by its code.
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

/// In how many lines of the log this is said.
fn logged(stage: &Stage, what: &str) -> usize {
    let log = std::fs::read_to_string(stage.path("daemon.log")).unwrap();
    log.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn a_gpu_that_leaves_its_drivers_list_keeps_its_row_until_it_is_back() {
    let stage = Stage::new();
    stage.play(&gpus(&["a", "b", "c"]));
    let daemon = stage.start();
    let all = |b: &str| {
        vec![
            json!([0, "a", "ok"]),
            json!([1, "b", b]),
            json!([2, "c", "ok"]),
        ]
    };
    becomes(&all("ok"), || states(&stage));
    stage.play(&gpus(&["a", "c"]));
    becomes(&all("gone"), || states(&stage));
    // Nothing of it is told as zero.
    let gone = stage.list()["gpus"][1].clone();
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
    let what = format!("gone ({why}): where it stays away, gpukillctl forget --gpu 1");
    assert_eq!(stage.faults(), [("GPU 1".to_owned(), what)]);
    let table = stage.table(&["list", "--width", "120"]);
    let row = table
        .lines()
        .find(|line| line.contains("gone since "))
        .unwrap();
    assert!(
        row.ends_with(&format!(" ({why}): gpukillctl forget --gpu 1")),
        "{table}"
    );
    assert_eq!(logged(&stage, "GPU 1 is gone"), 1);
    let left = json!(["device", "GPU-b", "GPU gone"]);
    becomes(&vec![left.clone()], || events(&stage));

    stage.play(&gpus(&["a", "b", "c"]));
    becomes(&all("ok"), || states(&stage));
    assert_eq!(stage.faults(), []);
    assert_eq!(logged(&stage, "GPU 1 is back"), 1);
    let back = json!(["device", "GPU-b", "GPU is back"]);
    becomes(&vec![left, back], || events(&stage));
    daemon.stop();
}

#[test]
fn a_driver_that_lets_go_of_all_is_told_once_and_quiesced_it_is_not() {
    let stage = Stage::new();
    stage.play(&gpus(&["a", "b"]));
    let daemon = stage.start();
    let all = |state: &str| vec![json!([0, "a", state]), json!([1, "b", state])];
    becomes(&all("ok"), || states(&stage));
    if rustix::process::geteuid().is_root() {
        assert_eq!(stage.ctl(&["quiesce", "--minutes", "30"]).code, 0);
        stage.play(&gpus(&["a"]));
        becomes(&json!("quiesced"), || {
            stage.list()["backends"][0]["state"].clone()
        });
        assert!(states(&stage).iter().all(|gpu| gpu[2] != "gone"));
        stage.play(&gpus(&["a", "b"]));
        assert_eq!(stage.ctl(&["resume"]).code, 0);
        becomes(&all("ok"), || states(&stage));
    }
    stage.play(&gpus(&[]));
    becomes(&all("gone"), || states(&stage));
    let what = "all 2 GPUs are gone: its driver was unloaded";
    assert_eq!(stage.faults(), [("nvidia".to_owned(), what.to_owned())]);
    assert_eq!(events(&stage), Vec::<Value>::new());
    stage.play(&gpus(&["a", "b"]));
    becomes(&all("ok"), || states(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn an_admin_drops_a_gpu_that_is_gone_and_no_other() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root is an admin here");
    }
    let stage = Stage::new();
    stage.open_to_all();
    stage.play(&gpus(&["a", "b"]));
    let daemon = stage.start();
    let both = |b: &str| vec![json!([0, "a", "ok"]), json!([1, "b", b])];
    becomes(&both("ok"), || states(&stage));
    let refused = stage.ctl(&["forget", "--gpu", "1"]);
    let why = "gpukillctl: GPU 1 is not gone: its driver lists it\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (3, why));
    stage.play(&gpus(&["a"]));
    becomes(&both("gone"), || states(&stage));
    if can_act_as_others() {
        let denied = acting_as(NOBODY, &[], || stage.ctl(&["forget", "--gpu", "1"]));
        assert_eq!(denied.code, 4, "{denied:?}");
        assert_eq!(states(&stage), both("gone"));
    }
    let forgotten = stage.ctl(&["forget", "--gpu", "1"]);
    let told = "GPU 1 (GPU-b) is not listed any more\n";
    assert_eq!((forgotten.code, forgotten.stdout.as_str()), (0, told));
    becomes(&vec![json!([0, "a", "ok"])], || states(&stage));
    assert_eq!(stage.faults(), []);
    let expected = vec![
        json!(["device", "GPU-b", "GPU gone"]),
        json!(["forgotten", "GPU-b", "a GPU that is gone"]),
    ];
    becomes(&expected, || events(&stage));
    // It comes back with its number, and as any GPU that comes.
    stage.play(&gpus(&["a", "b"]));
    becomes(&both("ok"), || states(&stage));
    becomes(&expected, || events(&stage));
    // After a restart nobody knows of one that is not there.
    stage.play(&gpus(&["a"]));
    becomes(&both("gone"), || states(&stage));
    daemon.stop();
    let daemon = stage.start();
    becomes(&vec![json!([0, "a", "ok"])], || states(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

/// The UUIDs of two GPUs.
const B: &str = "GPU-bbbb0000-1111-2222-3333-444455556666";
const C: &str = "GPU-cccc0000-1111-2222-3333-444455556666";

/// The same, whose UUIDs are such as NVIDIA's are.
fn with_uuids(names: &[&str]) -> Value {
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
fn two_gpus_that_are_gone_from_one_place_are_two_faults_and_forgotten_one_by_one() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root is an admin here");
    }
    let stage = Stage::new();
    stage.play(&with_uuids(&["a", "b"]));
    let daemon = stage.start();
    let rows = |others: &[Value]| [&[json!([0, "a", "ok"])], others].concat();
    becomes(&rows(&[json!([1, "b", "ok"])]), || states(&stage));
    // Another takes its place, and is gone in its turn.
    stage.play(&with_uuids(&["a", "c"]));
    let sorted = || {
        let mut states = states(&stage);
        states.sort_by_key(Value::to_string);
        states
    };
    becomes(
        &rows(&[json!([1, "b", "gone"]), json!([1, "c", "ok"])]),
        sorted,
    );
    stage.play(&with_uuids(&["a"]));
    let both = rows(&[json!([1, "b", "gone"]), json!([1, "c", "gone"])]);
    becomes(&both, sorted);
    let fault = |id: &str| {
        let why = "its driver does not list it";
        let what = format!("gone ({why}): where it stays away, gpukillctl forget --gpu {id}");
        ("GPU 1".to_owned(), what)
    };
    assert_eq!(stage.faults(), [fault(B), fault(C)]);
    let table = stage.table(&["list", "--width", "160"]);
    for id in [B, C] {
        assert!(
            table.contains(&format!("gpukillctl forget --gpu {id}")),
            "{table}"
        );
    }
    for typed in ["1", "0-1", "bbbb,1"] {
        let refused = stage.ctl(&["forget", "--gpu", typed]);
        assert_eq!(refused.code, 3, "{typed} {refused:?}");
        let which = "several GPUs have the number 1: name one by its UUID: ";
        assert!(refused.stderr.contains(which), "{refused:?}");
        assert!(refused.stderr.contains(&format!("{B}, {C}")), "{refused:?}");
        assert_eq!(sorted(), both);
    }
    let forgotten = stage.ctl(&["forget", "--gpu", B]);
    let told = format!("GPU 1 ({B}) is not listed any more\n");
    assert_eq!(
        (forgotten.code, forgotten.stdout.as_str()),
        (0, told.as_str())
    );
    becomes(&rows(&[json!([1, "c", "gone"])]), sorted);
    daemon.stop();
}
