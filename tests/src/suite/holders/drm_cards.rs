//! Cards of other vendors: the background scan finds their file holders before anyone
//! requests them, and memory growth that no process explains triggers a scan at once.

use super::{HoldersBox, select_fields};
use gpukill_tests::harness::{FakeCard, eventually, eventually_equals};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// An AMD card with `/dev/full` as its render node and with unused memory.
const CARD: FakeCard<'_> = FakeCard {
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

/// The fdinfo text of a client that holds `bytes` of memory.
fn client_fdinfo(bytes: u64) -> String {
    let kib = bytes >> 10;
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tamdgpu\n\
         drm-client-id:\t1\ndrm-pdev:\t0000:c1:00.0\ndrm-memory-vram:\t{kib} KiB\n\
         drm-engine-gfx:\t0 ns\n"
    )
}

fn set_used_memory(it: &HoldersBox, bytes: u64) {
    let file = "class/drm/card1/device/mem_info_vram_used";
    it.test_box.sysfs().write(file, &format!("{bytes}\n"));
}

#[test]
fn amd_client_has_its_render_node() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.procfs
        .add_descriptor(4711, 5, "/dev/full", &client_fdinfo(9 * GIB));
    it.test_box.sysfs().add_card(CARD);
    set_used_memory(&it, 9 * GIB);
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
    eventually_equals(&row, || {
        select_fields(&it.first_gpu_document()["holders"], &fields)
    });
    assert_eq!(it.findings(), json!([]));
    let screen = "  PID  USER    STATE     HOLDS       LISTED  WHAT IT IS
 4711  daemon  sleeping  renderD128    9.0G  python
";
    eventually_equals(&screen.to_owned(), || it.screen());
    daemon.stop();
}

#[test]
fn suspended_card_leaves_listing_unknown() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.procfs
        .add_descriptor(4711, 5, "/dev/full", &client_fdinfo(9 * GIB));
    it.test_box.sysfs().add_card(CARD);
    let status = "class/drm/card1/device/power/runtime_status";
    it.test_box.sysfs().write(status, "suspended\n");
    let daemon = it.start();
    let screen = "  PID  USER    STATE     HOLDS       LISTED  WHAT IT IS
 4711  daemon  sleeping  renderD128       ?  python: has it open; whether it is listed is not known
";
    eventually_equals(&screen.to_owned(), || it.screen());
    let asleep = "how much is used is not known (asleep: not woken for a reading)";
    let whole = || it.test_box.ctl(&["holders"]).stdout;
    let heading = format!("GPU 0 AMD 1002:744c: {asleep}");
    assert_eq!(whole().lines().next(), Some(heading.as_str()));
    let expected = "GPU 0: renderD128 · python: has it open; whether it is listed is not known";
    let explained = it.test_box.ctl(&["explain", "4711"]).stdout;
    assert!(explained.contains(expected), "{explained}");

    // A card without holders is not reported as free either.
    std::fs::remove_dir_all(it.procfs.root().join("4711")).unwrap();
    eventually_equals(&format!("GPU 0: {asleep}\n"), whole);
    daemon.stop();
}

#[test]
fn explain_reports_uninterruptible_listed_process() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.procfs
        .add_descriptor(4711, 5, "/dev/full", &client_fdinfo(9 * GIB));
    it.set_process_state(4711, "D");
    it.procfs.write(4711, "wchan", "amdgpu_vm_wait");
    it.test_box.sysfs().add_card(CARD);
    set_used_memory(&it, 9 * GIB);
    let daemon = it.start();
    eventually_equals(&json!([[4711, "user"]]), || it.roles());
    let row = "\n state    stuck in the kernel (amdgpu_vm_wait): no signal reaches it now\n";
    let explained = it.test_box.ctl(&["explain", "4711"]).stdout;
    assert!(explained.contains(row), "{explained}");
    daemon.stop();
}

#[test]
fn unattributed_growth_triggers_a_scan() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/null"]);
    it.test_box.sysfs().add_card(CARD);
    let daemon = it.start();
    // Only `list` is read here: nothing requests holders.
    let procs = || select_fields(&it.test_box.list()["procs"], &["pid", "used_mem_bytes"]);
    eventually_equals(&json!(0), || it.test_box.list()["gpus"][0]["pids"].clone());
    eventually_equals(&json!([]), procs);
    // A process that was scanned before opens the card. Its next regular scan is minutes
    // away.
    wait_for_regular_scans(&it);
    let started_at = Instant::now();
    it.procfs
        .add_descriptor(4711, 6, "/dev/full", &client_fdinfo(9 * GIB));
    set_used_memory(&it, 9 * GIB);
    eventually_equals(&json!([[4711, 9 * GIB]]), procs);
    let took = started_at.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
    let remainder = || it.test_box.list()["gpus"][0]["mem_unattributed_bytes"].clone();
    eventually_equals(&json!(0), remainder);
    daemon.stop();
}

/// Waits until the regular scans of new processes are over: a new process is scanned a few
/// times soon after its start.
fn wait_for_regular_scans(it: &HoldersBox) {
    let started_at = Instant::now();
    eventually("a while", || {
        let faults = it.test_box.faults();
        assert_eq!(faults, []);
        (started_at.elapsed() > Duration::from_secs(4)).then_some(Value::Null)
    });
}
