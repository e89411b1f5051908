//! Names and command lines that are made to deceive: they are shown, and harmless.

use gpukill_tests::harness::{
    NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually_equals,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// A name and a command line of a process, and how each is shown.
struct Disguise {
    name: &'static [u8],
    name_shown: &'static str,
    command: Vec<u8>,
    command_shown: String,
}

fn disguises() -> Vec<Disguise> {
    let long = [b"\x1b[31m".repeat(20_000), b"end".to_vec()].concat();
    vec![
        // Controls a terminal, breaks a line, is not UTF-8.
        Disguise {
            name: b"\x1b]0;pwn\x07\n\xff",
            name_shown: "\\x1b]0;pwn\\x07\\x0a\\xff",
            command: b"\x1b[2J\x1b[31mroot\r\nfake row\t\xff\x7f\xc2\x9b31m".to_vec(),
            command_shown: "\\x1b[2J\\x1b[31mroot\\x0d\\x0afake row\\x09\\xff\\x7f\\x9b31m 1000"
                .into(),
        },
        // Reverses text and hides a part of it.
        Disguise {
            name: "\u{202e}nohtyp".as_bytes(),
            name_shown: "\\u{202e}nohtyp",
            command: "py\u{200b}thon \u{2066}train.py".into(),
            command_shown: "py\\u{200b}thon \\u{2066}train.py 1000".into(),
        },
        // Imitates the lines of the kernel's own files.
        Disguise {
            name: b"\nUid:\t0\t0\t0",
            name_shown: "\\x0aUid:\\x090\\x090\\x090",
            command: b"\",\"=1+1\"".to_vec(),
            command_shown: "\",\"=1+1\" 1000".into(),
        },
        Disguise {
            name: b"a) R 1 (b",
            name_shown: "a) R 1 (b",
            command: b"{\"pid\": 1}".to_vec(),
            command_shown: "{\"pid\": 1} 1000".into(),
        },
        // Is too long.
        Disguise {
            name: b"0123456789abcdef",
            name_shown: "0123456789abcde",
            command: long,
            // 63 whole escapes of eight bytes, a part of one, and three bytes of `…`.
            command_shown: format!("{}\\x1b[…", "\\x1b[31m".repeat(63)),
        },
        // Is blank or empty.
        Disguise {
            name: b" ",
            name_shown: " ",
            command: Vec::new(),
            command_shown: " 1000".into(),
        },
    ]
}

fn start_disguised(directory: &Path, disguise: &Disguise, uid: Option<u32>) -> TestProcess {
    // A link is enough: the kernel names a process after the file name of its program.
    let program = directory.join(OsStr::from_bytes(disguise.name));
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let command = OsStr::from_bytes(&disguise.command);
    let mut sleep = Command::new(program);
    sleep.arg0(command).arg("1000");
    if let Some(uid) = uid {
        sleep.uid(uid);
    }
    TestProcess::spawn(&mut sleep)
}

#[test]
fn hostile_texts_are_shown_bounded_and_harmless() {
    let test_box = TestBox::new();
    // The process may run as another user, which must be able to use the links in the
    // directory.
    let searchable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(test_box.directory(), searchable).unwrap();
    // A process without privileges is the one that would imitate another.
    let other = can_run_as_other_users().then_some(NOBODY_UID);
    let disguises = disguises();
    let disguised: Vec<TestProcess> = disguises
        .iter()
        .map(|disguise| start_disguised(test_box.directory(), disguise, other))
        .collect();
    let processes: Vec<Value> = disguised
        .iter()
        .map(|process| json!({"pid": process.pid(), "memory": 1u64 << 30, "sm": 1}))
        .collect();
    test_box.set_driver_state(&json!({"gpus": [{"processes": processes}]}));
    let daemon = test_box.start();
    let mut expected: Vec<Value> = disguised
        .iter()
        .zip(&disguises)
        .map(|(process, disguise)| {
            assert!(disguise.command_shown.len() <= 512);
            json!({
                "pid": process.pid(),
                "uid": other.unwrap_or(rustix::process::getuid().as_raw()),
                "proc_name": disguise.name_shown,
                "command": disguise.command_shown,
            })
        })
        .collect();
    expected.sort_by_key(|process| process["pid"].as_u64());
    let only = |process: &Value, fields: [&str; 4]| -> Value {
        fields
            .iter()
            .zip(["pid", "uid", "proc_name", "command"])
            .map(|(from, to)| (to.to_owned(), process[*from].clone()))
            .collect()
    };
    eventually_equals(&expected, || {
        let list = test_box.list();
        let procs = list["procs"].as_array().unwrap().iter();
        procs
            .map(|process| only(process, ["pid", "uid", "proc_name", "command"]))
            .collect()
    });

    let audit = |pid: u32| {
        let ran = test_box.ctl(&["audit", "--samples", "--hours", "1", "-o", "ndjson"]);
        let records = ran.stdout.lines().map(|line| {
            let record: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            only(&record, ["pid", "uid", "process_name", "command"])
        });
        records.into_iter().find(|record| record["pid"] == pid)
    };
    for process in &expected {
        let pid = u32::try_from(process["pid"].as_u64().unwrap()).unwrap();
        // A sample may be stored before the daemon has read the command line.
        eventually_equals(process, || audit(pid).unwrap_or_default());
    }

    for arguments in [
        "list",
        "list --details",
        "list --details --width 80",
        "list --containers",
        "list -o json",
        "list -o ndjson",
        "list -o csv",
        "list --details -o csv",
        "audit",
        "audit -o json",
        "audit -o ndjson",
        "audit -o csv",
        "audit --samples",
        "audit --samples -o csv",
        "status",
        "status -o json",
    ] {
        let ran = test_box.ctl(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments}");
        let harmful: Vec<char> = ran.stdout.chars().filter(|c| is_harmful(*c)).collect();
        assert_eq!(harmful, [], "{arguments}: {}", ran.stdout);
    }
    assert_eq!(row_count(&test_box, "list --details"), disguises.len() + 1);
    assert_eq!(
        row_count(&test_box, "list --details -o csv"),
        disguises.len() + 1
    );
    let log = daemon.log();
    assert!(!log.chars().any(is_harmful), "{log}");
    daemon.stop();
}

/// The number of lines below the heading of a table, or of all lines.
fn row_count(test_box: &TestBox, arguments: &str) -> usize {
    let output = test_box
        .ctl(&arguments.split(' ').collect::<Vec<_>>())
        .stdout;
    match output.split_once("\n\n") {
        Some((_, table)) => table.lines().count(),
        None => output.lines().count(),
    }
}

/// Whether a character controls a terminal or changes how other characters are shown.
fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}
