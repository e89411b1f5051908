//! The steps of a violation: warnings, grace period, end, and when it is over.

use super::super::{GIB, guard_violations};
use super::{ExpectedViolation, Scenario, memory_on};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::milliseconds_between;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::SystemTime;

const SOFT_RULES: &str = r#"
[global]
default_memory_limit_gb = 1
[enforcement]
grace_period_seconds = 4
max_warnings = 2
settled_after_minutes = "4s"

[user_policies.@soft]
message = "Ask in #gpus for more."
[user_policies.@only_notified]
action = "warn"
memory_limit_gb = 1
[user_policies.@at_once]
grace = "0s"
memory_limit_gb = 1
message = "Ask in #gpus for more."
[user_policies.@wavers]
grace = "1h"
memory_limit_gb = 1
[user_policies.@leaves]
grace = "1h"
memory_limit_gb = 1
"#;

/// The records of a person's violation, oldest first.
fn records_of_person(scenario: &Scenario, person: &str) -> Vec<Value> {
    let document = guard_violations(&scenario.test_box);
    let records = document["records"].as_array().unwrap().iter().rev();
    let is_theirs = |record: &&Value| {
        let owner = record["owner"].as_str();
        owner.is_some_and(|owner| scenario.with_names(owner) == person)
    };
    records.filter(is_theirs).cloned().collect()
}

#[test]
fn soft_warns_reminds_and_ends() {
    let mut scenario = Scenario::new(1);
    for person in ["soft", "only_notified", "at_once", "wavers", "leaves"] {
        scenario.add_person(person, &[memory_on(0, 2 * GIB)]);
    }
    scenario.rules(SOFT_RULES);
    let daemon = scenario.start_daemon();
    let violation = |rule: &str, person: &str, steps: &[&str]| {
        let violation = ExpectedViolation::new(rule, person).with_value(2 * GIB, GIB);
        violation.with_steps(steps)
    };
    let first = [
        violation(
            "default: memory",
            "soft",
            &["violated", "warned", "warned", "ended soft"],
        ),
        violation(
            "user only_notified: memory",
            "only_notified",
            &["violated", "notified", "notified"],
        ),
        violation(
            "user at_once: memory",
            "at_once",
            &["violated", "warned", "ended at_once"],
        ),
    ];
    let long = |person, over: &[&str]| {
        let rule = format!("user {person}: memory");
        let steps = [&["violated", "warned"][..], over].concat();
        violation(&rule, person, &steps)
    };
    scenario.assert_records(
        first
            .iter()
            .cloned()
            .chain([long("wavers", &[]), long("leaves", &[])]),
    );

    let soft = records_of_person(&scenario, "soft");
    let deadline = &soft[1]["deadline"];
    assert_eq!(milliseconds_between(&soft[1]["timestamp"], deadline), 4_000);
    assert!(milliseconds_between(&soft[1]["timestamp"], &soft[2]["timestamp"]) >= 2_000);
    assert!(milliseconds_between(deadline, &soft[3]["timestamp"]) >= 0);
    let at_once = records_of_person(&scenario, "at_once");
    let messages: Vec<&Value> = at_once.iter().map(|it| &it["message"]).collect();
    assert_eq!(messages, [&json!("Ask in #gpus for more."); 3]);
    assert_eq!(soft[0]["message"], Value::Null);

    // A violation is over at once if the process ends, and after a while if the usage drops.
    let turned = json!(Timestamp::from(SystemTime::now()).to_rfc3339());
    scenario.set_usage("wavers", &[memory_on(0, GIB)]);
    scenario.end_process("leaves");
    let over = [long("wavers", &["over"]), long("leaves", &["over"])];
    scenario.assert_records(first.iter().cloned().chain(over));
    let ended = &records_of_person(&scenario, "wavers")[2]["timestamp"];
    // The time counts from the previous poll, which may be late.
    assert!(milliseconds_between(&turned, ended) >= 2_000);
    daemon.stop();
}

const ENFORCE_RULES: &str = r#"
[global]
default_memory_limit_gb = 1
default_utilization_limit_pct = 50
[enforcement]
soft_enforcement = false
hard_enforcement = true
max_warnings = 1
utilization_window_minutes = "2s"

[gpu_policies."1"]
blocked_users = ["@barred"]

[user_policies.@spared]
memory_limit_gb = 1
mode = "soft"
[user_policies.@only_notified]
memory_limit_gb = 1
action = "warn"
"#;

#[test]
fn enforce_ends_limits_after_two_samples() {
    let mut scenario = Scenario::new(2);
    scenario.add_person("barred", &[memory_on(1, GIB)]);
    scenario.add_person("greedy", &[memory_on(0, 2 * GIB)]);
    scenario.add_person("eager", &[memory_on(0, GIB).with_utilization(60)]);
    scenario.add_person("spared", &[memory_on(0, 2 * GIB)]);
    scenario.add_person("only_notified", &[memory_on(0, 2 * GIB)]);
    scenario.rules(ENFORCE_RULES);
    let daemon = scenario.start_daemon();
    let memory = |rule: &str, person: &str, steps: &[&str]| {
        let violation = ExpectedViolation::new(rule, person).with_value(2 * GIB, GIB);
        violation.with_steps(steps)
    };
    let barred = ExpectedViolation::new("gpu 1: user", "barred");
    let eager = ExpectedViolation::new("default: utilization", "eager");
    scenario.assert_records([
        barred.with_steps(&["violated", "ended barred"]),
        memory("default: memory", "greedy", &["violated", "ended greedy"]),
        eager
            .with_value(60, 50)
            .with_steps(&["violated", "notified"]),
        memory("user spared: memory", "spared", &["violated", "warned"]),
        memory(
            "user only_notified: memory",
            "only_notified",
            &["violated", "notified"],
        ),
    ]);
    let at = |person, step: usize| records_of_person(&scenario, person)[step]["timestamp"].clone();
    // Two samples; none is shorter than 0.75 s.
    let since = &records_of_person(&scenario, "greedy")[0]["evidence"]["since"];
    assert!(milliseconds_between(since, &at("greedy", 0)) >= 1_500);
    assert_eq!(milliseconds_between(&at("greedy", 0), &at("greedy", 1)), 0);
    // The first sample suffices for an access rule, but not for a limit.
    assert_eq!(milliseconds_between(&at("barred", 0), &at("barred", 1)), 0);
    assert!(milliseconds_between(&at("barred", 1), &at("greedy", 1)) > 0);
    let status = scenario.test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(
        json!([status["mode"], status["armed_mode"], status["open"]]),
        json!(["dry-run", "enforce", 5])
    );

    scenario.rules("[global]\nenabled = false\ndefault_memory_limit_gb = 1\n");
    daemon.signal(Signal::HUP);
    gpukill_tests::harness::eventually_equals(&json!(["disabled", 0]), || {
        let status = scenario.test_box.json(&["guard", "status", "-o", "json"]);
        json!([status["mode"], status["open"]])
    });
    daemon.stop();
}
