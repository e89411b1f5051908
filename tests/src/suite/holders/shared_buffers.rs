//! Buffers that several clients of a card have: they count for each, and neither
//! does the end of one give them back, nor are they used twice.

use super::shared_clients::{CARD, client, use_memory};
use super::{Box, GIB, pick};
use gpukill_tests::harness::becomes;
use serde_json::{Value, json};

/// What amdgpu tells of a client with so much memory that shares so much.
fn sharing(id: u64, resident: u64, shared: Option<u64>) -> String {
    let resident = resident >> 20;
    let shared = shared.map(|bytes| format!("\ndrm-shared-vram:\t{} MiB", bytes >> 20));
    let shared = shared.unwrap_or_default();
    client(id, &format!("drm-resident-vram:\t{resident} MiB{shared}"))
}

/// A game and the desktop that shows it, both with the same 2 GiB.
fn two(it: &Box, shared: Option<u64>) {
    it.invent(1, "systemd", &[]);
    it.invent(4711, "game", &[]);
    it.invent(4712, "viewer", &[]);
    for (pid, id, resident) in [(4711, 1, 6 * GIB), (4712, 2, 5 * GIB)] {
        it.procfs
            .open(pid, 5, "/dev/full", &sharing(id, resident, shared));
    }
    it.stage.sysfs().plug(CARD);
}

/// What nobody explains, and why that is not known.
fn remainder(it: &Box) -> Value {
    let gpu = it.stage.list()["gpus"][0].clone();
    let reason = &gpu["reasons"]["mem_unattributed_bytes"];
    json!([gpu["mem_unattributed_bytes"], reason])
}

/// What the end of this process gives back, and why that is not known.
fn frees(it: &Box, pid: u32) -> Value {
    let told = it.stage.json(&["explain", &pid.to_string(), "-o", "json"]);
    json!([told["frees_bytes"], told["reasons"]["frees_bytes"]])
}

#[test]
fn what_two_share_is_no_memory_of_nobody_s_and_its_end_does_not_free_it() {
    let it = Box::new();
    two(&it, Some(2 * GIB));
    use_memory(&it, 9 * GIB);
    let daemon = it.start();
    let rows = json!([[4711, 6 * GIB], [4712, 5 * GIB]]);
    becomes(&rows, || {
        pick(&it.stage.list()["procs"], &["pid", "used_mem_bytes"])
    });
    becomes(&json!([0, null]), || remainder(&it));
    becomes(&json!([4 * GIB, null]), || frees(&it, 4711));
    assert_eq!(frees(&it, 4712), json!([3 * GIB, null]));
    let explained = it.stage.ctl(&["explain", "4711"]).stdout;
    let line = explained.lines().find(|line| line.starts_with(" frees"));
    assert_eq!(line, Some(" frees    at least 4.0G, when it ends"));
    // They hold 9 to 11 together: whether there is more is not known.
    use_memory(&it, 10 * GIB);
    let unknown = "failed: how much the processes share is not known";
    becomes(&json!([null, unknown]), || remainder(&it));
    assert_eq!(it.findings(), json!([]));
    // Nobody can hold the last 2.
    use_memory(&it, 13 * GIB);
    becomes(&json!([2 * GIB, null]), || remainder(&it));
    daemon.stop();
}

#[test]
fn where_a_driver_does_not_tell_what_is_shared_nobody_says_what_an_end_frees() {
    let it = Box::new();
    two(&it, None);
    use_memory(&it, 11 * GIB);
    let daemon = it.start();
    let untold = "failed: its driver does not tell what it shares";
    becomes(&json!([2, [null, untold]]), || {
        let count = it.stage.list()["procs"].as_array().unwrap().len();
        json!([
            count,
            if count == 2 {
                frees(&it, 4711)
            } else {
                json!(null)
            }
        ])
    });
    let explained = it.stage.ctl(&["explain", "4711"]).stdout;
    let line = explained.lines().find(|line| line.starts_with(" frees"));
    assert_eq!(line, Some(" frees    how much is not known, when it ends"));
    // Both may hold the same 5.
    let unknown = "failed: how much the processes share is not known";
    becomes(&json!([null, unknown]), || remainder(&it));
    daemon.stop();
}

#[test]
fn a_client_of_which_too_much_is_told_is_listed_with_what_is_not_known() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &[]);
    let engines: String = (0..65)
        .map(|n| format!("drm-engine-e{n}:\t0 ns\n"))
        .collect();
    it.procfs.open(4711, 5, "/dev/full", &client(1, &engines));
    it.stage.sysfs().plug(CARD);
    use_memory(&it, 9 * GIB);
    let daemon = it.start();
    let row = || {
        let row = it.stage.list()["procs"][0].clone();
        let why = &row["reasons"];
        json!([
            row["pid"],
            row["used_mem_bytes"],
            why["used_mem_bytes"],
            row["util_pct"],
            why["util_pct"],
        ])
    };
    let why = "failed: more than 64 engines are told of it";
    becomes(&json!([4711, null, why, null, why]), row);
    let unknown = "failed: a process's memory is not known";
    becomes(&json!([null, unknown]), || remainder(&it));
    daemon.stop();
}
