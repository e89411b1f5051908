//! Cards of any DRM driver: which are GPUs, who uses them, and what happens when
//! they sleep, hang, come and go.

use super::Box;
use gpukill_tests::harness::{Card, becomes, eventually};
use serde_json::{Value, json};
use std::io::Write as _;

/// A card of a driver that nobody has heard of, with `/dev/full` for its file.
const NEW: Card<'_> = Card {
    name: "card1",
    driver: "brandnew",
    pci: Some(("0000:03:00.0", "1234:5678")),
    nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
    files: &[],
};

/// A client of it that holds so many KiB.
fn client(id: u64, resident: u32, busy_ns: u64) -> String {
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tbrandnew\n\
         drm-client-id:\t{id}\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram:\t9999999 KiB\n\
         drm-resident-vram:\t{resident} KiB\ndrm-engine-render:\t{busy_ns} ns\n"
    )
}

#[test]
fn a_driver_nobody_has_heard_of_is_read_by_the_kernels_own_keys() {
    let it = Box::new();
    it.stage.sysfs().plug(NEW);
    it.holder(4711, "/dev/full", &client(1, 2048, 5));
    // The same client in another process, and one that holds something else.
    it.holder(4712, "/dev/full", &client(1, 2048, 5));
    it.holder(4713, "/dev/null", &client(2, 4096, 5));
    let daemon = it.start();
    let fields = ["gpu_index", "pid", "used_mem_bytes", "util_pct", "user"];
    becomes(&vec![json!([0, 4711, 2048 * 1024, 0, "daemon"])], || {
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
    assert_eq!(it.stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_process_that_comes_is_unknown_at_first_and_no_fault() {
    let it = Box::new();
    it.stage.sysfs().plug(NEW);
    it.holder(4711, "/dev/full", &client(1, 2048, 5));
    // Polls so far apart that what each publishes is seen.
    let daemon = it.start_polling_every("1s");
    let rows = || it.processes(&["pid", "util_pct"]);
    becomes(&vec![json!([4711, 0])], rows);
    becomes(&vec![json!([0, 0])], || it.gpus(&["gpu_index", "util_pct"]));
    // Everything that is published until the newcomer is known.
    let mut seen: Vec<Value> = Vec::new();
    it.holder(4712, "/dev/full", &client(2, 4096, 5_000_000_000));
    eventually("its share", || {
        let list = it.stage.list();
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
fn who_has_a_card_open_is_listed_where_its_driver_tells_nothing_of_them() {
    let it = Box::new();
    it.stage.sysfs().plug(Card {
        driver: "radeon",
        pci: Some(("0000:03:00.0", "1002:6798")),
        nodes: &[("card1", "1:3"), ("renderD128", "1:7")],
        ..NEW
    });
    let plain = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\n";
    it.holder(4711, "/dev/full", plain);
    // Whoever shows pictures.
    it.holder(4712, "/dev/null", plain);
    let daemon = it.start();
    let fields = ["pid", "used_mem_bytes", "util_pct", "used_for"];
    becomes(&vec![json!([4711, null, null, []])], || {
        it.processes(&fields)
    });
    let fields = ["name", "pids", "util_pct", "encoder_util_pct"];
    becomes(&vec![json!(["AMD 1002:6798", 1, null, null])], || {
        it.gpus(&fields)
    });
    assert_eq!(it.stage.faults(), []);
    daemon.stop();
}

#[test]
fn what_only_shows_pictures_is_no_gpu_and_no_fault() {
    let it = Box::new();
    let sysfs = it.stage.sysfs();
    sysfs.plug(Card {
        name: "card0",
        driver: "ast",
        pci: Some(("0000:c3:00.0", "1A03:2000")),
        nodes: &[("card0", "226:0")],
        files: &[],
    });
    // The processors of the box, as KFD names them.
    sysfs.write("class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    sysfs.write(
        "class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 64\nsimd_count 0\ndomain 0\nlocation_id 0\n",
    );
    let daemon = it.start();
    becomes(&Vec::new(), || it.gpus(&["id"]));
    assert_eq!(it.stage.faults(), []);
    let list = it.stage.ctl(&["list"]);
    assert_eq!((list.code, list.stderr.as_str()), (0, ""));
    daemon.stop();
}

#[test]
fn a_card_that_comes_is_seen_and_one_that_goes_is_gone() {
    let it = Box::new();
    let daemon = it.start();
    let ids = || it.gpus(&["gpu_index", "id"]);
    becomes(&Vec::new(), ids);
    it.stage.sysfs().plug(NEW);
    becomes(&vec![json!([0, "0000:03:00.0"])], ids);
    // It has a lower address, and the other keeps its number.
    it.stage.sysfs().plug(Card {
        name: "card2",
        pci: Some(("0000:01:00.0", "1234:5678")),
        ..NEW
    });
    becomes(
        &vec![json!([0, "0000:03:00.0"]), json!([1, "0000:01:00.0"])],
        ids,
    );
    it.stage.sysfs().unplug("card1");
    let states = || it.gpus(&["gpu_index", "state"]);
    becomes(&vec![json!([0, "gone"]), json!([1, "ok"])], states);
    let faults = it.stage.faults().into_iter().map(|(part, _)| part);
    assert_eq!(faults.collect::<Vec<_>>(), ["GPU 0"]);
    it.stage.sysfs().plug(NEW);
    becomes(&vec![json!([0, "ok"]), json!([1, "ok"])], states);
    assert_eq!(it.stage.faults(), []);
    daemon.stop();
}

#[test]
fn a_card_that_sleeps_is_not_woken() {
    let it = Box::new();
    let sysfs = it.stage.sysfs();
    sysfs.plug(Card {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        files: &[("power/runtime_status", "suspended\n")],
        ..NEW
    });
    // Whoever opens this waits for ever.
    let busy = "class/drm/card1/device/gpu_busy_percent";
    fifo(&sysfs.root().join(busy));
    it.holder(4711, "/dev/full", "");
    let fdinfo = it.procfs.root().join("4711/fdinfo/5");
    std::fs::remove_file(&fdinfo).unwrap();
    fifo(&fdinfo);
    let daemon = it.start();
    let asleep = "failed: asleep: not woken for a reading";
    // It is called as it is when it is awake.
    let name = "AMD 1002:744c";
    becomes(&vec![json!([name, true, null, asleep])], || {
        let list = it.stage.list();
        let rows = list["gpus"].as_array().unwrap().iter();
        rows.map(|gpu| {
            let why = &gpu["reasons"]["mem_used_bytes"];
            json!([gpu["name"], gpu["suspended"], gpu["util_pct"], why])
        })
        .collect()
    });
    assert_eq!(it.stage.faults(), []);
    sysfs.write("class/drm/card1/device/power/runtime_status", "active\n");
    std::fs::remove_file(sysfs.root().join(busy)).unwrap();
    sysfs.write(busy, "7\n");
    std::fs::remove_file(&fdinfo).unwrap();
    becomes(&vec![json!([name, false, 7])], || {
        it.gpus(&["name", "suspended", "util_pct"])
    });
    daemon.stop();
}

#[test]
fn a_card_that_nobody_uses_is_left_to_fall_asleep() {
    let it = Box::new();
    let sysfs = it.stage.sysfs();
    sysfs.plug(Card {
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
        ..NEW
    });
    let daemon = it.start();
    let told = || {
        let gpu = it.stage.list()["gpus"][0].clone();
        let why = gpu["reasons"]["util_pct"].as_str().unwrap_or_default();
        let is_old = why.starts_with("stale: ");
        json!([gpu["util_pct"], is_old, gpu["mem_used_bytes"]])
    };
    becomes(&json!([null, true, 100]), told);
    // Whoever opens this waits for ever. What its driver knows without the card is
    // read all the same.
    let busy = "class/drm/card1/device/gpu_busy_percent";
    std::fs::remove_file(sysfs.root().join(busy)).unwrap();
    fifo(&sysfs.root().join(busy));
    sysfs.write("class/drm/card1/device/mem_info_vram_used", "200\n");
    becomes(&json!([null, true, 200]), told);
    let polls = || it.stage.json(&["status", "-o", "json"])["polls"].as_u64();
    let before = polls().unwrap();
    eventually("polls go on", || (polls()? > before + 5).then_some(()));
    assert_eq!(told(), json!([null, true, 200]));
    assert_eq!(it.stage.faults(), []);
    std::fs::remove_file(sysfs.root().join(busy)).unwrap();
    sysfs.write(busy, "9\n");
    // Somebody uses it.
    it.holder(
        4711,
        "/dev/full",
        &client(1, 0, 5).replace("brandnew", "amdgpu"),
    );
    becomes(&json!([9, false, 200]), told);
    daemon.stop();
}

#[test]
fn a_card_whose_driver_hangs_delays_no_other() {
    let it = Box::new();
    let sysfs = it.stage.sysfs();
    let amd = Card {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        ..NEW
    };
    sysfs.plug(amd);
    let busy = sysfs.root().join("class/drm/card1/device/gpu_busy_percent");
    fifo(&busy);
    sysfs.plug(Card {
        name: "card2",
        pci: Some(("0000:05:00.0", "1002:744C")),
        files: &[("gpu_busy_percent", "42\n")],
        ..amd
    });
    let daemon = it.start();
    let silent = || {
        let gpu = it.stage.list()["gpus"][0].clone();
        gpu["reasons"]["util_pct"].clone()
    };
    becomes(&json!("failed: its driver does not answer"), silent);
    let loads = || it.gpus(&["gpu_index", "state", "util_pct"]);
    let well = json!([1, "ok", 42]);
    becomes(&vec![json!([0, "unknown", null]), well.clone()], loads);
    becomes(&silence(), || it.stage.faults());
    // The driver comes back: whoever waited reads what it says, and whoever
    // comes next does not wait.
    let mut driver = std::fs::OpenOptions::new().write(true).open(&busy).unwrap();
    sysfs.write("class/drm/card1/device/gpu_busy_percent", "12\n");
    driver.write_all(b"11\n").unwrap();
    drop(driver);
    becomes(&vec![json!([0, "ok", 12]), well], loads);
    becomes(&Vec::new(), || it.stage.faults());
    daemon.stop();
}

#[test]
fn a_card_whose_driver_hangs_keeps_what_it_told_and_that_grows_old() {
    let it = Box::new();
    let sysfs = it.stage.sysfs();
    sysfs.plug(Card {
        driver: "amdgpu",
        pci: Some(("0000:03:00.0", "1002:744C")),
        files: &[
            ("gpu_busy_percent", "42\n"),
            ("mem_info_vram_total", "25753026560\n"),
            ("mem_info_vram_used", "1073741824\n"),
        ],
        ..NEW
    });
    let fdinfo = client(1, 2048, 5).replace("brandnew", "amdgpu");
    it.holder(4711, "/dev/full", &fdinfo);
    let daemon = it.start();
    // Each value, or how old it is.
    let told = || {
        let list = it.stage.list();
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
    becomes(&well(42), told);
    let busy = sysfs.root().join("class/drm/card1/device/gpu_busy_percent");
    let hung = it.stage.path("hung");
    fifo(&hung);
    std::fs::rename(&hung, &busy).unwrap();
    let old = json!(["unknown", "stale", "stale", "stale", 4711, "stale"]);
    becomes(&old, told);
    becomes(&silence(), || it.stage.faults());
    // Older and older.
    let age = || it.stage.list()["gpus"][0]["reasons"]["util_pct"].clone();
    becomes(&json!("stale: 2 s"), age);
    let table = it.stage.table(&["list"]);
    assert!(table.contains("~42%"), "{table}");

    let mut driver = std::fs::OpenOptions::new().write(true).open(&busy).unwrap();
    sysfs.write("class/drm/card1/device/gpu_busy_percent", "12\n");
    driver.write_all(b"11\n").unwrap();
    drop(driver);
    becomes(&well(12), told);
    becomes(&Vec::new(), || it.stage.faults());
    daemon.stop();
}

/// What is told of a first card whose driver hangs, and once.
fn silence() -> Vec<(String, String)> {
    let why = "its driver does not answer";
    vec![("GPU 0".to_owned(), why.to_owned())]
}

/// A file that nobody ever writes to: opening it waits.
fn fifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}
