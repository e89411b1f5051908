//! GPUs that somebody holds: refused, or freed first.

use super::{Box, FIRST, Systemd};
use gpukill_tests::harness::{Actor, becomes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A process that has the first GPU open.
pub(super) fn holder(script: &str) -> Actor {
    let script = format!("exec 5</dev/full; {script}");
    Actor::of(Command::new("sh").args(["-c", &script]).process_group(0))
}

pub(super) fn holders(it: &Box) -> Value {
    let held = it.stage.json(&["holders", "--gpu", "0", "-o", "json"]);
    let holders = held["held_gpus"][0]["holders"].as_array().unwrap().iter();
    holders.map(|holder| holder["pid"].clone()).collect()
}

#[test]
fn a_gpu_that_is_in_use_is_not_reset_without_force() {
    let it = Box::new();
    let actor = holder("exec sleep 1000");
    it.procfs.link(actor.pid());
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!([actor.pid()]), || holders(&it));
    let ran = it.reset(&["--gpu", "0", "--yes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains(&format!("(pid {})", actor.pid())));
    assert_eq!(
        ran.stderr,
        "gpukillctl: nothing was reset\n\
         hint: --force ends the processes that hold it first\n"
    );
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
}

#[test]
fn force_ends_those_who_hold_it_and_then_resets_it() {
    let it = Box::new();
    let actor = holder("trap '' TERM; while :; do sleep 1; done");
    it.procfs.link(actor.pid());
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!([actor.pid()]), || holders(&it));
    let pid = actor.pid();
    let ran = it.reset(&["--gpu", "0", "--force", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(it.outcomes(&ran), json!([[0, "reset", null]]));
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let ended = &document["outcomes"][0]["ended"]["outcomes"][0];
    assert_eq!(
        json!([ended["pid"], ended["ending"], ended["signal"]]),
        json!([pid, "ended", "SIGKILL"])
    );
    assert_eq!(it.called(), [format!("--gpu-reset -i {FIRST}")]);
    daemon.stop();
}

#[test]
fn whoever_is_started_again_between_the_end_and_the_reset_is_named_and_not_reset_under() {
    let it = Box::new();
    // It asks for a successor when it is told to end, and ends when that is there:
    // as a unit that starts again does, and in an order that does not depend on time.
    let successor = format!(
        "exec 5</dev/full; ln -s /proc/$$ {proc}/$$; echo $$ > {new}; : > {up}; exec sleep 1000",
        proc = it.procfs.root().display(),
        new = it.stage.path("successor").display(),
        up = it.stage.path("up").display(),
    );
    let wanted = it.stage.path("wanted").display().to_string();
    let unit = format!("until [ -e {wanted} ]; do sleep 0.05; done; sh -c '{successor}' & wait $!");
    let unit = Actor::of(Command::new("sh").args(["-c", &unit]).process_group(0));
    let actor = holder(&format!(
        "trap ': > {wanted}; until [ -e {up} ]; do sleep 0.05; done; exit' TERM; \
         while :; do sleep 0.05; done",
        up = it.stage.path("up").display(),
    ));
    it.procfs.link(actor.pid());
    it.procfs.link(unit.pid());
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!([actor.pid()]), || holders(&it));
    let ran = it.reset(&["--gpu", "0", "--force", "--yes", "-o", "json"]);
    let new = std::fs::read_to_string(it.stage.path("successor")).unwrap();
    let new: i32 = new.trim().parse().unwrap();
    let _ended = Ended(new);
    assert_eq!(ran.code, 1, "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let outcome = &document["outcomes"][0];
    let ended = &outcome["ended"]["outcomes"];
    assert_eq!(
        json!([ended[0]["pid"], ended[0]["ending"], ended[1]]),
        json!([actor.pid(), "ended", null])
    );
    let blockers = outcome["blockers"].as_array().unwrap().iter();
    let blockers: Value = blockers
        .map(|it| json!([it["pid"], it["remedy"]]))
        .collect();
    assert_eq!(
        json!([outcome["ending"], blockers]),
        json!(["blocked", [[new, "force"]]])
    );
    assert_eq!(it.called(), [""; 0]);
    // It lives: what a person asked for was an end of those before.
    assert_eq!(holders(&it), json!([new]));
    daemon.stop();
}

/// A process that is nobody's child here; killed when dropped.
struct Ended(i32);

impl Drop for Ended {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0).unwrap();
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[test]
fn what_is_protected_stands_in_the_way_whatever_is_said() {
    let it = Box::new();
    it.invent(600, "nv-hostengine", &["/dev/full"]);
    it.invent(601, "nvidia-persiste", &["/dev/full"]);
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!([600, 601]), || holders(&it));
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
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
}
