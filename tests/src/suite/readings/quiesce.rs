//! Letting go of the driver, so that it can be unloaded, updated or reset.

use gpukill_tests::harness::{
    Daemon, NOBODY, Ran, Stage, acting_as, becomes, can_act_as_others, eventually,
};
use serde_json::{Value, json};

fn reading(stage: &Stage) -> (Value, Value) {
    let list = stage.list();
    let state = list["backends"][0]["state"].clone();
    (state, list["gpus"][0]["temp_c"].clone())
}

/// A box whose operators are whoever runs this test.
fn operated() -> Stage {
    let stage = Stage::new();
    let group = std::process::Command::new("id")
        .arg("-gn")
        .output()
        .unwrap();
    let group = String::from_utf8(group.stdout).unwrap();
    stage.configure(&format!("[access]\noperator_group = {:?}", group.trim()));
    stage
}

/// Whether any process that belongs to the daemon holds the stand-in's library,
/// as it would hold the driver's devices.
fn holds_the_driver(daemon: &Daemon, stage: &Stage) -> bool {
    let library = std::fs::canonicalize(stage.library()).unwrap();
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
fn nothing_holds_the_driver_until_it_is_taken_again() {
    let stage = operated();
    stage.play(&json!({"gpus": [{"temperature": 41}]}));
    let daemon = stage.start();
    becomes(&(json!("ready"), json!(41)), || reading(&stage));
    assert!(holds_the_driver(&daemon, &stage));

    let quiesce = stage.ctl(&["quiesce", "--minutes", "30"]);
    assert_eq!(quiesce.code, 0, "{quiesce:?}");
    assert!(
        quiesce
            .stdout
            .starts_with("the NVIDIA driver is let go until "),
        "{quiesce:?}"
    );
    // It says so only when it is so.
    assert!(!holds_the_driver(&daemon, &stage));
    becomes(&json!("quiesced"), || reading(&stage).0);
    let gpu = stage.list()["gpus"][0].clone();
    assert_eq!(gpu["temp_c"], Value::Null);
    assert!(
        gpu["reasons"]["temp_c"]
            .as_str()
            .unwrap()
            .starts_with("stale: ")
    );
    // It is a wish, and no fault: told once.
    assert_eq!(stage.faults(), []);
    let status = stage.ctl(&["status", "--width", "200"]).stdout;
    let told: Vec<&str> = status
        .lines()
        .filter(|line| line.contains("nvidia"))
        .collect();
    assert!(
        told.len() == 1
            && told[0].contains("quiesced on request since ")
            && told[0].ends_with(": gpukillctl resume"),
        "{status}"
    );
    // Polls and answers go on.
    assert_eq!(stage.ctl(&["list"]).code, 0);
    stage.play(&json!({"gpus": [{"temperature": 42}]}));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!holds_the_driver(&daemon, &stage));

    let resume = stage.ctl(&["resume"]);
    assert_eq!(resume.code, 0, "{resume:?}");
    becomes(&(json!("ready"), json!(42)), || reading(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
    let kinds = eventually("both are recorded", || {
        let database = rusqlite::Connection::open(stage.path("state/audit.db")).ok()?;
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
fn whoever_may_not_end_others_processes_may_not_take_the_driver_away_either() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{"temperature": 41}]}));
    stage.open_to_all();
    let daemon = stage.start();
    becomes(&(json!("ready"), json!(41)), || reading(&stage));
    for command in ["quiesce", "resume"] {
        let Ran { code, stderr, .. } = acting_as(NOBODY, &[], || stage.ctl(&[command]));
        assert_eq!(code, 4, "{stderr}");
        assert!(stderr.contains("hint: ask root, or someone in group suite:operators"));
    }
    assert_eq!(reading(&stage).0, "ready");
    daemon.stop();
}

#[test]
fn a_driver_that_hangs_is_let_go_too() {
    let stage = operated();
    stage.play(&json!({"gpus": [{"temperature": 41}]}));
    let daemon = stage.start();
    becomes(&(json!("ready"), json!(41)), || reading(&stage));
    stage.play(&json!({"gpus": [{}], "hang": ["nvmlDeviceGetUtilizationRates"]}));
    eventually("it hangs", || stage.faults().pop());
    let quiesce = stage.ctl(&["quiesce"]);
    assert_eq!(quiesce.code, 0, "{quiesce:?}");
    assert!(!holds_the_driver(&daemon, &stage));
    daemon.stop();
}
