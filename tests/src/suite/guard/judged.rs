//! Who breaks a rule is told of, with a clock, and nobody is ended.

use super::{GIB, has_rules, plays, records, violations};
use gpukill_tests::harness::{Actor, Stage, eventually};
use serde_json::{Value, json};

const RULES: &str = "[global]\ndefault_memory_limit_gb = 2\n\
    [enforcement]\ngrace_period_seconds = 2\nmax_warnings = 1\n";

/// The steps of violations, the oldest first.
fn steps(stage: &Stage) -> Vec<Value> {
    let document = violations(stage);
    let mut steps = records(&document, &["rule", "step", "mode"]);
    steps.reverse();
    steps
}

#[test]
fn who_holds_more_than_they_may_would_be_warned_and_ended_and_is_not() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, RULES);
    // As much as is allowed is.
    plays(&stage, &[(actor.pid(), 2 * GIB)]);
    let daemon = stage.start();
    eventually("samples are judged", || {
        let status = stage.json(&["guard", "status", "-o", "json"]);
        status["judged_at"].as_str().map(str::to_owned)
    });
    eventually("more samples", || {
        let samples = stage.json(&["audit", "-o", "json"]);
        (samples["records"].as_array()?.len() > 8).then_some(())
    });
    assert_eq!(violations(&stage)["records"], json!([]));
    plays(&stage, &[(actor.pid(), 2 * GIB + 1)]);
    let rule = "default: memory";
    let expected = [
        json!([rule, "violated", "dry-run"]),
        json!([rule, "warned", "dry-run"]),
        json!([rule, "ended", "dry-run"]),
    ];
    eventually("it would be ended", || {
        let steps = steps(&stage);
        (steps.len() == expected.len()).then_some(())
    });
    assert_eq!(steps(&stage), expected);
    let document = violations(&stage);
    let ended = &document["records"][0];
    assert_eq!(ended["evidence"]["limit"], json!(2 * GIB));
    assert_eq!(ended["evidence"]["value"], json!(2 * GIB + 1));
    assert_eq!(ended["victim"]["procs"][0]["pid"], json!(actor.pid()));
    let status = stage.json(&["status", "-o", "json"]);
    let told = [
        "mode",
        "rehearses",
        "warned_today",
        "ended_today",
        "simulated_warned_today",
        "simulated_ended_today",
    ];
    let told = told.map(|field| status["guard"][field].clone());
    let expected = json!(["dry-run", "soft", 0, 0, 1, 1]);
    assert_eq!(Value::from(told.to_vec()), expected);
    // It was not.
    assert!(std::path::Path::new(&format!("/proc/{}", actor.pid())).exists());
    // One who would be gone is not told of again.
    eventually("more samples", || {
        let samples = stage.json(&["audit", "-o", "json"]);
        (samples["records"].as_array()?.len() > 20).then_some(())
    });
    assert!(steps(&stage).len() <= 4, "{:?}", steps(&stage));
    daemon.stop();
}

#[test]
fn a_replay_tells_what_was_told_live() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, RULES);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    eventually("it would be ended", || {
        (records(&violations(&stage), &["step"]).len() >= 3).then_some(())
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
        let report = stage.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
        records(&report, &fields)
    };
    // Samples are written as soon as they are judged, or a little later.
    eventually("both tell the same", || {
        let mut live = records(&violations(&stage), &fields);
        live.reverse();
        (replayed() == live).then_some(())
    });
    // Rules of which nobody has heard are tried without being in force.
    let draft = stage.path("draft.toml");
    std::fs::write(&draft, "[global]\ndefault_memory_limit_gb = 8\n").unwrap();
    let draft = draft.to_str().unwrap();
    let report = stage.json(&[
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
fn what_was_told_is_not_told_again_after_a_restart() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, "[global]\ndefault_memory_limit_gb = 2\n");
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    let warned = || (records(&violations(&stage), &["step"]).len() == 2).then_some(());
    eventually("it would be warned", warned);
    let before = violations(&stage);
    daemon.kill();
    let daemon = stage.start();
    eventually("it goes on", || {
        let status = stage.json(&["guard", "status", "-o", "json"]);
        (status["open"] == json!(1) && status["judged_at"].is_string()).then_some(())
    });
    let after = violations(&stage);
    assert_eq!(after["records"], before["records"]);
    for field in ["violated_at", "warned_at", "deadline"] {
        assert_eq!(after["open"][0][field], before["open"][0][field], "{field}");
    }
    daemon.stop();
}

#[test]
fn a_simulated_end_is_noted_once_while_nvml_fails_and_after_a_restart() {
    let stage = Stage::new();
    let actor = Actor::start("busy");
    has_rules(&stage, RULES);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    let daemon = stage.start();
    let told = || steps(&stage).len();
    eventually("it would be ended", || (told() >= 3).then_some(()));
    // So many samples more were judged.
    let judged = |more: usize| {
        let at = || {
            let status = stage.json(&["guard", "status", "-o", "json"]);
            status["judged_at"].as_str().map(str::to_owned)
        };
        let mut last = at();
        for _ in 0..more {
            last = eventually("a sample is judged", || Some(at()).filter(|it| *it != last));
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
        let processes = json!([{"pid": actor.pid(), "memory": 3 * GIB}]);
        let gpu = json!({"memory": {"total": 80 * GIB}, "processes": processes, "errors": errors});
        stage.play(&json!({"gpus": [gpu]}));
        eventually("its list fails", || {
            stage.list()["gpus"][0]["pids"].is_null().then_some(())
        });
    };
    fails();
    judged(4);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    judged(3);
    fails();
    judged(2);
    daemon.kill();
    let daemon = stage.start();
    judged(4);
    plays(&stage, &[(actor.pid(), 3 * GIB)]);
    judged(4);
    let expected = ["violated", "warned", "ended"];
    let expected = expected.map(|step| json!(["default: memory", step, "dry-run"]));
    assert_eq!(steps(&stage), expected);
    let fields = [
        "timestamp",
        "rule",
        "subject",
        "step",
        "deadline",
        "evidence",
    ];
    eventually("both tell the same", || {
        let report = stage.json(&["guard", "replay", "--since", "1h", "-o", "json"]);
        let mut live = records(&violations(&stage), &fields);
        live.reverse();
        (records(&report, &fields) == live).then_some(())
    });
    daemon.stop();
}
