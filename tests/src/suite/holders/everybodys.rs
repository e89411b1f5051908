//! What holds a GPU for everybody: MPS servers, display servers, and those who
//! only watch. No command ever names them.

use super::{Box, GIB, pick};
use gpukill_tests::harness::{becomes, user};
use serde_json::json;

/// Whom any finding says to end.
fn to_be_ended(it: &Box) -> Vec<serde_json::Value> {
    let held = it.held();
    let findings = held["findings"].as_array().unwrap().iter();
    findings
        .flat_map(|found| found["remedy_pids"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn an_mps_server_holds_memory_for_its_clients_and_is_not_ended() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    // The kernel keeps so much of `nvidia-cuda-mps-server`.
    it.invent(800, "nvidia-cuda-mps", &["/dev/full", "/dev/tty"]);
    it.invent(801, "python", &["/dev/full"]);
    it.invent(802, "python", &["/dev/full"]);
    let clients = json!([
        {"pid": 801, "memory": 2 * GIB, "kind": "mps"},
        {"pid": 802, "memory": 3 * GIB, "kind": "mps"},
    ]);
    it.play(35 * GIB, &clients);
    let daemon = it.start();
    becomes(&json!([["mps", [800], null, []]]), || it.findings());
    let screen = " PID  USER    STATE     HOLDS                LISTED  WHAT IT IS
 800  daemon  sleeping  nvidia7, nvidia-uvm      no  nvidia-cuda-mps: holds memory for its clients
 801  daemon  sleeping  nvidia7                2.0G  client of MPS: python
 802  daemon  sleeping  nvidia7                3.0G  client of MPS: python

Most likely an MPS server keeps memory for its clients.
  - 800 (nvidia-cuda-mps of daemon) holds memory for its clients
  - 801 and 802 are listed as such
";
    becomes(&screen.to_owned(), || it.screen());
    let explained = it.stage.json(&["explain", "800", "-o", "json"]);
    assert_eq!(
        explained["never_ended"],
        "it is an MPS server: all its clients would end with it; \
         root may end it with --override-protected"
    );
    daemon.stop();
}

#[test]
fn a_display_server_is_named_and_nobody_is_told_to_end_it() {
    let it = Box::new();
    it.invent(700, "Xorg", &["/dev/full"]);
    it.play(3 * GIB, &json!([{"pid": 700, "kind": "graphics"}]));
    let daemon = it.start();
    becomes(&json!([[700, "display"]]), || it.roles());
    assert_eq!(to_be_ended(&it), Vec::<serde_json::Value>::new());
    let screen = " PID  USER    STATE     HOLDS    LISTED  WHAT IT IS
 700  daemon  sleeping  nvidia7     yes  Xorg: a display server or desktop
";
    let table = it.screen();
    assert!(table.starts_with(screen), "{table}");
    // An unlisted one is what keeps the memory.
    it.play(3 * GIB, &json!([]));
    becomes(&json!([["display", [700], null, []]]), || it.findings());
    let verdict = "Perhaps a display server keeps its memory: it goes with its session.\n  \
                     - 700 (Xorg of daemon) draws on it\n";
    becomes(&verdict.to_owned(), || it.verdict());
    daemon.stop();
}

#[test]
fn those_who_only_watch_are_no_cause_and_in_no_command() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    // The daemon of persistence mode, a monitor, and whoever has but the file
    // open that all GPUs share.
    it.invent(600, "nvidia-persiste", &["/dev/tty"]);
    it.invent(601, "nv-hostengine", &["/dev/full", "/dev/tty"]);
    it.invent(602, "python", &["/dev/tty"]);
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    let watching = json!([
        [600, "monitor", ["nvidia-uvm"], false],
        [601, "monitor", ["nvidia7", "nvidia-uvm"], true],
        [602, "monitor", ["nvidia-uvm"], false],
    ]);
    let fields = ["pid", "role", "holds", "holds_this_gpu"];
    becomes(&watching, || pick(&it.held()["holders"], &fields));
    assert_eq!(it.findings(), json!([["unknown", [], null, []]]));
    let screen = " PID  USER    STATE     HOLDS                LISTED  WHAT IT IS
 600  daemon  sleeping  nvidia-uvm                –  nvidia-persistenced: a monitor, holds no memory
 601  daemon  sleeping  nvidia7, nvidia-uvm       –  nv-hostengine: a monitor, holds no memory
 602  daemon  sleeping  nvidia-uvm                –  python: a monitor, holds no memory

Who keeps its memory is not known.
  - 35.0 GiB are used, and nothing explains them
  - the open files of every process were looked at, and none that could hold them has it open
";
    becomes(&screen.to_owned(), || it.screen());
    // An orphan among them is found, and it alone is to be ended.
    it.procfs.invent_related(
        gpukill_tests::harness::Invented {
            pid: 603,
            name: "python",
            uid: user(0),
            start_ticks: 100,
            cmdline: "python\0",
            cgroup: "0::/\n",
        },
        gpukill_tests::harness::Related {
            parent: 1,
            group: 590,
            session: 590,
            ..Default::default()
        },
    );
    it.procfs.open(603, 5, "/dev/full", "pos:\t0\n");
    becomes(&json!([["orphans", [603], "end", [603]]]), || it.findings());
    daemon.stop();
}

#[test]
fn of_many_who_only_watch_some_are_told() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    for pid in 1_000..1_070 {
        it.invent(pid, "nv-hostengine", &["/dev/tty"]);
    }
    it.invent(2_000, "python", &["/dev/full"]);
    it.play(0, &json!([]));
    let daemon = it.start();
    // Whoever may hold memory is not one of those who take each other's place.
    let mut expected: Vec<u64> = (1_000..1_064).collect();
    expected.push(2_000);
    let pids = || {
        let held = it.held();
        let holders = held["holders"].as_array().unwrap().iter();
        holders
            .map(|it| it["pid"].as_u64().unwrap())
            .collect::<Vec<u64>>()
    };
    becomes(&expected, pids);
    daemon.stop();
}
