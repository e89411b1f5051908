//! The rules on rogues are changed by admins, whole or not at all; what is written there
//! by hand stays, and what is wrong there changes nothing.

use gpukill_tests::harness::{NOBODY, Ran, Stage, acting_as, can_act_as_others, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;

const OURS: &str = "# Ours.\n[detection]\nmax_memory_usage_gb = 16 # since May\n\n[patterns]\n\
    process_whitelist = [\n    # Audits.\n    \"hashcat\", # of passwords\n]\n";

/// What gpu-kill exports, as far as it differs from ours.
const THEIRS: &str = r#"{
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

fn written(stage: &Stage) -> String {
    std::fs::read_to_string(stage.path("rogue.toml")).unwrap()
}

fn write(stage: &Stage, text: &str) {
    std::fs::write(stage.path("rogue.toml"), text).unwrap();
}

/// The client with these words of `rogue`, which must succeed without a complaint.
fn done(stage: &Stage, line: &str) -> Ran {
    let ran = rogue(stage, line);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}: {ran:?}");
    ran
}

fn rogue(stage: &Stage, line: &str) -> Ran {
    let arguments: Vec<&str> = ["rogue"].into_iter().chain(line.split(' ')).collect();
    stage.ctl(&arguments)
}

/// What the client complains of, when it refuses so.
fn refused(stage: &Stage, line: &str, code: i32) -> String {
    let ran = rogue(stage, line);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (code, ""),
        "{line}: {ran:?}"
    );
    ran.stderr
}

/// The text without when it was changed.
fn but_for_the_moment(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("last_modified = "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The acts and what of rules came in force, the oldest first.
fn recorded(stage: &Stage, kind: &str, count: usize) -> Vec<Value> {
    eventually("it is recorded", || {
        let acts = stage.json(&["audit", "actions", "--kind", kind, "-o", "json"]);
        let mut acts = acts["actions"].as_array()?.clone();
        acts.reverse();
        (acts.len() == count).then_some(acts)
    })
}

#[test]
fn edits_hold_at_once_keep_comments_and_are_recorded() {
    let stage = Stage::new();
    write(&stage, OURS);
    let daemon = stage.start();
    let ran = done(&stage, "allow process crack@root --dry-run");
    assert!(ran.stdout.contains("+    \"crack@root\",\n"), "{ran:?}");
    assert!(ran.stdout.ends_with("nothing is changed yet\n"), "{ran:?}");
    assert_eq!(written(&stage), OURS);
    done(&stage, "allow process crack@root");
    done(&stage, "set detection.max_memory_usage_gb 20");
    done(&stage, "set patterns.crypto_miner_patterns --wallet,kawpow");
    done(&stage, "disallow process hashcat");
    let expected = "# Ours.\n[detection]\nmax_memory_usage_gb = 20 # since May\n\n[patterns]\n\
        process_whitelist = [\n    \"crack@root\",\n]\n\
        crypto_miner_patterns = [\"--wallet\", \"kawpow\"]\n\n[metadata]\nversion = \"1\"\n";
    assert_eq!(but_for_the_moment(&written(&stage)), expected);
    let ran = done(&stage, "config");
    assert_eq!(ran.stdout, written(&stage));
    let said = recorded(&stage, "rules_edit", 4);
    let said = said.iter().map(|act| json!([act["what"], act["result"]]));
    let expected = [
        json!(["rogue: allow process crack@root", "done"]),
        json!(["rogue: detection.max_memory_usage_gb = 20", "done"]),
        json!([
            "rogue: patterns.crypto_miner_patterns = --wallet,kawpow",
            "done"
        ]),
        json!(["rogue: disallow process hashcat", "done"]),
    ];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    // Each text that came in force is there, and none is taken for the guard's.
    let texts = recorded(&stage, "rogue_rules", 5);
    assert_eq!(texts[0]["plan"]["text"], json!(OURS));
    assert_eq!(texts[4]["plan"]["text"], json!(written(&stage)));
    let of_the_guard = stage.ctl(&["audit", "actions", "--kind", "rules"]);
    assert_eq!(of_the_guard.code, 8, "{of_the_guard:?}");
    daemon.stop();
}

#[test]
fn nothing_wrong_is_written_and_it_is_said_what_was_meant() {
    let stage = Stage::new();
    write(&stage, OURS);
    let daemon = stage.start();
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
            "the rules would have mistakes\nline 4: detection.max_utilization_pct: 101 is not a \
             number from 0 to 100",
        ),
    ] {
        let told = refused(&stage, line, 3);
        assert_eq!(told, format!("gpukillctl: {complaint}\n"), "{line}");
    }
    assert_eq!(written(&stage), OURS);
    // What is right and hardly meant is made, and told.
    let ran = rogue(&stage, "allow process python3");
    let told = "gpukillctl: patterns.process_whitelist: \"python3\" hides the looks of whatever \
        python3 runs: name its executable (executable_whitelist), or \"python3@USER\"\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, told));
    done(&stage, "disallow process python3");
    let ran = rogue(&stage, "allow user no-such-person-here");
    let told = "gpukillctl: patterns.user_whitelist: this box knows no user no-such-person-here\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, told));
    daemon.stop();
}

#[test]
fn whoever_is_no_admin_may_read_them_and_not_change_them() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    write(&stage, OURS);
    let daemon = stage.start();
    stage.open_to_all();
    let expected = "gpukillctl: cannot change the rules on rogues\n\
         hint: ask root, or someone in group suite:admins\n";
    for line in ["allow user nobody", "set detection.max_sent_gb 1 --dry-run"] {
        let told = acting_as(NOBODY, &[], || refused(&stage, line, 4));
        assert_eq!(told, expected, "{line}");
    }
    let ran = acting_as(NOBODY, &[], || done(&stage, "config"));
    assert_eq!(ran.stdout, OURS);
    // What is not in force is for whoever may change it.
    write(&stage, "# secret\n");
    let ran = acting_as(NOBODY, &[], || rogue(&stage, "config"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, OURS));
    daemon.stop();
}

#[test]
fn a_file_with_mistakes_keeps_the_old_rules_and_says_so() {
    let stage = Stage::new();
    write(&stage, OURS);
    let daemon = stage.start();
    let broken = "# Ours.\n[detection]\nmax_memory = 20\n";
    write(&stage, broken);
    daemon.signal(Signal::HUP);
    let faults = eventually("it is said", || {
        let faults = stage.faults();
        (!faults.is_empty()).then_some(faults)
    });
    let file = stage.path("rogue.toml").display().to_string();
    let what = format!(
        "{file}: a mistake in line 3: the rules of before hold; see gpukillctl rogue check {file}"
    );
    assert_eq!(faults, [("rogue".to_owned(), what)]);
    let ran = rogue(&stage, "config");
    let told = "gpukillctl: this is not in force as it is: see gpukillctl status\n";
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (broken, told));
    // An edit would lose what somebody is writing.
    let told = refused(&stage, "allow user root", 3);
    let expected = "gpukillctl: the rules have mistakes as they are\nline 3: unknown key \
        detection.max_memory\n";
    assert_eq!(told, expected);
    assert_eq!(written(&stage), broken);
    let checked = rogue(&stage, &format!("check {file}"));
    assert_eq!(checked.code, 3, "{checked:?}");
    assert!(
        checked.stdout.ends_with(&format!("{file}: 1 mistake\n")),
        "{checked:?}"
    );
    write(&stage, "[patterns]\npool_ports = [3333]\n");
    daemon.signal(Signal::HUP);
    eventually("it is over", || stage.faults().is_empty().then_some(()));
    assert_eq!(done(&stage, "config").stdout, written(&stage));
    daemon.stop();
}

#[test]
fn rules_go_out_and_come_in_in_every_form_and_from_gpu_kill() {
    let stage = Stage::new();
    write(&stage, OURS);
    let daemon = stage.start();
    for form in ["toml", "json", "yaml"] {
        let file = stage.path(&format!("rules.{form}"));
        let name = file.to_str().unwrap();
        done(&stage, &format!("export {name}"));
        done(&stage, "set detection.max_memory_usage_gb 9");
        let asked = rogue(&stage, &format!("import {name}"));
        assert_eq!(asked.code, 3, "{asked:?}");
        done(&stage, &format!("import {name} --yes"));
        assert!(written(&stage).contains("max_memory_usage_gb = 16"));
        let again = done(&stage, &format!("import {name} --yes"));
        assert_eq!(again.stdout, "nothing changes: the rules say so already\n");
    }
    let exported = done(&stage, "export -o json").stdout;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(
        exported["patterns"]["process_whitelist"],
        json!(["hashcat"])
    );
    assert!(exported["metadata"]["last_modified"].is_string());
    let file = stage.path("theirs.json");
    std::fs::write(&file, THEIRS).unwrap();
    let ran = rogue(&stage, &format!("import {} --yes", file.display()));
    let told = "gpukillctl: alerts mean nothing here: whoever may be a rogue is in list, in status \
         and in the journal\n\
         gpukillctl: detection.enabled_detections.data_exfiltrators is off: written as \
         scoring.threat_weights.data_exfiltrator = 0\n\
         gpukillctl: metadata.created_at means nothing here\n\
         gpukillctl: metadata.description means nothing here\n\
         gpukillctl: patterns.crypto_miner_patterns: \"cuda\": honest work has it too\n\
         gpukillctl: patterns.user_whitelist: nothing is told of \"root\": containers often run \
         as root, and whoever breaks in does\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, told));
    assert!(written(&stage).contains("max_memory_usage_gb = 20\n"));
    assert!(
        !written(&stage).contains("2026-01-05"),
        "{}",
        written(&stage)
    );
    daemon.stop();
}

#[test]
fn without_a_file_the_reference_holds_and_the_first_edit_makes_one() {
    let stage = Stage::new();
    let file: &Path = &stage.path("etc/rogue.toml");
    let daemon = stage.start_with(stage.daemon().env("GPUKILLD_ROGUE_RULES", file));
    let ran = rogue(&stage, "config");
    let told = format!(
        "gpukillctl: there is no {}: the built-in rules hold: gpukillctl rogue reference\n",
        file.display()
    );
    assert_eq!((ran.stdout.as_str(), ran.stderr), ("", told));
    done(&stage, "allow image registry/miner:1");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(
        text.contains("\n[patterns]\nimage_whitelist = [\"registry/miner:1\"]\n"),
        "{text}"
    );
    // The reference says what holds without it, and is right.
    let reference = stage.path("reference.toml");
    std::fs::write(&reference, done(&stage, "reference").stdout).unwrap();
    let checked = done(&stage, &format!("check {}", reference.display()));
    let expected = format!(
        "{}: 0 patterns, 0 exceptions; no mistake\n",
        reference.display()
    );
    assert_eq!(checked.stdout, expected);
    daemon.stop();
}
