//! Boxes that were captured for real: what `list -o json` makes of each stands in
//! `testdata/captures`, and was compared with the captured files by hand, value
//! by value.

use super::Box;
use gpukill_tests::harness::{captures, eventually};
use serde_json::Value;
use std::path::Path;

/// Each box: its name, and its captured directories with their places below
/// `/sys`.
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

/// What is of this run, and not of the box.
const OF_THE_RUN: [&str; 3] = ["host", "ts", "tick"];

#[test]
fn each_captured_box_is_read_as_it_was_and_nothing_is_invented() {
    let Some(captures) = captures() else { return };
    for (name, directories) in BOXES {
        let list = listed(&captures, directories);
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

/// What the client prints of such a box.
fn listed(captures: &Path, directories: &[(&str, &str)]) -> Value {
    let it = Box::new();
    for (from, below) in directories {
        it.stage.sysfs().capture(&captures.join(from), below);
    }
    let daemon = it.start();
    // What is counted between two polls is there at the third, a counter that
    // stands still is broken after some more, and who uses a card is known once
    // all processes were looked at.
    let mut list = eventually("some polls and a look at everybody", || {
        let list = it.stage.list();
        let is_whole = list["gpus"][0]["pids"] == 0;
        (is_whole && list["tick"].as_u64() >= Some(15)).then_some(list)
    });
    daemon.stop();
    let document = list.as_object_mut().unwrap();
    for field in OF_THE_RUN {
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
