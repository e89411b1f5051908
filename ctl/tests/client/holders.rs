//! `holders` and `explain`.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::fake_holders::{device, worker};
use crate::{client, run, stderr, stdout};
use gpukill_proto::holders::DeviceHolders;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;

fn script_with(devices: Vec<DeviceHolders>) -> Script {
    Script {
        held: Mutex::new(devices),
        ..Script::default()
    }
}

#[test]
fn holders_names_orphans_and_the_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let held = device(vec![worker(60_211), worker(60_212)]);
    let daemon = FakeDaemon::start(directory.path(), script_with(vec![held]));
    let expected = "\
GPU 0 H100 80GB HBM3: 4.0 GiB used, none of it listed by the driver

   PID  USER   STATE     HOLDS                LISTED  WHAT IT IS
 60211  carol  sleeping  nvidia0, nvidia-uvm      no  python: worker of 60190, which is gone
 60212  carol  sleeping  nvidia0, nvidia-uvm      no  python: worker of 60190, which is gone

Most likely 2 orphaned workers of carol keep its memory.
  - 60211 and 60212 have the device open, and the driver does not list them
  - their process group's leader 60190 is gone
  - their parent is 1, which adopts orphaned processes
To free it: gpukillctl kill 60211 60212
";
    for arguments in ["holders", "holders --gpu 0", "holders --gpu 8f3c -o table"] {
        let output = run(&daemon.socket, arguments);
        let result = (output.status.code(), stderr(&output));
        assert_eq!(result, (Some(0), String::new()), "{arguments}");
        assert_eq!(stdout(&output), expected, "{arguments}");
    }
}

#[test]
fn holders_collects_pages_and_retries_when_busy() {
    let directory = tempfile::tempdir().expect("a directory");
    let held = device((2..102).map(worker).collect());
    let daemon = FakeDaemon::start(directory.path(), script_with(vec![held]));
    daemon.script.busy_calls.store(2, SeqCst);
    let output = run(&daemon.socket, "holders -o json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(document["schema"], 1);
    let gpu = &document["held_gpus"][0];
    let holders = gpu["holders"].as_array().expect("it has them");
    let pids: Vec<_> = holders
        .iter()
        .filter_map(|holder| holder["pid"].as_u64())
        .collect();
    assert_eq!(pids, (2..102).collect::<Vec<_>>());
    assert_eq!(gpu["findings"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        gpu["findings"][0]["remedy_pids"].as_array().map(Vec::len),
        Some(100)
    );
    // A list of one page, so that no page of the snapshot expires.
    daemon.script.processes.store(1, SeqCst);
    daemon.script.expired_pages.store(1, SeqCst);
    let output = run(&daemon.socket, "holders");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "gpukillctl: the rest of the answer has expired\nhint: try again\n"
    );
}

#[test]
fn free_gpu_is_one_line_unless_selected() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut free = device(vec![]);
    free.memory_unattributed = Reading::Value(Bytes(0));
    let daemon = FakeDaemon::start(directory.path(), script_with(vec![free]));
    let output = run(&daemon.socket, "holders");
    assert_eq!(stdout(&output), "GPU 0: nobody holds memory\n");
    let output = run(&daemon.socket, "holders --gpu 0");
    assert_eq!(
        stdout(&output),
        "GPU 0 H100 80GB HBM3: 4.0 GiB used, all of it explained\n\n nobody has it open\n"
    );
    daemon.script.held.lock().expect("not poisoned").clear();
    let output = run(&daemon.socket, "holders");
    assert_eq!(
        stdout(&output),
        "GPU 0: who holds memory is not known yet\n"
    );
}

#[test]
fn unknown_gpu_exits_3_unknown_process_8() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), script_with(vec![device(vec![worker(7)])]));
    let output = run(&daemon.socket, "holders --gpu 9");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        stderr(&output),
        "gpukillctl: no GPU matches \"9\": this host has GPU 0\n"
    );
    let output = run(&daemon.socket, "holders --gpu 9 -o json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(
        (output.status.code(), &document["held_gpus"]),
        (Some(3), &serde_json::json!([]))
    );
    for pid in [0, 1, 8, u32::MAX] {
        let output = run(&daemon.socket, &format!("explain {pid}"));
        assert_eq!(
            (output.status.code(), stdout(&output)),
            (Some(8), String::new())
        );
        assert_eq!(
            stderr(&output),
            format!(
                "gpukillctl: no process {pid} uses a GPU or has one open\n\
                 hint: processes on GPUs now: gpukillctl list --details; earlier ones: gpukillctl audit\n"
            )
        );
    }
    for arguments in [
        "explain 4294967296",
        "explain x",
        "explain",
        "holders -o csv",
    ] {
        assert_eq!(
            run(&daemon.socket, arguments).status.code(),
            Some(3),
            "{arguments}"
        );
    }
}

#[test]
fn explain_shows_findings_and_who_may_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(
        directory.path(),
        script_with(vec![device(vec![worker(60_211)])]),
    );
    let output = run(&daemon.socket, "explain 60211");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
    assert_eq!(
        stdout(&output),
        "\
carol: python (arguments hidden)
pid 60211

 where    in no container · parent: systemd 1
 holds    GPU 0: nvidia0, nvidia-uvm · python: worker of 60190, which is gone
 frees    how much is not known, when it ends
 may end  carol, root · you may not

GPU 0: 1 orphaned worker of carol keeps its memory.
  - 60211 (python of carol) has the device open, and the driver does not list it
  - its process group's leader 60190 is gone
  - its parent is 1, which adopts orphaned processes
To free it, ask carol or an operator to end it
"
    );
    let output = run(&daemon.socket, "explain 60211 -o json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(document["holds"][0]["holder"]["role"], "orphan");
    assert_eq!(document["reasons"]["frees_bytes"], "unsupported");
}

#[test]
fn no_colour_when_disabled() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), script_with(vec![device(vec![worker(7)])]));
    let colored = run(&daemon.socket, "holders --color always");
    assert!(stdout(&colored).contains("\x1b["));
    let plain = client(&daemon.socket, "holders")
        .env("NO_COLOR", "1")
        .output();
    assert!(!stdout(&plain.expect("it runs")).contains('\x1b'));
}
