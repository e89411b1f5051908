//! Buffers that several clients of a card share: each client counts them, the end of one
//! client does not free them, and they use the memory only once.

use super::shared_clients::{CARD, client_fdinfo, set_used_memory};
use super::{GIB, HoldersBox, select_fields};
use gpukill_tests::harness::eventually_equals;
use serde_json::{Value, json};

/// The amdgpu fdinfo text of a client with `resident` bytes, of which `shared` are shared.
fn shared_client_fdinfo(id: u64, resident: u64, shared: Option<u64>) -> String {
    let resident = resident >> 20;
    let shared = shared.map(|bytes| format!("\ndrm-shared-vram:\t{} MiB", bytes >> 20));
    let shared = shared.unwrap_or_default();
    client_fdinfo(id, &format!("drm-resident-vram:\t{resident} MiB{shared}"))
}

/// A game and the desktop that shows it, both with the same 2 GiB.
fn add_two_sharing_clients(it: &HoldersBox, shared: Option<u64>) {
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "game", &[]);
    it.add_process(4712, "viewer", &[]);
    for (pid, id, resident) in [(4711, 1, 6 * GIB), (4712, 2, 5 * GIB)] {
        it.procfs.add_descriptor(
            pid,
            5,
            "/dev/full",
            &shared_client_fdinfo(id, resident, shared),
        );
    }
    it.test_box.sysfs().add_card(CARD);
}

/// The unattributed memory, and why it is not known.
fn unattributed_memory(it: &HoldersBox) -> Value {
    let gpu = it.test_box.list()["gpus"][0].clone();
    let reason = &gpu["reasons"]["mem_unattributed_bytes"];
    json!([gpu["mem_unattributed_bytes"], reason])
}

/// The memory that the end of this process frees, and why it is not known.
fn freed_memory(it: &HoldersBox, pid: u32) -> Value {
    let explained = it
        .test_box
        .json(&["explain", &pid.to_string(), "-o", "json"]);
    json!([
        explained["frees_bytes"],
        explained["reasons"]["frees_bytes"]
    ])
}

#[test]
fn shared_memory_is_not_unattributed_nor_freed() {
    let it = HoldersBox::new();
    add_two_sharing_clients(&it, Some(2 * GIB));
    set_used_memory(&it, 9 * GIB);
    let daemon = it.start();
    let rows = json!([[4711, 6 * GIB], [4712, 5 * GIB]]);
    eventually_equals(&rows, || {
        select_fields(&it.test_box.list()["procs"], &["pid", "used_mem_bytes"])
    });
    eventually_equals(&json!([0, null]), || unattributed_memory(&it));
    eventually_equals(&json!([4 * GIB, null]), || freed_memory(&it, 4711));
    assert_eq!(freed_memory(&it, 4712), json!([3 * GIB, null]));
    let explained = it.test_box.ctl(&["explain", "4711"]).stdout;
    let line = explained.lines().find(|line| line.starts_with(" frees"));
    assert_eq!(line, Some(" frees    at least 4.0G, when it ends"));
    // Together they hold 9 to 11 GiB: whether anything is unattributed is unknown.
    set_used_memory(&it, 10 * GIB);
    let unknown = "failed: the memory shared by processes is not known";
    eventually_equals(&json!([null, unknown]), || unattributed_memory(&it));
    assert_eq!(it.findings(), json!([]));
    // Neither of the two can hold the last 2 GiB.
    set_used_memory(&it, 13 * GIB);
    eventually_equals(&json!([2 * GIB, null]), || unattributed_memory(&it));
    daemon.stop();
}

#[test]
fn unreported_sharing_leaves_freed_memory_unknown() {
    let it = HoldersBox::new();
    add_two_sharing_clients(&it, None);
    set_used_memory(&it, 11 * GIB);
    let daemon = it.start();
    let reason = "failed: its driver does not report shared memory";
    eventually_equals(&json!([2, [null, reason]]), || {
        let count = it.test_box.list()["procs"].as_array().unwrap().len();
        json!([
            count,
            if count == 2 {
                freed_memory(&it, 4711)
            } else {
                json!(null)
            }
        ])
    });
    let explained = it.test_box.ctl(&["explain", "4711"]).stdout;
    let line = explained.lines().find(|line| line.starts_with(" frees"));
    assert_eq!(line, Some(" frees    how much is not known, when it ends"));
    // Both may hold the same 5 GiB.
    let unknown = "failed: the memory shared by processes is not known";
    eventually_equals(&json!([null, unknown]), || unattributed_memory(&it));
    daemon.stop();
}

#[test]
fn client_with_too_many_engines_is_listed() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &[]);
    let engines: String = (0..65)
        .map(|n| format!("drm-engine-e{n}:\t0 ns\n"))
        .collect();
    it.procfs
        .add_descriptor(4711, 5, "/dev/full", &client_fdinfo(1, &engines));
    it.test_box.sysfs().add_card(CARD);
    set_used_memory(&it, 9 * GIB);
    let daemon = it.start();
    let row = || {
        let row = it.test_box.list()["procs"][0].clone();
        let why = &row["reasons"];
        json!([
            row["pid"],
            row["used_mem_bytes"],
            why["used_mem_bytes"],
            row["util_pct"],
            why["util_pct"],
        ])
    };
    let why = "failed: its driver reports more than 64 engines";
    eventually_equals(&json!([4711, null, why, null, why]), row);
    let unknown = "failed: the memory of a process is not known";
    eventually_equals(&json!([null, unknown]), || unattributed_memory(&it));
    daemon.stop();
}
