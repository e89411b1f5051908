//! GPUs with holders: refused, or freed first.

use super::{FIRST_GPU, FakeSystemd, ResetBox};
use gpukill_tests::harness::{TestProcess, eventually_equals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Starts a process that has the first GPU open.
pub(super) fn start_holder(script: &str) -> TestProcess {
    let script = format!("exec 5</dev/full; {script}");
    TestProcess::spawn(Command::new("sh").args(["-c", &script]).process_group(0))
}

pub(super) fn holder_pids(it: &ResetBox) -> Value {
    let held = it.test_box.json(&["holders", "--gpu", "0", "-o", "json"]);
    let holders = held["held_gpus"][0]["holders"].as_array().unwrap().iter();
    holders.map(|holder| holder["pid"].clone()).collect()
}

#[test]
fn gpu_in_use_needs_force() {
    let it = ResetBox::new();
    let process = start_holder("exec sleep 1000");
    it.procfs.link_real_process(process.pid());
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!([process.pid()]), || holder_pids(&it));
    let ran = it.reset(&["--gpu", "0", "--yes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains(&format!("(pid {})", process.pid())));
    assert_eq!(
        ran.stderr,
        "gpukillctl: nothing was reset\n\
         hint: --force ends the processes that hold it first\n"
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
}

#[test]
fn force_ends_holders_then_resets() {
    let it = ResetBox::new();
    let process = start_holder("trap '' TERM; while :; do sleep 1; done");
    it.procfs.link_real_process(process.pid());
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!([process.pid()]), || holder_pids(&it));
    let pid = process.pid();
    let ran = it.reset(&["--gpu", "0", "--force", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(it.outcomes(&ran), json!([[0, "reset", null]]));
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let ended = &document["outcomes"][0]["ended"]["outcomes"][0];
    assert_eq!(
        json!([ended["pid"], ended["outcome"], ended["signal"]]),
        json!([pid, "ended", "SIGKILL"])
    );
    assert_eq!(it.recorded_calls(), [format!("--gpu-reset -i {FIRST_GPU}")]);
    daemon.stop();
}

#[test]
fn restarted_holder_blocks_the_reset() {
    let it = ResetBox::new();
    // On SIGTERM the process requests a successor, and ends when the successor runs: like a
    // unit that restarts, and in an order that does not depend on time.
    let successor = format!(
        "exec 5</dev/full; ln -s /proc/$$ {proc}/$$; echo $$ > {new}; : > {up}; exec sleep 1000",
        proc = it.procfs.root().display(),
        new = it.test_box.path("successor").display(),
        up = it.test_box.path("up").display(),
    );
    let wanted = it.test_box.path("wanted").display().to_string();
    let unit = format!("until [ -e {wanted} ]; do sleep 0.05; done; sh -c '{successor}' & wait $!");
    let unit = TestProcess::spawn(Command::new("sh").args(["-c", &unit]).process_group(0));
    let process = start_holder(&format!(
        "trap ': > {wanted}; until [ -e {up} ]; do sleep 0.05; done; exit' TERM; \
         while :; do sleep 0.05; done",
        up = it.test_box.path("up").display(),
    ));
    it.procfs.link_real_process(process.pid());
    it.procfs.link_real_process(unit.pid());
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!([process.pid()]), || holder_pids(&it));
    let ran = it.reset(&["--gpu", "0", "--force", "--yes", "-o", "json"]);
    let new = std::fs::read_to_string(it.test_box.path("successor")).unwrap();
    let new: i32 = new.trim().parse().unwrap();
    let _ended = KillOnDrop(new);
    assert_eq!(ran.code, 1, "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let outcome = &document["outcomes"][0];
    let ended = &outcome["ended"]["outcomes"];
    assert_eq!(
        json!([ended[0]["pid"], ended[0]["outcome"], ended[1]]),
        json!([process.pid(), "ended", null])
    );
    let blockers = outcome["blockers"].as_array().unwrap().iter();
    let blockers: Value = blockers
        .map(|it| json!([it["pid"], it["remedy"]]))
        .collect();
    assert_eq!(
        json!([outcome["outcome"], blockers]),
        json!(["blocked", [[new, "force"]]])
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    // The successor lives: the consent was to end the holders before it.
    assert_eq!(holder_pids(&it), json!([new]));
    daemon.stop();
}

/// Kills a process that is no child of this test when dropped.
struct KillOnDrop(i32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0).unwrap();
        // It may have ended already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[test]
fn protected_holders_block_even_with_force() {
    let it = ResetBox::new();
    it.add_process(600, "nv-hostengine", &["/dev/full"]);
    it.add_process(601, "nvidia-persiste", &["/dev/full"]);
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!([600, 601]), || holder_pids(&it));
    let ran = it.reset(&["--gpu", "0", "--force", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    let blockers = plan["gpus"][0]["blockers"].as_array().unwrap().iter();
    let blockers: Value = blockers
        .map(|it| json!([it["pid"], it["remedy"]]))
        .collect();
    assert_eq!(
        blockers,
        json!([[600, "person"], [601, "daemon"], [null, "daemon"]])
    );
    let what = plan["gpus"][0]["blockers"][0]["what"].as_str().unwrap();
    assert!(
        what.ends_with("; stop it first: systemctl stop nvidia-dcgm"),
        "{what}"
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
}
