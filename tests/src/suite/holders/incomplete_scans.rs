//! Claims that are not made: that a GPU has no holder while some processes could not be
//! scanned, and that a GPU is stuck before it was busy without a holder for a while.

use super::{GIB, HoldersBox, gpu_state};
use gpukill_tests::harness::{
    Daemon, NOBODY_UID, can_run_as_other_users, eventually_equals, run_as_user,
};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt as _, chown};

const WHY: &str = "process 4711 (python) cannot be scanned: not permitted";

/// Starts the daemon as a plain user. `None` where the test cannot become one.
fn start_as_plain_user(it: &HoldersBox) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        return Some(it.start());
    }
    if !can_run_as_other_users() {
        return None;
    }
    it.test_box.make_world_accessible();
    chown(it.test_box.directory(), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    Some(run_as_user(NOBODY_UID, &[], || it.start()))
}

/// Lets only root read the descriptors of a process.
fn forbid_scan_of(it: &HoldersBox, pid: u32) {
    let descriptors = it.procfs.root().join(format!("{pid}/fd"));
    let nothing = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(descriptors, nothing).unwrap();
}

#[test]
fn incomplete_scan_never_claims_no_holder() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    forbid_scan_of(&it, 4711);
    let busy = json!({"gpu": 100});
    let mut gpus = [
        gpu_state(7, 35 * GIB, &json!([])),
        gpu_state(8, 0, &json!([])),
    ];
    gpus[0]["utilization"] = busy;
    it.test_box.set_driver_state(&json!({"gpus": gpus}));
    let Some(daemon) = start_as_plain_user(&it) else {
        return;
    };
    eventually_equals(&json!(WHY), || {
        it.first_gpu_document()["incomplete_reason"].clone()
    });
    assert_eq!(it.roles(), json!([]));
    let screen = format!(
        " nobody was seen to have it open\n\n\
         Who keeps its memory is not known.\n  \
           - 35.0 GiB are used, and no process explains them\n  \
           - not every process could be scanned, so others may have the device open: {WHY}\n"
    );
    eventually_equals(&screen, || it.screen());
    let whole = it.test_box.ctl(&["holders"]).stdout;
    let last = whole.lines().last().unwrap();
    let free = format!("GPU 1: nobody was seen to hold memory, and there may be others: {WHY}");
    assert_eq!(last, free);
    for never in [
        "of every process were looked at",
        "nobody has",
        "nobody holds",
    ] {
        assert!(!whole.contains(never), "{whole}");
    }
    // When the scan is complete again, the holders are certain.
    let descriptors = it.procfs.root().join("4711/fd");
    std::fs::set_permissions(descriptors, std::fs::Permissions::from_mode(0o755)).unwrap();
    eventually_equals(&Value::Null, || {
        it.first_gpu_document()["incomplete_reason"].clone()
    });
    eventually_equals(&json!([["unlisted", [4711], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn briefly_busy_gpu_is_not_stuck() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    let busy = |processes: &Value| {
        let mut gpu = gpu_state(7, 0, processes);
        gpu["utilization"] = json!({"gpu": 100});
        it.test_box.set_driver_state(&json!({"gpus": [gpu]}));
    };
    busy(&json!([]));
    let daemon = it.start();
    let since = || it.first_gpu_document()["busy_without_holder_since"].clone();
    eventually_equals(&true, || since().is_string());
    let (since_before, after) = (since(), it.first_gpu_document());
    // The period starts with the first such poll, and nothing is reported before it is long
    // enough.
    assert_eq!(after["busy_without_holder_since"], since_before);
    assert_eq!(after["findings"], json!([]));
    assert_eq!(it.screen(), " nobody has it open\n");
    // A listed process explains the load.
    busy(&json!([{"pid": 1, "memory": GIB}]));
    eventually_equals(&Value::Null, since);
    daemon.stop();
}
