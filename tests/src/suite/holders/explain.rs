//! `explain`: one process on all its GPUs, with its job and its container.

use super::{GIB, HoldersBox, gpu_state, select_fields};
use gpukill_tests::harness::{CommandOutput, eventually_equals};
use serde_json::{Value, json};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn explain_json(it: &HoldersBox, pid: u32) -> Value {
    let pid = pid.to_string();
    it.test_box.json(&["explain", &pid, "-o", "json"])
}

fn explain_text(it: &HoldersBox, pid: u32) -> String {
    let ran = it.test_box.ctl(&["explain", &pid.to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// Why this daemon ends no process, or null: it depends on the machine that runs the test.
fn will_not_act_reason(it: &HoldersBox) -> Value {
    it.test_box.json(&["status", "-o", "json"])["will_not_act"].clone()
}

#[test]
fn process_on_two_gpus_has_job_and_container() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process_with_parent(900, "containerd-shim", 1, &[]);
    it.add_process_with_parent(
        4711,
        "python",
        900,
        &["/dev/full", "/dev/random", "/dev/tty"],
    );
    it.procfs.write(
        4711,
        "cgroup",
        &format!("0::/system.slice/docker-{CONTAINER}.scope\n"),
    );
    let on = |gib: u64| json!([{"pid": 4711, "memory": gib * GIB, "sm": 87}]);
    let gpus = [
        gpu_state(7, 35 * GIB, &on(35)),
        gpu_state(8, 12 * GIB, &on(12)),
    ];
    it.test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = it.start();
    let roles = json!([
        [0, ["nvidia7", "nvidia-uvm"]],
        [1, ["nvidia8", "nvidia-uvm"]]
    ]);
    eventually_equals(&roles, || {
        let explained = explain_json(&it, 4711);
        let holds = explained["holds"].as_array().unwrap().iter();
        holds
            .map(|held| json!([held["gpu_index"], held["holder"]["holds"]]))
            .collect()
    });
    let explained = explain_json(&it, 4711);
    let fields = [
        "gpu_index",
        "used_mem_bytes",
        "container",
        "job",
        "job_kind",
    ];
    let container = "docker/0123456789ab";
    let rows = json!([
        [0, 35 * GIB, container, container, "container"],
        [1, 12 * GIB, container, container, "container"],
    ]);
    assert_eq!(select_fields(&explained["procs"], &fields), rows);
    assert_eq!(explained["frees_bytes"], 47 * GIB);
    assert_eq!(explained["never_ended"], will_not_act_reason(&it));
    assert_eq!(explained["findings"], json!([]));
    let text = explain_text(&it, 4711);
    // There is a history once a sample was stored.
    let lines = text.lines().filter(|line| !line.starts_with(" history "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines[0], "container 0123456789ab: python");
    assert!(lines[1].starts_with("pid 4711, started "), "{text}");
    let expected = [
        " where    docker/0123456789ab · parents: containerd-shim 900",
        " job      docker/0123456789ab",
        " network  private: no port that others use",
    ];
    assert_eq!(lines[3..6], expected);
    assert!(lines[6].starts_with(" GPU 0    35.0G for "), "{text}");
    assert!(lines[7].starts_with(" GPU 1    12.0G for "), "{text}");
    let expected = [
        " holds    GPU 0: nvidia7, nvidia-uvm",
        " holds    GPU 1: nvidia8, nvidia-uvm",
    ];
    assert_eq!(lines[8..10], expected);
    if will_not_act_reason(&it).is_null() {
        // How much could be examined depends on the machine that runs the test.
        assert!(lines[10].starts_with(" verdict  not suspicious"), "{text}");
        let rest = lines.iter().skip_while(|it| !it.starts_with(" frees "));
        let rest: Vec<&str> = rest.copied().collect();
        assert_eq!(rest[0], " frees    at least 47.0G, when it ends");
        assert!(rest[1].starts_with(" may end  daemon, "), "{text}");
    }
    daemon.stop();
}

#[test]
fn first_answer_names_who_may_end_it() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.set_driver_state(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    let daemon = it.start();
    let first = std::cell::RefCell::new(Value::Null);
    eventually_equals(&true, || {
        let ran = it.test_box.ctl(&["explain", "4711", "-o", "json"]);
        if ran.code == 0 {
            *first.borrow_mut() = serde_json::from_str(&ran.stdout).unwrap();
        }
        ran.code == 0
    });
    let people = first.borrow()["may_end"].clone();
    let people: Vec<&str> = people
        .as_array()
        .unwrap()
        .iter()
        .flat_map(Value::as_str)
        .collect();
    assert!(people.contains(&"root"), "{people:?}");
    daemon.stop();
}

#[test]
fn unlisted_process_is_explained_by_open_files() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    // `explain` scans no other process: after `holders` it knows them all.
    eventually_equals(&json!([[4711, "unlisted"]]), || it.roles());
    let named = json!([[0, "unlisted", [4711], null, []]]);
    let fields = ["gpu_index", "cause", "pids", "remedy", "remedy_pids"];
    eventually_equals(&named, || {
        select_fields(&explain_json(&it, 4711)["findings"], &fields)
    });
    let explained = explain_json(&it, 4711);
    assert_eq!(explained["procs"], json!([]));
    // Unknown is not 0.
    assert_eq!(explained["frees_bytes"], Value::Null);
    let text = explain_text(&it, 4711);
    let beginning = "\
daemon: python
pid 4711

 where    in no container · parent: systemd 1
 holds    GPU 0: nvidia7 · python: has it open, and is not listed
";
    assert!(text.starts_with(beginning), "{text}");
    let reason = "
GPU 0: 1 process of daemon that the driver does not list keeps its memory.
  - 4711 (python of daemon) has the device open, and the driver does not list it
";
    let hint = match explained["never_ended"].is_null() {
        true => it.end_hint(4711, "daemon or an operator"),
        false => String::new(),
    };
    assert!(text.ends_with(&format!("{reason}{hint}")), "{text}");
    if will_not_act_reason(&it).is_null() {
        let frees = "\n frees    how much is not known, when it ends\n";
        assert!(text.contains(frees), "{text}");
    }
    daemon.stop();
}

#[test]
fn new_holder_is_explained_at_once() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &[]);
    it.set_driver_state(0, &json!([]));
    let daemon = it.start();
    let asked = || it.test_box.ctl(&["explain", "4711"]).code;
    assert_eq!(asked(), 8);
    // The last scan result is still recent enough to answer other requests for holders.
    it.procfs.add_descriptor(4711, 5, "/dev/full", "pos:\t0\n");
    assert_eq!(asked(), 0);
    daemon.stop();
}

#[test]
fn explanation_starts_and_awaits_no_scan() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.add_process(4712, "python", &["/dev/null"]);
    it.set_driver_state(35 * GIB, &json!([]));
    let mut command = it.daemon_command();
    // The result of a scan is published by polls that the scan requests.
    let daemon = it
        .test_box
        .start_with(command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1h"));
    let polls = || it.test_box.list()["polls"].clone();
    eventually_equals(&json!(1), || {
        json!(it.test_box.list()["gpus"].as_array().map(Vec::len))
    });
    let before = polls();
    assert_eq!(it.test_box.ctl(&["explain", "4712"]).code, 8);
    let explained = explain_json(&it, 4711);
    assert_eq!(explained["holds"][0]["holder"]["holds"], json!(["nvidia7"]));
    assert!(explained["files_read_at"].is_string(), "{explained}");
    // Only this process was read, and the evidence says so.
    let evidence = explained["findings"][0]["evidence"].to_string();
    assert!(evidence.contains("have not been checked yet"), "{evidence}");
    assert_eq!(polls(), before);
    daemon.stop();
}

#[test]
fn processes_without_gpu_are_not_explained() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full"]);
    it.add_process(4712, "python", &["/dev/null"]);
    it.set_driver_state(0, &json!([]));
    let daemon = it.start();
    let asked = |pid: &str| it.test_box.ctl(&["explain", pid]);
    // A process without a GPU, its child, the kernel, an unused pid, the largest possible
    // pid, and a process that has ended.
    it.add_process(799, "bash", &[]);
    it.add_process_with_parent(800, "python", 799, &[]);
    it.set_process_state(800, "Z");
    for (pid, message) in [
        ("4712", "no process 4712 uses a GPU or has one open"),
        ("1", "no process 1 uses a GPU or has one open"),
        ("4713", "there is no process 4713"),
        ("0", "there is no process 0"),
        ("4294967295", "there is no process 4294967295"),
        (
            "800",
            "process 800 has ended, and its parent 799 (bash) has not collected its exit status",
        ),
    ] {
        let expected = CommandOutput {
            code: 8,
            stdout: String::new(),
            stderr: format!(
                "gpukillctl: {message}\n\
                 hint: processes on GPUs now: gpukillctl list --details; earlier ones: gpukillctl audit\n"
            ),
        };
        assert_eq!(asked(pid), expected);
    }
    for pid in [
        "4294967296",
        "-1",
        "",
        "python",
        "4711 4712",
        "0x1267",
        "4711\u{1b}[31m",
    ] {
        let CommandOutput {
            code,
            stdout,
            stderr,
        } = asked(pid);
        assert_eq!((code, stdout.as_str()), (3, ""), "{pid}");
        assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
    }
    assert_eq!(asked("4711").code, 0);
    daemon.stop();
}

#[test]
fn failed_driver_leaves_gpu_use_unknown() {
    let it = HoldersBox::new();
    it.add_process(4711, "python", &["/dev/full"]);
    let gpus = [gpu_state(7, 0, &json!([]))];
    it.test_box
        .set_driver_state(&json!({"gpus": gpus, "errors": {"nvmlDeviceGetCount_v2": 999}}));
    let daemon = it.start();
    let asked = |arguments: &[&str]| {
        let ran = it.test_box.ctl(arguments);
        (ran.code, ran.stderr)
    };
    let holders = asked(&["holders"]);
    assert_eq!(holders.0, 2, "{holders:?}");
    assert_eq!(asked(&["explain", "4711"]), holders);
    // A process that does not exist uses no GPU, even where other readings are unknown.
    assert_eq!(asked(&["explain", "4713"]).0, 8);
    daemon.stop();
}
