//! Names and command lines that were made to deceive: shown, and harmless.

use gpukill_tests::harness::{Actor, NOBODY, Stage, becomes, can_act_as_others};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// What a process calls itself, and how that is shown.
struct Disguise {
    name: &'static [u8],
    name_shown: &'static str,
    command: Vec<u8>,
    command_shown: String,
}

fn disguises() -> Vec<Disguise> {
    let long = [b"\x1b[31m".repeat(20_000), b"end".to_vec()].concat();
    vec![
        // Steers a terminal, breaks a line, is no UTF-8.
        Disguise {
            name: b"\x1b]0;pwn\x07\n\xff",
            name_shown: "\\x1b]0;pwn\\x07\\x0a\\xff",
            command: b"\x1b[2J\x1b[31mroot\r\nfake row\t\xff\x7f\xc2\x9b31m".to_vec(),
            command_shown: "\\x1b[2J\\x1b[31mroot\\x0d\\x0afake row\\x09\\xff\\x7f\\x9b31m 1000"
                .into(),
        },
        // Turns text around and hides some of it.
        Disguise {
            name: "\u{202e}nohtyp".as_bytes(),
            name_shown: "\\u{202e}nohtyp",
            command: "py\u{200b}thon \u{2066}train.py".into(),
            command_shown: "py\\u{200b}thon \\u{2066}train.py 1000".into(),
        },
        // Looks like the lines of the kernel's own files.
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
        // Has no end.
        Disguise {
            name: b"0123456789abcdef",
            name_shown: "0123456789abcde",
            command: long,
            // 63 whole escapes of eight bytes, one cut, and three bytes of `…`.
            command_shown: format!("{}\\x1b[…", "\\x1b[31m".repeat(63)),
        },
        // Is not there.
        Disguise {
            name: b" ",
            name_shown: " ",
            command: Vec::new(),
            command_shown: " 1000".into(),
        },
    ]
}

/// A process that is called so.
fn actor(directory: &Path, disguise: &Disguise, uid: Option<u32>) -> Actor {
    // A link is enough: the kernel names a process as its program was called.
    let program = directory.join(OsStr::from_bytes(disguise.name));
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let command = OsStr::from_bytes(&disguise.command);
    let mut sleep = Command::new(program);
    sleep.arg0(command).arg("1000");
    if let Some(uid) = uid {
        sleep.uid(uid);
    }
    Actor::of(&mut sleep)
}

#[test]
fn hostile_names_and_command_lines_are_shown_bounded_and_harmless_everywhere() {
    let stage = Stage::new();
    // Whoever it is, they may use the links in it.
    let searchable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(stage.directory(), searchable).unwrap();
    // Nobody would want to pass for somebody without rights.
    let other = can_act_as_others().then_some(NOBODY);
    let disguises = disguises();
    let actors: Vec<Actor> = disguises
        .iter()
        .map(|disguise| actor(stage.directory(), disguise, other))
        .collect();
    let processes: Vec<Value> = actors
        .iter()
        .map(|actor| json!({"pid": actor.pid(), "memory": 1u64 << 30, "sm": 1}))
        .collect();
    stage.play(&json!({"gpus": [{"processes": processes}]}));
    let daemon = stage.start();
    let mut expected: Vec<Value> = actors
        .iter()
        .zip(&disguises)
        .map(|(actor, disguise)| {
            assert!(disguise.command_shown.len() <= 512);
            json!({
                "pid": actor.pid(),
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
    becomes(&expected, || {
        let list = stage.list();
        let procs = list["procs"].as_array().unwrap().iter();
        procs
            .map(|process| only(process, ["pid", "uid", "proc_name", "command"]))
            .collect()
    });

    let audit = |pid: u32| {
        let ran = stage.ctl(&["audit", "--hours", "1", "-o", "ndjson"]);
        let records = ran.stdout.lines().map(|line| {
            let record: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            only(&record, ["pid", "uid", "process_name", "command"])
        });
        records.into_iter().find(|record| record["pid"] == pid)
    };
    for process in &expected {
        let pid = u32::try_from(process["pid"].as_u64().unwrap()).unwrap();
        // A sample may have been stored before the command line was read.
        becomes(process, || audit(pid).unwrap_or_default());
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
        "status",
        "status -o json",
    ] {
        let ran = stage.ctl(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments}");
        let harmful: Vec<char> = ran.stdout.chars().filter(|c| is_harmful(*c)).collect();
        assert_eq!(harmful, [], "{arguments}: {}", ran.stdout);
    }
    assert_eq!(rows(&stage, "list --details"), disguises.len() + 1);
    assert_eq!(rows(&stage, "list --details -o csv"), disguises.len() + 1);
    let log = daemon.log();
    assert!(!log.chars().any(is_harmful), "{log}");
    daemon.stop();
}

/// Lines below the heading of a table, or all lines.
fn rows(stage: &Stage, arguments: &str) -> usize {
    let output = stage.ctl(&arguments.split(' ').collect::<Vec<_>>()).stdout;
    match output.split_once("\n\n") {
        Some((_, table)) => table.lines().count(),
        None => output.lines().count(),
    }
}

/// Whether a character steers a terminal, or changes how others look.
fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}
