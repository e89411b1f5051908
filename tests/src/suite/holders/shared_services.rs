//! Processes that hold a GPU on behalf of others: MPS servers, display servers and
//! monitors. No printed command names them.

use super::{GIB, HoldersBox, select_fields};
use gpukill_tests::harness::{eventually_equals, test_uid};
use serde_json::json;

/// The pids that the remedies of all findings end.
fn remedy_pids(it: &HoldersBox) -> Vec<serde_json::Value> {
    let held = it.first_gpu_document();
    let findings = held["findings"].as_array().unwrap().iter();
    findings
        .flat_map(|found| found["remedy_pids"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn mps_server_is_named_and_not_ended() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    // The kernel keeps only this much of the name `nvidia-cuda-mps-server`.
    it.add_process(800, "nvidia-cuda-mps", &["/dev/full", "/dev/tty"]);
    it.add_process(801, "python", &["/dev/full"]);
    it.add_process(802, "python", &["/dev/full"]);
    let clients = json!([
        {"pid": 801, "memory": 2 * GIB, "kind": "mps"},
        {"pid": 802, "memory": 3 * GIB, "kind": "mps"},
    ]);
    it.set_driver_state(35 * GIB, &clients);
    let daemon = it.start();
    eventually_equals(&json!([["mps", [800], null, []]]), || it.findings());
    let screen = " PID  USER    STATE     HOLDS                LISTED  WHAT IT IS
 800  daemon  sleeping  nvidia7, nvidia-uvm      no  nvidia-cuda-mps: holds memory for its clients
 801  daemon  sleeping  nvidia7                2.0G  client of MPS: python
 802  daemon  sleeping  nvidia7                3.0G  client of MPS: python

Most likely an MPS server keeps memory for its clients.
  - 800 (nvidia-cuda-mps of daemon) holds memory for its clients
  - 801 and 802 are listed as such
";
    eventually_equals(&screen.to_owned(), || it.screen());
    let explained = it.test_box.json(&["explain", "800", "-o", "json"]);
    assert_eq!(
        explained["never_ended"],
        "it is an MPS server, and all its clients would end with it; \
         root may end it with --override-protected"
    );
    daemon.stop();
}

#[test]
fn display_server_is_named_and_not_ended() {
    let it = HoldersBox::new();
    it.add_process(700, "Xorg", &["/dev/full"]);
    it.set_driver_state(3 * GIB, &json!([{"pid": 700, "kind": "graphics"}]));
    let daemon = it.start();
    eventually_equals(&json!([[700, "display"]]), || it.roles());
    assert_eq!(remedy_pids(&it), Vec::<serde_json::Value>::new());
    let screen = " PID  USER    STATE     HOLDS    LISTED  WHAT IT IS
 700  daemon  sleeping  nvidia7     yes  Xorg: a display server or desktop
";
    let table = it.screen();
    assert!(table.starts_with(screen), "{table}");
    // A display server that the driver does not list is the one that keeps the memory.
    it.set_driver_state(3 * GIB, &json!([]));
    eventually_equals(&json!([["display", [700], null, []]]), || it.findings());
    let verdict = "Perhaps a display server keeps its memory: it goes with its session.\n  \
                     - 700 (Xorg of daemon) draws on it\n";
    eventually_equals(&verdict.to_owned(), || it.text_below_table());
    daemon.stop();
}

#[test]
fn monitors_are_no_cause() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    // The persistence daemon, a monitor, and a process that has only the file open that all
    // GPUs share.
    it.add_process(600, "nvidia-persiste", &["/dev/tty"]);
    it.add_process(601, "nv-hostengine", &["/dev/full", "/dev/tty"]);
    it.add_process(602, "python", &["/dev/tty"]);
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    let watching = json!([
        [600, "monitor", ["nvidia-uvm"], false],
        [601, "monitor", ["nvidia7", "nvidia-uvm"], true],
        [602, "monitor", ["nvidia-uvm"], false],
    ]);
    let fields = ["pid", "role", "holds", "holds_this_gpu"];
    eventually_equals(&watching, || {
        select_fields(&it.first_gpu_document()["holders"], &fields)
    });
    assert_eq!(it.findings(), json!([["unknown", [], null, []]]));
    let screen = " PID  USER    STATE     HOLDS                LISTED  WHAT IT IS
 600  daemon  sleeping  nvidia-uvm                –  nvidia-persistenced: a monitor, holds no memory
 601  daemon  sleeping  nvidia7, nvidia-uvm       –  nv-hostengine: a monitor, holds no memory
 602  daemon  sleeping  nvidia-uvm                –  python: a monitor, holds no memory

Who keeps its memory is not known.
  - 35.0 GiB are used, and no process explains them
  - all open files were scanned, and no process that could hold the memory has the device open
";
    eventually_equals(&screen.to_owned(), || it.screen());
    // An orphan among them is found, and the remedy ends it alone.
    it.procfs.add_process_with_details(
        gpukill_tests::harness::FakeProcess {
            pid: 603,
            name: "python",
            uid: test_uid(0),
            start_ticks: 100,
            cmdline: "python\0",
            cgroup: "0::/\n",
        },
        gpukill_tests::harness::FakeProcessDetails {
            parent: 1,
            group: 590,
            session: 590,
            ..Default::default()
        },
    );
    it.procfs.add_descriptor(603, 5, "/dev/full", "pos:\t0\n");
    eventually_equals(&json!([["orphans", [603], "end", [603]]]), || it.findings());
    daemon.stop();
}

#[test]
fn many_monitors_are_truncated() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    for pid in 1_000..1_070 {
        it.add_process(pid, "nv-hostengine", &["/dev/tty"]);
    }
    it.add_process(2_000, "python", &["/dev/full"]);
    it.set_driver_state(0, &json!([]));
    let daemon = it.start();
    // A process that may hold memory is listed in addition to the limited number of
    // monitors.
    let mut expected: Vec<u64> = (1_000..1_064).collect();
    expected.push(2_000);
    let pids = || {
        let held = it.first_gpu_document();
        let holders = held["holders"].as_array().unwrap().iter();
        holders
            .map(|it| it["pid"].as_u64().unwrap())
            .collect::<Vec<u64>>()
    };
    eventually_equals(&expected, pids);
    daemon.stop();
}
