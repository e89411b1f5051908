//! Dry run: violations are recorded with deadlines, and no process ends.

use super::{GIB, guard_violations, record_fields, set_gpu_processes, write_rules};
use gpukill_tests::harness::{TestBox, TestProcess, eventually, eventually_equals};
use serde_json::{Value, json};

const RULES: &str = "[global]\ndefault_memory_limit_gb = 2\n\
    [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n";

/// The steps of all violations, oldest first.
fn violation_steps(test_box: &TestBox) -> Vec<Value> {
    let document = guard_violations(test_box);
    let mut steps = record_fields(&document, &["rule", "step", "mode"]);
    steps.reverse();
    steps
}

#[test]
fn memory_violation_is_simulated_to_its_end() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, RULES);
    // Exactly the limit is allowed.
    set_gpu_processes(&test_box, &[(process.pid(), 2 * GIB)]);
    let daemon = test_box.start();
    eventually("samples are evaluated", || {
        let status = test_box.json(&["guard", "status", "-o", "json"]);
        status["evaluated_at"].as_str().map(str::to_owned)
    });
    eventually("more samples", || {
        let samples = test_box.json(&["audit", "--samples", "-o", "json"]);
        (samples["records"].as_array()?.len() > 8).then_some(())
    });
    assert_eq!(guard_violations(&test_box)["records"], json!([]));
    set_gpu_processes(&test_box, &[(process.pid(), 2 * GIB + 1)]);
    let rule = "default: memory";
    let expected = [
        json!([rule, "violated", "dry-run"]),
        json!([rule, "warned", "dry-run"]),
        json!([rule, "ended", "dry-run"]),
    ];
    eventually("it would be ended", || {
        let steps = violation_steps(&test_box);
        (steps.len() == expected.len()).then_some(())
    });
    assert_eq!(violation_steps(&test_box), expected);
    let document = guard_violations(&test_box);
    let ended = &document["records"][0];
    assert_eq!(ended["evidence"]["limit"], json!(2 * GIB));
    assert_eq!(ended["evidence"]["value"], json!(2 * GIB + 1));
    assert_eq!(ended["victim"]["procs"][0]["pid"], json!(process.pid()));
    let fields = [
        "mode",
        "armed_mode",
        "warned_today",
        "ended_today",
        "simulated_warned_today",
        "simulated_ended_today",
    ];
    eventually_equals(&json!(["dry-run", "soft", 0, 0, 1, 1]), || {
        let status = test_box.json(&["status", "-o", "json"]);
        fields
            .map(|field| status["guard"][field].clone())
            .to_vec()
            .into()
    });
    // The process was not ended.
    assert!(std::path::Path::new(&format!("/proc/{}", process.pid())).exists());
    // No further step follows a simulated end.
    eventually("more samples", || {
        let samples = test_box.json(&["audit", "--samples", "-o", "json"]);
        (samples["records"].as_array()?.len() > 20).then_some(())
    });
    assert!(
        violation_steps(&test_box).len() <= 4,
        "{:?}",
        violation_steps(&test_box)
    );
    daemon.stop();
}

#[test]
fn replay_matches_the_live_records() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, RULES);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    eventually("it would be ended", || {
        (record_fields(&guard_violations(&test_box), &["step"]).len() >= 3).then_some(())
    });
    let fields = [
        "timestamp",
        "rule",
        "subject",
        "step",
        "warning",
        "deadline",
        "victim",
        "evidence",
    ];
    let replayed = || {
        let report = test_box.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
        record_fields(&report, &fields)
    };
    // Samples may be stored shortly after they are evaluated.
    eventually("both give the same records", || {
        let mut live = record_fields(&guard_violations(&test_box), &fields);
        live.reverse();
        (replayed() == live).then_some(())
    });
    // A replay tests other rules that are not in force.
    let draft = test_box.path("draft.toml");
    std::fs::write(&draft, "[global]\ndefault_memory_limit_gb = 8\n").unwrap();
    let draft = draft.to_str().unwrap();
    let report = test_box.json(&[
        "guard", "replay", "--rules", draft, "--since", "1h", "-o", "json",
    ]);
    assert_eq!(
        (&report["outcomes"], &report["records"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(report["runs"], json!(1));
    daemon.stop();
}

#[test]
fn restart_repeats_no_records() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, "[global]\ndefault_memory_limit_gb = 2\n");
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    let warned =
        || (record_fields(&guard_violations(&test_box), &["step"]).len() == 2).then_some(());
    eventually("it would be warned", warned);
    let before = guard_violations(&test_box);
    daemon.kill();
    let daemon = test_box.start();
    eventually("the violation is open", || {
        let status = test_box.json(&["guard", "status", "-o", "json"]);
        (status["open"] == json!(1) && status["evaluated_at"].is_string()).then_some(())
    });
    let after = guard_violations(&test_box);
    assert_eq!(after["records"], before["records"]);
    for field in ["violated_at", "warned_at", "deadline"] {
        assert_eq!(after["open"][0][field], before["open"][0][field], "{field}");
    }
    daemon.stop();
}

#[test]
fn simulated_end_is_recorded_once() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, RULES);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    let step_count = || violation_steps(&test_box).len();
    eventually("it would be ended", || (step_count() >= 3).then_some(()));
    // Waits until this many more samples are evaluated.
    let evaluated = |more: usize| {
        let at = || {
            let status = test_box.json(&["guard", "status", "-o", "json"]);
            status["evaluated_at"].as_str().map(str::to_owned)
        };
        let mut last = at();
        for _ in 0..more {
            last = eventually("a sample is evaluated", || {
                Some(at()).filter(|it| *it != last)
            });
        }
    };
    let fails = || {
        let lists = ["Compute", "Graphics", "MPSCompute"];
        let errors = lists.iter().flat_map(|list| {
            let versions = ["", "_v2", "_v3"].iter();
            versions.map(move |it| {
                (
                    format!("nvmlDeviceGet{list}RunningProcesses{it}"),
                    json!(999),
                )
            })
        });
        let errors: serde_json::Map<String, Value> = errors.collect();
        let processes = json!([{"pid": process.pid(), "memory": 3 * GIB}]);
        let gpu = json!({"memory": {"total": 80 * GIB}, "processes": processes, "errors": errors});
        test_box.set_driver_state(&json!({"gpus": [gpu]}));
        eventually("its list fails", || {
            test_box.list()["gpus"][0]["pids"].is_null().then_some(())
        });
    };
    fails();
    evaluated(4);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    evaluated(3);
    fails();
    evaluated(2);
    daemon.kill();
    let daemon = test_box.start();
    evaluated(4);
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    evaluated(4);
    let expected = ["violated", "warned", "ended"];
    let expected = expected.map(|step| json!(["default: memory", step, "dry-run"]));
    assert_eq!(violation_steps(&test_box), expected);
    let fields = [
        "timestamp",
        "rule",
        "subject",
        "step",
        "deadline",
        "evidence",
    ];
    eventually("both give the same records", || {
        let report = test_box.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
        let mut live = record_fields(&guard_violations(&test_box), &fields);
        live.reverse();
        (record_fields(&report, &fields) == live).then_some(())
    });
    daemon.stop();
}
