//! `audit` lists the runs of jobs and processes with how each ended.

use gpukill_tests::harness::{FakeDriver, TestBox, TestProcess, eventually};
use serde_json::Value;
use std::time::Duration;

fn runs(test_box: &TestBox, arguments: &[&str]) -> Vec<Value> {
    let ran = test_box.ctl(&[&["audit", "-o", "json"], arguments].concat());
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    document["runs"].as_array().cloned().unwrap_or_default()
}

/// Waits until the run of this process, with its command line, ended like this.
fn ended_run(test_box: &TestBox, pid: u32, end: &str) -> Value {
    eventually(&format!("the run of {pid} is {end}"), || {
        let mut found = runs(test_box, &["--processes"]).into_iter();
        found.find(|run| {
            run["pids"] == Value::from_iter([pid]) && run["end"] == end && !run["command"].is_null()
        })
    })
}

#[test]
fn runs_say_how_each_process_ended() {
    let test_box = TestBox::new();
    let driver = FakeDriver::start(&test_box, Duration::ZERO);
    let train = TestProcess::start("python train.py");
    let mut serve = Some(TestProcess::start("vllm serve"));
    let render = TestProcess::start("blender");
    let pids = [&train, &render].map(TestProcess::pid);
    driver.add_processes(&pids);
    driver.add_processes(&[serve.as_ref().unwrap().pid()]);
    let daemon = test_box.start();

    let run = ended_run(&test_box, train.pid(), "running");
    assert_eq!(run["label"], "python train.py");
    assert_eq!(
        (&run["ended_at"], &run["gpu_indices"]),
        (&Value::Null, &[0].as_slice().into())
    );
    let row = eventually("it is known since when it uses the GPU", || {
        let listed = test_box.list();
        let mut rows = listed["procs"].as_array()?.iter();
        let row = rows.find(|row| row["pid"] == train.pid())?;
        row["first_seen"].is_string().then(|| row.clone())
    });
    assert_eq!(run["started_at"], row["first_seen"]);
    for field in ["user", "owner", "owner_uid", "command", "job"] {
        assert_eq!(run[field], row[field], "{field}");
    }

    // Killed, exited, and ended while gpukilld was not running.
    let ran = test_box.ctl(&["kill", &train.pid().to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let killed = ended_run(&test_box, train.pid(), "killed");
    let actions = test_box.json(&["audit", "actions", "--kind", "kill", "-o", "json"]);
    assert_eq!(killed["action_id"], actions["actions"][0]["id"]);
    assert_eq!(killed["ended_by_uid"], rustix::process::getuid().as_raw());
    let serve_pid = serve.take().map(|process| process.pid()).unwrap();
    assert_eq!(
        ended_run(&test_box, serve_pid, "exited")["label"],
        "vllm serve"
    );
    daemon.stop();
    let render_pid = render.pid();
    drop(render);
    let daemon = test_box.start();
    let lost = ended_run(&test_box, render_pid, "unobserved");
    assert_eq!(lost["started_at"].is_string(), lost["ended_at"].is_string());

    // Filters match the texts on the screen.
    for (filter, pid) in [
        (["--process", "^python train"], train.pid()),
        (["--process", "^vllm serve$"], serve_pid),
        (["--command", "^blender 1000$"], render_pid),
    ] {
        let found = runs(&test_box, &[&["--processes"][..], &filter].concat());
        let found: Vec<&Value> = found.iter().map(|run| &run["pids"][0]).collect();
        assert_eq!(found, [pid], "{filter:?}");
    }
    assert_eq!(test_box.ctl(&["audit", "--command", "no such"]).code, 8);

    // The processes of these tests belong to one job.
    let jobs = runs(&test_box, &[]);
    let processes: u64 = jobs
        .iter()
        .filter_map(|run| run["processes"].as_u64())
        .sum();
    assert_eq!(processes, 3, "{jobs:?}");
    let screen = test_box.table(&["audit", "--processes"]);
    for text in [
        "PROCESS",
        "python train.py",
        "killed by",
        "exited",
        "unknown",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    daemon.stop();
}
