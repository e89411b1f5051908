//! NVML that cannot be loaded, and that works again.

use gpukill_tests::harness::{Daemon, Ran, Stage, becomes, eventually, wrong};
use serde_json::{Value, json};

/// NVML's code, what it means, and what to do about it.
const FAILURES: [(u32, &str); 5] = [
    (9, "the NVIDIA driver is not loaded: modprobe nvidia"),
    (
        18,
        "the NVIDIA library and the loaded driver are of different versions: reload the driver or reboot",
    ),
    (
        4,
        "the NVIDIA driver does not let gpukilld in: see the modes of /dev/nvidia*",
    ),
    (1, "NVML says that it was not started (1)"),
    (999, "NVML reports an unknown error (999)"),
];

fn failed(why: &str) -> Ran {
    Ran {
        code: 2,
        stdout: String::new(),
        stderr: format!("gpukillctl: nvidia failed: {why}\nhint: see gpukillctl status\n"),
    }
}

/// A box whose driver cannot be used, and what it says.
fn box_with_failure(code: u32, why: &str) -> (Stage, Daemon) {
    let stage = Stage::new();
    stage.play(&json!({"init_error": code, "gpus": [{}]}));
    let daemon = stage.start();
    becomes(&failed(why), || stage.ctl(&["list"]));
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
fn a_driver_that_cannot_be_used_is_the_answer_and_is_used_as_soon_as_it_can_be() {
    let mut boxes: Vec<(Stage, Daemon)> = FAILURES
        .iter()
        .map(|(code, why)| box_with_failure(*code, why))
        .collect();
    let without_library = Stage::new();
    let not_installed = without_library.path("lib/not-installed");
    std::fs::rename(without_library.library(), &not_installed).unwrap();
    let daemon = without_library.start();
    // Nobody does anything but repair the driver, or install it.
    std::fs::rename(not_installed, without_library.library()).unwrap();
    boxes.push((without_library, daemon));
    for (stage, _) in &boxes {
        stage.play(&json!({"gpus": [{}]}));
    }
    for (stage, daemon) in boxes {
        becomes(&1, || stage.list()["gpus"].as_array().unwrap().len());
        assert_eq!(stage.ctl(&["list"]).code, 0);
        assert_eq!(stage.faults(), []);
        daemon.stop();
    }
}

#[test]
fn a_library_that_misses_another_one_is_there_and_does_not_work() {
    let stage = Stage::new();
    let library = stage.library();
    let why = format!(
        "{} does not find a library that it needs: install the driver's libraries again",
        library.display()
    );
    stage.play(&json!({"init_error": 12, "gpus": [{}]}));
    let daemon = stage.start();
    becomes(&failed(&why), || stage.ctl(&["list"]));
    assert_eq!(stage.faults(), [("nvidia".to_owned(), why)]);
    daemon.stop();
}

#[test]
fn a_box_without_the_library_has_no_gpu_and_says_what_to_install() {
    let stage = Stage::new();
    std::fs::remove_file(stage.library()).unwrap();
    let daemon = stage.start();
    let library = stage.library();
    let why = format!(
        " nvidia  no library {}: for NVIDIA GPUs install the driver",
        library.display()
    );
    becomes(&Some(why.clone()), || {
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
fn a_driver_that_is_reloaded_under_the_library_is_read_again_at_once() {
    // Unloaded and of another version: the old library cannot speak to it, and
    // may notice only when it is asked for a GPU.
    let count = [1, 9, 18, 28].map(|code| ("nvmlDeviceGetCount_v2", code));
    let handle = [18, 28].map(|code| ("nvmlDeviceGetHandleByIndex_v2", code));
    for (function, code) in count.into_iter().chain(handle) {
        let stage = Stage::new();
        stage.play(&json!({"driver": "580.65.06", "gpus": [{}]}));
        let daemon = stage.start();
        let driver = || stage.json(&["status", "-o", "json"])["backends"][0]["driver"].clone();
        becomes(&json!("580.65.06"), driver);
        stage.play(&json!({
            "driver": "590.48.01", "gpus": [{}], "errors": {function: code},
        }));
        // What was read before remains, and says how old it is.
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
        stage.play(&json!({"driver": "590.48.01", "gpus": [{}]}));
        becomes(&json!("590.48.01"), driver);
        becomes(&json!({}), || wrong(&stage.list()["gpus"][0]));
        daemon.stop();
    }
}

#[test]
fn a_library_that_is_none_is_a_fault_and_not_a_box_without_gpus() {
    let stage = Stage::new();
    std::fs::remove_file(stage.library()).unwrap();
    std::fs::write(stage.library(), "not a library").unwrap();
    let daemon = stage.start();
    let fault = eventually("the fault", || stage.faults().pop());
    let expected = format!("cannot load {}: ", stage.library().display());
    assert!(fault.1.starts_with(&expected), "{fault:?}");
    assert_eq!(stage.ctl(&["list"]).code, 2);
    daemon.stop();
}
