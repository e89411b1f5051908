//! The client's output and exit codes.

use crate::fake_daemon::{FakeDaemon, Script, backend};
use crate::{client, run, stderr, stdout};
use gpukill_proto::model::{BackendState, FaultCode};
use std::io::Read as _;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;

fn processes(json: &str) -> usize {
    let document: serde_json::Value = serde_json::from_str(json).expect("it is JSON");
    document["procs"].as_array().expect("it has them").len()
}

#[test]
fn list_collects_pages_and_restarts_on_expiry() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    daemon.script.processes.store(101, SeqCst);
    daemon.script.expired_pages.store(2, SeqCst);
    let output = run(&daemon.socket, "list -o json");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
    assert_eq!(processes(&stdout(&output)), 101);
    daemon.script.expired_pages.store(1000, SeqCst);
    let output = run(&daemon.socket, "list");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "gpukillctl: the rest of the answer has expired\nhint: try again\n"
    );
}

#[test]
fn list_on_a_pipe_is_plain() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let output = run(&daemon.socket, "list --user alice");
    let shown = stdout(&output);
    let (heading, table) = shown.split_once('\n').expect("several lines");
    assert!(heading.starts_with("box · 1 of 1 GPU · "), "{heading}");
    assert_eq!(
        table,
        "\n GPU  NAME                           MEMORY  UTIL  TEMP     POWER  ECC  PROCS  TOP \
        PROCESS\
         \n   0  H100 80GB HBM3  ▌░░░░░░░░░  4.0/79.6G   98%   71°  688/700W    0      3  alice python 1.0G\n"
    );
}

#[test]
fn no_match_exits_8_and_prints_documents() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let cases = [
        (
            "list --gpu a100*",
            "no GPU matches \"a100*\": this host has GPU 0",
        ),
        ("list --vendor amd", "no amd GPU here"),
        ("list --vendor amd --gpu 0", "no amd GPU matches 0"),
        (
            "list --pid 4000000",
            "no GPU here is used by process 4000000",
        ),
        (
            "list --user root",
            "no GPU here is used by processes of root",
        ),
        (
            "list --user no-such-person",
            "no GPU here is used by processes of no-such-person: no user is called no-such-person",
        ),
        (
            "list --filter ^x",
            "no GPU here is used by processes like ^x",
        ),
    ];
    for (arguments, message) in cases {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(8), "{arguments}");
        // Reported once, and not in a table too.
        assert_eq!(stderr(&output), format!("gpukillctl: {message}\n"));
        assert_eq!(stdout(&output), "", "{arguments}");
        let output = run(&daemon.socket, &format!("{arguments} -o json"));
        assert_eq!(output.status.code(), Some(8), "{arguments}");
        let document = serde_json::from_str::<serde_json::Value>(&stdout(&output));
        assert!(document.is_ok(), "{arguments}");
    }
}

#[test]
fn list_selects_processes_by_pid() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    for (arguments, expected) in [
        ("--pid 101", 1),
        ("--pid 102,100", 2),
        ("--pid 100 --pid 101", 2),
        ("--pid 100,4000000", 1),
    ] {
        let shown = |form: &str| {
            let output = run(
                &daemon.socket,
                &format!("list --details {arguments} {form}"),
            );
            assert_eq!(
                (output.status.code(), stderr(&output)),
                (Some(0), String::new()),
                "{arguments}"
            );
            stdout(&output)
        };
        assert_eq!(processes(&shown("-o json")), expected, "{arguments}");
        assert_eq!(processes(&shown("-o ndjson")), expected, "{arguments}");
        assert_eq!(shown("-o csv").lines().count(), 1 + expected, "{arguments}");
        let table = shown("");
        let rows = table.lines().filter(|line| line.starts_with("   0  "));
        assert_eq!(rows.count(), expected, "{arguments}: {table}");
    }
}

#[test]
fn unknown_gpu_exits_3_and_prints_a_document() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    for typed in ["9", "GPU-99999999", "0000:99:00.0"] {
        let output = run(&daemon.socket, &format!("list --gpu {typed}"));
        let expected = format!("gpukillctl: no GPU matches \"{typed}\": this host has GPU 0\n");
        assert_eq!(
            (output.status.code(), stdout(&output), stderr(&output)),
            (Some(3), String::new(), expected)
        );
        let output = run(&daemon.socket, &format!("list --gpu {typed} -o json"));
        assert_eq!(output.status.code(), Some(3), "{typed}");
        assert_eq!(processes(&stdout(&output)), 0, "{typed}");
    }
}

#[test]
fn no_gpu_is_an_answer_unless_a_driver_failed() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = |state| Script {
        has_devices: false,
        processes: 0.into(),
        backends: Mutex::new(vec![backend(state)]),
        ..Script::default()
    };
    let absent = script(BackendState::Absent("no library libnvidia-ml.so.1".into()));
    let daemon = FakeDaemon::start(directory.path(), absent);
    let output = run(&daemon.socket, "list");
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).ends_with("\n\n nvidia  no library libnvidia-ml.so.1\n"));
    drop(daemon);
    let failed = script(BackendState::Failed(
        FaultCode::VersionMismatch,
        "driver/library version mismatch".into(),
    ));
    let daemon = FakeDaemon::start(directory.path(), failed);
    for (arguments, prints) in [("list", false), ("list -o json", true)] {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            stderr(&output),
            "gpukillctl: nvidia failed: driver/library version mismatch\nhint: see gpukillctl \
            status\n"
        );
        assert_eq!(!output.stdout.is_empty(), prints);
    }
}

#[test]
fn audit_requests_pages_up_to_its_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let lines = |arguments: &str| {
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        (stdout(&output).lines().count(), stderr(&output))
    };
    // Both tables end with the gap in the recording; that of runs also with the mark of a run with
    // a gap.
    for (audit, list, table) in [
        ("audit", "runs", 2505),
        ("audit --samples", "records", 2504),
    ] {
        let lines = |arguments: &str| lines(&format!("{audit} {arguments}"));
        assert_eq!(lines("-o ndjson"), (2500, String::new()));
        assert_eq!(lines("-o ndjson --limit 1500"), (1500, String::new()));
        assert_eq!(lines("-o ndjson --limit 0"), (2500, String::new()));
        assert_eq!(lines("-o csv --limit 0"), (2501, String::new()));
        assert_eq!(lines("--limit 0"), (table, String::new()));
        assert_eq!(lines("--limit 5 --log-level error").1, "");
        let output = run(&daemon.socket, &format!("{audit} -o json --limit 2001"));
        let document: serde_json::Value =
            serde_json::from_str(&stdout(&output)).expect("it is JSON");
        let records = document[list].as_array().expect("it has them");
        let ids: Vec<_> = records
            .iter()
            .filter_map(|record| record["id"].as_u64())
            .collect();
        assert_eq!(ids, (500..=2500).rev().collect::<Vec<_>>());
        assert_eq!(document["more"], true);
        assert_eq!(document["gaps"][0]["until"], "2026-11-21T13:02:31.250Z");
        assert!(document["recorded_since"].is_string(), "{audit}");
    }
    let processes = |arguments: &str| {
        let output = run(
            &daemon.socket,
            &format!("audit -o json --limit 1 {arguments}"),
        );
        let document: serde_json::Value =
            serde_json::from_str(&stdout(&output)).expect("it is JSON");
        document["runs"][0]["processes"].as_u64()
    };
    assert_eq!(
        (processes(""), processes("--processes")),
        (Some(2), Some(1))
    );
}

#[test]
fn closed_reader_ends_quietly() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    for arguments in [
        "list",
        "list --watch -o ndjson",
        "audit --limit 0 -o csv",
        "--help",
        "completions bash",
    ] {
        let mut child = client(&daemon.socket, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        drop(child.stdout.take());
        let mut message = String::new();
        let mut errors = child.stderr.take().expect("piped");
        errors.read_to_string(&mut message).expect("UTF-8");
        assert_eq!(
            (child.wait().expect("it ends").code(), message.as_str()),
            (Some(0), ""),
            "{arguments}"
        );
    }
}

#[test]
fn usage_error_exits_3_and_help_0() {
    let nowhere = std::path::Path::new("/nowhere");
    for arguments in [
        "",
        "kill",
        "list --bogus",
        "list --filter [",
        "audit --since soon",
        "--config /nowhere list",
        "status -o csv",
    ] {
        let output = run(nowhere, arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments}");
        assert!(
            stderr(&output).starts_with("gpukillctl: ") || arguments.is_empty(),
            "{}",
            stderr(&output)
        );
        assert!(output.stdout.is_empty());
    }
    for arguments in ["--help", "--version", "list --help", "completions zsh"] {
        let output = run(nowhere, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}

#[test]
fn settings_apply_and_their_mistakes_stop_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let config = directory.path().join("gpukill");
    std::fs::create_dir(&config).expect("made");
    let file = config.join("config.toml");
    std::fs::write(&file, "output_format = \"csv\"\n").expect("written");
    let with = |arguments: &str, variable: (&str, &str)| {
        client(&daemon.socket, arguments)
            .env("XDG_CONFIG_HOME", directory.path())
            .env(variable.0, variable.1)
            .output()
            .expect("it runs")
    };
    let listed = with("list", ("TERM", "dumb"));
    assert!(stdout(&listed).starts_with("ts,gpu_index,"));
    let listed = with("list", ("GPUKILL_OUTPUT_FORMAT", "json"));
    assert_eq!(processes(&stdout(&listed)), 3);
    let status = with("status", ("TERM", "dumb"));
    assert!(stdout(&status).starts_with("gpukilld 0.1.0"));
    std::fs::write(&file, "output = 1\n").expect("written");
    let wrong = with("list", ("GPUKILL_TABLE_WIDTH", "wide"));
    assert_eq!(wrong.status.code(), Some(3));
    assert_eq!(
        stderr(&wrong),
        format!(
            "gpukillctl: 2 mistakes in the settings\n  {}, line 1: unknown key output\n  \
             GPUKILL_TABLE_WIDTH: \"wide\" is not a whole number from 20 to 1000\n",
            file.display()
        )
    );
    let completions = with("completions fish", ("GPUKILL_TABLE_WIDTH", "wide"));
    assert_eq!(completions.status.code(), Some(0));
}
