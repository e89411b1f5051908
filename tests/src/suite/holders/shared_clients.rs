//! One client of a card behind the descriptors of several processes: one opens
//! the card and forks, as launchers of workers do.

use super::{Box, GIB, pick};
use gpukill_tests::harness::{Card, Invented, Related, becomes};
use serde_json::{Value, json};

/// An AMD card whose render node is `/dev/full`.
pub(super) const CARD: Card<'_> = Card {
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

/// So much of the card's memory is used.
pub(super) fn use_memory(it: &Box, bytes: u64) {
    let file = "class/drm/card1/device/mem_info_vram_used";
    it.stage.sysfs().write(file, &format!("{bytes}\n"));
}

/// What amdgpu tells of a client.
pub(super) fn client(id: u64, lines: &str) -> String {
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tamdgpu\n\
         drm-client-id:\t{id}\ndrm-pdev:\t0000:c1:00.0\n{lines}\n"
    )
}

/// The same of one with so much memory, of which others have nothing.
fn alone(id: u64, bytes: u64) -> String {
    let kib = bytes >> 10;
    let lines = format!("drm-resident-vram:\t{kib} KiB\ndrm-shared-vram:\t0");
    client(id, &lines)
}

/// What frees the memory of this process.
fn frees(it: &Box, pid: u32) -> (Value, Value, String) {
    let pid = pid.to_string();
    let told = it.stage.json(&["explain", &pid, "-o", "json"]);
    let ran = it.stage.ctl(&["explain", &pid]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut lines = ran.stdout.lines();
    let words = lines.find_map(|line| line.strip_prefix(" frees"));
    let words = words.unwrap_or_default().trim().to_owned();
    (
        told["frees_bytes"].clone(),
        told["shared_with"].clone(),
        words,
    )
}

#[test]
fn a_client_that_a_child_inherited_counts_for_its_parent_until_that_has_ended() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "torchrun", &[]);
    // Younger than its parent, whatever their pids say.
    let worker = Invented {
        pid: 4200,
        name: "python",
        uid: 1,
        start_ticks: 200,
        cmdline: "python\0",
        cgroup: "0::/\n",
    };
    let below = Related {
        parent: 4711,
        group: 4711,
        session: 4711,
        ..Related::default()
    };
    it.procfs.invent_related(worker, below);
    // The child has one more client, of its own.
    for pid in [4711, 4200] {
        it.procfs.open(pid, 5, "/dev/full", &alone(1, 9 * GIB));
    }
    it.procfs.open(4200, 6, "/dev/full", &alone(2, 2 * GIB));
    it.stage.sysfs().plug(CARD);
    use_memory(&it, 11 * GIB);
    let daemon = it.start();
    let fields = ["pid", "role", "shares_with", "listed", "used_mem_bytes"];
    let both = json!([
        [4200, "sharer", 4711, true, 2 * GIB],
        [4711, "user", null, true, 9 * GIB],
    ]);
    becomes(&both, || pick(&it.held()["holders"], &fields));
    assert_eq!(it.held()["mem_unattributed_bytes"], json!(0));
    let screen = "  PID  USER    STATE     HOLDS       LISTED  WHAT IT IS
 4200  daemon  sleeping  renderD128    2.0G  python: shares a client with 4711
 4711  daemon  sleeping  renderD128    9.0G  torchrun
";
    becomes(&screen.to_owned(), || it.screen());
    let nothing = |other: u32| {
        let words = format!("nothing before {other} has ended too");
        (json!(null), json!([other]), words)
    };
    assert_eq!(frees(&it, 4711), nothing(4200));
    assert_eq!(frees(&it, 4200), nothing(4711));
    // Its parent ends: what it shared is its own now.
    std::fs::remove_dir_all(it.procfs.root().join("4711")).unwrap();
    let child = json!([[4200, "user", null, true, 11 * GIB]]);
    becomes(&child, || pick(&it.held()["holders"], &fields));
    let all = "at least 11.0G, when it ends".to_owned();
    assert_eq!(frees(&it, 4200), (json!(11 * GIB), json!([]), all));
    daemon.stop();
}
