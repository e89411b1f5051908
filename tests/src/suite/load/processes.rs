//! Five thousand processes, most of them with names made to deceive: every output format
//! lists all of them, and none of them controls the terminal.

use super::poll_counts;
use gpukill_tests::harness::{
    CommandOutput, Daemon, FakeProcfs, TestBox, eventually, eventually_equals,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const PROCESSES: u32 = 5_000;
const GPUS: u32 = 8;
const FIRST_PID: u32 = 100_000;

/// Names and arguments that processes choose for themselves.
const DISGUISES: [(&[u8], &[u8]); 6] = [
    (b"python", b"python\0train.py\0"),
    (
        b"\x1b]0;pwn\x07\n\xff",
        b"\x1b[2J\x1b[31mroot\r\n\xff\x7f\0",
    ),
    (
        "\u{202e}nohtyp".as_bytes(),
        "py\u{200b}thon\0\u{9b}31m\0\u{2066}x\0".as_bytes(),
    ),
    (b"a) R 1 (b", b"\",\"=1+1\"\0{\"pid\": 1}\0"),
    (b"\xc2\x9b2J\x9b", b"\0\0\x08\x08\xf0\x9f\x92\0"),
    (b"", b""),
];

/// One process in this many has a hundred thousand bytes of arguments.
const LONG_COMMAND_INTERVAL: u32 = 100;

/// Creates the files of a process with this name and these arguments.
fn write_process(directory: &Path, name: &[u8], arguments: &[u8]) {
    std::fs::create_dir(directory).unwrap();
    let stat = [b"1 (", name, b") S ", &b"0 ".repeat(18)[..], b"4242 0 0 0"].concat();
    let status = [b"Name:\t", name, b"\nUid:\t4242\t0\t0\t0\n"].concat();
    let files = [
        ("stat", &stat[..]),
        ("status", &status),
        ("cmdline", arguments),
        ("cgroup", b"0::/lxc.payload.\x1b[2J\x9b/x\n"),
    ];
    for (file, bytes) in files {
        std::fs::write(directory.join(file), bytes).unwrap();
    }
}

/// Fills a `/proc` with links to a few process directories: links are created faster than
/// files.
fn add_all_processes(procfs: &FakeProcfs) {
    let long = [b"\x1b[31m".repeat(20_000), b"\0".to_vec()].concat();
    let all = DISGUISES.into_iter().chain([(&b"long"[..], &long[..])]);
    for (n, (name, arguments)) in all.enumerate() {
        write_process(
            &procfs.root().join(format!("disguise-{n}")),
            name,
            arguments,
        );
    }
    for pid in FIRST_PID..FIRST_PID + PROCESSES {
        let n = match pid % LONG_COMMAND_INTERVAL {
            0 => DISGUISES.len(),
            _ => pid as usize % DISGUISES.len(),
        };
        let link = procfs.root().join(pid.to_string());
        std::os::unix::fs::symlink(format!("disguise-{n}"), link).unwrap();
    }
}

fn start(test_box: &TestBox) -> Daemon {
    let procfs = FakeProcfs::new(test_box.path("proc"));
    add_all_processes(&procfs);
    let of_gpu = |gpu: u32| -> Vec<Value> {
        let pids = (FIRST_PID..FIRST_PID + PROCESSES).filter(|pid| pid % GPUS == gpu);
        pids.map(|pid| json!({"pid": pid, "memory": 1 << 20, "sm": 1}))
            .collect()
    };
    let gpus: Vec<Value> = (0..GPUS)
        .map(|gpu| json!({"processes": of_gpu(gpu)}))
        .collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let mut daemon = test_box.daemon_command();
    daemon
        .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root())
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s")
        // Each sample has five thousand rows: one is enough.
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "1h");
    test_box.start_with(&mut daemon)
}

/// Runs a client that must succeed and print only harmless characters.
fn run_harmless(test_box: &TestBox, arguments: &str) -> String {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let ran = test_box.ctl(&[&arguments[..], &["--request-timeout", "30"]].concat());
    let CommandOutput {
        code,
        stdout,
        stderr,
    } = ran;
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    let harmful = stdout.chars().find(|c| is_harmful(*c));
    assert_eq!(harmful, None, "{arguments:?}");
    stdout
}

/// Whether a character controls a terminal or changes how other characters are shown.
fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

#[test]
fn hostile_processes_are_listed_in_every_format() {
    let test_box = TestBox::new();
    let daemon = start(&test_box);
    let everybody: BTreeSet<u64> = (FIRST_PID..FIRST_PID + PROCESSES).map(u64::from).collect();
    let named = || {
        let list = run_harmless(&test_box, "list -o json");
        let list: Value = serde_json::from_str(&list).unwrap();
        let procs = list["procs"].as_array().unwrap().iter();
        // Names and command lines arrive within the first polls.
        let read = procs.filter(|process| {
            !process["proc_name"].is_null()
                && process["reasons"]["command"] != json!("failed: not read yet")
        });
        read.map(|process| process["pid"].as_u64().unwrap())
            .collect::<BTreeSet<_>>()
    };
    eventually_equals(&everybody, named);

    run_harmless(&test_box, "list");
    run_harmless(&test_box, "list --containers");
    let details = run_harmless(&test_box, "list --details --max-processes 0");
    assert!(details.lines().count() > PROCESSES as usize);
    let csv = run_harmless(&test_box, "list --details -o csv");
    assert_eq!(csv.lines().count(), 1 + PROCESSES as usize);
    let lines = run_harmless(&test_box, "list --details -o ndjson");
    for line in lines.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    run_harmless(&test_box, "list -o ndjson");
    run_harmless(&test_box, "status");

    // No poll hangs or takes longer than the pause before the next.
    let (seen, _) = poll_counts(&test_box);
    eventually("the next polls", || {
        (poll_counts(&test_box).0 >= seen + 3).then_some(())
    });
    let log = daemon.log();
    assert!(!log.chars().any(is_harmful), "{log}");
    daemon.stop();
}
