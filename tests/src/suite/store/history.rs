//! Stored samples are returned unchanged.

use super::{ids, number, records};
use gpukill_tests::harness::{TestBox, TestProcess, eventually};
use serde_json::{Value, json};

const FIRST_GPU: &str = "GPU-8f3c0000-0000-0000-0000-000000000001";
const SECOND_GPU: &str = "GPU-9a4d0000-0000-0000-0000-000000000002";

/// Two GPUs, the second with few readings, and three processes.
struct HistoryBox {
    test_box: TestBox,
    train: TestProcess,
    render: TestProcess,
}

impl HistoryBox {
    fn new() -> Self {
        let test_box = TestBox::new();
        let train = TestProcess::start("python train.py");
        let render = TestProcess::start("blender");
        test_box.set_driver_state(&json!({"gpus": [
            {
                "uuid": FIRST_GPU, "name": "NVIDIA H100 80GB HBM3",
                "utilization": {"gpu": 87, "memory": 3}, "temperature": 64, "power_mw": 512_345,
                "memory": {"total": 80u64 << 30, "used": 12_345_678_901u64},
                "processes": [
                    {"pid": train.pid(), "memory": 12_345_678_901u64, "sm": 33},
                    {"pid": 5_000_000, "memory": 0},
                ],
            },
            {
                "uuid": SECOND_GPU, "name": "NVIDIA A2", "utilization": null, "temperature": null,
                "power_mw": null, "memory": {"total": 16u64 << 30, "used": 77},
                "process_utilization": false,
                "processes": [{"pid": render.pid(), "memory": null, "kind": "graphics"}],
            },
        ]}));
        Self {
            test_box,
            train,
            render,
        }
    }

    /// Waits for a complete sample, with users and command lines, which are read after the first
    /// polls; returns the newest.
    fn newest_complete_sample(&self) -> Vec<Value> {
        eventually("a whole sample", || {
            let records = records(&self.test_box, &[]);
            let newest = records.first()?["timestamp"].clone();
            let sample: Vec<Value> = records
                .into_iter()
                .filter(|record| record["timestamp"] == newest)
                .collect();
            let named = |record: &&Value| !record["user"].is_null() && !record["command"].is_null();
            (sample.len() == 5 && sample.iter().filter(named).count() == 2).then_some(sample)
        })
    }
}

/// The fields that are the same in each sample. Connections belong to the whole job, which
/// contains the processes of all tests here, so other tests change them.
fn constant_fields(mut record: Value) -> Value {
    let fields = record.as_object_mut().unwrap();
    let (covers, held) = (&fields["covers_secs"], &fields["held_secs"]);
    // The first poll may precede the first answer of the driver.
    let is_part = held.as_f64() <= covers.as_f64();
    assert!(held.is_null() == fields["pid"].is_null() && is_part);
    fields["reasons"]
        .as_object_mut()
        .unwrap()
        .remove("connections");
    for field in [
        "id",
        "connections",
        "timestamp",
        "user",
        "owner",
        "job",
        "covers_secs",
        "held_secs",
    ] {
        assert!(fields.remove(field).is_some(), "{field}");
    }
    record
}

#[test]
fn since_is_inclusive_until_is_exclusive() {
    let this = HistoryBox::new();
    let daemon = this.test_box.start();
    let between = |bound: &str, time: &str| {
        let records = records(&this.test_box, &[bound, time]);
        let times = records.iter().map(|it| it["timestamp"].as_str());
        times.map(|it| it.unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (newest, before) = eventually("there are several samples", || {
        let newest = this.newest_complete_sample()[0]["timestamp"]
            .as_str()
            .unwrap()
            .to_owned();
        let before = between("--until", &newest);
        (!before.is_empty()).then_some((newest, before))
    });
    assert!(!before.contains(&newest), "{newest}: {before:?}");
    let since = between("--since", &newest);
    assert!(since.contains(&newest), "{newest}: {since:?}");
    daemon.stop();
}

#[test]
fn sample_has_exact_values_and_reasons() {
    let this = HistoryBox::new();
    let daemon = this.test_box.start();
    let sample: Vec<Value> = this
        .newest_complete_sample()
        .into_iter()
        .map(constant_fields)
        .collect();
    let uid = rustix::process::getuid().as_raw();
    let first = json!({"gpu_index": 0, "gpu_id": FIRST_GPU, "gpu_name": "NVIDIA H100 80GB HBM3"});
    let second = json!({"gpu_index": 1, "gpu_id": SECOND_GPU, "gpu_name": "NVIDIA A2"});
    let expected = [
        (
            &first,
            json!({
                "pid": this.train.pid(), "uid": uid, "owner_uid": uid, "owner_kind": "user",
                "process_name": "sleep",
                "command": "python train.py 1000", "memory_used_mb": 11_773,
                "memory_used_bytes": 12_345_678_901u64, "utilization_pct": 33,
                "reasons": {},
            }),
        ),
        (
            &first,
            json!({
                "pid": 5_000_000, "memory_used_mb": 0, "memory_used_bytes": 0, "utilization_pct": 0,
                "reasons": {
                    "command": "unsupported",
                },
            }),
        ),
        (
            &first,
            json!({
                "memory_used_mb": 11_773, "memory_used_bytes": 12_345_678_901u64,
                "utilization_pct": 87, "temperature_c": 64, "power_w": 512.345, "reasons": {},
            }),
        ),
        (
            &second,
            json!({
                "pid": this.render.pid(), "uid": uid, "owner_uid": uid, "owner_kind": "user",
                "process_name": "sleep", "command": "blender 1000",
                "reasons": {
                    "memory_used_mb": "unsupported", "memory_used_bytes": "unsupported",
                    "utilization_pct": "unsupported",
                },
            }),
        ),
        (
            &second,
            json!({
                "memory_used_mb": 0, "memory_used_bytes": 77,
                "reasons": {
                    "utilization_pct": "unsupported", "temperature_c": "unsupported",
                    "power_w": "unsupported",
                },
            }),
        ),
    ];
    for (device, fields) in expected {
        let mut record = json!({
            "pid": null, "uid": null, "owner_uid": null, "owner_kind": null,
            "namespace_owner_uid": null, "process_name": null, "command": null,
            "memory_used_mb": null, "memory_used_bytes": null, "utilization_pct": null,
            "temperature_c": null, "power_w": null, "container": null,
            "instance": null,
        });
        let whole = record.as_object_mut().unwrap();
        whole.extend(device.as_object().unwrap().clone());
        whole.extend(fields.as_object().unwrap().clone());
        let found = sample
            .iter()
            .find(|found| found["gpu_id"] == record["gpu_id"] && found["pid"] == record["pid"]);
        assert_eq!(found, Some(&record));
    }
    daemon.stop();
}

#[test]
fn filters_select_matching_records() {
    let this = HistoryBox::new();
    let daemon = this.test_box.start();
    let user = this
        .newest_complete_sample()
        .into_iter()
        .find_map(|record| record["user"].as_str().map(str::to_owned))
        .unwrap();
    let (train, render) = (u64::from(this.train.pid()), u64::from(this.render.pid()));
    let uid = rustix::process::getuid().to_string();
    // The records of a device have pid 0 here.
    let cases: [(&[&str], &[u64]); 12] = [
        (&[], &[0, 5_000_000, train, render]),
        (&["--user", &user], &[train, render]),
        (&["--user", &uid], &[train, render]),
        (&["--process", "^sl"], &[train, render]),
        (&["--process", "^sl", "--gpu", "1"], &[render]),
        (&["--gpu", "0"], &[0, 5_000_000, train]),
        (&["--gpu", SECOND_GPU], &[0, render]),
        (&["--gpu", "9a4d"], &[0, render]),
        (&["--gpu", "NVIDIA A*"], &[0, render]),
        (&["--hours", "1", "--gpu", "1"], &[0, render]),
        (
            &["--since", "1h ago", "--gpu", "0-1"],
            &[0, 5_000_000, train, render],
        ),
        (&["--since", "2h ago", "--until", "1h ago"], &[]),
    ];
    for (arguments, expected) in cases {
        let pids: std::collections::BTreeSet<u64> = records(&this.test_box, arguments)
            .iter()
            .map(|record| record["pid"].as_u64().unwrap_or(0))
            .collect();
        let expected: std::collections::BTreeSet<u64> = expected.iter().copied().collect();
        assert_eq!(pids, expected, "{arguments:?}");
    }
    for nothing in [
        &["--user", "nobody-of-this-name"][..],
        &["--user", "4294967295"],
        &["--process", "^no-such-process$"],
        &["--gpu", "*no such*"],
        &["--process", "^sl", "--user", "nobody-of-this-name"],
    ] {
        let ran = this.test_box.ctl(&[&["audit"], nothing].concat());
        assert_eq!(ran.code, 8, "{nothing:?}: {ran:?}");
    }
    for unknown in ["99", "GPU-00"] {
        let ran = this.test_box.ctl(&["audit", "--gpu", unknown]);
        assert_eq!(ran.code, 3, "{unknown}: {ran:?}");
    }
    daemon.stop();
}

#[test]
fn history_survives_a_restart() {
    let this = HistoryBox::new();
    let daemon = this.test_box.start();
    this.newest_complete_sample();
    daemon.stop();
    let daemon = this.test_box.start();
    let before = records(&this.test_box, &["--limit", "0"]);
    let newest = number(&before[0], "id");
    let after = eventually("another sample", || {
        let after = records(&this.test_box, &["--limit", "0"]);
        (number(&after[0], "id") > newest).then_some(after)
    });
    assert_eq!(after[after.len() - before.len()..], before);
    let ids = ids(&after);
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
    daemon.stop();
}
