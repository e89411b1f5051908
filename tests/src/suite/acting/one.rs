//! One process, named by its pid.

use super::{Box, all, endings, recorded};
use gpukill_tests::harness::{Actor, Troupe, becomes, eventually, is_over, skip};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A shell that says its pid, and `NAME` for each of these signals that it gets,
/// and goes on.
const STUBBORN: &str = "
    trap 'echo TERM' TERM
    trap 'echo INT' INT
    echo $$
    while :; do sleep 0.05; done";

/// Whether this test ignores SIGINT, the second signal.
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
    ignored & 0b10 != 0
}

pub(super) fn letter(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn one_process_is_ended_and_its_memory_comes_back_and_all_of_it_is_recorded() {
    let it = Box::new();
    let actor = Actor::start("python train.py");
    let pid = actor.pid();
    it.lists(&[pid]);
    let ran = it.says(&[&pid.to_string()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(is_over(pid));
    let line = |of: &str| ran.stdout.lines().find(|line| line.contains(of)).unwrap();
    let ended = line("  ended ");
    assert!(ended.contains(&pid.to_string()), "{ran:?}");
    assert!(ended.contains("python train.py 1000"), "{ran:?}");
    assert!(
        ended.contains("SIGTERM, less than 0.1 s") || ended.contains("SIGTERM, 0."),
        "{ran:?}"
    );
    assert!(
        line("memory:").contains("GPU 0 gave back 1.0 of 1.0 GiB in 0."),
        "{ran:?}"
    );

    let act = it.recorded();
    let us = geteuid().as_raw();
    assert_eq!(
        [
            &act["kind"],
            &act["uid"],
            &act["word"],
            &act["why"],
            &act["asked"]
        ],
        [
            &json!("kill"),
            &json!(us),
            &json!("done"),
            &json!(null),
            &json!(pid.to_string())
        ]
    );
    assert_eq!(super::ended(&act["plan"]), [pid]);
    let outcome = &act["outcome"];
    assert_eq!(endings(outcome), all(&[pid], "ended", "SIGTERM"));
    let memory = &outcome["memory"][0];
    let gib = 1u64 << 30;
    assert_eq!(memory["held_bytes"], gib);
    assert_eq!(memory["returned_bytes"], gib);
    // The driver took its time.
    let after = memory["after_ms"].as_u64().unwrap();
    assert!(after >= 250, "{memory}");
    assert_eq!(outcome["recorded"], true);

    // So that the journal has it too.
    let log = it.daemon.log();
    let line = |of: &str| log.lines().find(|line| line.contains(of)).unwrap();
    for of in ["an act begins", "an act ended"] {
        assert!(
            line(of).contains(&format!("\"pid\":{pid}"))
                || line(of).contains(&format!("\\\"pid\\\":{pid}")),
            "{log}"
        );
    }
}

#[test]
fn the_person_sees_that_it_survived_and_what_would_end_it() {
    let it = Box::new();
    let troupe = Troupe::run(&it.stage, STUBBORN);
    let [pid] = troupe.pids();
    it.lists(&[pid]);
    let ran = it.says(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let survived = ran
        .stdout
        .lines()
        .find(|line| line.contains("survived"))
        .unwrap();
    assert!(
        survived.contains("still there after SIGTERM and 1."),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("--force sends"), "{ran:?}");
    assert_eq!(troupe.says(), "TERM");
    assert!(!is_over(pid));
    assert_eq!(it.recorded()["word"], "failed");

    let (code, report) = it.kill(&[&pid.to_string(), "--timeout-secs", "1", "--force"]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(endings(&report), all(&[pid], "ended", "SIGKILL"));
    let after = report["outcomes"][0]["after_ms"].as_u64().unwrap();
    assert!(after >= 1000, "it had its time: {report:#}");
    assert_eq!(troupe.says(), "TERM");
    assert!(is_over(pid));
}

#[test]
fn the_first_signal_can_be_chosen_and_kill_needs_force() {
    if ignores_interrupts() {
        // It is inherited, and no shell can catch what it got ignored.
        return skip("these tests were started in the background, where SIGINT is ignored");
    }
    let it = Box::new();
    let troupe = Troupe::run(&it.stage, STUBBORN);
    let [pid] = troupe.pids();
    it.lists(&[pid]);
    let pid = pid.to_string();
    let (code, report) = it.kill(&[&pid, "--timeout-secs", "1", "--signal", "INT"]);
    assert_eq!(
        (code, &report["outcomes"][0]["signal"]),
        (1, &json!("SIGINT"))
    );
    assert_eq!(troupe.says(), "INT");
    let ran = it.says(&[&pid, "--signal", "KILL"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let (code, report) = it.kill(&[&pid, "--signal", "KILL", "--force"]);
    assert_eq!(
        (code, &report["outcomes"][0]["signal"]),
        (0, &json!("SIGKILL"))
    );
    assert_eq!(troupe.murmurs(), Vec::<String>::new());
}

#[test]
fn a_stopped_process_goes_on_to_end() {
    let it = Box::new();
    let troupe = Troupe::run(
        &it.stage,
        "trap 'echo bye; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = troupe.pids();
    it.lists(&[pid]);
    let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(raw, Signal::STOP).unwrap();
    becomes(&Some('T'), || letter(pid));
    let (code, report) = it.kill(&[&pid.to_string()]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[pid], "ended", "SIGTERM"))
    );
    assert_eq!(troupe.says(), "bye");
}

#[test]
fn a_process_whose_first_thread_has_ended_is_ended_as_a_whole() {
    // The system call alone ends only the thread; Python has no word for it.
    let script = "
import ctypes, os, platform, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print(os.getpid(), flush=True)
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)";
    if !can_call() {
        return;
    }
    let it = Box::new();
    let troupe = Troupe::of(&it.stage, Command::new("python3").args(["-c", script]));
    let [pid] = troupe.pids();
    becomes(&Some('Z'), || letter(pid));
    assert!(!is_over(pid));
    it.lists(&[pid]);
    let (code, report) = it.kill(&[&pid.to_string()]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[pid], "ended", "SIGTERM")),
        "{report:#}"
    );
    assert!(is_over(pid));
}

#[test]
fn a_zombie_gets_nothing_and_its_parent_is_named() {
    let it = Box::new();
    // The parent never asks how its child ended.
    let troupe = Troupe::run(
        &it.stage,
        "launcher -c 'sleep 0.5 & echo $!; echo $$; exec worker 1000' & wait",
    );
    let [child, parent] = troupe.pids();
    becomes(&Some('Z'), || letter(child));
    // As a driver that still tears it down lists it.
    it.stage
        .play(&json!({"gpus": [{"processes": [{"pid": child, "memory": 1 << 30}]}]}));
    let ran = eventually("the zombie is seen", || {
        let ran = it.says(&[&child.to_string()]);
        (ran.code != 8).then_some(ran)
    });
    assert_eq!(ran.code, 1, "{ran:?}");
    let why = format!(
        "gpukillctl: cannot end process {child}: it has ended, and goes when its parent {parent} (worker) asks how\n"
    );
    assert!(ran.stderr.starts_with(&why), "{ran:?}");
    assert_eq!(it.recorded()["word"], "refused");
    assert_eq!(letter(child), Some('Z'));
}

#[test]
fn one_whose_parent_never_asks_how_it_ended_has_ended_all_the_same() {
    let it = Box::new();
    let troupe = Troupe::run(
        &it.stage,
        "launcher -c 'worker 1000 & echo $!; exec worker 1001' & wait",
    );
    let [child] = troupe.pids();
    it.lists(&[child]);
    let (code, report) = it.kill(&[&child.to_string()]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[child], "ended", "SIGTERM"))
    );
    assert_eq!(letter(child), Some('Z'));
    assert_eq!(report["memory"][0]["returned_bytes"], 1u64 << 30);
}

#[test]
fn who_is_not_there_or_uses_no_gpu_is_no_match() {
    let it = Box::new();
    let actor = Actor::start("idle");
    let pid = actor.pid().to_string();
    let ran = it.says(&[&pid]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(ran.stderr.contains(&format!("process {pid}")), "{ran:?}");
    // Larger than any pid.
    let ran = it.says(&["4194305"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(
        ran.stderr.contains("there is no process 4194305"),
        "{ran:?}"
    );
    assert!(recorded(&it.stage).is_empty());
    assert!(!is_over(actor.pid()));
}

#[test]
fn one_that_uses_no_gpu_is_ended_by_root_alone_and_only_when_told_so() {
    let it = Box::new();
    let actor = Actor::start("idle");
    let is_root = geteuid().is_root();
    let ran = it.says(&[&actor.pid().to_string(), "--any-process"]);
    assert_eq!(ran.code, if is_root { 0 } else { 4 }, "{ran:?}");
    assert_eq!(is_over(actor.pid()), is_root);
}

/// Python for: start somebody, and be held in the kernel until that one has ended,
/// whatever comes that is not deadly. A signal is that without a handler.
const HELD: &str = "
import ctypes, os, signal, time
signal.signal(signal.SIGTERM, lambda *_: None)
print(os.getpid(), flush=True)
if ctypes.CDLL(None).vfork() == 0:
    time.sleep(1000)";

#[test]
fn one_that_is_stuck_in_the_kernel_is_called_so_and_not_tried_again() {
    if !can_call() {
        return;
    }
    let it = Box::new();
    let troupe = Troupe::of(&it.stage, Command::new("python3").args(["-c", HELD]));
    let [pid] = troupe.pids();
    becomes(&Some('D'), || letter(pid));
    it.lists(&[pid]);
    let begun = std::time::Instant::now();
    let (code, report) = it.kill(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert_eq!(
        (code, endings(&report)),
        (1, json!([[pid, "uninterruptible", null]]))
    );
    assert!(begun.elapsed().as_secs() < 10, "it was tried again");
    let ran = it.says(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert!(ran.stdout.contains("stuck in the kernel"), "{ran:?}");
    assert!(!is_over(pid));
}

/// Whether Python is here and calls the C library. Says why not.
fn can_call() -> bool {
    let runs = Command::new("python3")
        .args(["-c", "import ctypes"])
        .status();
    let can = runs.is_ok_and(|status| status.success());
    if !can {
        skip("no python3 with ctypes here, for what no shell can do");
    }
    can
}

#[test]
fn one_that_is_frozen_does_not_end_and_takes_its_one_signal_when_it_thaws() {
    let Some(freezer) = Freezer::new() else {
        return skip("no cgroup can be made here, to freeze a process");
    };
    let it = Box::new();
    let troupe = Troupe::run(
        &it.stage,
        "trap 'echo TERM; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = troupe.pids();
    it.lists(&[pid]);
    freezer.freeze(pid);
    let (code, report) = it.kill(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert_eq!(code, 1, "{report:#}");
    let ending = report["outcomes"][0]["ending"].as_str().unwrap();
    assert!(
        ["survived", "uninterruptible"].contains(&ending),
        "{report:#}"
    );
    assert!(!is_over(pid));
    freezer.thaw();
    eventually("it thaws and ends", || is_over(pid).then_some(()));
    assert_eq!(troupe.says(), "TERM");
    drop((troupe, freezer));
}

/// A cgroup (version 2) whose processes the kernel holds. Thaws when dropped.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let root = mounts.lines().find_map(|mount| {
            let mut fields = mount.split(' ').skip(1);
            let at = fields.next()?;
            (fields.next()? == "cgroup2").then_some(at)
        })?;
        let name = format!("gpukill-test-{}", std::process::id());
        let directory = Path::new(root).join(name);
        std::fs::create_dir(&directory).ok()?;
        let freezer = Self(directory);
        freezer.0.join("cgroup.freeze").exists().then_some(freezer)
    }

    fn freeze(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(self.0.join("cgroup.freeze"), "1").unwrap();
        eventually("it is frozen", || {
            let events = std::fs::read_to_string(self.0.join("cgroup.events")).ok()?;
            events.contains("frozen 1").then_some(())
        });
    }

    fn thaw(&self) {
        // It may have none.
        let _ = std::fs::write(self.0.join("cgroup.freeze"), "0");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        const TRIES: usize = 200;
        self.thaw();
        // It goes when the last process has gone.
        for _ in 0..TRIES {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
