//! Processes that have a GPU open and are not listed, and memory that nobody is
//! seen to hold.

use super::{Box, GIB, gpu, pick, us};
use gpukill_tests::harness::{Actor, becomes};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

#[test]
fn a_process_that_is_not_listed_and_no_orphan_is_named_with_a_perhaps() {
    let it = Box::new();
    let script = "exec 5</dev/full; exec sleep 1000";
    let actor = Actor::of(Command::new("sh").args(["-c", script]).process_group(0));
    let pid = actor.pid();
    it.procfs.link(pid);
    it.procfs.link(std::process::id());
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    becomes(&json!([["unlisted", [pid], null, []]]), || it.findings());
    let us = us();
    let verdict = format!(
        "Perhaps 1 process of {us} that the driver does not list keeps its memory.\n  \
           - {pid} (sleep of {us}) has it open, and the driver does not list it\n\
         If it is nobody's any more, its owner can end it\n"
    );
    becomes(&verdict, || it.verdict());
    // Nothing is unexplained any more: to have it open is no fault.
    it.play(0, &json!([]));
    becomes(&json!([]), || it.findings());
    assert_eq!(it.roles(), json!([[pid, "unlisted"]]));
    drop(actor);
    becomes(&json!([]), || it.roles());
    daemon.stop();
}

#[test]
fn memory_that_nobody_has_open_is_called_unknown_after_a_look_at_everybody() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    // It has another GPU open, and so the files that all share.
    it.invent(4711, "python", &["/dev/random", "/dev/tty"]);
    let gpus = [gpu(7, 35 * GIB, &json!([])), gpu(8, 0, &json!([]))];
    it.stage.play(&json!({"gpus": gpus}));
    let daemon = it.start();
    becomes(&json!([["unknown", [], null, []]]), || it.findings());
    let screen = " nobody has it open\n\n\
                  Who keeps its memory is not known.\n  \
                    - 35.0 GiB are used, and nothing explains them\n  \
                    - the open files of every process were looked at, and none that could hold them has it open\n";
    becomes(&screen.to_owned(), || it.screen());
    // Which GPU it has open is known by the number of its file.
    let other = it.stage.json(&["holders", "--gpu", "1", "-o", "json"]);
    let other = &other["held_gpus"][0];
    let row = pick(&other["holders"], &["pid", "role", "holds"]);
    assert_eq!(row, json!([[4711, "unlisted", ["nvidia8", "nvidia-uvm"]]]));
    assert_eq!(other["findings"], json!([]));
    daemon.stop();
}

#[test]
fn memory_under_a_pid_that_is_no_process_here_is_told_so() {
    let it = Box::new();
    it.play(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    let daemon = it.start();
    becomes(&json!([[4711, "gone"]]), || it.roles());
    becomes(&json!([["unknown", [], null, []]]), || it.findings());
    let evidence = it.held()["findings"][0]["evidence"].clone();
    let said = "the driver lists 35.0 GiB under 4711, which is no process here";
    assert_eq!(evidence.as_array().unwrap().last().unwrap(), said);
    daemon.stop();
}

#[test]
fn a_whole_box_is_told_in_one_screen_and_free_gpus_in_one_line() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full", "/dev/tty"]);
    it.invent(600, "nvidia-persiste", &["/dev/tty"]);
    let listed = json!([{"pid": 4711, "memory": 35 * GIB}]);
    let mut gpus = vec![gpu(7, 35 * GIB, &listed)];
    gpus.extend([8, 9, 10].map(|minor| gpu(minor, 0, &json!([]))));
    it.stage.play(&json!({"gpus": gpus}));
    let daemon = it.start();
    let screen = "\
GPU 0 H100 80GB HBM3: 35.0 GiB used, all of it explained

  PID  USER    STATE     HOLDS                LISTED  WHAT IT IS
  600  daemon  sleeping  nvidia-uvm                –  nvidia-persistenced: a monitor, holds no memory
 4711  daemon  sleeping  nvidia7, nvidia-uvm   35.0G  python

GPUs 1-3: nobody holds memory
";
    becomes(&screen.to_owned(), || it.stage.ctl(&["holders"]).stdout);
    daemon.stop();
}
