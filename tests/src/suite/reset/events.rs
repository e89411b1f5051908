//! The log has one event for the outcome of each GPU, and none that claims more.

use super::{FakeSystemd, ResetBox, SECOND_GPU, gpu_states};
use gpukill_tests::harness::{Daemon, eventually_equals};
use serde_json::json;

/// The reset events so far: level, message, the index of the GPU, and whether there is a
/// reason.
fn reset_events(daemon: &Daemon) -> Vec<String> {
    let log = daemon.log();
    let lines = log.lines().filter_map(|line| {
        let words = [
            "a reset of a GPU starts",
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

fn wait_until_up(it: &ResetBox) {
    eventually_equals(&json!(2), || {
        it.test_box.list()["gpus"].as_array().map(Vec::len).into()
    });
}

#[test]
fn failed_reset_is_not_logged_as_done() {
    let it = ResetBox::new();
    it.install_tool(&format!(
        "case \"$*\" in *{SECOND_GPU}) echo no; exit 3;; esac; echo done"
    ));
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    wait_until_up(&it);
    assert_eq!(it.reset(&["--all", "--yes"]).code, 7);
    let mut expected = [
        "INFO a reset of a GPU starts 0",
        "INFO a GPU was reset, and answers again 0",
        "INFO a reset of a GPU starts 1",
        "ERROR a reset of a GPU failed 1 why",
    ]
    .map(str::to_owned)
    .to_vec();
    eventually_equals(&expected, || reset_events(&daemon));
    // A GPU with a holder, and one that does not come back.
    let lost = gpu_states(&json!({"lost": true}), &json!({}));
    it.write_file("lost.json", &lost.to_string());
    it.install_tool("command -p cp lost.json state.json");
    it.add_process(4711, "python", &["/dev/random"]);
    eventually_equals(&json!(4711), || {
        let held = it.test_box.json(&["holders", "--gpu", "1", "-o", "json"]);
        held["held_gpus"][0]["holders"][0]["pid"].clone()
    });
    assert_eq!(it.reset(&["--all", "--yes"]).code, 1);
    let further = [
        "INFO a reset of a GPU starts 0",
        "ERROR a GPU does not answer after a reset 0 why",
        "WARN a GPU was not reset 1 why",
    ];
    expected.extend(further.map(str::to_owned));
    eventually_equals(&expected, || reset_events(&daemon));
    daemon.stop();
}
