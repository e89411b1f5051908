//! A single process, named by its pid.

use super::{KillBox, all_with_ending, outcomes, recorded_actions};
use gpukill_tests::harness::{
    Script, TestProcess, eventually, eventually_equals, process_has_ended, skip,
};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A shell that prints its pid and the name of each signal that it catches, and continues.
const STUBBORN: &str = "
    trap 'echo TERM' TERM
    trap 'echo INT' INT
    echo $$
    while :; do sleep 0.05; done";

/// Whether this test process ignores SIGINT, the second signal.
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
    ignored & 0b10 != 0
}

pub(super) fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn kill_is_reported_and_recorded() {
    let it = KillBox::new();
    let process = TestProcess::start("python train.py");
    let pid = process.pid();
    it.add_gpu_processes(&[pid]);
    let ran = it.kill_output(&[&pid.to_string()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(process_has_ended(pid));
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

    let action = it.newest_action();
    let status = it.test_box.json(&["status", "-o", "json"]);
    assert_eq!(
        status["counters"]["actions"],
        json!([{"kind": "kill", "result": "done", "count": 1}])
    );
    let us = geteuid().as_raw();
    assert_eq!(
        [
            &action["kind"],
            &action["uid"],
            &action["result"],
            &action["reason"],
            &action["request"]
        ],
        [
            &json!("kill"),
            &json!(us),
            &json!("done"),
            &json!(null),
            &json!(pid.to_string())
        ]
    );
    assert_eq!(super::planned_pids(&action["plan"]), [pid]);
    let outcome = &action["outcome"];
    assert_eq!(
        outcomes(outcome),
        all_with_ending(&[pid], "ended", "SIGTERM")
    );
    let memory = &outcome["memory"][0];
    let gib = 1u64 << 30;
    assert_eq!(memory["held_bytes"], gib);
    assert_eq!(memory["returned_bytes"], gib);
    // The simulated driver takes `TEARDOWN`.
    let after = memory["after_ms"].as_u64().unwrap();
    assert!(after >= 250, "{memory}");
    assert_eq!(outcome["recorded"], true);

    // The journal receives the same lines.
    let log = it.daemon.log();
    let line = |of: &str| log.lines().find(|line| line.contains(of)).unwrap();
    for of in ["an action starts", "an action ended"] {
        assert!(
            line(of).contains(&format!("\"pid\":{pid}"))
                || line(of).contains(&format!("\\\"pid\\\":{pid}")),
            "{log}"
        );
    }
}

#[test]
fn survivor_is_reported_with_a_hint() {
    let it = KillBox::new();
    let script = Script::run(&it.test_box, STUBBORN);
    let [pid] = script.next_pids();
    it.add_gpu_processes(&[pid]);
    let ran = it.kill_output(&[&pid.to_string(), "--timeout-secs", "1"]);
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
    assert_eq!(script.next_line(), "TERM");
    assert!(!process_has_ended(pid));
    assert_eq!(it.newest_action()["result"], "failed");

    let (code, report) = it.kill_json(&[&pid.to_string(), "--timeout-secs", "1", "--force"]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(
        outcomes(&report),
        all_with_ending(&[pid], "ended", "SIGKILL")
    );
    let after = report["outcomes"][0]["after_ms"].as_u64().unwrap();
    assert!(after >= 1000, "SIGKILL came before the timeout: {report:#}");
    assert_eq!(script.next_line(), "TERM");
    assert!(process_has_ended(pid));
}

#[test]
fn sigkill_as_first_signal_needs_force() {
    if ignores_interrupts() {
        // An ignored signal is inherited, and a shell cannot trap it.
        return skip("these tests were started in the background, where SIGINT is ignored");
    }
    let it = KillBox::new();
    let script = Script::run(&it.test_box, STUBBORN);
    let [pid] = script.next_pids();
    it.add_gpu_processes(&[pid]);
    let pid = pid.to_string();
    let (code, report) = it.kill_json(&[&pid, "--timeout-secs", "1", "--signal", "INT"]);
    assert_eq!(
        (code, &report["outcomes"][0]["signal"]),
        (1, &json!("SIGINT"))
    );
    assert_eq!(script.next_line(), "INT");
    let ran = it.kill_output(&[&pid, "--signal", "KILL"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let (code, report) = it.kill_json(&[&pid, "--signal", "KILL", "--force"]);
    assert_eq!(
        (code, &report["outcomes"][0]["signal"]),
        (0, &json!("SIGKILL"))
    );
    assert_eq!(script.unread_lines(), Vec::<String>::new());
}

#[test]
fn stopped_process_continues_and_ends() {
    let it = KillBox::new();
    let script = Script::run(
        &it.test_box,
        "trap 'echo bye; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = script.next_pids();
    it.add_gpu_processes(&[pid]);
    let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(raw, Signal::STOP).unwrap();
    eventually_equals(&Some('T'), || process_state(pid));
    let (code, report) = it.kill_json(&[&pid.to_string()]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[pid], "ended", "SIGTERM"))
    );
    assert_eq!(script.next_line(), "bye");
}

#[test]
fn process_without_first_thread_ends() {
    // The raw system call ends only the thread; Python has no function for it.
    let source = "
import ctypes, os, platform, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print(os.getpid(), flush=True)
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)";
    if !can_call_c_library() {
        return;
    }
    let it = KillBox::new();
    let script = Script::spawn(&it.test_box, Command::new("python3").args(["-c", source]));
    let [pid] = script.next_pids();
    eventually_equals(&Some('Z'), || process_state(pid));
    assert!(!process_has_ended(pid));
    it.add_gpu_processes(&[pid]);
    let (code, report) = it.kill_json(&[&pid.to_string()]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[pid], "ended", "SIGTERM")),
        "{report:#}"
    );
    assert!(process_has_ended(pid));
}

#[test]
fn zombie_is_refused_with_its_parent() {
    let it = KillBox::new();
    // The parent never reaps its child.
    let script = Script::run(
        &it.test_box,
        "launcher -c 'sleep 0.5 & echo $!; echo $$; exec worker 1000' & wait",
    );
    let [child, parent] = script.next_pids();
    eventually_equals(&Some('Z'), || process_state(child));
    // A driver lists the process while it releases its memory.
    it.test_box
        .set_driver_state(&json!({"gpus": [{"processes": [{"pid": child, "memory": 1 << 30}]}]}));
    let ran = eventually("the zombie is listed", || {
        let ran = it.kill_output(&[&child.to_string()]);
        (ran.code != 8).then_some(ran)
    });
    assert_eq!(ran.code, 1, "{ran:?}");
    let why = format!(
        "gpukillctl: cannot end process {child}: it has ended, and goes when its parent {parent} \
        (worker) reaps it\n"
    );
    assert!(ran.stderr.starts_with(&why), "{ran:?}");
    assert_eq!(it.newest_action()["result"], "refused");
    assert_eq!(process_state(child), Some('Z'));
}

#[test]
fn unreaped_process_counts_as_ended() {
    let it = KillBox::new();
    let script = Script::run(
        &it.test_box,
        "launcher -c 'worker 1000 & echo $!; exec worker 1001' & wait",
    );
    let [child] = script.next_pids();
    it.add_gpu_processes(&[child]);
    let (code, report) = it.kill_json(&[&child.to_string()]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[child], "ended", "SIGTERM"))
    );
    assert_eq!(process_state(child), Some('Z'));
    assert_eq!(report["memory"][0]["returned_bytes"], 1u64 << 30);
}

#[test]
fn process_without_gpu_is_no_match() {
    let it = KillBox::new();
    let process = TestProcess::start("idle");
    let pid = process.pid().to_string();
    let ran = it.kill_output(&[&pid]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(ran.stderr.contains(&format!("process {pid}")), "{ran:?}");
    // Greater than any pid.
    let ran = it.kill_output(&["4194305"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(
        ran.stderr.contains("there is no process 4194305"),
        "{ran:?}"
    );
    assert!(recorded_actions(&it.test_box).is_empty());
    assert!(!process_has_ended(process.pid()));
}

#[test]
fn only_root_ends_any_process() {
    let it = KillBox::new();
    let process = TestProcess::start("idle");
    let is_root = geteuid().is_root();
    let ran = it.kill_output(&[&process.pid().to_string(), "--any-process"]);
    assert_eq!(ran.code, if is_root { 0 } else { 4 }, "{ran:?}");
    assert_eq!(process_has_ended(process.pid()), is_root);
}

/// Python code that starts a child with vfork, which blocks the process in the kernel until the
/// child ends. Only a fatal signal interrupts the wait; a signal with a handler is not fatal.
const VFORK_WAIT: &str = "
import ctypes, os, signal, time
signal.signal(signal.SIGTERM, lambda *_: None)
print(os.getpid(), flush=True)
if ctypes.CDLL(None).vfork() == 0:
    time.sleep(1000)";

#[test]
fn uninterruptible_process_is_reported() {
    if !can_call_c_library() {
        return;
    }
    let it = KillBox::new();
    let script = Script::spawn(
        &it.test_box,
        Command::new("python3").args(["-c", VFORK_WAIT]),
    );
    let [pid] = script.next_pids();
    eventually_equals(&Some('D'), || process_state(pid));
    it.add_gpu_processes(&[pid]);
    let (code, report) = it.kill_json(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert_eq!(
        (code, outcomes(&report)),
        (1, json!([[pid, "uninterruptible", null]]))
    );
    let ran = it.kill_output(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert!(ran.stdout.contains("stuck in the kernel"), "{ran:?}");
    assert!(!process_has_ended(pid));
}

/// Whether Python is installed and can call the C library. Reports the skip if not.
fn can_call_c_library() -> bool {
    let runs = Command::new("python3")
        .args(["-c", "import ctypes"])
        .status();
    let can = runs.is_ok_and(|status| status.success());
    if !can {
        skip("no python3 with ctypes here");
    }
    can
}

#[test]
fn frozen_process_ends_when_it_thaws() {
    let Some(freezer) = Freezer::new() else {
        return skip("no cgroup can be made here, to freeze a process");
    };
    let it = KillBox::new();
    let script = Script::run(
        &it.test_box,
        "trap 'echo TERM; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = script.next_pids();
    it.add_gpu_processes(&[pid]);
    freezer.freeze(pid);
    let (code, report) = it.kill_json(&[&pid.to_string(), "--timeout-secs", "1"]);
    assert_eq!(code, 1, "{report:#}");
    let ending = report["outcomes"][0]["outcome"].as_str().unwrap();
    assert!(
        ["survived", "uninterruptible"].contains(&ending),
        "{report:#}"
    );
    assert!(!process_has_ended(pid));
    freezer.thaw();
    eventually("it thaws and ends", || process_has_ended(pid).then_some(()));
    assert_eq!(script.next_line(), "TERM");
    drop((script, freezer));
}

/// A cgroup (version 2) with a freezer. It thaws when dropped.
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
        // The file may not exist.
        let _ = std::fs::write(self.0.join("cgroup.freeze"), "0");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        const TRIES: usize = 200;
        self.thaw();
        // The directory can be removed after the last process has ended.
        for _ in 0..TRIES {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
