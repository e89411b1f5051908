//! What an edit answers: each job that breaks a rule by it, once, and when it is ended.

use super::{GIB, has_rules, plays, violations};
use gpukill_tests::harness::{Actor, Stage, eventually};
use serde_json::json;
use std::fs;

/// What a command prints.
fn said(stage: &Stage, arguments: &[&str]) -> String {
    let ran = stage.ctl(arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// The lines of it that name this process.
fn of_process(said: &str, pid: u32) -> Vec<&str> {
    let pid = format!(" {pid} ");
    said.lines().filter(|line| line.contains(&pid)).collect()
}

#[test]
fn the_rules_of_the_box_are_checked_where_no_file_is_named() {
    let stage = Stage::new();
    has_rules(&stage, "[global]\ndefault_memory_limit_gb = 2\n");
    let daemon = stage.start();
    let answer = said(&stage, &["guard", "check"]);
    assert!(answer.contains("guard.toml"), "{answer}");
    daemon.stop();
}

#[test]
fn a_change_of_the_mode_names_each_job_once() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    let rules = "[global]\ndefault_memory_limit_gb = 2\n\
        [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n";
    has_rules(&stage, rules);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    eventually("it would have been ended", || {
        let gone = violations(&stage)["would_have_ended"].clone();
        (gone.as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let answer = said(&stage, &["guard", "soft", "--dry-run"]);
    let rows = of_process(&answer, actor.pid());
    assert_eq!(rows.len(), 1, "{answer}");
    assert!(rows[0].contains("  not before "), "{answer}");
    daemon.stop();
}

#[test]
fn until_the_next_sample_violations_are_told_of_by_the_new_mode() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    // Nobody is ended while this test runs.
    let rules = "[global]\ndefault_memory_limit_gb = 2\n\
        [enforcement]\ngrace_period_seconds = 3600\nmax_warnings = 1\n";
    has_rules(&stage, rules);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    let open = |mode: &str| {
        eventually("it is told of", || {
            let open = violations(&stage)["open"][0].clone();
            (open["mode"] == mode && !open["warned_at"].is_null()).then_some(())
        });
    };
    open("dry-run");
    for (mode, never) in [("soft", "only recorded"), ("dry-run", " ends ")] {
        let _ = said(&stage, &["guard", mode]);
        let now = said(&stage, &["guard", "violations", "--limit", "1"]);
        let going_on = now.split("\n WHEN ").next().unwrap_or_default();
        assert!(!going_on.contains(never), "{mode}: {now}");
        open(mode);
    }
    daemon.stop();
}

#[test]
fn an_edit_names_the_jobs_that_break_what_it_changes() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    let rules = "[global]\ndry_run = false\n[enforcement]\ngrace_period_seconds = 3600\n";
    has_rules(&stage, rules);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    let set = |limit: &'static str| ["guard", "user", "set", "root", "--memory-limit", limit];
    let dry_run = |limit| said(&stage, &[&set(limit)[..], &["--dry-run"]].concat());
    let answer = eventually("it is named", || {
        let answer = dry_run("2");
        (!of_process(&answer, actor.pid()).is_empty()).then_some(answer)
    });
    let rows = of_process(&answer, actor.pid());
    assert_eq!(rows.len(), 1, "{answer}");
    assert!(rows[0].contains("user root: memory"), "{answer}");
    assert!(rows[0].contains("not before "), "{answer}");
    let nobody = "nobody breaks a rule that this changes now";
    assert!(dry_run("8").contains(nobody));
    // Nothing was changed by that.
    assert_eq!(violations(&stage)["open"], json!([]));
    let answer = said(&stage, &set("2"));
    assert_eq!(of_process(&answer, actor.pid()).len(), 1, "{answer}");
    eventually("it goes on", || {
        (violations(&stage)["open"][0]["rule"] == "user root: memory").then_some(())
    });
    // It goes on by the same rule: another edit says nothing of it.
    let other = ["guard", "user", "set", "nobody", "--memory-limit", "1"];
    assert!(said(&stage, &other).contains(nobody));
    daemon.stop();
}

#[test]
fn an_import_names_the_jobs_that_break_the_new_rules() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, "[global]\ndry_run = true\n");
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    let file = stage.path("other.toml");
    let strict = "[global]\ndry_run = false\ndefault_memory_limit_gb = 2\n\
                  [enforcement]\ngrace_period_seconds = 3600\n";
    fs::write(&file, strict).unwrap();
    let import = |how: &str| said(&stage, &["guard", "import", file.to_str().unwrap(), how]);
    let planned = eventually("it is named", || {
        let planned = import("--dry-run");
        (!of_process(&planned, actor.pid()).is_empty()).then_some(planned)
    });
    assert!(
        planned.contains("these would break a rule that this changes"),
        "{planned}"
    );
    let done = import("--yes");
    let rows = of_process(&done, actor.pid());
    assert_eq!(rows.len(), 1, "{done}");
    assert!(rows[0].contains("default: memory"), "{done}");
    assert!(rows[0].contains("not before "), "{done}");
    daemon.stop();
}
