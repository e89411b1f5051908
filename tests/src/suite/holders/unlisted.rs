//! Processes that have a GPU open and are not listed by the driver, and memory without a
//! known holder.

use super::{GIB, HoldersBox, gpu_state, own_user_name, select_fields};
use gpukill_tests::harness::{TestProcess, eventually_equals};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

#[test]
fn unlisted_process_is_a_possible_cause() {
    let it = HoldersBox::new();
    let script = "exec 5</dev/full; exec sleep 1000";
    let process = TestProcess::spawn(Command::new("sh").args(["-c", script]).process_group(0));
    let pid = process.pid();
    it.procfs.link_real_process(pid);
    it.procfs.link_real_process(std::process::id());
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    eventually_equals(&json!([["unlisted", [pid], null, []]]), || it.findings());
    let us = own_user_name();
    let verdict = format!(
        "Perhaps 1 process of {us} that the driver does not list keeps its memory.\n  \
           - {pid} (sleep of {us}) has the device open, and the driver does not list it\n{}",
        it.end_hint(pid, &format!("{us} or an operator"))
    );
    eventually_equals(&verdict, || it.text_below_table());
    // Nothing is unattributed any more: an open file alone is no finding.
    it.set_driver_state(0, &json!([]));
    eventually_equals(&json!([]), || it.findings());
    assert_eq!(it.roles(), json!([[pid, "unlisted"]]));
    drop(process);
    eventually_equals(&json!([]), || it.roles());
    daemon.stop();
}

#[test]
fn memory_without_holder_is_unknown_after_full_scan() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    // The process has another GPU open, and thus the files that all GPUs share.
    it.add_process(4711, "python", &["/dev/random", "/dev/tty"]);
    let gpus = [
        gpu_state(7, 35 * GIB, &json!([])),
        gpu_state(8, 0, &json!([])),
    ];
    it.test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = it.start();
    eventually_equals(&json!([["unknown", [], null, []]]), || it.findings());
    let screen = " nobody has it open\n\n\
                  Who keeps its memory is not known.\n  \
                    - 35.0 GiB are used, and no process explains them\n  \
                    - all open files were scanned, and no process that could hold the memory has the device open\n";
    eventually_equals(&screen.to_owned(), || it.screen());
    // The number of the device file identifies the GPU that the process has open.
    let other = it.test_box.json(&["holders", "--gpu", "1", "-o", "json"]);
    let other = &other["held_gpus"][0];
    let row = select_fields(&other["holders"], &["pid", "role", "holds"]);
    assert_eq!(row, json!([[4711, "unlisted", ["nvidia8", "nvidia-uvm"]]]));
    assert_eq!(other["findings"], json!([]));
    daemon.stop();
}

#[test]
fn listed_pid_without_process_is_reported() {
    let it = HoldersBox::new();
    it.set_driver_state(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    let daemon = it.start();
    eventually_equals(&json!([[4711, "gone"]]), || it.roles());
    eventually_equals(&json!([["unknown", [], null, []]]), || it.findings());
    let evidence = it.first_gpu_document()["findings"][0]["evidence"].clone();
    let expected = "the driver lists 35.0 GiB under 4711, which does not exist on this host";
    assert_eq!(evidence.as_array().unwrap().last().unwrap(), expected);
    daemon.stop();
}

#[test]
fn whole_box_fits_one_screen() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full", "/dev/tty"]);
    it.add_process(600, "nvidia-persiste", &["/dev/tty"]);
    let listed = json!([{"pid": 4711, "memory": 35 * GIB}]);
    let mut gpus = vec![gpu_state(7, 35 * GIB, &listed)];
    gpus.extend([8, 9, 10].map(|minor| gpu_state(minor, 0, &json!([]))));
    it.test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = it.start();
    let screen = "\
GPU 0 H100 80GB HBM3: 35.0 GiB used, all of it explained

  PID  USER    STATE     HOLDS                LISTED  WHAT IT IS
  600  daemon  sleeping  nvidia-uvm                –  nvidia-persistenced: a monitor, holds no memory
 4711  daemon  sleeping  nvidia7, nvidia-uvm   35.0G  python

GPUs 1-3: nobody holds memory
";
    eventually_equals(&screen.to_owned(), || it.test_box.ctl(&["holders"]).stdout);
    daemon.stop();
}
