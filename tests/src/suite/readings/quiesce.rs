//! Reclaiming the driver, so that it can be unloaded, updated or reset.

use gpukill_tests::harness::{
    CommandOutput, Daemon, NOBODY_UID, TestBox, can_run_as_other_users, eventually,
    eventually_equals, run_as_user,
};
use serde_json::{Value, json};

fn backend_state_and_temperature(test_box: &TestBox) -> (Value, Value) {
    let list = test_box.list();
    let state = list["backends"][0]["state"].clone();
    (state, list["gpus"][0]["temp_c"].clone())
}

/// A box with the group of the user who runs this test as operators.
fn box_with_operator_group() -> TestBox {
    let test_box = TestBox::new();
    let group = std::process::Command::new("id")
        .arg("-gn")
        .output()
        .unwrap();
    let group = String::from_utf8(group.stdout).unwrap();
    test_box.configure(&format!("[access]\noperator_group = {:?}", group.trim()));
    test_box
}

/// Whether any process of the daemon maps the stand-in library, as it would hold the device
/// files of the driver.
fn maps_driver_library(daemon: &Daemon, test_box: &TestBox) -> bool {
    let library = std::fs::canonicalize(test_box.library()).unwrap();
    let library = library.to_str().unwrap();
    let maps = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let children: String = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .collect();
    children
        .split_whitespace()
        .chain([daemon.pid().to_string().as_str()])
        .any(|pid| maps(pid).contains(library))
}

#[test]
fn driver_is_released_until_resume() {
    let test_box = box_with_operator_group();
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 41}]}));
    let daemon = test_box.start();
    eventually_equals(&(json!("ready"), json!(41)), || {
        backend_state_and_temperature(&test_box)
    });
    assert!(maps_driver_library(&daemon, &test_box));

    let quiesce = test_box.ctl(&["quiesce", "--minutes", "30"]);
    assert_eq!(quiesce.code, 0, "{quiesce:?}");
    assert!(
        quiesce
            .stdout
            .starts_with("the NVIDIA driver is released until "),
        "{quiesce:?}"
    );
    // The command reports success only after the release.
    assert!(!maps_driver_library(&daemon, &test_box));
    eventually_equals(&json!("quiesced"), || {
        backend_state_and_temperature(&test_box).0
    });
    let gpu = test_box.list()["gpus"][0].clone();
    assert_eq!(gpu["temp_c"], Value::Null);
    assert!(
        gpu["reasons"]["temp_c"]
            .as_str()
            .unwrap()
            .starts_with("stale: ")
    );
    // Quiescing is a request and no fault: `status` shows it in one line.
    assert_eq!(test_box.faults(), []);
    let status = test_box.ctl(&["status", "--width", "200"]).stdout;
    let faults: Vec<&str> = status
        .lines()
        .filter(|line| line.contains("nvidia"))
        .collect();
    assert!(
        faults.len() == 1
            && faults[0].contains("quiesced on request since ")
            && faults[0].ends_with(": gpukillctl resume"),
        "{status}"
    );
    // Polls and answers go on.
    assert_eq!(test_box.ctl(&["list"]).code, 0);
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 42}]}));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!maps_driver_library(&daemon, &test_box));

    let resume = test_box.ctl(&["resume"]);
    assert_eq!(resume.code, 0, "{resume:?}");
    eventually_equals(&(json!("ready"), json!(42)), || {
        backend_state_and_temperature(&test_box)
    });
    assert_eq!(test_box.faults(), []);
    daemon.stop();
    let kinds = eventually("both are recorded", || {
        let database = crate::store::open_database(&test_box, "audit.db");
        let mut statement = database
            .prepare(
                "SELECT kind, uid FROM event WHERE kind IN ('quiesced', 'resumed') ORDER BY id",
            )
            .ok()?;
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .ok()?;
        rows.collect::<Result<Vec<(String, u32)>, _>>().ok()
    });
    let me = rustix::process::getuid().as_raw();
    assert_eq!(
        kinds,
        [("quiesced".to_owned(), me), ("resumed".to_owned(), me)]
    );
}

#[test]
fn quiesce_needs_the_right_to_end_any() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 41}]}));
    test_box.make_world_accessible();
    let daemon = test_box.start();
    eventually_equals(&(json!("ready"), json!(41)), || {
        backend_state_and_temperature(&test_box)
    });
    for command in ["quiesce", "resume"] {
        let CommandOutput { code, stderr, .. } =
            run_as_user(NOBODY_UID, &[], || test_box.ctl(&[command]));
        assert_eq!(code, 4, "{stderr}");
        assert!(stderr.contains("hint: ask root, or someone in group suite:operators"));
    }
    assert_eq!(backend_state_and_temperature(&test_box).0, "ready");
    daemon.stop();
}

#[test]
fn hanging_driver_is_released() {
    let test_box = box_with_operator_group();
    test_box.set_driver_state(&json!({"gpus": [{"temperature": 41}]}));
    let daemon = test_box.start();
    eventually_equals(&(json!("ready"), json!(41)), || {
        backend_state_and_temperature(&test_box)
    });
    test_box.set_driver_state(&json!({"gpus": [{}], "hang": ["nvmlDeviceGetUtilizationRates"]}));
    eventually("it hangs", || test_box.faults().pop());
    let quiesce = test_box.ctl(&["quiesce"]);
    assert_eq!(quiesce.code, 0, "{quiesce:?}");
    assert!(!maps_driver_library(&daemon, &test_box));
    daemon.stop();
}
