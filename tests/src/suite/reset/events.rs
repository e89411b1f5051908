//! The log has one event for what became of each GPU, and none that says more.

use super::{Box, SECOND, Systemd, gpus};
use gpukill_tests::harness::{Daemon, becomes};
use serde_json::json;

/// The events of resets so far: level, words, and the number of the GPU.
fn events(daemon: &Daemon) -> Vec<String> {
    let log = daemon.log();
    let lines = log.lines().filter_map(|line| {
        let words = [
            "a reset of a GPU begins",
            "a GPU was reset, and answers again",
            "a GPU was not reset",
            "a reset of a GPU failed",
            "a GPU does not answer after a reset",
        ];
        let words = words.into_iter().find(|words| line.contains(words))?;
        let level = ["INFO", "WARN", "ERROR"];
        let level = level.into_iter().find(|level| line.contains(level))?;
        let us = format!("caller_uid={}", rustix::process::getuid().as_raw());
        assert!(line.contains(&us), "{line}");
        let gpu = ["gpu=0 gpu_uuid=GPU-a", "gpu=1 gpu_uuid=GPU-b"];
        let gpu = gpu
            .into_iter()
            .position(|gpu| line.replace('"', "").contains(gpu));
        let why = if line.contains("why=") { " why" } else { "" };
        Some(format!(
            "{level} {words} {}{why}",
            gpu.unwrap_or_else(|| panic!("{line}"))
        ))
    });
    lines.collect()
}

fn is_up(it: &Box) {
    becomes(&json!(2), || {
        it.stage.list()["gpus"].as_array().map(Vec::len).into()
    });
}

#[test]
fn a_reset_that_failed_is_never_logged_as_one_that_was_done() {
    let it = Box::new();
    it.tool(&format!(
        "case \"$*\" in *{SECOND}) echo no; exit 3;; esac; echo done"
    ));
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    is_up(&it);
    assert_eq!(it.reset(&["--all", "--yes"]).code, 7);
    let mut expected = vec![
        "INFO a reset of a GPU begins 0",
        "INFO a GPU was reset, and answers again 0",
        "INFO a reset of a GPU begins 1",
        "ERROR a reset of a GPU failed 1 why",
    ];
    assert_eq!(events(&daemon), expected);
    // One that somebody holds, beside one that does not come back.
    let lost = gpus(&json!({"lost": true}), &json!({}));
    it.write("lost.json", &lost.to_string());
    it.tool("command -p cp lost.json state.json");
    it.invent(4711, "python", &["/dev/random"]);
    becomes(&json!(4711), || {
        let held = it.stage.json(&["holders", "--gpu", "1", "-o", "json"]);
        held["held_gpus"][0]["holders"][0]["pid"].clone()
    });
    assert_eq!(it.reset(&["--all", "--yes"]).code, 1);
    expected.extend([
        "INFO a reset of a GPU begins 0",
        "ERROR a GPU does not answer after a reset 0 why",
        "WARN a GPU was not reset 1 why",
    ]);
    assert_eq!(events(&daemon), expected);
    daemon.stop();
}
