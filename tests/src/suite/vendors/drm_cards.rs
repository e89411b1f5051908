//! Cards of any DRM driver: which of them are GPUs, which processes use them, and how
//! suspended, hanging, added and removed cards are handled.

use super::DrmBox;
use gpukill_tests::harness::{FakeCard, eventually, eventually_equals};
use serde_json::{Value, json};
use std::io::Write as _;

/// A card of an unknown driver, with `/dev/full` as its device file.
const UNKNOWN_CARD: FakeCard<'_> = FakeCard {
    name: "card1",
    driver: "brandnew",
    pci: Some(("0000:03:00.0", "1234:5678")),
    nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
    files: &[],
};

/// The fdinfo text of a client of this card, with `resident` KiB of memory.
fn client_fdinfo(id: u64, resident: u32, busy_ns: u64) -> String {
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tbrandnew\n\
         drm-client-id:\t{id}\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram:\t9999999 KiB\n\
         drm-resident-vram:\t{resident} KiB\ndrm-engine-render:\t{busy_ns} ns\n"
    )
}

#[test]
fn unknown_driver_is_read_by_standard_keys() {
    let it = DrmBox::new();
    it.test_box.sysfs().add_card(UNKNOWN_CARD);
    it.add_holder(4711, "/dev/full", &client_fdinfo(1, 2048, 5));
    // The same client in another process, and a process with another file.
    it.add_holder(4712, "/dev/full", &client_fdinfo(1, 2048, 5));
    it.add_holder(4713, "/dev/null", &client_fdinfo(2, 4096, 5));
    let daemon = it.start();
    let fields = ["gpu_index", "pid", "used_mem_bytes", "util_pct", "user"];
    eventually_equals(&vec![json!([0, 4711, 2048 * 1024, 0, "daemon"])], || {
        it.processes(&fields)
    });
    let fields = ["gpu_index", "id", "vendor", "name", "state", "pids"];
    assert_eq!(
        it.gpus(&fields),
        [json!([
            0,
            "0000:03:00.0",
            "other",
            "brandnew 1234:5678",
            "ok",
            1
        ])]
    );
    assert_eq!(it.test_box.faults(), []);
    daemon.stop();
}

#[test]
fn new_process_is_unknown_at_first_and_no_fault() {
    let it = DrmBox::new();
    it.test_box.sysfs().add_card(UNKNOWN_CARD);
    it.add_holder(4711, "/dev/full", &client_fdinfo(1, 2048, 5));
    // The interval is long enough to observe each poll.
    let daemon = it.start_with_interval("1s");
    let rows = || it.processes(&["pid", "util_pct"]);
    eventually_equals(&vec![json!([4711, 0])], rows);
    eventually_equals(&vec![json!([0, 0])], || it.gpus(&["gpu_index", "util_pct"]));
    // Every published value until the share of the new process is known.
    let mut seen: Vec<Value> = Vec::new();
    it.add_holder(4712, "/dev/full", &client_fdinfo(2, 4096, 5_000_000_000));
    eventually("its share", || {
        let list = it.test_box.list();
        assert_eq!(list["faults"], json!([]));
        let row = list["procs"].as_array().unwrap().get(1)?.clone();
        let gpu = &list["gpus"][0];
        let shares = json!([
            row["util_pct"],
            row["reasons"]["util_pct"],
            gpu["util_pct"],
            gpu["reasons"]["util_pct"]
        ]);
        if seen.last() != Some(&shares) {
            seen.push(shares);
        }
        (row["util_pct"] == 0).then_some(())
    });
    let unknown = json!([null, "unsupported", null, "unsupported"]);
    assert_eq!(seen, [unknown, json!([0, null, 0, null])]);
    daemon.stop();
}

#[test]
fn holders_are_listed_without_driver_data() {
    let it = DrmBox::new();
    it.test_box.sysfs().add_card(FakeCard {
        driver: "radeon",
        pci: Some(("0000:03:00.0", "1002:6798")),
        nodes: &[("card1", "1:3"), ("renderD128", "1:7")],
        ..UNKNOWN_CARD
    });
    let plain = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\n";
    it.add_holder(4711, "/dev/full", plain);
    // A process that only displays.
    it.add_holder(4712, "/dev/null", plain);
    let daemon = it.start();
    let fields = ["pid", "used_mem_bytes", "util_pct", "used_for"];
    eventually_equals(&vec![json!([4711, null, null, []])], || {
        it.processes(&fields)
    });
    let fields = ["name", "pids", "util_pct", "encoder_util_pct"];
    eventually_equals(&vec![json!(["AMD 1002:6798", 1, null, null])], || {
        it.gpus(&fields)
    });
    assert_eq!(it.test_box.faults(), []);
    daemon.stop();
}

#[test]
fn display_only_card_is_no_gpu() {
    let it = DrmBox::new();
    let sysfs = it.test_box.sysfs();
    sysfs.add_card(FakeCard {
        name: "card0",
        driver: "ast",
        pci: Some(("0000:c3:00.0", "1A03:2000")),
        nodes: &[("card0", "226:0")],
        files: &[],
    });
    // The processors of the box, as KFD lists them.
    sysfs.write("class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    sysfs.write(
        "class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 64\nsimd_count 0\ndomain 0\nlocation_id 0\n",
    );
    let daemon = it.start();
    eventually_equals(&Vec::new(), || it.gpus(&["id"]));
    assert_eq!(it.test_box.faults(), []);
    let list = it.test_box.ctl(&["list"]);
    assert_eq!((list.code, list.stderr.as_str()), (0, ""));
    daemon.stop();
}

#[test]
fn cards_are_added_and_removed() {
    let it = DrmBox::new();
    let daemon = it.start();
    let ids = || it.gpus(&["gpu_index", "id"]);
    eventually_equals(&Vec::new(), ids);
    it.test_box.sysfs().add_card(UNKNOWN_CARD);
    eventually_equals(&vec![json!([0, "0000:03:00.0"])], ids);
    // The new card has a lower address, and the other keeps its index.
    it.test_box.sysfs().add_card(FakeCard {
        name: "card2",
        pci: Some(("0000:01:00.0", "1234:5678")),
        ..UNKNOWN_CARD
    });
    eventually_equals(
        &vec![json!([0, "0000:03:00.0"]), json!([1, "0000:01:00.0"])],
        ids,
    );
    it.test_box.sysfs().remove_card("card1");
    let states = || it.gpus(&["gpu_index", "state"]);
    eventually_equals(&vec![json!([0, "gone"]), json!([1, "ok"])], states);
    let faults = it.test_box.faults().into_iter().map(|(part, _)| part);
    assert_eq!(faults.collect::<Vec<_>>(), ["GPU 0"]);
    it.test_box.sysfs().add_card(UNKNOWN_CARD);
    eventually_equals(&vec![json!([0, "ok"]), json!([1, "ok"])], states);
    assert_eq!(it.test_box.faults(), []);
    daemon.stop();
}

#[test]
fn suspended_card_is_not_woken() {
    let it = DrmBox::new();
    let sysfs = it.test_box.sysfs();
    sysfs.add_card(FakeCard {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        files: &[("power/runtime_status", "suspended\n")],
        ..UNKNOWN_CARD
    });
    // Opening this file would block for ever.
    let busy = "class/drm/card1/device/gpu_busy_percent";
    make_fifo(&sysfs.root().join(busy));
    it.add_holder(4711, "/dev/full", "");
    let fdinfo = it.procfs.root().join("4711/fdinfo/5");
    std::fs::remove_file(&fdinfo).unwrap();
    make_fifo(&fdinfo);
    let daemon = it.start();
    let asleep = "failed: asleep: not woken for a reading";
    // The name is the same as while it is awake.
    let name = "AMD 1002:744c";
    eventually_equals(&vec![json!([name, true, null, asleep])], || {
        let list = it.test_box.list();
        let rows = list["gpus"].as_array().unwrap().iter();
        rows.map(|gpu| {
            let why = &gpu["reasons"]["mem_used_bytes"];
            json!([gpu["name"], gpu["suspended"], gpu["util_pct"], why])
        })
        .collect()
    });
    assert_eq!(it.test_box.faults(), []);
    // Before it wakes: a poll that opens the pipe would hang.
    std::fs::remove_file(&fdinfo).unwrap();
    std::fs::remove_file(sysfs.root().join(busy)).unwrap();
    sysfs.write(busy, "7\n");
    sysfs.write("class/drm/card1/device/power/runtime_status", "active\n");
    eventually_equals(&vec![json!([name, false, 7])], || {
        it.gpus(&["name", "suspended", "util_pct"])
    });
    daemon.stop();
}

#[test]
fn unused_card_may_suspend() {
    let it = DrmBox::new();
    let sysfs = it.test_box.sysfs();
    sysfs.add_card(FakeCard {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        files: &[
            ("power/runtime_status", "active\n"),
            ("power/control", "auto\n"),
            ("power/autosuspend_delay_ms", "5000\n"),
            ("gpu_busy_percent", "7\n"),
            ("mem_info_vram_total", "1000\n"),
            ("mem_info_vram_used", "100\n"),
        ],
        ..UNKNOWN_CARD
    });
    let daemon = it.start();
    let reported = || {
        let gpu = it.test_box.list()["gpus"][0].clone();
        let why = gpu["reasons"]["util_pct"].as_str().unwrap_or_default();
        let is_old = why.starts_with("stale: ");
        json!([gpu["util_pct"], is_old, gpu["mem_used_bytes"]])
    };
    eventually_equals(&json!([null, true, 100]), reported);
    // Opening this file would block for ever. Readings that the driver has without waking
    // the card go on.
    let busy = "class/drm/card1/device/gpu_busy_percent";
    std::fs::remove_file(sysfs.root().join(busy)).unwrap();
    make_fifo(&sysfs.root().join(busy));
    sysfs.write("class/drm/card1/device/mem_info_vram_used", "200\n");
    eventually_equals(&json!([null, true, 200]), reported);
    let polls = || it.test_box.json(&["status", "-o", "json"])["polls"].as_u64();
    let before = polls().unwrap();
    eventually("polls go on", || (polls()? > before + 5).then_some(()));
    assert_eq!(reported(), json!([null, true, 200]));
    assert_eq!(it.test_box.faults(), []);
    std::fs::remove_file(sysfs.root().join(busy)).unwrap();
    sysfs.write(busy, "9\n");
    // A process uses the card.
    it.add_holder(
        4711,
        "/dev/full",
        &client_fdinfo(1, 0, 5).replace("brandnew", "amdgpu"),
    );
    eventually_equals(&json!([9, false, 200]), reported);
    daemon.stop();
}

#[test]
fn hanging_driver_delays_no_other_card() {
    let it = DrmBox::new();
    let sysfs = it.test_box.sysfs();
    let amd = FakeCard {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        ..UNKNOWN_CARD
    };
    sysfs.add_card(amd);
    let busy = sysfs.root().join("class/drm/card1/device/gpu_busy_percent");
    make_fifo(&busy);
    sysfs.add_card(FakeCard {
        name: "card2",
        pci: Some(("0000:05:00.0", "1002:744C")),
        files: &[("gpu_busy_percent", "42\n")],
        ..amd
    });
    let daemon = it.start();
    let silent = || {
        let gpu = it.test_box.list()["gpus"][0].clone();
        gpu["reasons"]["util_pct"].clone()
    };
    eventually_equals(&json!("failed: its driver does not answer"), silent);
    let loads = || it.gpus(&["gpu_index", "state", "util_pct"]);
    let well = json!([1, "ok", 42]);
    eventually_equals(&vec![json!([0, "unknown", null]), well.clone()], loads);
    eventually_equals(&hanging_driver_fault(), || it.test_box.faults());
    // The driver recovers: requests that wait get its new values, and later requests do not
    // wait.
    let mut driver = std::fs::OpenOptions::new().write(true).open(&busy).unwrap();
    sysfs.write("class/drm/card1/device/gpu_busy_percent", "12\n");
    driver.write_all(b"11\n").unwrap();
    drop(driver);
    eventually_equals(&vec![json!([0, "ok", 12]), well], loads);
    eventually_equals(&Vec::new(), || it.test_box.faults());
    daemon.stop();
}

#[test]
fn hanging_driver_keeps_stale_readings() {
    let it = DrmBox::new();
    let sysfs = it.test_box.sysfs();
    sysfs.add_card(FakeCard {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        files: &[
            ("gpu_busy_percent", "42\n"),
            ("mem_info_vram_total", "25753026560\n"),
            ("mem_info_vram_used", "1073741824\n"),
        ],
        ..UNKNOWN_CARD
    });
    let fdinfo = client_fdinfo(1, 2048, 5).replace("brandnew", "amdgpu");
    it.add_holder(4711, "/dev/full", &fdinfo);
    let daemon = it.start();
    // Each value, or its age.
    let reported = || {
        let list = it.test_box.list();
        let field = |row: &Value, name: &str| match row["reasons"][name].as_str() {
            Some(why) if why.starts_with("stale: ") => json!("stale"),
            Some(why) => json!(why),
            None => row[name].clone(),
        };
        let (gpu, row) = (&list["gpus"][0], &list["procs"][0]);
        json!([
            gpu["state"],
            field(gpu, "util_pct"),
            field(gpu, "mem_used_bytes"),
            field(gpu, "pids"),
            row["pid"],
            field(row, "used_mem_bytes"),
        ])
    };
    let well = |load: u32| json!(["ok", load, 1_073_741_824, 1, 4711, 2048 * 1024]);
    eventually_equals(&well(42), reported);
    let busy = sysfs.root().join("class/drm/card1/device/gpu_busy_percent");
    let hung = it.test_box.path("hung");
    make_fifo(&hung);
    std::fs::rename(&hung, &busy).unwrap();
    let old = json!(["unknown", "stale", "stale", "stale", 4711, "stale"]);
    eventually_equals(&old, reported);
    eventually_equals(&hanging_driver_fault(), || it.test_box.faults());
    // The readings grow older.
    let age = || it.test_box.list()["gpus"][0]["reasons"]["util_pct"].clone();
    eventually_equals(&json!("stale: 2 s"), age);
    let table = it.test_box.table(&["list"]);
    assert!(table.contains("~42%"), "{table}");

    let mut driver = std::fs::OpenOptions::new().write(true).open(&busy).unwrap();
    sysfs.write("class/drm/card1/device/gpu_busy_percent", "12\n");
    driver.write_all(b"11\n").unwrap();
    drop(driver);
    eventually_equals(&well(12), reported);
    eventually_equals(&Vec::new(), || it.test_box.faults());
    daemon.stop();
}

/// The only fault of a first card with a hanging driver.
fn hanging_driver_fault() -> Vec<(String, String)> {
    let why = "its driver does not answer";
    vec![("GPU 0".to_owned(), why.to_owned())]
}

/// Creates a file that no process writes: opening it blocks.
fn make_fifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}
