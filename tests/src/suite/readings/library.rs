//! An NVML library that cannot be loaded, and that works again.

use gpukill_tests::harness::{
    CommandOutput, Daemon, TestBox, eventually, eventually_equals, failed_readings,
};
use serde_json::{Value, json};

/// NVML's return code, its meaning, and the remedy.
const FAILURES: [(u32, &str); 5] = [
    (9, "the NVIDIA driver is not loaded: modprobe nvidia"),
    (
        18,
        "the NVIDIA library and the loaded driver are of different versions: reload the driver or \
        reboot",
    ),
    (
        4,
        "the NVIDIA driver denies access to gpukilld: check the modes of /dev/nvidia*",
    ),
    (1, "NVML reports that it is not initialized (1)"),
    (999, "NVML reports an unknown error (999)"),
];

fn expected_failure(why: &str) -> CommandOutput {
    CommandOutput {
        code: 2,
        stdout: String::new(),
        stderr: format!("gpukillctl: nvidia failed: {why}\nhint: see gpukillctl status\n"),
    }
}

/// Starts a box whose driver cannot be used, and checks its answer.
fn start_with_failing_driver(code: u32, why: &str) -> (TestBox, Daemon) {
    let stage = TestBox::new();
    stage.set_driver_state(&json!({"init_error": code, "gpus": [{}]}));
    let daemon = stage.start();
    eventually_equals(&expected_failure(why), || stage.ctl(&["list"]));
    let document = stage.ctl(&["list", "-o", "json"]);
    assert_eq!(document.code, 2);
    let list: Value = serde_json::from_str(&document.stdout).unwrap();
    assert_eq!(list["gpus"], json!([]));
    assert_eq!(stage.faults(), [("nvidia".to_owned(), why.to_owned())]);
    let status = stage.ctl(&["status"]);
    assert_eq!(status.code, 0);
    let mut rows = status.stdout.lines();
    let row = rows.find(|line| line.starts_with(" nvidia ")).unwrap();
    assert!(row.contains("failed since ") && row.ends_with(why), "{row}");
    (stage, daemon)
}

#[test]
fn unusable_driver_is_explained_and_retried() {
    let mut boxes: Vec<(TestBox, Daemon)> = FAILURES
        .iter()
        .map(|(code, why)| start_with_failing_driver(*code, why))
        .collect();
    let without_library = TestBox::new();
    let not_installed = without_library.path("lib/not-installed");
    std::fs::rename(without_library.library(), &not_installed).unwrap();
    let daemon = without_library.start();
    // The only change is that the driver is repaired or installed.
    std::fs::rename(not_installed, without_library.library()).unwrap();
    boxes.push((without_library, daemon));
    for (stage, _) in &boxes {
        stage.set_driver_state(&json!({"gpus": [{}]}));
    }
    for (stage, daemon) in boxes {
        eventually_equals(&1, || stage.list()["gpus"].as_array().unwrap().len());
        assert_eq!(stage.ctl(&["list"]).code, 0);
        assert_eq!(stage.faults(), []);
        daemon.stop();
    }
}

#[test]
fn library_with_missing_dependency_is_a_fault() {
    let stage = TestBox::new();
    let library = stage.library();
    let why = format!(
        "{} does not find a library that it needs: install the driver's libraries again",
        library.display()
    );
    stage.set_driver_state(&json!({"init_error": 12, "gpus": [{}]}));
    let daemon = stage.start();
    eventually_equals(&expected_failure(&why), || stage.ctl(&["list"]));
    assert_eq!(stage.faults(), [("nvidia".to_owned(), why)]);
    daemon.stop();
}

#[test]
fn missing_library_says_what_to_install() {
    let stage = TestBox::new();
    std::fs::remove_file(stage.library()).unwrap();
    let daemon = stage.start();
    let library = stage.library();
    let why = format!(
        " nvidia  no library {}: for NVIDIA GPUs install the driver",
        library.display()
    );
    eventually_equals(&Some(why.clone()), || {
        stage.table(&["list"]).lines().next().map(str::to_owned)
    });
    let heading = stage.ctl(&["list"]).stdout;
    assert!(
        heading.lines().next().unwrap().contains(" · no GPU · "),
        "{heading}"
    );
    assert_eq!(stage.faults(), []);
    assert_eq!(stage.ctl(&["list", "--vendor", "nvidia"]).code, 8);
    let status = stage.ctl(&["status"]).stdout;
    assert!(
        status
            .lines()
            .any(|line| line.trim_start().starts_with("nvidia")
                && line.ends_with("for NVIDIA GPUs install the driver")),
        "{status}"
    );
    daemon.stop();
}

#[test]
fn reloaded_driver_is_read_at_once() {
    // The driver was unloaded and another version loaded: the old library cannot talk to
    // it, and may notice that only when it reads a GPU.
    let count = [1, 9, 18, 28].map(|code| ("nvmlDeviceGetCount_v2", code));
    let handle = [18, 28].map(|code| ("nvmlDeviceGetHandleByIndex_v2", code));
    for (function, code) in count.into_iter().chain(handle) {
        let stage = TestBox::new();
        stage.set_driver_state(&json!({"driver": "580.65.06", "gpus": [{}]}));
        let daemon = stage.start();
        let driver = || stage.json(&["status", "-o", "json"])["backends"][0]["driver"].clone();
        eventually_equals(&json!("580.65.06"), driver);
        stage.set_driver_state(&json!({
            "driver": "590.48.01", "gpus": [{}], "errors": {function: code},
        }));
        // The readings from before remain, with their age.
        let old = eventually("readings grow old", || {
            let list = stage.list();
            list["gpus"][0]["reasons"]["util_pct"]
                .is_string()
                .then_some(list)
        });
        let reason = old["gpus"][0]["reasons"]["util_pct"].as_str().unwrap();
        assert!(reason.starts_with("stale: "), "{reason}");
        assert_eq!(old["gpus"][0]["util_pct"], json!(null));
        assert_eq!(old["gpus"][0]["state"], "unknown");
        assert_eq!(old["backends"][0]["state"], "failed");
        stage.set_driver_state(&json!({"driver": "590.48.01", "gpus": [{}]}));
        eventually_equals(&json!("590.48.01"), driver);
        eventually_equals(&json!({}), || failed_readings(&stage.list()["gpus"][0]));
        daemon.stop();
    }
}

#[test]
fn invalid_library_is_a_fault() {
    let stage = TestBox::new();
    std::fs::remove_file(stage.library()).unwrap();
    std::fs::write(stage.library(), "not a library").unwrap();
    let daemon = stage.start();
    let fault = eventually("the fault", || stage.faults().pop());
    let expected = format!("cannot load {}: ", stage.library().display());
    assert!(fault.1.starts_with(&expected), "{fault:?}");
    assert_eq!(stage.ctl(&["list"]).code, 2);
    daemon.stop();
}
