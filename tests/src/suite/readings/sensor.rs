//! A driver that hangs or crashes takes the sensor with it, and nothing else.

use gpukill_tests::harness::{Daemon, Stage, becomes, built, copy_program, eventually};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One GPU, told apart by its temperature, and the functions that hang or crash.
fn at(temperature: u32, fault: &str) -> Value {
    let mut state = json!({"gpus": [{"temperature": temperature}]});
    if !fault.is_empty() {
        state[fault] = json!(["nvmlDeviceGetUtilizationRates"]);
    }
    state
}

/// The temperature, and why it is not known.
fn temperature(stage: &Stage) -> (Value, Value) {
    let gpu = stage.list()["gpus"][0].clone();
    (gpu["temp_c"].clone(), gpu["reasons"]["temp_c"].clone())
}

fn polls(stage: &Stage) -> u64 {
    stage.json(&["status", "-o", "json"])["polls"]
        .as_u64()
        .unwrap()
}

fn another_sensor(daemon: &Daemon, old: u32) {
    eventually("another sensor", || (daemon.sensor() != old).then_some(()));
}

#[test]
fn a_driver_that_hangs_makes_readings_old_and_stops_nothing() {
    let stage = Stage::new();
    stage.play(&at(41, ""));
    let daemon = stage.start();
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    let sensor = daemon.sensor();

    stage.play(&at(42, "hang"));
    let late = (
        "nvidia".to_owned(),
        "does not answer in time: readings are old".to_owned(),
    );
    // Older and older, and never passed off as new.
    becomes(&(Value::Null, json!("stale: 2 s")), || temperature(&stage));
    becomes(&vec![late], || stage.faults_now());
    let before = polls(&stage);
    eventually("polls go on", || (polls(&stage) > before + 5).then_some(()));
    let row = stage.table(&["list"]).lines().nth(1).unwrap().to_owned();
    assert!(row.contains("~41°"), "{row}");
    assert_eq!(stage.ctl(&["list"]).code, 0);

    stage.play(&at(43, ""));
    becomes(&(json!(43), Value::Null), || temperature(&stage));
    another_sensor(&daemon, sensor);
    assert_eq!(stage.faults(), []);
    assert!(!stage.table(&["list"]).contains('~'));
    daemon.stop();
}

#[test]
fn a_driver_that_has_not_answered_yet_is_starting_and_delays_nobody() {
    let stage = Stage::new();
    stage.play(&at(41, "hang"));
    let daemon = stage.start();
    let waiting = "has not answered yet: the driver may be waking its devices";
    becomes(&vec![("nvidia".to_owned(), waiting.to_owned())], || {
        stage.faults_now()
    });
    let status = stage.json(&["status", "-o", "json"]);
    assert_eq!(status["backends"][0]["state"], "starting");
    let before = polls(&stage);
    eventually("polls go on", || (polls(&stage) > before + 5).then_some(()));
    // It does not wait for the driver to end either.
    daemon.stop();
}

#[test]
fn a_library_that_was_overwritten_changes_nothing_of_the_daemons() {
    let stage = Stage::new();
    // Below `/dev` it may write.
    let there = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let [ours, new] = [stage.path("ours"), stage.path("new")];
    for file in [there.path(), &ours] {
        std::fs::write(file, "rules").unwrap();
        std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }
    let mut state = at(41, "");
    state["tamper"] = json!([there.path(), ours, new]);
    stage.play(&state);
    let daemon = stage.start();
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    let text = |file: &Path| std::fs::read_to_string(file).unwrap();
    assert!(text(there.path()).starts_with("rules!"));
    assert_eq!(text(&ours), "rules");
    assert!(!new.exists());
    for file in [there.path(), &ours] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let asked = polls(&stage);
    eventually("it polls on", || (polls(&stage) > asked).then_some(()));
    daemon.stop();
}

#[test]
fn a_library_that_was_overwritten_is_let_through_to_nothing() {
    let stage = Stage::new();
    let told = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let mut state = at(41, "");
    state["trespass"] = json!(told.path());
    stage.play(&state);
    let daemon = stage.start();
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    // Its standard error is nobody's terminal or journal, and no file of the daemon's is open.
    let descriptors = PathBuf::from(format!("/proc/{}/fd", daemon.sensor()));
    let leads_to = |it: &Path| std::fs::read_link(it).unwrap();
    let error = leads_to(&descriptors.join("2"));
    assert!(error.to_string_lossy().starts_with("pipe:"), "{error:?}");
    for descriptor in std::fs::read_dir(&descriptors).unwrap() {
        let open = leads_to(&descriptor.unwrap().path());
        assert!(!open.starts_with(stage.path("")), "{}", open.display());
    }
    let text = std::fs::read_to_string(told.path()).unwrap();
    let left = text.strip_prefix("let through: [], left: ");
    let left = left.and_then(|left| left.strip_suffix("\nx32 refused: true\n"));
    let left = format!("/proc/{}/stat", left.expect(&text));
    assert!(Path::new(&left).exists(), "{text}");
    daemon.kill_sensor();
    // Whoever reaps orphans may not be quick: a zombie has ended too.
    eventually("whom it left has ended with it", || {
        let stat = std::fs::read_to_string(&left).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    daemon.stop();
}

#[test]
fn a_driver_that_crashes_is_a_fault_until_another_sensor_reads_it() {
    let stage = Stage::new();
    stage.play(&at(41, ""));
    let daemon = stage.start();
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    stage.play(&at(42, "crash"));
    let fault = eventually("the crash is a fault", || stage.faults().pop());
    assert_eq!(fault.0, "nvidia");
    assert!(
        fault
            .1
            .starts_with("the sensor ended unexpectedly (signal: 6 (SIGABRT)"),
        "{fault:?}"
    );
    // What was read before the crash is shown still.
    let (value, why) = temperature(&stage);
    assert_eq!(value, Value::Null);
    assert!(why.as_str().unwrap().starts_with("stale: "), "{why}");
    stage.play(&at(43, ""));
    becomes(&(json!(43), Value::Null), || temperature(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_sensor_that_is_killed_is_replaced() {
    let stage = Stage::new();
    stage.play(&at(41, ""));
    let daemon = stage.start();
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    let sensor = daemon.sensor();
    daemon.kill_sensor();
    assert_eq!(stage.ctl(&["list"]).code, 0);
    another_sensor(&daemon, sensor);
    stage.play(&at(42, ""));
    becomes(&(json!(42), Value::Null), || temperature(&stage));
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_sensor_does_not_outlive_its_daemon() {
    let stage = Stage::new();
    let daemon = stage.start();
    let sensor = daemon.sensor();
    daemon.kill();
    let path = format!("/proc/{sensor}/cmdline");
    eventually("the sensor ends", || {
        // A pid may be given to another process.
        let command = std::fs::read_to_string(&path).unwrap_or_default();
        (!command.starts_with("gpukilld-sensor")).then_some(())
    });
}

#[test]
fn a_gpu_about_which_the_driver_hangs_is_left_out_and_the_others_are_read() {
    let stage = Stage::new();
    let state = |hang: &[&str], temperature: u32| {
        json!({"gpus": [
            {"name": "first", "temperature": temperature},
            {"name": "second", "temperature": temperature, "hang": hang},
            {"name": "third", "temperature": temperature},
        ]})
    };
    let shown = || -> Vec<(Value, Value)> {
        let list = stage.list();
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter()
            .map(|gpu| (gpu["state"].clone(), gpu["temp_c"].clone()))
            .collect()
    };
    let well = |temperature: u32| (json!("ok"), json!(temperature));
    let left_out = (json!("unknown"), Value::Null);
    stage.play(&state(&[], 41));
    let daemon = stage.start();
    becomes(&vec![well(41), well(41), well(41)], shown);
    stage.play(&state(&["nvmlDeviceGetUtilizationRates"], 42));
    // Two sensors must hang before the GPU is blamed.
    let first = daemon.sensor();
    another_sensor(&daemon, first);
    becomes(&vec![well(42), left_out, well(42)], shown);
    let why = "state unknown (the driver hangs or crashes at it)";
    assert_eq!(stage.faults(), [("GPU 1".to_owned(), why.to_owned())]);
    stage.play(&state(&[], 43));
    becomes(&vec![well(43), well(43), well(43)], shown);
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn an_answer_that_cannot_be_is_believed_in_no_part() {
    let stage = Stage::new();
    stage.play(&at(41, ""));
    let daemon = stage.start();
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    let sensor = daemon.sensor();
    // Two names of which nothing that differs is left when they are cut.
    let name = |last: &str| format!("{}{last}", "\u{1}".repeat(80));
    stage.play(&json!({"gpus": [
        {"uuid": name("a"), "temperature": 42}, {"uuid": name("b"), "temperature": 42},
    ]}));
    let why = "the sensor answered with garbage: two devices of one name";
    becomes(&vec![("nvidia".to_owned(), why.to_owned())], || {
        stage.faults()
    });
    let (value, reason) = temperature(&stage);
    assert_eq!(value, Value::Null);
    assert!(reason.as_str().unwrap().starts_with("stale: "), "{reason}");
    stage.play(&at(43, ""));
    becomes(&(json!(43), Value::Null), || temperature(&stage));
    another_sensor(&daemon, sensor);
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

/// The process in which a GPU that is left out is tried, while there is one.
fn retry_of(daemon: &Daemon) -> Option<u32> {
    daemon.child_named("gpukilld-retry")
}

#[test]
fn a_gpu_that_is_left_out_is_tried_in_a_sensor_of_its_own_and_the_others_stay_fresh() {
    let stage = Stage::new();
    let state = |hang: &[&str], temperature: u32| {
        json!({"gpus": [
            {"name": "first", "temperature": temperature},
            {"name": "second", "temperature": temperature, "hang": hang},
        ]})
    };
    stage.play(&state(&[], 41));
    let daemon = stage.start();
    let second = || stage.list()["gpus"][1]["state"].clone();
    becomes(&json!("ok"), second);
    stage.play(&state(&["nvmlDeviceGetUtilizationRates"], 42));
    let what = "state unknown (the driver hangs or crashes at it)".to_owned();
    let left_out = vec![("GPU 1".to_owned(), what)];
    let first = daemon.sensor();
    another_sensor(&daemon, first);
    becomes(&left_out, || stage.faults());
    let sensor = daemon.sensor();
    let retry = eventually("the GPU is tried again", || retry_of(&daemon));
    // It hangs there, and the first GPU is read by the same sensor at each poll meanwhile.
    let mut temperatures = (50..100).cycle();
    while retry_of(&daemon) == Some(retry) {
        let temperature = temperatures.next().unwrap();
        stage.play(&state(&["nvmlDeviceGetUtilizationRates"], temperature));
        becomes(&json!(temperature), || {
            stage.list()["gpus"][0]["temp_c"].clone()
        });
        assert_eq!(stage.faults(), left_out);
    }
    assert_eq!(daemon.sensor(), sensor);
    stage.play(&state(&[], 43));
    becomes(&(json!("ok"), Vec::new()), || (second(), stage.faults()));
    assert_eq!(daemon.sensor(), sensor);
    eventually("nothing is left of the tries", || {
        retry_of(&daemon).is_none().then_some(())
    });
    daemon.stop();
}

#[test]
fn a_slow_driver_is_one_fault_its_polls_are_late_and_less_frequent() {
    let stage = Stage::new();
    let state = |milliseconds: u64, temperature: u32| {
        let gpu = json!({
            "temperature": temperature,
            "slow": {"nvmlDeviceGetUtilizationRates": milliseconds},
        });
        json!({"gpus": [gpu, gpu, gpu, gpu]})
    };
    stage.play(&state(0, 41));
    let daemon = stage.start();
    let temperature = || stage.list()["gpus"][3]["temp_c"].clone();
    becomes(&json!(41), temperature);
    stage.play(&state(1_000, 42));
    let slow = "answers slowly: polls are less frequent until it answers in time again";
    let fault = || {
        let faults = stage.list()["faults"].as_array().unwrap().clone();
        faults
            .into_iter()
            .find(|it| it["part"] == "nvidia" && it["what"] == slow)
    };
    let first = eventually("it is slow", fault);
    // The same fault after other answers.
    for degrees in [43, 44] {
        stage.play(&state(1_000, degrees));
        becomes(&json!(degrees), || {
            assert_eq!(fault(), Some(first.clone()));
            temperature()
        });
    }
    let status = stage.json(&["status", "-o", "json"]);
    assert!(
        status["poll_interval_ms"].as_u64().unwrap() >= 5_000,
        "{status}"
    );
    assert_eq!(status["set_poll_interval_ms"], 100);
    assert!(status["polls_late"].as_u64().unwrap() > 0, "{status}");
    let text = stage.ctl(&["status"]).stdout;
    assert!(
        text.contains(" instead of 100 ms, for a driver is slow, "),
        "{text}"
    );
    stage.play(&state(0, 45));
    becomes(&(json!(45), None), || (temperature(), fault()));
    let interval = || stage.json(&["status", "-o", "json"])["poll_interval_ms"].clone();
    becomes(&json!(100), interval);
    assert_eq!(stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_sensor_is_of_its_daemons_release_whatever_an_upgrade_does_to_the_file() {
    let stage = Stage::new();
    stage.play(&at(41, ""));
    let directory = stage.path("programs");
    std::fs::create_dir(&directory).unwrap();
    let [daemon, sensor] = ["gpukilld", "gpukill-sensor"].map(|name| directory.join(name));
    copy_program(&built().gpukilld, &daemon);
    let released = built().gpukilld.with_file_name("gpukill-sensor");
    let elsewhere = Path::new("/usr/libexec/gpukill/gpukill-sensor");
    let usual = stage.daemon();
    let mut command = Command::new(&daemon);
    command.args(usual.get_args()).env_clear();
    let set = usual
        .get_envs()
        .filter_map(|(key, value)| Some((key, value?)));
    command
        .envs(set)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());

    let running = stage.start_with(&mut command);
    if !elsewhere.exists() {
        let missing = "cannot start the sensor: gpukill-sensor is neither beside gpukilld nor \
                       in /usr/libexec/gpukill";
        let faults = || {
            stage
                .faults()
                .into_iter()
                .map(|it| it.1)
                .collect::<Vec<_>>()
        };
        becomes(&vec![missing.to_owned()], faults);
    }
    copy_program(&released, &sensor);
    running.stop();
    let running = stage.start_with(&mut command);
    becomes(&(json!(41), Value::Null), || temperature(&stage));
    // As a package manager does it: another file has the name.
    let newer = directory.join("newer");
    std::fs::write(&newer, "#!/bin/false\n").unwrap();
    std::fs::rename(&newer, &sensor).unwrap();
    let old = running.sensor();
    running.kill_sensor();
    another_sensor(&running, old);
    stage.play(&at(42, ""));
    becomes(&(json!(42), Value::Null), || temperature(&stage));
    running.stop();

    // Started by another release, it says so.
    for arguments in [&["0.0.0", "libnvidia-ml.so.1"][..], &[]] {
        let output = Command::new(&released).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("gpukill-sensor is a part of gpukilld "),
            "{said}"
        );
    }
}
