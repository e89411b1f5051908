//! Processes that are protected from every caller.

use super::{KillBox, all_with_ending, is_in_test_namespaces, outcomes};
use gpukill_tests::harness::{
    TestProcess, copy_program, eventually, eventually_equals, process_has_ended,
};
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies `sleep` to this path and runs it.
fn run_copy_of_sleep(path: PathBuf) -> TestProcess {
    // A copy, because a script or a link does not change the name of the executable.
    copy_program("/bin/sleep", &path);
    TestProcess::spawn(Command::new(path).arg("1000"))
}

/// The refusal of `kill --force`.
fn refusal(it: &KillBox, pid: u32) -> String {
    let ran = it.kill_output(&[&pid.to_string(), "--force", "--yes"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
    let why = ran
        .stderr
        .strip_prefix(&format!("gpukillctl: cannot end process {pid}: "));
    why.unwrap_or_else(|| panic!("{ran:?}"))
        .trim_end()
        .to_owned()
}

/// The reason in `explain` why the process is never ended.
fn protection_reason(it: &KillBox, pid: u32) -> Value {
    let pid = pid.to_string();
    it.test_box.json(&["explain", &pid, "-o", "json"])["never_ended"].take()
}

#[test]
fn gpu_services_are_protected() {
    if !is_in_test_namespaces("kill::protected::gpu_services_are_protected") {
        return;
    }
    // A mount in this namespace alone, where only root may write.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "none", "/opt"])
        .status();
    assert!(mounted.unwrap().success());
    let it = KillBox::new();
    for name in [
        "nvidia-persistenced",
        "nv-hostengine",
        "nvidia-cuda-mps-server",
    ] {
        let real = run_copy_of_sleep(Path::new("/opt").join(name));
        let impostor = run_copy_of_sleep(it.test_box.path(name));
        it.add_gpu_processes(&[real.pid(), impostor.pid()]);
        assert!(!refusal(&it, real.pid()).is_empty());
        assert!(!process_has_ended(real.pid()));
        let (code, report) = it.kill_json(&[&impostor.pid().to_string()]);
        assert_eq!(
            (code, outcomes(&report)),
            (0, all_with_ending(&[impostor.pid()], "ended", "SIGTERM")),
            "{name}"
        );
    }
}

#[test]
fn daemon_sensor_and_ancestors_are_protected() {
    let it = KillBox::new();
    let (daemon, sensor, test) = (it.daemon.pid(), it.daemon.sensor_pid(), std::process::id());
    it.add_gpu_processes(&[daemon, sensor, test]);
    assert_eq!(refusal(&it, daemon), "it is gpukilld");
    assert_eq!(refusal(&it, sensor), "it is part of gpukilld");
    // In its own PID namespace this test may be process 1.
    let why = match test {
        1 => "it is process 1, and all other processes depend on it",
        _ => "it is an ancestor of gpukilld",
    };
    assert_eq!(refusal(&it, test), why);
    let (code, plan) = it.kill_json(&["--gpu", "0", "--force", "--batch", "--yes"]);
    assert_eq!(
        (code, super::planned_pids(&plan)),
        (4, Vec::new()),
        "{plan:#}"
    );
    assert_eq!(super::pids_with_action(&plan, "protected").len(), 3);
    assert!(!process_has_ended(daemon) && !process_has_ended(sensor));
}

#[test]
fn protect_settings_apply_after_reload() {
    let us = geteuid().as_raw();
    let cases = [
        (
            format!("[protect]\nusers = [\"{us}\"]"),
            format!("the admin protects processes of {us}"),
        ),
        (
            "[protect]\nnames = [\"sleep\"]".to_owned(),
            "the admin protects the name sleep".to_owned(),
        ),
    ];
    for (settings, why) in cases {
        let it = KillBox::new();
        let process = TestProcess::spawn(Command::new("sleep").arg("1000"));
        let executable = std::fs::read_link(format!("/proc/{}/exe", process.pid())).unwrap();
        if !executable.ends_with("sleep") && settings.contains("names") {
            return gpukill_tests::harness::skip("here sleep is one of many names of a program");
        }
        let impostor = run_copy_of_sleep(it.test_box.path("sleep"));
        it.add_gpu_processes(&[process.pid(), impostor.pid()]);
        it.test_box.configure(&settings);
        it.daemon.signal(Signal::HUP);
        eventually("the settings are read", || {
            it.daemon.log().contains("settings reloaded").then_some(())
        });
        let way = format!("{why}; root may end it with --override-protected");
        assert_eq!(protection_reason(&it, process.pid()), way.as_str());
        let refused = format!("{why}\nhint: root may end it with --override-protected");
        assert_eq!(refusal(&it, process.pid()), refused);
        if settings.contains("names") {
            // A file in a directory that others may write can have any name.
            assert_eq!(protection_reason(&it, impostor.pid()), Value::Null);
            assert_eq!(it.kill_output(&[&impostor.pid().to_string()]).code, 0);
        }
        it.test_box.configure("");
        it.daemon.signal(Signal::HUP);
        eventually_equals(&2, || it.daemon.log().matches("settings reloaded").count());
        assert_eq!(it.kill_output(&[&process.pid().to_string()]).code, 0);
        assert!(process_has_ended(process.pid()));
    }
}
