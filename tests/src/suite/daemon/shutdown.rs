//! Only one daemon runs at a time, and a daemon that ended leaves nothing behind.

use gpukill_tests::harness::{CommandOutput, Daemon, TestBox, TestProcess, eventually};
use rustix::process::Signal;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The daemon promises two seconds; a loaded test machine takes more.
const MAX_STOP_TIME: Duration = Duration::from_secs(5);

fn has_ended(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The process that adopted it may not have reaped it yet.
    status.map_or(true, |status| status.contains(") Z "))
}

#[test]
fn second_daemon_is_refused() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let second = CommandOutput::run(&mut test_box.daemon_command());
    let expected = CommandOutput {
        code: 1,
        stdout: String::new(),
        stderr: format!(
            "gpukilld: another gpukilld listens on {}\n",
            test_box.socket().display()
        ),
    };
    assert_eq!(second, expected);
    let status = test_box.json(&["status", "-o", "json"]);
    assert_eq!(status["faults"], json!([]));
    assert!(test_box.socket().exists());
    daemon.stop();
}

#[test]
fn daemons_never_share_a_store() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let mut other = test_box.daemon_command();
    other.env("GPUKILLD_DAEMON_SOCKET", test_box.path("other.sock"));
    let second = CommandOutput::run(&mut other);
    let store = test_box.path("state");
    let expected = format!(
        "gpukilld: another gpukilld uses the store in {}\n",
        store.display()
    );
    assert_eq!((second.code, second.stderr), (1, expected));
    assert!(!test_box.path("other.sock").exists());
    daemon.stop();
}

#[test]
fn stale_socket_is_replaced() {
    let test_box = TestBox::new();
    for _ in 0..3 {
        test_box.start().kill();
        assert!(test_box.socket().exists());
        assert_eq!(test_box.ctl(&["list"]).code, 6);
    }
    test_box.start().stop();
}

#[test]
fn stop_leaves_no_socket_sensor_or_files() {
    for signal in [Signal::TERM, Signal::INT] {
        let test_box = TestBox::new();
        test_box.set_driver_state(&json!({"gpus": [{}]}));
        let mut daemon = test_box.start();
        let sensor = daemon.sensor_pid();
        // A client that waits for the next snapshot must not delay the stop.
        let mut watching = test_box.client_command(&["list", "--watch", "-o", "ndjson"]);
        let watching = TestProcess::spawn(&mut watching);
        let started_at = Instant::now();
        daemon.signal(signal);
        let status = eventually("the daemon stops", || daemon.exit_status());
        let taken = started_at.elapsed();
        assert!(taken < MAX_STOP_TIME, "{taken:?}");
        assert!(status.success(), "{status}");
        assert!(!test_box.socket().exists());
        eventually("the sensor is gone", || has_ended(sensor).then_some(()));
        let logs = std::fs::read_dir(test_box.path("state")).unwrap();
        let logs: Vec<PathBuf> = logs
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().ends_with("-wal"))
            .collect();
        assert_eq!(logs, Vec::<PathBuf>::new());
        let log = daemon.log();
        let last = log.lines().last().unwrap();
        assert!(last.ends_with(" INFO gpukilld stopped"), "{log}");
        drop(watching);
    }
}

/// Starts a daemon with a sensor that hangs in the driver. Returns the pid of that sensor too.
fn start_with_hanging_driver(test_box: &TestBox) -> (Daemon, u32) {
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    let sensor = daemon.sensor_pid();
    test_box.set_driver_state(&json!({"gpus": [{}], "hang": ["nvmlDeviceGetMemoryInfo_v2"]}));
    eventually("the readings are stale", || {
        let list = test_box.list();
        (!list["gpus"][0]["reasons"]["mem_used_mb"].is_null()).then_some(())
    });
    (daemon, sensor)
}

#[test]
fn stop_does_not_wait_for_hanging_driver() {
    let test_box = TestBox::new();
    let (mut daemon, sensor) = start_with_hanging_driver(&test_box);
    let started_at = Instant::now();
    daemon.signal(Signal::TERM);
    let status = eventually("the daemon stops", || daemon.exit_status());
    let taken = started_at.elapsed();
    assert!(taken < MAX_STOP_TIME, "{taken:?}");
    assert!(status.success(), "{status}");
    eventually("the sensor is gone", || has_ended(sensor).then_some(()));
}

#[test]
fn killed_daemon_takes_its_sensor_along() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let sensor = daemon.sensor_pid();
    assert!(!has_ended(sensor));
    daemon.kill();
    eventually("the sensor is gone", || has_ended(sensor).then_some(()));

    let (daemon, sensor) = start_with_hanging_driver(&test_box);
    daemon.kill();
    eventually("the sensor is gone", || has_ended(sensor).then_some(()));
}

#[test]
fn sensor_has_no_privileges() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let pid = daemon.sensor_pid();
    let fields = eventually("the sensor has dropped everything", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let fields: Vec<(String, String)> = status
            .lines()
            .filter_map(|line| line.split_once(":\t"))
            .filter(|(name, _)| name.starts_with("Cap") || *name == "NoNewPrivs")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        (fields.last()?.1 == "1").then_some(fields)
    });
    for (name, value) in fields {
        match name.as_str() {
            "NoNewPrivs" => assert_eq!(value, "1"),
            // Only a process with CAP_SETPCAP can empty the bounding set. With no_new_privs
            // the set gives nothing.
            "CapBnd" if !rustix::process::geteuid().is_root() => {}
            _ => assert_eq!(u64::from_str_radix(&value, 16), Ok(0), "{name}"),
        }
    }
    daemon.stop();
}
