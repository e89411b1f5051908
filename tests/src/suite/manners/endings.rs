//! One daemon at a time, and nothing left of one that ended.

use gpukill_tests::harness::{Actor, Daemon, Ran, Stage, eventually};
use rustix::process::Signal;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The daemon promises two seconds; a loaded test machine takes more.
const STOPPED: Duration = Duration::from_secs(5);

fn gone(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // Whoever adopts it may not have reaped it yet.
    status.map_or(true, |status| status.contains(") Z "))
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let stage = Stage::new();
    let daemon = stage.start();
    let second = Ran::of(&mut stage.daemon());
    let expected = Ran {
        code: 1,
        stdout: String::new(),
        stderr: format!(
            "gpukilld: another gpukilld listens on {}\n",
            stage.socket().display()
        ),
    };
    assert_eq!(second, expected);
    let status = stage.json(&["status", "-o", "json"]);
    assert_eq!(status["faults"], json!([]));
    assert!(stage.socket().exists());
    daemon.stop();
}

#[test]
fn two_daemons_never_share_a_store_wherever_they_listen() {
    let stage = Stage::new();
    let daemon = stage.start();
    let mut other = stage.daemon();
    other.env("GPUKILLD_DAEMON_SOCKET", stage.path("other.sock"));
    let second = Ran::of(&mut other);
    let store = stage.path("state");
    let expected = format!("gpukilld: another gpukilld stores in {}\n", store.display());
    assert_eq!((second.code, second.stderr), (1, expected));
    assert!(!stage.path("other.sock").exists());
    daemon.stop();
}

#[test]
fn a_socket_that_a_killed_daemon_left_is_replaced() {
    let stage = Stage::new();
    for _ in 0..3 {
        stage.start().kill();
        assert!(stage.socket().exists());
        assert_eq!(stage.ctl(&["list"]).code, 6);
    }
    stage.start().stop();
}

#[test]
fn a_stop_leaves_neither_socket_nor_sensor_nor_open_files() {
    for signal in [Signal::TERM, Signal::INT] {
        let stage = Stage::new();
        stage.play(&json!({"gpus": [{}]}));
        let mut daemon = stage.start();
        let sensor = daemon.sensor();
        // A client that waits for news must not delay it.
        let mut watching = stage.client(&["list", "--watch", "-o", "ndjson"]);
        let watching = Actor::of(&mut watching);
        let began = Instant::now();
        daemon.signal(signal);
        let status = eventually("the daemon stops", || daemon.ended());
        let taken = began.elapsed();
        assert!(taken < STOPPED, "{taken:?}");
        assert!(status.success(), "{status}");
        assert!(!stage.socket().exists());
        eventually("the sensor is gone", || gone(sensor).then_some(()));
        let logs = std::fs::read_dir(stage.path("state")).unwrap();
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

/// A daemon whose sensor hangs in the driver, and that sensor.
fn hanging(stage: &Stage) -> (Daemon, u32) {
    stage.play(&json!({"gpus": [{}]}));
    let daemon = stage.start();
    let sensor = daemon.sensor();
    stage.play(&json!({"gpus": [{}], "hang": ["nvmlDeviceGetMemoryInfo_v2"]}));
    eventually("the readings are stale", || {
        let list = stage.list();
        (!list["gpus"][0]["reasons"]["mem_used_mb"].is_null()).then_some(())
    });
    (daemon, sensor)
}

#[test]
fn a_stop_does_not_wait_for_a_driver_that_hangs() {
    let stage = Stage::new();
    let (mut daemon, sensor) = hanging(&stage);
    let began = Instant::now();
    daemon.signal(Signal::TERM);
    let status = eventually("the daemon stops", || daemon.ended());
    let taken = began.elapsed();
    assert!(taken < STOPPED, "{taken:?}");
    assert!(status.success(), "{status}");
    eventually("the sensor is gone", || gone(sensor).then_some(()));
}

#[test]
fn a_killed_daemon_takes_its_sensor_along_even_one_that_hangs() {
    let stage = Stage::new();
    let daemon = stage.start();
    let sensor = daemon.sensor();
    assert!(!gone(sensor));
    daemon.kill();
    eventually("the sensor is gone", || gone(sensor).then_some(()));

    let (daemon, sensor) = hanging(&stage);
    daemon.kill();
    eventually("the sensor is gone", || gone(sensor).then_some(()));
}

#[test]
fn the_sensor_has_no_privilege_and_can_get_none() {
    let stage = Stage::new();
    let daemon = stage.start();
    let pid = daemon.sensor();
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
            // Only who has CAP_SETPCAP can empty this one; without new
            // privileges it gives nothing.
            "CapBnd" if !rustix::process::geteuid().is_root() => {}
            _ => assert_eq!(u64::from_str_radix(&value, 16), Ok(0), "{name}"),
        }
    }
    daemon.stop();
}
