//! The reply to a rule edit names each affected job once, with the time of its end.

use super::{GIB, guard_violations, set_gpu_processes, write_rules};
use gpukill_tests::harness::{TestBox, TestProcess, eventually};
use serde_json::json;
use std::fs;

/// What a client says that can ask nobody.
const REFUSED: &str = "gpukillctl: nothing was changed: there is no terminal to ask on\n\
                       hint: --yes does it without asking\n";

/// The output of a command that must succeed.
fn successful_output(test_box: &TestBox, arguments: &[&str]) -> String {
    let ran = test_box.ctl(arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// The lines of the output that name this process.
fn lines_with_pid(output: &str, pid: u32) -> Vec<&str> {
    let pid = format!(" {pid} ");
    output.lines().filter(|line| line.contains(&pid)).collect()
}

#[test]
fn check_defaults_to_the_active_file() {
    let test_box = TestBox::new();
    write_rules(&test_box, "[global]\ndefault_memory_limit_gb = 2\n");
    let daemon = test_box.start();
    let answer = successful_output(&test_box, &["guard", "check"]);
    assert!(answer.contains("guard.toml"), "{answer}");
    daemon.stop();
}

#[test]
fn mode_change_names_each_job_once() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    let rules = "[global]\ndefault_memory_limit_gb = 2\n\
        [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n";
    write_rules(&test_box, rules);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    eventually("it would have been ended", || {
        let gone = guard_violations(&test_box)["would_have_ended"].clone();
        (gone.as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let answer = successful_output(&test_box, &["guard", "soft", "--dry-run"]);
    let rows = lines_with_pid(&answer, process.pid());
    assert_eq!(rows.len(), 1, "{answer}");
    assert!(rows[0].contains("  not before "), "{answer}");
    daemon.stop();
}

#[test]
fn violations_show_the_new_mode_at_once() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    // The grace period outlasts the test.
    let rules = "[global]\ndefault_memory_limit_gb = 2\n\
        [enforcement]\ngrace_period_seconds = 3600\nmax_warnings = 1\n";
    write_rules(&test_box, rules);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    let open = |mode: &str| {
        eventually("the violation is reported", || {
            let open = guard_violations(&test_box)["open"][0].clone();
            (open["mode"] == mode && !open["warned_at"].is_null()).then_some(())
        });
    };
    open("dry-run");
    for (mode, never) in [("soft", "only recorded"), ("dry-run", " ends ")] {
        let _ = successful_output(&test_box, &["guard", mode, "--yes"]);
        let now = successful_output(&test_box, &["guard", "violations", "--limit", "1"]);
        let going_on = now.split("\n WHEN ").next().unwrap_or_default();
        assert!(!going_on.contains(never), "{mode}: {now}");
        open(mode);
    }
    daemon.stop();
}

#[test]
fn edit_names_affected_jobs() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    let rules = "[global]\ndry_run = false\n[enforcement]\ngrace_period_seconds = 3600\n";
    write_rules(&test_box, rules);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    let set = |limit: &'static str| ["guard", "user", "set", "root", "--memory-limit", limit];
    let dry_run = |limit| successful_output(&test_box, &[&set(limit)[..], &["--dry-run"]].concat());
    let answer = eventually("the job is named", || {
        let answer = dry_run("2");
        (!lines_with_pid(&answer, process.pid()).is_empty()).then_some(answer)
    });
    let rows = lines_with_pid(&answer, process.pid());
    assert_eq!(rows.len(), 1, "{answer}");
    assert!(rows[0].contains("user root: memory"), "{answer}");
    assert!(rows[0].contains("not before "), "{answer}");
    let nobody = "nobody breaks a rule that this changes now";
    assert!(dry_run("8").contains(nobody));
    // The dry runs have changed nothing.
    assert_eq!(guard_violations(&test_box)["open"], json!([]));
    // Nobody can be asked, and the edit would end a job.
    let ran = test_box.ctl(&set("2"));
    assert_eq!((ran.code, ran.stderr.as_str()), (3, REFUSED));
    assert_eq!(
        lines_with_pid(&ran.stdout, process.pid()).len(),
        1,
        "{ran:?}"
    );
    assert_eq!(guard_violations(&test_box)["open"], json!([]));
    let answer = successful_output(&test_box, &[&set("2")[..], &["--yes"]].concat());
    assert_eq!(lines_with_pid(&answer, process.pid()).len(), 1, "{answer}");
    eventually("the violation is open", || {
        (guard_violations(&test_box)["open"][0]["rule"] == "user root: memory").then_some(())
    });
    // The violated rule has not changed, so another edit does not mention it.
    let other = ["guard", "user", "set", "nobody", "--memory-limit", "1"];
    let answer = "nobody: at most 1 GiB; in force, soft\n";
    assert_eq!(successful_output(&test_box, &other), answer);
    // The mode stays, and ends no job that it did not end before.
    let _ = successful_output(&test_box, &["guard", "soft"]);
    let ran = test_box.ctl(&["guard", "enforce"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, REFUSED));
    daemon.stop();
}

#[test]
fn mode_change_asks_about_unevaluated_rules() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    let limit = "[global]\ndefault_memory_limit_gb = 2\n";
    write_rules(&test_box, limit);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    eventually("the violation is open", || {
        (guard_violations(&test_box)["open"][0]["rule"] == "default: memory").then_some(())
    });
    let refuses = |mode: &str| {
        eventually("the job is named", || {
            let planned = successful_output(&test_box, &["guard", mode, "--dry-run"]);
            (!lines_with_pid(&planned, process.pid()).is_empty()).then_some(())
        });
        let ran = test_box.ctl(&["guard", mode]);
        assert_eq!((ran.code, ran.stderr.as_str()), (3, REFUSED), "{mode}");
        assert_eq!(lines_with_pid(&ran.stdout, process.pid()).len(), 1);
    };
    // A disabled guard has no open violations.
    let _ = successful_output(&test_box, &["guard", "disable"]);
    eventually("no violation is open", || {
        (guard_violations(&test_box)["open"] == json!([])).then_some(())
    });
    refuses("enforce");
    // The mode stays, and the edit puts other rules in force.
    let soft = "[enforcement]\ngrace_period_seconds = 3600\n";
    write_rules(&test_box, &format!("[global]\ndry_run = false\n{soft}"));
    let _ = successful_output(&test_box, &["guard", "soft"]);
    write_rules(&test_box, &format!("{limit}dry_run = false\n{soft}"));
    refuses("soft");
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["mode"], "soft");
    assert_eq!(guard_violations(&test_box)["open"], json!([]));
    daemon.stop();
}

#[test]
fn import_names_affected_jobs() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, "[global]\ndry_run = true\n");
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    let file = test_box.path("other.toml");
    let strict = "[global]\ndry_run = false\ndefault_memory_limit_gb = 2\n\
                  [enforcement]\ngrace_period_seconds = 3600\n";
    fs::write(&file, strict).unwrap();
    let import =
        |how: &str| successful_output(&test_box, &["guard", "import", file.to_str().unwrap(), how]);
    let planned = eventually("the job is named", || {
        let planned = import("--dry-run");
        (!lines_with_pid(&planned, process.pid()).is_empty()).then_some(planned)
    });
    assert!(
        planned.contains("these would break a rule that this changes"),
        "{planned}"
    );
    let done = import("--yes");
    let rows = lines_with_pid(&done, process.pid());
    assert_eq!(rows.len(), 1, "{done}");
    assert!(rows[0].contains("default: memory"), "{done}");
    assert!(rows[0].contains("not before "), "{done}");
    daemon.stop();
}
