//! An Apple GPU, told of by a script in the place of `ioreg`. The texts are after
//! the form that it prints.

use super::Box;
use gpukill_tests::harness::{becomes, eventually};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

const GPU: &str = r#"+-o AGXAcceleratorG16G  <class AGXAcceleratorG16G, id 0x1000003a1, registered, matched, active, busy 0 (9 ms), retain 61>
    {
      "IOSourceVersion" = "301.9"
      "PerformanceStatistics" = {"Alloc system memory"=9000000,"recoveryCount"=0,"Device Utilization %"=30,"In use system memory"=5242880}
      "gpu-core-count" = 10
      "model" = "Apple M4"
    }
"#;

/// One client, which has done nothing yet.
fn client(id: u32, pid: u32) -> String {
    format!(
        "+-o AGXDeviceUserClient  <class AGXDeviceUserClient, id {id:#x}, !registered>\n    {{\n      \
         \"AppUsage\" = ({{\"API\"=\"Metal\",\"lastSubmittedTime\"=9,\"accumulatedGPUTime\"=5}})\n      \
         \"IOUserClientCreator\" = \"pid {pid}, python\"\n    }}\n\n"
    )
}

/// What `ioreg` prints of a class from now on.
fn print(it: &Box, class: &str, text: &str) {
    let new = it.stage.path("printed.new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, it.stage.path(class)).unwrap();
}

/// A box with such a GPU.
fn mac() -> Box {
    let it = Box::new();
    print(&it, "IOAccelerator", GPU);
    print(&it, "AGXDeviceUserClient", "");
    let directory = it.stage.path("home/usr/sbin");
    std::fs::create_dir_all(&directory).unwrap();
    let printed = it.stage.directory().display();
    // The eighth argument is the class.
    let script = format!("#!/bin/sh\nexec /bin/cat \"{printed}/$8\"\n");
    let program = directory.join("ioreg");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    it
}

#[test]
fn an_apple_gpu_holds_what_it_tells_whoever_is_listed() {
    let it = mac();
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
    let told = |pids: u32| {
        let name = "Apple M4 (10 cores)";
        vec![json!([
            "apple", name, true, 5_242_880, null, null, 30, pids
        ])]
    };
    becomes(&told(0), || it.gpus(&fields));
    print(&it, "AGXDeviceUserClient", &client(1, 42));
    becomes(&told(1), || it.gpus(&fields));
    becomes(&Vec::new(), || it.stage.faults());
    daemon.stop();
}

#[test]
fn a_client_that_is_no_process_here_grows_old_and_comes_after_those_that_are() {
    let it = mac();
    it.holder(4711, "/dev/null", "");
    let clients = client(1, 42) + &client(2, 4711);
    print(&it, "AGXDeviceUserClient", &clients);
    let daemon = it.start();
    let pids = vec![json!([42, null]), json!([4711, "daemon"])];
    becomes(&pids, || it.processes(&["pid", "user"]));
    becomes(&true, || {
        let first = it.processes(&["first_seen"]);
        first.iter().all(|row| row[0].is_string())
    });
    let seen = || {
        let list = it.stage.list();
        let first: Vec<Value> = super::pick(&list["procs"], &["pid", "first_seen"]);
        (
            list["tick"].as_u64(),
            first,
            list["gpus"][0]["top_proc"]["pid"].clone(),
        )
    };
    let (began, first, _) = seen();
    eventually("some polls", || {
        let (tick, now, top) = seen();
        assert_eq!((&now, top), (&first, json!(4711)));
        (tick? > began? + 15).then_some(())
    });
    daemon.stop();
}
