//! What is not claimed: nobody holds it, while not everybody could be looked at,
//! and that a GPU is stuck at work, before it was for a while.

use super::{Box, GIB, gpu};
use gpukill_tests::harness::{Daemon, NOBODY, acting_as, becomes, can_act_as_others};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt as _, chown};

const WHY: &str = "process 4711 (python) cannot be looked into: not permitted";

/// Starts the daemon as a plain user. `None` where it cannot be one.
fn start_plain(it: &Box) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        return Some(it.start());
    }
    if !can_act_as_others() {
        return None;
    }
    it.stage.open_to_all();
    chown(it.stage.directory(), Some(NOBODY), Some(NOBODY)).unwrap();
    Some(acting_as(NOBODY, &[], || it.start()))
}

/// Lets nobody but root look at what a process has open.
fn forbid(it: &Box, pid: u32) {
    let descriptors = it.procfs.root().join(format!("{pid}/fd"));
    let nothing = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(descriptors, nothing).unwrap();
}

#[test]
fn a_search_that_may_not_look_at_everybody_never_says_nobody() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    forbid(&it, 4711);
    let busy = json!({"gpu": 100});
    let mut gpus = [gpu(7, 35 * GIB, &json!([])), gpu(8, 0, &json!([]))];
    gpus[0]["utilization"] = busy;
    it.stage.play(&json!({"gpus": gpus}));
    let Some(daemon) = start_plain(&it) else {
        return;
    };
    becomes(&json!(WHY), || it.held()["unseen"].clone());
    assert_eq!(it.roles(), json!([]));
    let screen = format!(
        " nobody was seen to have it open\n\n\
         Who keeps its memory is not known.\n  \
           - 35.0 GiB are used, and nothing explains them\n  \
           - not every process could be looked at, so that others may have it open: {WHY}\n"
    );
    becomes(&screen, || it.screen());
    let whole = it.stage.ctl(&["holders"]).stdout;
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
    // When it may look again, it says so.
    let descriptors = it.procfs.root().join("4711/fd");
    std::fs::set_permissions(descriptors, std::fs::Permissions::from_mode(0o755)).unwrap();
    becomes(&Value::Null, || it.held()["unseen"].clone());
    becomes(&json!([["unlisted", [4711], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn a_gpu_that_has_been_busy_with_nobody_for_a_moment_is_not_yet_called_stuck() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    let busy = |processes: &Value| {
        let mut gpu = gpu(7, 0, processes);
        gpu["utilization"] = json!({"gpu": 100});
        it.stage.play(&json!({"gpus": [gpu]}));
    };
    busy(&json!([]));
    let daemon = it.start();
    let since = || it.held()["busy_alone_since"].clone();
    becomes(&true, || since().is_string());
    let (began, after) = (since(), it.held());
    // It counts from its beginning, and says nothing of it before its time.
    assert_eq!(after["busy_alone_since"], began);
    assert_eq!(after["findings"], json!([]));
    assert_eq!(it.screen(), " nobody has it open\n");
    // With a process that is listed it is not alone.
    busy(&json!([{"pid": 1, "memory": GIB}]));
    becomes(&Value::Null, since);
    daemon.stop();
}
