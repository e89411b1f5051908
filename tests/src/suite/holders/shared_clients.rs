//! One client of a card behind descriptors of several processes: a process opens the card
//! and forks, as launchers of workers do.

use super::{GIB, HoldersBox, select_fields};
use gpukill_tests::harness::{FakeCard, FakeProcess, FakeProcessDetails, eventually_equals};
use serde_json::{Value, json};

/// An AMD card with `/dev/full` as its render node.
pub(super) const CARD: FakeCard<'_> = FakeCard {
    name: "card1",
    driver: "amdgpu",
    pci: Some(("0000:c1:00.0", "1002:744C")),
    nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
    files: &[
        ("mem_info_vram_total", "25769803776\n"),
        ("mem_info_vram_used", "0\n"),
        ("gpu_busy_percent", "0\n"),
    ],
};

pub(super) fn set_used_memory(it: &HoldersBox, bytes: u64) {
    let file = "class/drm/card1/device/mem_info_vram_used";
    it.test_box.sysfs().write(file, &format!("{bytes}\n"));
}

/// The amdgpu fdinfo text of a client.
pub(super) fn client_fdinfo(id: u64, lines: &str) -> String {
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tamdgpu\n\
         drm-client-id:\t{id}\ndrm-pdev:\t0000:c1:00.0\n{lines}\n"
    )
}

/// The fdinfo text of a client with `bytes` of memory, none of it shared.
fn unshared_client_fdinfo(id: u64, bytes: u64) -> String {
    let kib = bytes >> 10;
    let lines = format!("drm-resident-vram:\t{kib} KiB\ndrm-shared-vram:\t0");
    client_fdinfo(id, &lines)
}

/// The statement of `explain` about the memory that the end of this process frees.
fn freed_memory(it: &HoldersBox, pid: u32) -> (Value, Value, String) {
    let pid = pid.to_string();
    let explained = it.test_box.json(&["explain", &pid, "-o", "json"]);
    let ran = it.test_box.ctl(&["explain", &pid]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut lines = ran.stdout.lines();
    let words = lines.find_map(|line| line.strip_prefix(" frees"));
    let words = words.unwrap_or_default().trim().to_owned();
    (
        explained["frees_bytes"].clone(),
        explained["shared_with"].clone(),
        words,
    )
}

#[test]
fn inherited_client_counts_for_living_parent() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "torchrun", &[]);
    // The worker started later than its parent, although its pid is lower.
    let worker = FakeProcess {
        pid: 4200,
        name: "python",
        uid: 1,
        start_ticks: 200,
        cmdline: "python\0",
        cgroup: "0::/\n",
    };
    let below = FakeProcessDetails {
        parent: 4711,
        group: 4711,
        session: 4711,
        ..FakeProcessDetails::default()
    };
    it.procfs.add_process_with_details(worker, below);
    // The child has one more client, of its own.
    for pid in [4711, 4200] {
        it.procfs
            .add_descriptor(pid, 5, "/dev/full", &unshared_client_fdinfo(1, 9 * GIB));
    }
    it.procfs
        .add_descriptor(4200, 6, "/dev/full", &unshared_client_fdinfo(2, 2 * GIB));
    it.test_box.sysfs().add_card(CARD);
    set_used_memory(&it, 11 * GIB);
    let daemon = it.start();
    let fields = ["pid", "role", "shares_with", "listed", "used_mem_bytes"];
    let both = json!([
        [4200, "shared_client", 4711, true, 2 * GIB],
        [4711, "user", null, true, 9 * GIB],
    ]);
    eventually_equals(&both, || {
        select_fields(&it.first_gpu_document()["holders"], &fields)
    });
    assert_eq!(it.first_gpu_document()["mem_unattributed_bytes"], json!(0));
    let screen = "  PID  USER    STATE     HOLDS       LISTED  WHAT IT IS
 4200  daemon  sleeping  renderD128    2.0G  python: shares a client with 4711
 4711  daemon  sleeping  renderD128    9.0G  torchrun
";
    eventually_equals(&screen.to_owned(), || it.screen());
    let nothing = |other: u32| {
        let words = format!("nothing before {other} has ended too");
        (json!(null), json!([other]), words)
    };
    assert_eq!(freed_memory(&it, 4711), nothing(4200));
    assert_eq!(freed_memory(&it, 4200), nothing(4711));
    // The parent ends: the shared client now counts for the child.
    std::fs::remove_dir_all(it.procfs.root().join("4711")).unwrap();
    let child = json!([[4200, "user", null, true, 11 * GIB]]);
    eventually_equals(&child, || {
        select_fields(&it.first_gpu_document()["holders"], &fields)
    });
    let all = "at least 11.0G, when it ends".to_owned();
    assert_eq!(freed_memory(&it, 4200), (json!(11 * GIB), json!([]), all));
    daemon.stop();
}
