//! An Apple GPU, which a script in place of `ioreg` reports. The texts have the form that
//! `ioreg` prints.

use super::DrmBox;
use gpukill_tests::harness::{eventually, eventually_equals, write_script};
use serde_json::{Value, json};

const GPU: &str = r#"+-o AGXAcceleratorG16G  <class AGXAcceleratorG16G, id 0x1000003a1, registered, matched, active, busy 0 (9 ms), retain 61>
    {
      "IOSourceVersion" = "301.9"
      "PerformanceStatistics" = {"Alloc system memory"=9000000,"recoveryCount"=0,"Device Utilization %"=30,"In use system memory"=5242880}
      "gpu-core-count" = 10
      "model" = "Apple M4"
    }
"#;

/// A client that has not used the GPU yet.
fn client_entry(id: u32, pid: u32) -> String {
    format!(
        "+-o AGXDeviceUserClient  <class AGXDeviceUserClient, id {id:#x}, !registered>\n    {{\n      \
         \"AppUsage\" = ({{\"API\"=\"Metal\",\"lastSubmittedTime\"=9,\"accumulatedGPUTime\"=5}})\n      \
         \"IOUserClientCreator\" = \"pid {pid}, python\"\n    }}\n\n"
    )
}

/// Sets what `ioreg` prints for a class.
fn set_output(it: &DrmBox, class: &str, text: &str) {
    let new = it.test_box.path("printed.new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, it.test_box.path(class)).unwrap();
}

fn apple_box() -> DrmBox {
    let it = DrmBox::new();
    set_output(&it, "IOAccelerator", GPU);
    set_output(&it, "AGXDeviceUserClient", "");
    let directory = it.test_box.path("home/usr/sbin");
    std::fs::create_dir_all(&directory).unwrap();
    let printed = it.test_box.directory().display();
    // The eighth argument is the class.
    let script = format!("#!/bin/sh\nexec /bin/cat \"{printed}/$8\"\n");
    write_script(directory.join("ioreg"), &script);
    it
}

#[test]
fn apple_gpu_has_readings_and_processes() {
    let it = apple_box();
    let daemon = it.start();
    let fields = [
        "vendor",
        "name",
        "mem_unified",
        "mem_used_bytes",
        "mem_total_bytes",
        "mem_unattributed_bytes",
        "util_pct",
        "pids",
    ];
    let expected = |pids: u32| {
        let name = "Apple M4 (10 cores)";
        vec![json!([
            "apple", name, true, 5_242_880, null, null, 30, pids
        ])]
    };
    eventually_equals(&expected(0), || it.gpus(&fields));
    set_output(&it, "AGXDeviceUserClient", &client_entry(1, 42));
    eventually_equals(&expected(1), || it.gpus(&fields));
    eventually_equals(&Vec::new(), || it.test_box.faults());
    daemon.stop();
}

#[test]
fn unknown_clients_are_listed_last_and_stale() {
    let it = apple_box();
    it.add_holder(4711, "/dev/null", "");
    let clients = client_entry(1, 42) + &client_entry(2, 4711);
    set_output(&it, "AGXDeviceUserClient", &clients);
    let daemon = it.start();
    let pids = vec![json!([42, null]), json!([4711, "daemon"])];
    eventually_equals(&pids, || it.processes(&["pid", "user"]));
    eventually_equals(&true, || {
        let first = it.processes(&["first_seen"]);
        first.iter().all(|row| row[0].is_string())
    });
    let seen = || {
        let list = it.test_box.list();
        let first: Vec<Value> = super::select_fields(&list["procs"], &["pid", "first_seen"]);
        (
            list["polls"].as_u64(),
            first,
            list["gpus"][0]["top_proc"]["pid"].clone(),
        )
    };
    let (start_tick, first, _) = seen();
    eventually("some polls", || {
        let (polls, now, top) = seen();
        assert_eq!((&now, top), (&first, json!(4711)));
        (polls? > start_tick? + 15).then_some(())
    });
    daemon.stop();
}
