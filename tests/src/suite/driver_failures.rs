//! A driver that hangs or crashes affects the sensor only.
//!
//! libtest starts the tests in the order of their names. These tests wait for timeouts of the
//! daemon, so they have a module at the top level, with a name that makes them start early.

use gpukill_tests::harness::{
    Daemon, TestBox, binaries, copy_program, eventually, eventually_equals,
};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One GPU, identified by its temperature, and the functions that hang or crash.
fn state_with_fault(temperature: u32, fault: &str) -> Value {
    let mut state = json!({"gpus": [{"temperature": temperature}]});
    if !fault.is_empty() {
        state[fault] = json!(["nvmlDeviceGetUtilizationRates"]);
    }
    state
}

/// The temperature, and the reason where it is unknown.
fn temperature(test_box: &TestBox) -> (Value, Value) {
    let gpu = test_box.list()["gpus"][0].clone();
    (gpu["temp_c"].clone(), gpu["reasons"]["temp_c"].clone())
}

fn poll_count(test_box: &TestBox) -> u64 {
    test_box.json(&["status", "-o", "json"])["polls"]
        .as_u64()
        .unwrap()
}

fn wait_for_new_sensor(daemon: &Daemon, old: u32) {
    eventually("another sensor", || {
        (daemon.sensor_pid() != old).then_some(())
    });
}

#[test]
fn hanging_driver_makes_readings_stale() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&state_with_fault(41, ""));
    let daemon = test_box.start();
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    let sensor = daemon.sensor_pid();

    test_box.set_driver_state(&state_with_fault(42, "hang"));
    let late = (
        "nvidia".to_owned(),
        "does not answer in time: readings are old".to_owned(),
    );
    // The readings grow older, and are never shown as fresh.
    eventually_equals(&(Value::Null, json!("stale: 2 s")), || {
        temperature(&test_box)
    });
    eventually_equals(&vec![late], || test_box.faults_now());
    let before = poll_count(&test_box);
    eventually("polls go on", || {
        (poll_count(&test_box) > before + 5).then_some(())
    });
    let row = test_box.table(&["list"]).lines().nth(1).unwrap().to_owned();
    assert!(row.contains("~41°"), "{row}");
    assert_eq!(test_box.ctl(&["list"]).code, 0);

    test_box.set_driver_state(&state_with_fault(43, ""));
    eventually_equals(&(json!(43), Value::Null), || temperature(&test_box));
    wait_for_new_sensor(&daemon, sensor);
    assert_eq!(test_box.faults(), []);
    assert!(!test_box.table(&["list"]).contains('~'));
    daemon.stop();
}

#[test]
fn first_driver_answer_delays_no_one() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&state_with_fault(41, "hang"));
    let daemon = test_box.start();
    let waiting = "has not answered yet: the driver may be waking its devices";
    eventually_equals(&vec![("nvidia".to_owned(), waiting.to_owned())], || {
        test_box.faults_now()
    });
    let status = test_box.json(&["status", "-o", "json"]);
    assert_eq!(status["backends"][0]["state"], "starting");
    let before = poll_count(&test_box);
    eventually("polls go on", || {
        (poll_count(&test_box) > before + 5).then_some(())
    });
    // The daemon does not wait for the driver when it stops either.
    daemon.stop();
}

#[test]
fn tampered_library_cannot_write_daemon_files() {
    let test_box = TestBox::new();
    // The sensor may write below `/dev`.
    let there = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let [ours, new] = [test_box.path("ours"), test_box.path("new")];
    for file in [there.path(), &ours] {
        std::fs::write(file, "rules").unwrap();
        std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }
    let mut state = state_with_fault(41, "");
    state["tamper"] = json!([there.path(), ours, new]);
    test_box.set_driver_state(&state);
    let daemon = test_box.start();
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    let text = |file: &Path| std::fs::read_to_string(file).unwrap();
    assert!(text(there.path()).starts_with("rules!"));
    assert_eq!(text(&ours), "rules");
    assert!(!new.exists());
    for file in [there.path(), &ours] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let asked = poll_count(&test_box);
    eventually("it polls on", || {
        (poll_count(&test_box) > asked).then_some(())
    });
    daemon.stop();
}

#[test]
fn tampered_library_reaches_nothing() {
    let test_box = TestBox::new();
    let report = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let mut state = state_with_fault(41, "");
    state["trespass"] = json!(report.path());
    test_box.set_driver_state(&state);
    let daemon = test_box.start();
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    // The standard error of the sensor is neither a terminal nor the journal, and no file
    // of the daemon is open.
    let descriptors = PathBuf::from(format!("/proc/{}/fd", daemon.sensor_pid()));
    let leads_to = |it: &Path| std::fs::read_link(it).unwrap();
    let error = leads_to(&descriptors.join("2"));
    assert!(error.to_string_lossy().starts_with("pipe:"), "{error:?}");
    for descriptor in std::fs::read_dir(&descriptors).unwrap() {
        let open = leads_to(&descriptor.unwrap().path());
        assert!(!open.starts_with(test_box.path("")), "{}", open.display());
    }
    let text = std::fs::read_to_string(report.path()).unwrap();
    let left = text.strip_prefix("let through: [], left: ");
    let left = left.and_then(|left| left.strip_suffix("\nx32 refused: true\n"));
    let left = format!("/proc/{}/stat", left.expect(&text));
    assert!(Path::new(&left).exists(), "{text}");
    daemon.kill_sensor();
    // The process that reaps orphans may be slow: a zombie has ended too.
    eventually("the process left by the sensor has ended", || {
        let stat = std::fs::read_to_string(&left).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    daemon.stop();
}

#[test]
fn crash_is_a_fault_until_next_reading() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&state_with_fault(41, ""));
    let daemon = test_box.start();
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    test_box.set_driver_state(&state_with_fault(42, "crash"));
    let fault = eventually("the crash is a fault", || test_box.faults().pop());
    assert_eq!(fault.0, "nvidia");
    assert!(
        fault
            .1
            .starts_with("the sensor ended unexpectedly (signal: 6 (SIGABRT)"),
        "{fault:?}"
    );
    // The readings from before the crash are still shown.
    let (value, why) = temperature(&test_box);
    assert_eq!(value, Value::Null);
    assert!(why.as_str().unwrap().starts_with("stale: "), "{why}");
    test_box.set_driver_state(&state_with_fault(43, ""));
    eventually_equals(&(json!(43), Value::Null), || temperature(&test_box));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn killed_sensor_is_replaced() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&state_with_fault(41, ""));
    let daemon = test_box.start();
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    let sensor = daemon.sensor_pid();
    daemon.kill_sensor();
    assert_eq!(test_box.ctl(&["list"]).code, 0);
    wait_for_new_sensor(&daemon, sensor);
    test_box.set_driver_state(&state_with_fault(42, ""));
    eventually_equals(&(json!(42), Value::Null), || temperature(&test_box));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn sensor_ends_with_its_daemon() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let sensor = daemon.sensor_pid();
    daemon.kill();
    let path = format!("/proc/{sensor}/cmdline");
    eventually("the sensor ends", || {
        // The pid may have been reused.
        let command = std::fs::read_to_string(&path).unwrap_or_default();
        (!command.starts_with("gpukilld-sensor")).then_some(())
    });
}

#[test]
fn gpu_that_hangs_the_driver_is_quarantined() {
    let test_box = TestBox::new();
    let state = |hang: &[&str], temperature: u32| {
        json!({"gpus": [
            {"name": "first", "temperature": temperature},
            {"name": "second", "temperature": temperature, "hang": hang},
            {"name": "third", "temperature": temperature},
        ]})
    };
    let shown = || -> Vec<(Value, Value)> {
        let list = test_box.list();
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter()
            .map(|gpu| (gpu["state"].clone(), gpu["temp_c"].clone()))
            .collect()
    };
    let well = |temperature: u32| (json!("ok"), json!(temperature));
    let left_out = (json!("unknown"), Value::Null);
    test_box.set_driver_state(&state(&[], 41));
    let daemon = test_box.start();
    eventually_equals(&vec![well(41), well(41), well(41)], shown);
    test_box.set_driver_state(&state(&["nvmlDeviceGetUtilizationRates"], 42));
    // Two sensors must hang before the GPU is blamed.
    let first = daemon.sensor_pid();
    wait_for_new_sensor(&daemon, first);
    eventually_equals(&vec![well(42), left_out, well(42)], shown);
    let why = "state unknown (the driver hangs or crashes on this device)";
    assert_eq!(test_box.faults(), [("GPU 1".to_owned(), why.to_owned())]);
    test_box.set_driver_state(&state(&[], 43));
    eventually_equals(&vec![well(43), well(43), well(43)], shown);
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn impossible_answer_is_rejected_whole() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&state_with_fault(41, ""));
    let daemon = test_box.start();
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    let sensor = daemon.sensor_pid();
    // Two names that are equal once they are truncated.
    let name = |last: &str| format!("{}{last}", "\u{1}".repeat(80));
    test_box.set_driver_state(&json!({"gpus": [
        {"uuid": name("a"), "temperature": 42}, {"uuid": name("b"), "temperature": 42},
    ]}));
    let why = "the sensor answered with garbage: two devices have the same name";
    eventually_equals(&vec![("nvidia".to_owned(), why.to_owned())], || {
        test_box.faults()
    });
    let (value, reason) = temperature(&test_box);
    assert_eq!(value, Value::Null);
    assert!(reason.as_str().unwrap().starts_with("stale: "), "{reason}");
    test_box.set_driver_state(&state_with_fault(43, ""));
    eventually_equals(&(json!(43), Value::Null), || temperature(&test_box));
    wait_for_new_sensor(&daemon, sensor);
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

/// The process that retries a quarantined GPU, while there is one.
fn retry_pid(daemon: &Daemon) -> Option<u32> {
    daemon.child_pid("gpukilld-retry")
}

#[test]
fn quarantined_gpu_is_retried_in_own_sensor() {
    let test_box = TestBox::new();
    let state = |hang: &[&str], temperature: u32| {
        json!({"gpus": [
            {"name": "first", "temperature": temperature},
            {"name": "second", "temperature": temperature, "hang": hang},
        ]})
    };
    test_box.set_driver_state(&state(&[], 41));
    let daemon = test_box.start();
    let second = || test_box.list()["gpus"][1]["state"].clone();
    eventually_equals(&json!("ok"), second);
    test_box.set_driver_state(&state(&["nvmlDeviceGetUtilizationRates"], 42));
    let what = "state unknown (the driver hangs or crashes on this device)".to_owned();
    let left_out = vec![("GPU 1".to_owned(), what)];
    let first = daemon.sensor_pid();
    wait_for_new_sensor(&daemon, first);
    eventually_equals(&left_out, || test_box.faults());
    let sensor = daemon.sensor_pid();
    let retry = eventually("the GPU is tried again", || retry_pid(&daemon));
    // The retry hangs, while the other sensor reads the first GPU at each poll.
    let mut temperatures = (50..100).cycle();
    while retry_pid(&daemon) == Some(retry) {
        let temperature = temperatures.next().unwrap();
        test_box.set_driver_state(&state(&["nvmlDeviceGetUtilizationRates"], temperature));
        eventually_equals(&json!(temperature), || {
            test_box.list()["gpus"][0]["temp_c"].clone()
        });
        assert_eq!(test_box.faults(), left_out);
    }
    assert_eq!(daemon.sensor_pid(), sensor);
    test_box.set_driver_state(&state(&[], 43));
    eventually_equals(&(json!("ok"), Vec::new()), || (second(), test_box.faults()));
    assert_eq!(daemon.sensor_pid(), sensor);
    eventually("nothing is left of the tries", || {
        retry_pid(&daemon).is_none().then_some(())
    });
    daemon.stop();
}

#[test]
fn slow_driver_is_one_fault_with_fewer_polls() {
    let test_box = TestBox::new();
    let state = |milliseconds: u64, temperature: u32| {
        let gpu = json!({
            "temperature": temperature,
            "slow": {"nvmlDeviceGetUtilizationRates": milliseconds},
        });
        json!({"gpus": [gpu, gpu, gpu, gpu]})
    };
    test_box.set_driver_state(&state(0, 41));
    let daemon = test_box.start();
    let temperature = || test_box.list()["gpus"][3]["temp_c"].clone();
    eventually_equals(&json!(41), temperature);
    test_box.set_driver_state(&state(1_000, 42));
    let slow = "answers slowly: polls are less frequent until it answers in time again";
    let fault = || {
        let faults = test_box.list()["faults"].as_array().unwrap().clone();
        faults
            .into_iter()
            .find(|it| it["part"] == "nvidia" && it["what"] == slow)
    };
    let first = eventually("it is slow", fault);
    // Later answers do not change the fault.
    for degrees in [43, 44] {
        test_box.set_driver_state(&state(1_000, degrees));
        eventually_equals(&json!(degrees), || {
            assert_eq!(fault(), Some(first.clone()));
            temperature()
        });
    }
    let status = test_box.json(&["status", "-o", "json"]);
    assert!(
        status["poll_interval_ms"].as_u64().unwrap() >= 5_000,
        "{status}"
    );
    assert_eq!(status["set_poll_interval_ms"], 100);
    assert!(status["polls_late"].as_u64().unwrap() > 0, "{status}");
    let text = test_box.ctl(&["status"]).stdout;
    assert!(
        text.contains(" instead of 100 ms, for a driver is slow, "),
        "{text}"
    );
    test_box.set_driver_state(&state(0, 45));
    eventually_equals(&(json!(45), None), || (temperature(), fault()));
    let interval = || test_box.json(&["status", "-o", "json"])["poll_interval_ms"].clone();
    eventually_equals(&json!(100), interval);
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn sensor_matches_the_daemons_release() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&state_with_fault(41, ""));
    let directory = test_box.path("programs");
    std::fs::create_dir(&directory).unwrap();
    let [daemon, sensor] = ["gpukilld", "gpukill-sensor"].map(|name| directory.join(name));
    copy_program(&binaries().gpukilld, &daemon);
    let released = binaries().gpukilld.with_file_name("gpukill-sensor");
    let elsewhere = Path::new("/usr/libexec/gpukill/gpukill-sensor");
    let usual = test_box.daemon_command();
    let mut command = Command::new(&daemon);
    command.args(usual.get_args()).env_clear();
    let set = usual
        .get_envs()
        .filter_map(|(key, value)| Some((key, value?)));
    command
        .envs(set)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());

    let running = test_box.start_with(&mut command);
    if !elsewhere.exists() {
        let missing = "cannot start the sensor: gpukill-sensor is neither beside gpukilld nor \
                       in /usr/libexec/gpukill";
        let faults = || {
            test_box
                .faults()
                .into_iter()
                .map(|it| it.1)
                .collect::<Vec<_>>()
        };
        eventually_equals(&vec![missing.to_owned()], faults);
    }
    copy_program(&released, &sensor);
    running.stop();
    let running = test_box.start_with(&mut command);
    eventually_equals(&(json!(41), Value::Null), || temperature(&test_box));
    // A package manager replaces the file under the same name.
    let newer = directory.join("newer");
    std::fs::write(&newer, "#!/bin/false\n").unwrap();
    std::fs::rename(&newer, &sensor).unwrap();
    let old = running.sensor_pid();
    running.kill_sensor();
    wait_for_new_sensor(&running, old);
    test_box.set_driver_state(&state_with_fault(42, ""));
    eventually_equals(&(json!(42), Value::Null), || temperature(&test_box));
    running.stop();

    // A sensor started by another release exits with an explanation.
    for arguments in [&["0.0.0", "libnvidia-ml.so.1"][..], &[]] {
        let output = Command::new(&released).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.starts_with("gpukill-sensor is a part of gpukilld "),
            "{stderr}"
        );
    }
}
