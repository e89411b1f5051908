//! Admins edit the rogue rules, completely or not at all. Edits keep what was written by
//! hand, and a mistake changes nothing.

use gpukill_tests::harness::{
    CommandOutput, NOBODY_UID, TestBox, can_run_as_other_users, eventually, run_as_user,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;

const OUR_RULES: &str = "# Ours.\n[detection]\nmax_memory_usage_gb = 16 # since May\n\n[patterns]\n\
    process_whitelist = [\n    # Audits.\n    \"hashcat\", # of passwords\n]\n";

/// An export of gpu-kill, as far as it differs from our format.
const GPU_KILL_EXPORT: &str = r#"{
    "detection": {
        "max_memory_usage_gb": 20.0, "max_utilization_pct": 95.0, "max_duration_hours": 24.0,
        "min_confidence_threshold": 0.7,
        "enabled_detections": {
            "crypto_miners": true, "suspicious_processes": true, "resource_abusers": true,
            "data_exfiltrators": false
        }
    },
    "patterns": {
        "crypto_miner_patterns": ["cuda", "ethash"], "suspicious_process_names": ["xmrig"],
        "custom_patterns": [], "user_whitelist": ["root"], "process_whitelist": ["nvidia-smi"]
    },
    "alerts": {"enabled": true},
    "metadata": {
        "version": "1.0.0", "created_at": "2026-01-05T10:00:00+00:00",
        "last_modified": "2026-01-05T10:00:00+00:00", "description": "Default"
    }
}"#;

fn read_rules(test_box: &TestBox) -> String {
    std::fs::read_to_string(test_box.path("rogue.toml")).unwrap()
}

fn write_rules(test_box: &TestBox, text: &str) {
    std::fs::write(test_box.path("rogue.toml"), text).unwrap();
}

/// Runs `gpukillctl rogue` with these arguments, which must succeed without a message.
fn run_ok(test_box: &TestBox, line: &str) -> CommandOutput {
    let ran = run_rogue(test_box, line);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}: {ran:?}");
    ran
}

fn run_rogue(test_box: &TestBox, line: &str) -> CommandOutput {
    let arguments: Vec<&str> = ["rogue"].into_iter().chain(line.split(' ')).collect();
    test_box.ctl(&arguments)
}

/// Runs `gpukillctl rogue`, which must fail with this code, and returns its message.
fn run_refused(test_box: &TestBox, line: &str, code: i32) -> String {
    let ran = run_rogue(test_box, line);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (code, ""),
        "{line}: {ran:?}"
    );
    ran.stderr
}

/// The text without the time of its last change.
fn without_time(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("last_modified = "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The recorded entries of this kind, the oldest first, once there are `count` of them.
fn recorded(test_box: &TestBox, kind: &str, count: usize) -> Vec<Value> {
    eventually("the violation is recorded", || {
        let actions = test_box.json(&["audit", "actions", "--kind", kind, "-o", "json"]);
        let mut actions = actions["actions"].as_array()?.clone();
        actions.reverse();
        (actions.len() == count).then_some(actions)
    })
}

#[test]
fn edits_take_effect_keep_comments_are_recorded() {
    let test_box = TestBox::new();
    write_rules(&test_box, OUR_RULES);
    let daemon = test_box.start();
    let ran = run_ok(&test_box, "allow process crack@root --dry-run");
    assert!(ran.stdout.contains("+    \"crack@root\",\n"), "{ran:?}");
    let last = "\nnothing is changed yet; after the edit: process crack@root is not reported\n";
    assert!(ran.stdout.ends_with(last), "{ran:?}");
    assert_eq!(read_rules(&test_box), OUR_RULES);
    let ran = run_ok(&test_box, "allow process crack@root");
    assert_eq!(ran.stdout, "process crack@root is not reported\n");
    run_ok(&test_box, "set detection.max_memory_usage_gb 20");
    run_ok(
        &test_box,
        "set patterns.crypto_miner_patterns --wallet,kawpow",
    );
    run_ok(&test_box, "disallow process hashcat");
    let expected = "# Ours.\n[detection]\nmax_memory_usage_gb = 20 # since May\n\n[patterns]\n\
        process_whitelist = [\n    \"crack@root\",\n]\n\
        crypto_miner_patterns = [\"--wallet\", \"kawpow\"]\n\n[metadata]\nversion = \"1\"\n";
    assert_eq!(without_time(&read_rules(&test_box)), expected);
    let ran = run_ok(&test_box, "config");
    assert_eq!(ran.stdout, read_rules(&test_box));
    let edits = recorded(&test_box, "rules_edit", 4);
    let edits = edits
        .iter()
        .map(|action| json!([action["what"], action["result"]]));
    let expected = [
        json!(["rogue: allow process crack@root", "done"]),
        json!(["rogue: detection.max_memory_usage_gb = 20", "done"]),
        json!([
            "rogue: patterns.crypto_miner_patterns = --wallet,kawpow",
            "done"
        ]),
        json!(["rogue: disallow process hashcat", "done"]),
    ];
    assert_eq!(edits.collect::<Vec<_>>(), expected);
    // Every text that came into force is recorded, and none as a text of the guard.
    let texts = recorded(&test_box, "rogue_rules", 5);
    assert_eq!(texts[0]["plan"]["text"], json!(OUR_RULES));
    assert_eq!(texts[4]["plan"]["text"], json!(read_rules(&test_box)));
    let of_the_guard = test_box.ctl(&["audit", "actions", "--kind", "rules"]);
    assert_eq!(of_the_guard.code, 8, "{of_the_guard:?}");
    daemon.stop();
}

#[test]
fn invalid_edits_are_refused_with_suggestions() {
    let test_box = TestBox::new();
    write_rules(&test_box, OUR_RULES);
    let daemon = test_box.start();
    for (line, complaint) in [
        (
            "allow process hashcat",
            "process \"hashcat\" is allowed already",
        ),
        (
            "disallow process hashcta",
            "there is no allowed process \"hashcta\"; did you mean hashcat?",
        ),
        (
            "set detection.max_memory_usage 3",
            "there is no key \"detection.max_memory_usage\"; did you mean \
             detection.max_memory_usage_gb?",
        ),
        (
            "set detection.max_utilization_pct 101",
            "the new rules would have mistakes\nline 4: detection.max_utilization_pct: 101 is not \
            a \
             number from 0 to 100",
        ),
    ] {
        let message = run_refused(&test_box, line, 3);
        assert_eq!(message, format!("gpukillctl: {complaint}\n"), "{line}");
    }
    assert_eq!(read_rules(&test_box), OUR_RULES);
    // A valid but useless edit is made, and reported.
    let ran = run_rogue(&test_box, "allow process python3");
    let message = "warning: patterns.process_whitelist: \"python3\" hides every process of this \
        name without near-proof: name its executable (executable_whitelist), or \"python3@USER\"\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, message));
    run_ok(&test_box, "disallow process python3");
    let ran = run_rogue(&test_box, "allow user no-such-person-here");
    let message =
        "warning: patterns.user_whitelist: unknown user on this host: no-such-person-here\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, message));
    daemon.stop();
}

#[test]
fn only_admins_edit_the_rules() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    write_rules(&test_box, OUR_RULES);
    let daemon = test_box.start();
    test_box.make_world_accessible();
    let expected = "gpukillctl: cannot change the rogue rules\n\
         hint: ask root, or someone in group suite:admins\n";
    for line in ["allow user nobody", "set detection.max_sent_gb 1 --dry-run"] {
        let message = run_as_user(NOBODY_UID, &[], || run_refused(&test_box, line, 4));
        assert_eq!(message, expected, "{line}");
    }
    let ran = run_as_user(NOBODY_UID, &[], || run_ok(&test_box, "config"));
    assert_eq!(ran.stdout, OUR_RULES);
    // Only an admin may read a text that is not in force.
    write_rules(&test_box, "# secret\n");
    let ran = run_as_user(NOBODY_UID, &[], || run_rogue(&test_box, "config"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, OUR_RULES));
    daemon.stop();
}

#[test]
fn invalid_file_keeps_the_old_rules() {
    let test_box = TestBox::new();
    write_rules(&test_box, OUR_RULES);
    let daemon = test_box.start();
    let broken = "# Ours.\n[detection]\nmax_memory = 20\n";
    write_rules(&test_box, broken);
    daemon.signal(Signal::HUP);
    let faults = eventually("the mistake is reported", || {
        let faults = test_box.faults();
        (!faults.is_empty()).then_some(faults)
    });
    let file = test_box.path("rogue.toml").display().to_string();
    let what = format!(
        "{file}: a mistake in line 3: the previous rules stay in force; see gpukillctl rogue \
        check {file}"
    );
    assert_eq!(faults, [("rogue".to_owned(), what)]);
    let ran = run_rogue(&test_box, "config");
    let message = "warning: other rules than these are in force: see gpukillctl status\n";
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        (broken, message)
    );
    // An edit would overwrite a text that a user is just writing.
    let message = run_refused(&test_box, "allow user root", 3);
    let expected = "gpukillctl: the current rules have mistakes\nline 3: unknown key \
        detection.max_memory\n";
    assert_eq!(message, expected);
    assert_eq!(read_rules(&test_box), broken);
    let checked = run_rogue(&test_box, &format!("check {file}"));
    assert_eq!(checked.code, 3, "{checked:?}");
    assert!(
        checked.stdout.ends_with(&format!("{file}: 1 mistake\n")),
        "{checked:?}"
    );
    write_rules(&test_box, "[patterns]\npool_ports = [3333]\n");
    daemon.signal(Signal::HUP);
    eventually("it is over", || test_box.faults().is_empty().then_some(()));
    assert_eq!(run_ok(&test_box, "config").stdout, read_rules(&test_box));
    daemon.stop();
}

#[test]
fn rules_are_exported_and_imported() {
    let test_box = TestBox::new();
    write_rules(&test_box, OUR_RULES);
    let daemon = test_box.start();
    for form in ["toml", "json", "yaml"] {
        let file = test_box.path(&format!("rules.{form}"));
        let name = file.to_str().unwrap();
        run_ok(&test_box, &format!("export {name}"));
        run_ok(&test_box, "set detection.max_memory_usage_gb 9");
        let asked = run_rogue(&test_box, &format!("import {name}"));
        assert_eq!(asked.code, 3, "{asked:?}");
        run_ok(&test_box, &format!("import {name} --yes"));
        assert!(read_rules(&test_box).contains("max_memory_usage_gb = 16"));
        let again = run_ok(&test_box, &format!("import {name} --yes"));
        assert_eq!(again.stdout, "nothing changes: the rules say so already\n");
    }
    let exported = run_ok(&test_box, "export -o json").stdout;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(
        exported["patterns"]["process_whitelist"],
        json!(["hashcat"])
    );
    assert!(exported["metadata"]["last_modified"].is_string());
    let file = test_box.path("theirs.json");
    std::fs::write(&file, GPU_KILL_EXPORT).unwrap();
    let ran = run_rogue(&test_box, &format!("import {} --yes", file.display()));
    let message = "warning: alerts do not apply here: suspicious processes are in list, in \
    status and in the journal\n\
         warning: detection.enabled_detections.data_exfiltrators is off: written as \
         scoring.threat_weights.data_exfiltrator = 0\n\
         warning: metadata.created_at does not apply here\n\
         warning: metadata.description does not apply here\n\
         warning: patterns.crypto_miner_patterns: \"cuda\" also appears in honest work\n\
         warning: patterns.user_whitelist: \"root\" is never reported: containers often \
         run as root, and intruders do too\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, message));
    assert!(read_rules(&test_box).contains("max_memory_usage_gb = 20\n"));
    assert!(
        !read_rules(&test_box).contains("2026-01-05"),
        "{}",
        read_rules(&test_box)
    );
    daemon.stop();
}

#[test]
fn first_edit_creates_the_file() {
    let test_box = TestBox::new();
    let file: &Path = &test_box.path("etc/rogue.toml");
    let daemon = test_box.start_with(test_box.daemon_command().env("GPUKILLD_ROGUE_RULES", file));
    let ran = run_rogue(&test_box, "config");
    let message = format!(
        "warning: there is no {}: the built-in rules apply: gpukillctl rogue reference\n",
        file.display()
    );
    assert_eq!((ran.stdout.as_str(), ran.stderr), ("", message));
    run_ok(&test_box, "allow image registry/miner:1");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(
        text.contains("\n[patterns]\nimage_whitelist = [\"registry/miner:1\"]\n"),
        "{text}"
    );
    // The reference shows the rules that apply without a file, and is valid.
    let reference = test_box.path("reference.toml");
    std::fs::write(&reference, run_ok(&test_box, "reference").stdout).unwrap();
    let checked = run_ok(&test_box, &format!("check {}", reference.display()));
    let expected = format!(
        "{}: 0 patterns, 0 exceptions; no mistake\n",
        reference.display()
    );
    assert_eq!(checked.stdout, expected);
    daemon.stop();
}
