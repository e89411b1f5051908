//! Real captured boxes. `testdata/captures` has the output of `list -o json` for each,
//! which was compared by hand with the captured files, value by value.

use super::DrmBox;
use gpukill_tests::harness::{captures_directory, eventually};
use serde_json::Value;
use std::path::Path;

/// Each box: its name, and its captured directories with their paths below `/sys`.
const BOXES: &[(&str, &[(&str, &str)])] = &[
    (
        "phoenix",
        &[
            ("amd/lact-phoenix/card1", "class/drm/card1"),
            ("amd/lact-phoenix/kfd", "class/kfd/kfd"),
        ],
    ),
    (
        "rx6900xt",
        &[("amd/lact-rx6900xt/card0", "class/drm/card0")],
    ),
    (
        "rx7900xtx",
        &[("amd/lact-rx7900xtx/card0", "class/drm/card0")],
    ),
    ("rx9070", &[("amd/lact-rx9070/card1", "class/drm/card1")]),
    ("vega20", &[("amd/procfs-vega20-card0", "class/drm/card0")]),
    (
        "a380-i915",
        &[("intel/lact-a380-i915/card1", "class/drm/card1")],
    ),
    ("b580", &[("intel/lact-b580-6.16/card1", "class/drm/card1")]),
    (
        "tigerlake",
        &[("intel/lact-tigerlake/card0", "class/drm/card0")],
    ),
];

/// Fields that depend on this run, and not on the box.
const FIELDS_OF_THE_RUN: [&str; 3] = ["host", "ts", "polls"];

#[test]
fn captured_boxes_are_read_exactly() {
    let Some(captures) = captures_directory() else {
        return;
    };
    for (name, directories) in BOXES {
        let list = list_captured_box(&captures, directories);
        let text = serde_json::to_string_pretty(&list).unwrap() + "\n";
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata/captures")
            .join(format!("{name}.json"));
        if std::env::var_os("GPUKILL_BLESS").is_some() {
            std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(text, expected, "{name}");
    }
}

/// The JSON output of the client for such a box.
fn list_captured_box(captures: &Path, directories: &[(&str, &str)]) -> Value {
    let it = DrmBox::new();
    for (from, below) in directories {
        it.test_box
            .sysfs()
            .copy_capture(&captures.join(from), below);
    }
    let daemon = it.start();
    // A counter needs two polls, so its value appears at the third; a counter that does not
    // move is a fault after some more polls; the users of a card are known after a scan of
    // all processes.
    let mut list = eventually("some polls and a full scan", || {
        let list = it.test_box.list();
        let is_whole = list["gpus"][0]["pids"] == 0;
        (is_whole && list["polls"].as_u64() >= Some(15)).then_some(list)
    });
    daemon.stop();
    let document = list.as_object_mut().unwrap();
    for field in FIELDS_OF_THE_RUN {
        document.remove(field);
    }
    for fault in document["faults"].as_array_mut().unwrap() {
        fault.as_object_mut().unwrap().remove("since");
    }
    for backend in document["backends"].as_array_mut().unwrap() {
        let backend = backend.as_object_mut().unwrap();
        backend.remove("since");
        backend.remove("poll_cost_us");
    }
    list
}
