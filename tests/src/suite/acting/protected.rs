//! What nobody ends, whoever asks.

use super::{Box, all, endings, is_inside};
use gpukill_tests::harness::{Actor, becomes, copy_program, eventually, is_over};
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of this path that does nothing.
fn program(path: PathBuf) -> Actor {
    // A script's or a link's name is not its executable's.
    copy_program("/bin/sleep", &path);
    Actor::of(Command::new(path).arg("1000"))
}

/// What is said to whoever would end it with all force.
fn refusal(it: &Box, pid: u32) -> String {
    let ran = it.says(&[&pid.to_string(), "--force", "--yes"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
    let why = ran
        .stderr
        .strip_prefix(&format!("gpukillctl: cannot end process {pid}: "));
    why.unwrap_or_else(|| panic!("{ran:?}"))
        .trim_end()
        .to_owned()
}

/// What `explain` says of why nobody ends it.
fn never_ended(it: &Box, pid: u32) -> Value {
    let pid = pid.to_string();
    it.stage.json(&["explain", &pid, "-o", "json"])["never_ended"].take()
}

#[test]
fn what_serves_everybody_is_spared_and_what_only_has_its_name_is_not() {
    if !is_inside(
        "acting::protected::what_serves_everybody_is_spared_and_what_only_has_its_name_is_not",
    ) {
        return;
    }
    // Of this mount namespace alone: only root writes there.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "none", "/opt"])
        .status();
    assert!(mounted.unwrap().success());
    let it = Box::new();
    for name in [
        "nvidia-persistenced",
        "nv-hostengine",
        "nvidia-cuda-mps-server",
    ] {
        let real = program(Path::new("/opt").join(name));
        let impostor = program(it.stage.path(name));
        it.lists(&[real.pid(), impostor.pid()]);
        assert!(!refusal(&it, real.pid()).is_empty());
        assert!(!is_over(real.pid()));
        let (code, report) = it.kill(&[&impostor.pid().to_string()]);
        assert_eq!(
            (code, endings(&report)),
            (0, all(&[impostor.pid()], "ended", "SIGTERM")),
            "{name}"
        );
    }
}

#[test]
fn the_daemon_and_what_it_runs_below_and_its_sensor_are_spared() {
    let it = Box::new();
    let (daemon, sensor, test) = (it.daemon.pid(), it.daemon.sensor(), std::process::id());
    it.lists(&[daemon, sensor, test]);
    assert_eq!(refusal(&it, daemon), "it is gpukilld");
    assert_eq!(refusal(&it, sensor), "it is a part of gpukilld");
    // In a PID namespace of its own this test may be the first process.
    let why = match test {
        1 => "it is process 1, on which all others depend",
        _ => "gpukilld runs below it",
    };
    assert_eq!(refusal(&it, test), why);
    let (code, plan) = it.kill(&["--gpu", "0", "--force", "--batch", "--yes"]);
    assert_eq!((code, super::ended(&plan)), (4, Vec::new()), "{plan:#}");
    assert_eq!(super::fated(&plan, "protected").len(), 3);
    assert!(!is_over(daemon) && !is_over(sensor));
}

#[test]
fn what_the_admin_protects_is_spared_from_the_next_reading_of_the_settings_on() {
    let us = geteuid().as_raw();
    let cases = [
        (
            format!("[protect]\nusers = [\"{us}\"]"),
            format!("the admin protects what {us} runs"),
        ),
        (
            "[protect]\nnames = [\"sleep\"]".to_owned(),
            "the admin protects what is called sleep".to_owned(),
        ),
    ];
    for (settings, why) in cases {
        let it = Box::new();
        let actor = Actor::of(Command::new("sleep").arg("1000"));
        let executable = std::fs::read_link(format!("/proc/{}/exe", actor.pid())).unwrap();
        if !executable.ends_with("sleep") && settings.contains("names") {
            return gpukill_tests::harness::skip("here sleep is one of many names of a program");
        }
        let impostor = program(it.stage.path("sleep"));
        it.lists(&[actor.pid(), impostor.pid()]);
        it.stage.configure(&settings);
        it.daemon.signal(Signal::HUP);
        eventually("the settings are read", || {
            it.daemon.log().contains("settings reloaded").then_some(())
        });
        let way = format!("{why}; root may end it with --override-protected");
        assert_eq!(never_ended(&it, actor.pid()), way.as_str());
        let refused = format!("{why}\nhint: root may end it with --override-protected");
        assert_eq!(refusal(&it, actor.pid()), refused);
        if settings.contains("names") {
            // What lies where anybody may write can call itself anything.
            assert_eq!(never_ended(&it, impostor.pid()), Value::Null);
            assert_eq!(it.says(&[&impostor.pid().to_string()]).code, 0);
        }
        it.stage.configure("");
        it.daemon.signal(Signal::HUP);
        becomes(&2, || it.daemon.log().matches("settings reloaded").count());
        assert_eq!(it.says(&[&actor.pid().to_string()]).code, 0);
        assert!(is_over(actor.pid()));
    }
}
