//! The notifications that systemd receives from the daemon, and its journal entries.

use gpukill_tests::harness::{Daemon, FakeDriver, Journald, TestBox, TestProcess, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The receiving end of a notify socket, in place of systemd.
struct NotifySocket(UnixDatagram);

impl NotifySocket {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self(socket)
    }

    /// Receives one message and returns its assignments.
    fn receive(&self) -> BTreeMap<String, String> {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a message");
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        text.lines()
            .map(|line| line.split_once('=').expect("an assignment"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Waits for a message with an assignment of `name`, and returns it with those before
    /// it.
    fn wait_for(&self, name: &str) -> Vec<BTreeMap<String, String>> {
        let mut heard = Vec::new();
        loop {
            heard.push(self.receive());
            if heard
                .last()
                .is_some_and(|message| message.contains_key(name))
            {
                return heard;
            }
        }
    }
}

/// Starts the daemon as systemd does with `WatchdogSec=`.
fn start_with_watchdog(test_box: &TestBox, notify: &Path) -> Daemon {
    let daemon = test_box.daemon_command();
    let mut shell = Command::new("/bin/sh");
    // `exec` keeps the pid of the shell.
    shell
        .args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"])
        .arg(daemon.get_program())
        .args(daemon.get_args())
        .env_clear()
        .envs(
            daemon
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("NOTIFY_SOCKET", notify)
        .env("WATCHDOG_USEC", "300000");
    test_box.launch(&mut shell, &test_box.socket())
}

#[test]
fn systemd_gets_start_reload_watchdog_and_stop() {
    let test_box = TestBox::new();
    let manager = NotifySocket::listen(&test_box.path("notify"));
    let daemon = start_with_watchdog(&test_box, &test_box.path("notify"));
    let start = manager.wait_for("READY");
    assert_eq!(start.last().unwrap()["READY"], "1");
    let status = manager.wait_for("STATUS").pop().unwrap();
    assert_eq!(status["STATUS"], "0 GPUs, 0 processes on them, 0 faults");
    for _ in 0..3 {
        let alive = manager.wait_for("WATCHDOG").pop().unwrap();
        assert_eq!(alive["WATCHDOG"], "1");
    }

    // The daemon applies the last settings: a mistake would be a fault below.
    for settings in ["[nonsense]", ""] {
        test_box.configure(settings);
        let before = monotonic_usec();
        daemon.signal(Signal::HUP);
        let reloading = manager.wait_for("RELOADING").pop().unwrap();
        assert_eq!(reloading["RELOADING"], "1");
        let since: u64 = reloading["MONOTONIC_USEC"].parse().unwrap();
        assert!((before..=monotonic_usec()).contains(&since));
        // READY follows whether the settings were valid or not.
        assert_eq!(manager.wait_for("READY").pop().unwrap()["READY"], "1");
    }

    test_box.set_driver_state(&json!({"gpus": [{"processes": [{"pid": 5_000_000, "memory": 1}]}]}));
    let changed = "1 GPUs, 1 processes on them, 0 faults";
    while manager.wait_for("STATUS").pop().unwrap()["STATUS"] != changed {}

    daemon.signal(Signal::TERM);
    assert_eq!(manager.wait_for("STOPPING").pop().unwrap()["STOPPING"], "1");
}

fn monotonic_usec() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1_000).unwrap()
}

#[test]
fn blocked_notify_socket_delays_nothing() {
    let test_box = TestBox::new();
    let manager = NotifySocket::listen(&test_box.path("notify"));
    let mut daemon = start_with_watchdog(&test_box, &test_box.path("notify"));
    manager.wait_for("READY");
    // From here on no one reads the socket, and its queue fills.
    assert_polls_go_on(&test_box, 30);
    daemon.signal(Signal::TERM);
    let status = eventually("the daemon stops", || daemon.exit_status());
    assert!(status.success(), "{status}");
}

fn assert_polls_go_on(test_box: &TestBox, polls: u64) {
    let now = || {
        let status = test_box.json(&["status", "-o", "json"]);
        status["polls"].as_u64().unwrap()
    };
    let before = now();
    eventually("polls go on", || (now() >= before + polls).then_some(()));
}

#[test]
fn journald_gets_structured_messages() {
    let Some(journald) = Journald::start() else {
        return;
    };
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"init_error": 18}));
    let daemon = journald.start_daemon(&test_box, &test_box.daemon_command());
    let started = eventually("the start is in the journal", || {
        let entries = journald.entries(&[]);
        entries.into_iter().find(|entry| {
            entry["MESSAGE"]
                .as_str()
                .is_some_and(|message| message.starts_with("gpukilld started "))
        })
    });
    assert_eq!(started["PRIORITY"], "6");
    assert_eq!(started["MESSAGE_ID"], Journald::message_id("started"));
    assert_eq!(started["_PID"], daemon.pid().to_string());
    assert_eq!(started["GPUKILL_VERSION"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        started["GPUKILL_SOCKET"],
        test_box.socket().to_str().unwrap()
    );
    assert_eq!(started["GPUKILL_TARGET"], "gpukilld::startup");
    let fault = eventually("the fault is in the journal", || {
        let entries = journald.entries(&[]);
        entries
            .into_iter()
            .find(|entry| !entry["GPUKILL_PART"].is_null())
    });
    assert_eq!(fault["PRIORITY"], "4");
    assert_eq!(fault["MESSAGE_ID"], Journald::message_id("fault-started"));
    assert_eq!(fault["GPUKILL_PART"], "nvidia");
    assert_eq!(fault["GPUKILL_TARGET"], "gpukilld::poll::fault_tracker");
    assert!(!fault["GPUKILL_WHAT"].is_null(), "{fault}");
    // Entries of the journal are not printed in addition.
    assert_eq!(daemon.log(), "");
    daemon.stop();
}

#[test]
fn gpu_event_is_one_entry_with_fields() {
    let Some(journald) = Journald::start() else {
        return;
    };
    let test_box = TestBox::new();
    let gpus = json!([{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]);
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = journald.start_daemon(&test_box, &test_box.daemon_command());
    eventually("the GPUs are read", || {
        (test_box.list()["gpus"].as_array().unwrap().len() == 2).then_some(())
    });
    test_box.set_driver_state(
        &json!({"gpus": gpus, "events": [{"id": 1, "gpu": 1, "type": 8, "data": 79}]}),
    );
    let entries = || -> Vec<Value> {
        let entries = journald.entries(&[]);
        let of_gpu = |entry: &Value| entry["GPU_UUID"] == "GPU-b";
        entries.into_iter().filter(of_gpu).collect()
    };
    let entry = eventually("the XID is in the journal", || entries().pop());
    assert_eq!(entry["PRIORITY"], "4");
    assert_eq!(entry["MESSAGE_ID"], Journald::message_id("xid"));
    assert_eq!(entry["GPUKILL_XID"], "79");
    assert_eq!(entry["GPUKILL_GPU"], "1");
    assert_eq!(entry["GPUKILL_MEANING"], "the GPU has fallen off the bus");
    let message = entry["MESSAGE"].as_str().unwrap();
    assert!(message.starts_with("XID 79 on GPU 1 "), "{message}");
    daemon.stop();
    assert_eq!(entries().len(), 1);
}

#[test]
fn violations_and_kills_are_found_by_pid() {
    let Some(journald) = Journald::start() else {
        return;
    };
    let test_box = TestBox::new();
    let rules = "[global]\ndefault_memory_limit_gb = 1\n[enforcement]\n\
                 grace_period_seconds = 1\nmax_warnings = 1\n";
    std::fs::write(test_box.path("guard.toml"), rules).unwrap();
    let driver = FakeDriver::start(&test_box, Duration::from_millis(300));
    let processes = [TestProcess::start("train"), TestProcess::start("serve")];
    let [one, other] = processes
        .each_ref()
        .map(|process| process.pid().to_string());
    driver.add_processes(&processes.each_ref().map(TestProcess::pid));
    let daemon = journald.start_daemon(&test_box, &test_box.daemon_command());
    let first = |kind: &str| {
        let id = Journald::message_id(kind);
        eventually(kind, || {
            let entries = journald.entries(&[]);
            entries.into_iter().find(|entry| entry["MESSAGE_ID"] == id)
        })
    };
    // Each process holds 1 GiB, and the limit is 1 GiB in all.
    let broken = first("rule-violated");
    let mut pids = [one.as_str(), other.as_str()];
    pids.sort_unstable();
    let mut reported: Vec<&str> = broken["PID"]
        .as_array()
        .expect("a field for each")
        .iter()
        .map(|pid| pid.as_str().unwrap())
        .collect();
    reported.sort_unstable();
    assert_eq!(reported, pids);
    let us = rustix::process::geteuid().as_raw().to_string();
    let gpu = test_box.list()["gpus"][0]["id"].clone();
    let gib = 1_u64 << 30;
    let fields = [
        "PRIORITY",
        "RULE",
        "VALUE",
        "LIMIT",
        "UID",
        "GPU_UUID",
        "GPUKILL_MODE",
    ];
    let expected = json!([
        "4",
        "default: memory",
        (2 * gib).to_string(),
        gib.to_string(),
        us,
        gpu,
        "dry-run"
    ]);
    assert_eq!(json!(fields.map(|field| broken[field].clone())), expected);
    let warned = first("warned");
    assert_eq!(warned["ACTION"], "warn");
    assert_eq!(warned["GPUKILL_TIMES"], "1");
    assert!(!warned["GPUKILL_DEADLINE"].is_null(), "{warned}");
    let ended = first("job-ended");
    assert_eq!(ended["ACTION"], "terminate");
    let message = ended["MESSAGE"].as_str().unwrap();
    assert!(message.starts_with("a job would be ended "), "{message}");

    let ran = test_box.ctl(&["kill", &one, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (begins, ends) = (first("action-started"), first("action-ended"));
    for entry in [&begins, &ends] {
        let fields = ["ACTION", "PID", "UID", "GPU_UUID"].map(|field| entry[field].clone());
        assert_eq!(json!(fields), json!(["kill", one, us, gpu]));
    }
    assert_eq!(begins["GPUKILL_CALLER_UID"], us);
    assert_eq!(begins["GPUKILL_ACTION_ID"], ends["GPUKILL_ACTION_ID"]);
    assert_eq!(ends["GPUKILL_RESULT"], "done");
    daemon.stop();
    first("stopped");
}

#[test]
fn stuck_journald_delays_neither_polls_nor_stop() {
    let Some(journald) = Journald::start() else {
        return;
    };
    let test_box = TestBox::new();
    let mut daemon = journald.start_daemon(&test_box, &test_box.daemon_command());
    journald.signal(Signal::STOP);
    // More mistakes than the queues of journald's socket and of the daemon hold.
    let mistakes: String = (0..800).map(|n| format!("nonsense_{n} = 1\n")).collect();
    std::fs::write(test_box.path("gpukilld.toml"), mistakes).unwrap();
    for _ in 0..3 {
        daemon.signal(Signal::HUP);
        assert_polls_go_on(&test_box, 3);
    }
    // journald stays stopped: a daemon that waited for it would never end.
    daemon.signal(Signal::TERM);
    let status = eventually("the daemon stops", || daemon.exit_status());
    assert!(status.success(), "{status}");
    journald.signal(Signal::CONT);
    eventually("what journald had is kept", || {
        (!journald.entries(&[]).is_empty()).then_some(())
    });
}
