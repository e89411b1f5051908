//! `guard violations`, and `guard` commands without a daemon.

use crate::fake_daemon::{FakeDaemon, Script};
use crate::{client, run, stderr, stdout};
use serde_json::Value;
use std::path::Path;

#[test]
fn violations_are_paged_up_to_the_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let ids = |arguments: &str| {
        let arguments = format!("guard violations -o json {arguments}");
        let output = run(&daemon.socket, &arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        let document: Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
        let records = document["records"].as_array().expect("a list").clone();
        let ids = records.iter().filter_map(|record| record["id"].as_u64());
        (ids.collect::<Vec<u64>>(), stderr(&output))
    };
    let down_to = |last: u64| (last..=2500).rev().collect::<Vec<u64>>();
    assert_eq!(ids(""), (down_to(2401), String::new()));
    assert_eq!(ids("--limit 1500"), (down_to(1001), String::new()));
    assert_eq!(ids("--limit 2500"), (down_to(1), String::new()));
    assert_eq!(ids("--limit 0"), (down_to(1), String::new()));
    // A page without records is not the last page.
    assert_eq!(ids("--limit 5 --user root"), (Vec::new(), String::new()));
}

#[test]
fn only_an_unknown_user_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let nothing = "no open violation\nnothing was decided in this time\n\
                   recording began 2100-01-01 00:00:00\n";
    let nobody = "gpukillctl: no violation is of no-such-person: no user is called \
        no-such-person\n";
    for (user, expected) in [
        ("root", (Some(0), nothing, "")),
        // A number may be a uid without a name.
        ("3999999999", (Some(0), nothing, "")),
        ("no-such-person", (Some(8), "", nobody)),
    ] {
        let output = run(&daemon.socket, &format!("guard violations --user {user}"));
        let (printed, warned) = (stdout(&output), stderr(&output));
        let result = (output.status.code(), printed.as_str(), warned.as_str());
        assert_eq!(result, expected);
    }
    // A name that the name service does not know is known from the records.
    let output = run(&daemon.socket, "guard violations --user alice");
    assert_eq!(output.status.code(), Some(0));
    // A program gets its document nevertheless.
    let output = run(
        &daemon.socket,
        "guard violations -o json --user no-such-person",
    );
    let document: Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(
        (output.status.code(), &document["records"]),
        (Some(8), &Value::Array(Vec::new()))
    );
}

#[test]
fn check_uses_the_gpus_of_a_running_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let file = directory.path().join("rules.toml");
    let rules = "[gpu_policies.0]\nmax_memory_gb = 8\n[gpu_policies.7]\nmax_memory_gb = 8\n";
    std::fs::write(&file, rules).expect("it can be written");
    let file = file.display();
    let checked = |socket: &Path| {
        let output = run(socket, &format!("guard check {file}"));
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (Some(0), String::new())
        );
        stdout(&output)
    };
    let absent = "line 3: gpu_policies.7: this host has no GPU 7\n";
    assert_eq!(
        checked(&daemon.socket),
        format!("{absent}{file}: 2 rules, dry-run; no mistake, 1 warning\n")
    );
    // Without a daemon the file is checked nevertheless.
    assert_eq!(
        checked(&directory.path().join("nobody")),
        format!("{file}: 2 rules, dry-run; no mistake\n")
    );
}

#[test]
fn empty_range_is_named_in_the_local_zone() {
    let nowhere = Path::new("/nonexistent/socket");
    let span = "--since 2020-11-20T10:00:00Z --until 2020-11-20T09:00:00Z";
    for command in ["guard replay", "guard violations", "audit"] {
        let mut command = client(nowhere, &format!("{command} {span}"));
        // Two hours east of Greenwich.
        let output = command.env("TZ", "XYZ-2").output().expect("it runs");
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (
                Some(3),
                "gpukillctl: the time range is empty: from 2020-11-20 12:00:00 to 2020-11-20 \
                 11:00:00\n"
            )
        );
    }
}

#[test]
fn missing_file_is_reported_in_words() {
    for command in ["guard check", "guard import", "rogue check", "rogue import"] {
        let line = format!("{command} /nonexistent/rules.toml");
        let output = run(Path::new("/nonexistent/socket"), &line);
        assert_eq!(output.status.code(), Some(3), "{line}");
        let message = "gpukillctl: cannot read /nonexistent/rules.toml: there is no such file\n";
        assert_eq!(stderr(&output), message, "{line}");
    }
}

#[test]
fn help_ends_with_examples() {
    let nowhere = Path::new("/nonexistent/socket");
    for line in [
        "guard snooze --help",
        "guard snooze -h",
        "help guard snooze",
    ] {
        let output = run(nowhere, line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        let help = stdout(&output);
        let (_, examples) = help.split_once("\nExamples:\n").expect("it has some");
        assert!(examples.starts_with("  gpukillctl guard snooze "), "{help}");
    }
    let root = stdout(&run(nowhere, "--help"));
    assert!(root.contains("\nEach command has examples: "), "{root}");
    let report = "\nTo report a bug, give the output of gpukillctl status --report to the admin of \
                  this host\n";
    assert!(root.contains(report), "{root}");
}
