//! Rule files: the first one, other formats, and edits by hand.

use super::{set_gpu_processes, write_rules};
use gpukill_tests::harness::{CommandOutput, TestBox, eventually};
use rustix::process::Signal;
use serde_json::json;
use std::io::Write as _;
use std::process::Stdio;

/// Runs a client with this text as standard input.
fn run_with_input(test_box: &TestBox, arguments: &[&str], text: &str) -> CommandOutput {
    let mut command = test_box.client_command(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The lines of standard error.
fn error_lines(ran: &CommandOutput) -> Vec<&str> {
    ran.stderr.lines().collect()
}

#[test]
fn first_edit_creates_file_and_directory() {
    let test_box = TestBox::new();
    let file = test_box.path("etc/guard.toml");
    let daemon = test_box.start_with(test_box.daemon_command().env("GPUKILLD_GUARD_RULES", &file));
    let ran = test_box.ctl(&["guard", "user", "set", "root", "--memory-limit", "8"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.ends_with("[user_policies.root]\nmemory_limit_gb = 8\n"),
        "{text}"
    );
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(
        (&status["rules"], &status["file_changed"]),
        (&json!(1), &json!(false))
    );
    daemon.stop();
}

#[test]
fn import_from_stdin_in_any_format() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let set = |memory: &str| {
        format!("{{\"user_policies\": {{\"root\": {{\"memory_limit_gb\": {memory}}}}}}}")
    };
    let texts = [
        set("1"),
        "user_policies:\n  root:\n    memory_limit_gb: 2\n".to_owned(),
        "[user_policies.root]\nmemory_limit_gb = 3\n".to_owned(),
    ];
    let import = ["guard", "import", "-", "--yes"];
    for (text, memory) in texts.iter().zip(1..) {
        let ran = run_with_input(&test_box, &import, text);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        let holds = "1 policy, 1 new or changed; dry run, nothing will be ended before \
                     gpukillctl guard soft\n";
        assert_eq!(ran.stdout, holds);
        let ran = test_box.ctl(&["guard", "config"]);
        let expected = format!("[user_policies.root]\nmemory_limit_gb = {memory}\n");
        assert_eq!((ran.stdout, ran.stderr.as_str()), (expected, ""));
    }
    // `--format` overrides the detected format: JSON is also valid YAML.
    let ran = run_with_input(
        &test_box,
        &[&import[..], &["--format", "yaml"]].concat(),
        &set("4"),
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = run_with_input(
        &test_box,
        &[&import[..], &["--format", "json"]].concat(),
        &texts[1],
    );
    assert_eq!(ran.code, 3, "{ran:?}");
    daemon.stop();
}

#[test]
fn mistakes_in_json_and_yaml_name_keys() {
    let test_box = TestBox::new();
    let check = |text: &str| {
        let ran = run_with_input(&test_box, &["guard", "check", "-"], text);
        assert_eq!(ran.code, 3, "{ran:?}");
        ran.stdout
    };
    let what = "user_policies.root.memory_limit: unknown key; did you mean memory_limit_gb?\n-: 1 \
    mistake\n";
    assert_eq!(
        check("\n\nuser_policies:\n  root:\n    memory_limit: 8\n"),
        what
    );
    assert_eq!(
        check("{\"user_policies\": {\"root\": {\"memory_limit\": 8}}}"),
        what
    );
    assert_eq!(
        check("[user_policies.root]\nmemory_limit = 8\n"),
        format!("line 2, column 1: {what}")
    );
    assert_eq!(
        check("protect:\n  users: [root, null]\n"),
        "protect.users: item 2 of the list is null; leave it out\n-: 1 mistake\n"
    );
}

#[test]
fn reference_is_a_valid_rule_file() {
    let test_box = TestBox::new();
    let ran = test_box.ctl(&["guard", "reference"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.contains("\n[enforcement]\n"), "{ran:?}");
    let checked = run_with_input(&test_box, &["guard", "check", "-"], &ran.stdout);
    let expected = "-: 0 rules, dry-run; no mistake\n";
    assert_eq!((checked.code, checked.stdout.as_str()), (0, expected));
}

#[test]
fn unread_manual_edit_is_reported() {
    let test_box = TestBox::new();
    write_rules(&test_box, "[user_policies.root]\nmemory_limit_gb = 8\n");
    let daemon = test_box.start();
    let is_changed = || test_box.json(&["guard", "status", "-o", "json"])["file_changed"].clone();
    assert_eq!(is_changed(), json!(false));
    let by_hand = "[user_policies.root]\nmemory_limit_gb = 16\n";
    write_rules(&test_box, by_hand);
    assert_eq!(is_changed(), json!(true));
    let ran = test_box.ctl(&["guard", "status", "--width", "200"]);
    let file = test_box.path("guard.toml").display().to_string();
    let message = format!("{file} has changed since it was read: systemctl reload gpukilld\n");
    assert!(ran.stdout.ends_with(&message), "{ran:?}");
    let ran = test_box.ctl(&["guard", "config"]);
    assert_eq!(
        (ran.stdout.as_str(), error_lines(&ran)),
        (
            by_hand,
            vec!["warning: other rules than these are in force: see gpukillctl guard status"]
        )
    );
    let set = ["guard", "set", "global.default_memory_limit_gb", "4"];
    for how in [&["--dry-run"][..], &["--diff"]] {
        let ran = test_box.ctl(&[&set[..], how].concat());
        let message = format!(
            "warning: {file} has changes that are not loaded yet: they come into force with \
            this edit"
        );
        assert_eq!(error_lines(&ran), [message.as_str()]);
        for line in [
            "-memory_limit_gb = 8\n",
            "+memory_limit_gb = 16\n",
            "+default_memory_limit_gb = 4\n",
        ] {
            assert!(ran.stdout.contains(line), "{ran:?}");
        }
    }
    assert_eq!(is_changed(), json!(false));
    write_rules(&test_box, by_hand);
    daemon.signal(Signal::HUP);
    eventually("it is read", || {
        (is_changed() == json!(false)).then_some(())
    });
    daemon.stop();
}

#[test]
fn mode_commands_set_the_mode() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let mode = || {
        let status = test_box.json(&["guard", "status", "-o", "json"]);
        json!([status["mode"], status["armed_mode"]])
    };
    assert_eq!(mode(), json!(["dry-run", "soft"]));
    let soft = "the guard is in mode soft: it warns, and ends a job when the grace is over\n";
    let enforce = "the guard is in mode enforce: it ends jobs without a warning; for idleness and \
        waste it warns first\n";
    let dry_run = "the guard is in mode dry-run: nobody is warned or ended\n";
    let disabled = "the guard is disabled: nothing is evaluated\n";
    for (command, mode_and_rehearsed, expected) in [
        ("soft", ["soft", "soft"], soft),
        ("enforce", ["enforce", "enforce"], enforce),
        ("dry-run", ["dry-run", "enforce"], dry_run),
        ("toggle-dry-run", ["enforce", "enforce"], enforce),
        ("disable", ["disabled", "enforce"], disabled),
        ("enable", ["enforce", "enforce"], enforce),
    ] {
        let ran = test_box.ctl(&["guard", command]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert_eq!(mode(), json!(mode_and_rehearsed), "{command}");
        assert_eq!(ran.stdout, expected);
    }
    daemon.stop();
}

#[test]
fn unknown_users_and_gpus_are_reported() {
    let test_box = TestBox::new();
    set_gpu_processes(&test_box, &[]);
    let daemon = test_box.start();
    eventually("it has a GPU", || {
        let list = test_box.json(&["list", "-o", "json"]);
        (list["gpus"].as_array()?.len() == 1).then_some(())
    });
    let warned = |arguments: &[&str]| {
        let ran = test_box.ctl(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stderr
    };
    assert_eq!(
        warned(&[
            "guard",
            "user",
            "set",
            "no-such-person-here",
            "--memory-limit",
            "8"
        ]),
        "warning: user_policies.no-such-person-here: unknown user on this host: \
        no-such-person-here\n"
    );
    assert_eq!(
        warned(&[
            "guard",
            "gpu",
            "set",
            "7",
            "--memory-limit",
            "8",
            "--dry-run"
        ]),
        "warning: gpu_policies.7: this host has no GPU 7\n"
    );
    assert_eq!(
        warned(&["guard", "gpu", "set", "0", "--memory-limit", "8"]),
        ""
    );
    assert_eq!(
        warned(&["guard", "user", "set", "root", "--memory-limit", "8"]),
        ""
    );
    let ran = test_box.ctl(&["guard", "gpu", "set", "0", "--members", "a"]);
    assert_eq!(
        (ran.code, error_lines(&ran)[0]),
        (
            3,
            "gpukillctl: a GPU policy has no --members: it has --memory-limit, \
            --utilization-limit, \
             --gpus, --allowed-users, --blocked-users, --allowed-processes, --blocked-processes, \
             --reserved-memory, --action, --mode, --grace, --max-snoozes, --message"
        )
    );
    daemon.stop();
}

#[test]
fn symlinked_rule_file_is_not_followed() {
    let test_box = TestBox::new();
    std::fs::create_dir(test_box.path("rules")).unwrap();
    let file = test_box.path("rules/guard.toml");
    let secret = test_box.path("secret");
    std::fs::write(&secret, "# a secret\nmode = \"dry-run\"\n").unwrap();
    std::os::unix::fs::symlink(&secret, &file).unwrap();
    let daemon = test_box.start_with(test_box.daemon_command().env("GPUKILLD_GUARD_RULES", &file));
    for arguments in [
        ["guard", "config"].as_slice(),
        &["guard", "export"],
        &["guard", "config", "-o", "json"],
        &["guard", "user", "set", "root", "--memory-limit", "8"],
    ] {
        let ran = test_box.ctl(arguments);
        assert!(!ran.stdout.contains("secret\n"), "{arguments:?}: {ran:?}");
        assert!(!ran.stdout.contains("a secret"), "{arguments:?}: {ran:?}");
    }
    let status = test_box.ctl(&["status"]).stdout;
    assert!(status.contains("it is a symbolic link to"), "{status}");
    let before = std::fs::read_to_string(&secret).unwrap();
    assert_eq!(before, "# a secret\nmode = \"dry-run\"\n");
    // A FIFO does not block the daemon and is not read.
    std::fs::remove_file(&file).unwrap();
    let (kind, mode) = (
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
    );
    rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, 0).unwrap();
    daemon.signal(Signal::HUP);
    eventually("the FIFO is refused", || {
        let status = test_box.ctl(&["status"]).stdout;
        status.contains("it is not a regular file").then_some(())
    });
    daemon.stop();
}
