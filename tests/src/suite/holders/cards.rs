//! Cards of other vendors: whoever has one open is found before anybody asks,
//! and memory that grows unexplained makes the daemon look at once.

use super::{Box, pick};
use gpukill_tests::harness::{Card, becomes, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// An AMD card whose render node is `/dev/full`, of which nothing is used.
const CARD: Card<'_> = Card {
    name: "card1",
    driver: "amdgpu",
    pci: Some(("0000:c1:00.0", "1002:744C")),
    nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
    files: &[
        ("mem_info_vram_total", "25753026560\n"),
        ("mem_info_vram_used", "27635712\n"),
        ("gpu_busy_percent", "0\n"),
    ],
};

/// A client that holds so much.
fn client(bytes: u64) -> String {
    let kib = bytes >> 10;
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tamdgpu\n\
         drm-client-id:\t1\ndrm-pdev:\t0000:c1:00.0\ndrm-memory-vram:\t{kib} KiB\n\
         drm-engine-gfx:\t0 ns\n"
    )
}

fn used(it: &Box, bytes: u64) {
    let file = "class/drm/card1/device/mem_info_vram_used";
    it.stage.sysfs().write(file, &format!("{bytes}\n"));
}

#[test]
fn a_client_of_an_amd_card_is_told_with_its_render_node() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.procfs.open(4711, 5, "/dev/full", &client(9 * GIB));
    it.stage.sysfs().plug(CARD);
    used(&it, 9 * GIB);
    let daemon = it.start();
    let fields = [
        "pid",
        "role",
        "holds",
        "holds_this_gpu",
        "listed",
        "used_mem_bytes",
    ];
    let row = json!([[4711, "user", ["renderD128"], true, true, 9 * GIB]]);
    becomes(&row, || pick(&it.held()["holders"], &fields));
    assert_eq!(it.findings(), json!([]));
    let screen = "  PID  USER    STATE     HOLDS       LISTED  WHAT IT IS
 4711  daemon  sleeping  renderD128    9.0G  python
";
    becomes(&screen.to_owned(), || it.screen());
    daemon.stop();
}

#[test]
fn of_a_card_that_sleeps_nobody_knows_whom_its_driver_lists() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.procfs.open(4711, 5, "/dev/full", &client(9 * GIB));
    it.stage.sysfs().plug(CARD);
    let status = "class/drm/card1/device/power/runtime_status";
    it.stage.sysfs().write(status, "suspended\n");
    let daemon = it.start();
    let screen = "  PID  USER    STATE     HOLDS       LISTED  WHAT IT IS
 4711  daemon  sleeping  renderD128       ?  python: has it open; whether it is listed is not known
";
    becomes(&screen.to_owned(), || it.screen());
    let asleep = "how much is used is not known (asleep: not woken for a reading)";
    let whole = || it.stage.ctl(&["holders"]).stdout;
    let heading = format!("GPU 0 AMD 1002:744c: {asleep}");
    assert_eq!(whole().lines().next(), Some(heading.as_str()));
    let said = "GPU 0: renderD128 · python: has it open; whether it is listed is not known";
    let explained = it.stage.ctl(&["explain", "4711"]).stdout;
    assert!(explained.contains(said), "{explained}");

    // And when nobody has it open, that does not make it free.
    std::fs::remove_dir_all(it.procfs.root().join("4711")).unwrap();
    becomes(&format!("GPU 0: {asleep}\n"), whole);
    daemon.stop();
}

#[test]
fn explain_tells_that_a_listed_process_is_stuck_in_the_kernel() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.procfs.open(4711, 5, "/dev/full", &client(9 * GIB));
    it.turn(4711, "D");
    it.procfs.write(4711, "wchan", "amdgpu_vm_wait");
    it.stage.sysfs().plug(CARD);
    used(&it, 9 * GIB);
    let daemon = it.start();
    becomes(&json!([[4711, "user"]]), || it.roles());
    let row = "\n state    stuck in the kernel (amdgpu_vm_wait): no signal reaches it now\n";
    let explained = it.stage.ctl(&["explain", "4711"]).stdout;
    assert!(explained.contains(row), "{explained}");
    daemon.stop();
}

#[test]
fn memory_that_grows_unexplained_finds_whoever_opened_the_card_long_after_its_start() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/null"]);
    it.stage.sysfs().plug(CARD);
    let daemon = it.start();
    // Nobody ever asks for holders here: only `list` is read.
    let procs = || pick(&it.stage.list()["procs"], &["pid", "used_mem_bytes"]);
    becomes(&json!(0), || it.stage.list()["gpus"][0]["pids"].clone());
    becomes(&json!([]), procs);
    // A process that was looked at already opens the card. Its turn would come
    // again in minutes.
    settle(&it);
    let began = Instant::now();
    it.procfs.open(4711, 6, "/dev/full", &client(9 * GIB));
    used(&it, 9 * GIB);
    becomes(&json!([[4711, 9 * GIB]]), procs);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
    let remainder = || it.stage.list()["gpus"][0]["mem_unattributed_bytes"].clone();
    becomes(&json!(0), remainder);
    daemon.stop();
}

/// Waits until every process was looked at as a matter of course: a new one is
/// looked at a few times soon after its start.
fn settle(it: &Box) {
    let began = Instant::now();
    eventually("a while", || {
        let faults = it.stage.faults();
        assert_eq!(faults, []);
        (began.elapsed() > Duration::from_secs(4)).then_some(Value::Null)
    });
}
