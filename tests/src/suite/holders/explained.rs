//! One process, whole: on all its GPUs, with its job and its container.

use super::{Box, GIB, gpu, pick};
use gpukill_tests::harness::{Ran, becomes};
use serde_json::{Value, json};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn explain(it: &Box, pid: u32) -> Value {
    let pid = pid.to_string();
    it.stage.json(&["explain", &pid, "-o", "json"])
}

/// What people read of it.
fn text(it: &Box, pid: u32) -> String {
    let ran = it.stage.ctl(&["explain", &pid.to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// What says who may end it, whatever box this is.
fn never(it: &Box) -> Value {
    it.stage.json(&["status", "-o", "json"])["will_not_act"].clone()
}

#[test]
fn a_process_on_two_gpus_is_told_with_its_job_and_its_container() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent_related(900, "containerd-shim", 1, &[]);
    it.invent_related(
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
    let gpus = [gpu(7, 35 * GIB, &on(35)), gpu(8, 12 * GIB, &on(12))];
    it.stage.play(&json!({"gpus": gpus}));
    let daemon = it.start();
    let roles = json!([
        [0, ["nvidia7", "nvidia-uvm"]],
        [1, ["nvidia8", "nvidia-uvm"]]
    ]);
    becomes(&roles, || {
        let explained = explain(&it, 4711);
        let holds = explained["holds"].as_array().unwrap().iter();
        holds
            .map(|held| json!([held["gpu_index"], held["holder"]["holds"]]))
            .collect()
    });
    let explained = explain(&it, 4711);
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
    assert_eq!(pick(&explained["procs"], &fields), rows);
    assert_eq!(explained["frees_bytes"], 47 * GIB);
    assert_eq!(explained["never_ended"], never(&it));
    assert_eq!(explained["findings"], json!([]));
    let text = text(&it, 4711);
    let lines: Vec<&str> = text.lines().collect();
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
    if never(&it).is_null() {
        // What it looks like stands before: of what cannot be seen there are some lines.
        assert!(lines[10].starts_with(" score    "), "{text}");
        let rest = lines.iter().skip_while(|it| !it.starts_with(" frees "));
        let rest: Vec<&str> = rest.copied().collect();
        assert_eq!(rest[0], " frees    at least 47.0G, when it ends");
        assert!(rest[1].starts_with(" may end  daemon, "), "{text}");
    }
    daemon.stop();
}

#[test]
fn whoever_may_end_it_is_named_at_the_first_question() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.play(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    let daemon = it.start();
    let first = std::cell::RefCell::new(Value::Null);
    becomes(&true, || {
        let ran = it.stage.ctl(&["explain", "4711", "-o", "json"]);
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
fn a_process_that_the_driver_does_not_list_is_explained_by_what_it_has_open() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    let named = json!([[0, "unlisted", [4711], null, []]]);
    let fields = ["gpu_index", "cause", "pids", "remedy", "remedy_pids"];
    becomes(&named, || pick(&explain(&it, 4711)["findings"], &fields));
    let explained = explain(&it, 4711);
    assert_eq!(explained["procs"], json!([]));
    // An unknown is not 0.
    assert_eq!(explained["frees_bytes"], Value::Null);
    let text = text(&it, 4711);
    let beginning = "\
daemon: python
pid 4711

 where    in no container · parent: systemd 1
 holds    GPU 0: nvidia7 · python: has it open, and is not listed
";
    assert!(text.starts_with(beginning), "{text}");
    let end = "
GPU 0: 1 process of daemon that the driver does not list keeps its memory.
  - 4711 (python of daemon) has it open, and the driver does not list it
If it is nobody's any more, its owner can end it
";
    assert!(text.ends_with(end), "{text}");
    if never(&it).is_null() {
        let frees = "\n frees    how much is not known, when it ends\n";
        assert!(text.contains(frees), "{text}");
    }
    daemon.stop();
}

#[test]
fn a_process_that_came_to_a_gpu_a_moment_ago_is_explained_at_once() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &[]);
    it.play(0, &json!([]));
    let daemon = it.start();
    let asked = || it.stage.ctl(&["explain", "4711"]).code;
    assert_eq!(asked(), 8);
    // What was seen then is still news to whoever asks who holds a GPU.
    it.procfs.open(4711, 5, "/dev/full", "pos:\t0\n");
    assert_eq!(asked(), 0);
    daemon.stop();
}

#[test]
fn what_is_no_process_on_a_gpu_is_not_explained() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.invent(4712, "python", &["/dev/null"]);
    it.play(0, &json!([]));
    let daemon = it.start();
    let asked = |pid: &str| it.stage.ctl(&["explain", pid]);
    // Here but on no GPU, the kernel, nobody at all, the largest that a pid could be,
    // and one that has ended.
    it.invent(799, "bash", &[]);
    it.invent_related(800, "python", 799, &[]);
    it.turn(800, "Z");
    for (pid, said) in [
        ("4712", "no process 4712 uses a GPU or has one open"),
        ("1", "no process 1 uses a GPU or has one open"),
        ("4713", "there is no process 4713"),
        ("0", "there is no process 0"),
        ("4294967295", "there is no process 4294967295"),
        (
            "800",
            "process 800 has ended, and its parent 799 (bash) has not asked how",
        ),
    ] {
        let expected = Ran {
            code: 8,
            stdout: String::new(),
            stderr: format!(
                "gpukillctl: {said}\n\
                 hint: see who does: gpukillctl list --details, or gpukillctl holders\n"
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
        let Ran {
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
fn where_a_driver_failed_nobody_says_that_a_process_uses_no_gpu() {
    let it = Box::new();
    it.invent(4711, "python", &["/dev/full"]);
    let gpus = [gpu(7, 0, &json!([]))];
    it.stage
        .play(&json!({"gpus": gpus, "errors": {"nvmlDeviceGetCount_v2": 999}}));
    let daemon = it.start();
    let asked = |arguments: &[&str]| {
        let ran = it.stage.ctl(arguments);
        (ran.code, ran.stderr)
    };
    let holders = asked(&["holders"]);
    assert_eq!(holders.0, 2, "{holders:?}");
    assert_eq!(asked(&["explain", "4711"]), holders);
    // Whoever does not exist uses nothing, whatever else is not known.
    assert_eq!(asked(&["explain", "4713"]).0, 8);
    daemon.stop();
}
