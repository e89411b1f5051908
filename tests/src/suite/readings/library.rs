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

/// Starts a box with an unusable driver, and checks its answer.
fn start_with_failing_driver(code: u32, why: &str) -> (TestBox, Daemon) {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"init_error": code, "gpus": [{}]}));
    let daemon = test_box.start();
    eventually_equals(&expected_failure(why), || test_box.ctl(&["list"]));
    let document = test_box.ctl(&["list", "-o", "json"]);
    assert_eq!(document.code, 2);
    let list: Value = serde_json::from_str(&document.stdout).unwrap();
    assert_eq!(list["gpus"], json!([]));
    assert_eq!(test_box.faults(), [("nvidia".to_owned(), why.to_owned())]);
    let status = test_box.ctl(&["status"]);
    assert_eq!(status.code, 0);
    let mut rows = status.stdout.lines();
    let row = rows.find(|line| line.starts_with(" nvidia ")).unwrap();
    assert!(row.contains("failed since ") && row.ends_with(why), "{row}");
    (test_box, daemon)
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
    for (test_box, _) in &boxes {
        test_box.set_driver_state(&json!({"gpus": [{}]}));
    }
    for (test_box, daemon) in boxes {
        eventually_equals(&1, || test_box.list()["gpus"].as_array().unwrap().len());
        assert_eq!(test_box.ctl(&["list"]).code, 0);
        assert_eq!(test_box.faults(), []);
        daemon.stop();
    }
}

#[test]
fn library_with_missing_dependency_is_a_fault() {
    let test_box = TestBox::new();
    let library = test_box.library();
    let why = format!(
        "{} does not find a library that it needs: install the driver's libraries again",
        library.display()
    );
    test_box.set_driver_state(&json!({"init_error": 12, "gpus": [{}]}));
    let daemon = test_box.start();
    eventually_equals(&expected_failure(&why), || test_box.ctl(&["list"]));
    assert_eq!(test_box.faults(), [("nvidia".to_owned(), why)]);
    daemon.stop();
}

#[test]
fn missing_library_says_what_to_install() {
    let test_box = TestBox::new();
    std::fs::remove_file(test_box.library()).unwrap();
    let daemon = test_box.start();
    let library = test_box.library();
    let why = format!(
        " nvidia  no library {}: for NVIDIA GPUs install the driver",
        library.display()
    );
    eventually_equals(&Some(why.clone()), || {
        test_box.table(&["list"]).lines().next().map(str::to_owned)
    });
    let heading = test_box.ctl(&["list"]).stdout;
    assert!(
        heading.lines().next().unwrap().contains(" · no GPU · "),
        "{heading}"
    );
    assert_eq!(test_box.faults(), []);
    assert_eq!(test_box.ctl(&["list", "--vendor", "nvidia"]).code, 8);
    let status = test_box.ctl(&["status"]).stdout;
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
        let test_box = TestBox::new();
        test_box.set_driver_state(&json!({"driver": "580.65.06", "gpus": [{}]}));
        let daemon = test_box.start();
        let driver = || test_box.json(&["status", "-o", "json"])["backends"][0]["driver"].clone();
        eventually_equals(&json!("580.65.06"), driver);
        test_box.set_driver_state(&json!({
            "driver": "590.48.01", "gpus": [{}], "errors": {function: code},
        }));
        // The readings from before remain, with their age.
        let old = eventually("readings grow old", || {
            let list = test_box.list();
            list["gpus"][0]["reasons"]["util_pct"]
                .is_string()
                .then_some(list)
        });
        let reason = old["gpus"][0]["reasons"]["util_pct"].as_str().unwrap();
        assert!(reason.starts_with("stale: "), "{reason}");
        assert_eq!(old["gpus"][0]["util_pct"], json!(null));
        assert_eq!(old["gpus"][0]["state"], "unknown");
        assert_eq!(old["backends"][0]["state"], "failed");
        test_box.set_driver_state(&json!({"driver": "590.48.01", "gpus": [{}]}));
        eventually_equals(&json!("590.48.01"), driver);
        eventually_equals(&json!({}), || failed_readings(&test_box.list()["gpus"][0]));
        daemon.stop();
    }
}

#[test]
fn invalid_library_is_a_fault() {
    let test_box = TestBox::new();
    std::fs::remove_file(test_box.library()).unwrap();
    std::fs::write(test_box.library(), "not a library").unwrap();
    let daemon = test_box.start();
    let fault = eventually("the fault", || test_box.faults().pop());
    let expected = format!("cannot load {}: ", test_box.library().display());
    assert!(fault.1.starts_with(&expected), "{fault:?}");
    assert_eq!(test_box.ctl(&["list"]).code, 2);
    daemon.stop();
}
