//! What comes of a violation: warnings, the grace, an end, and when it is over.

use super::super::{GIB, violations};
use super::{Cast, Told, holds};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::between;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::SystemTime;

const SOFT: &str = r#"
[global]
default_memory_limit_gb = 1
[enforcement]
grace_period_seconds = 4
max_warnings = 2
settled_after_minutes = "4s"

[user_policies.@soft]
message = "Ask in #gpus for more."
[user_policies.@only_told]
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

/// The records of what came of one person's violation, the oldest first.
fn of_person(cast: &Cast, who: &str) -> Vec<Value> {
    let document = violations(&cast.stage);
    let records = document["records"].as_array().unwrap().iter().rev();
    let is_theirs = |record: &&Value| {
        let owner = record["owner"].as_str();
        owner.is_some_and(|owner| cast.named(owner) == who)
    };
    records.filter(is_theirs).cloned().collect()
}

#[test]
fn who_is_warned_is_reminded_and_ended_only_after_the_grace() {
    let mut cast = Cast::on(1);
    for who in ["soft", "only_told", "at_once", "wavers", "leaves"] {
        cast.person(who, &[holds(0, 2 * GIB)]);
    }
    cast.rules(SOFT);
    let daemon = cast.start();
    let told = |rule: &str, who: &str, steps: &[&str]| {
        let told = Told::of(rule, who).measured(2 * GIB, GIB);
        told.steps(steps)
    };
    let first = [
        told(
            "default: memory",
            "soft",
            &["violated", "warned", "warned", "ended soft"],
        ),
        told(
            "user only_told: memory",
            "only_told",
            &["violated", "told", "told"],
        ),
        told(
            "user at_once: memory",
            "at_once",
            &["violated", "warned", "ended at_once"],
        ),
    ];
    let long = |who, over: &[&str]| {
        let rule = format!("user {who}: memory");
        let steps = [&["violated", "warned"][..], over].concat();
        told(&rule, who, &steps)
    };
    cast.tells(
        first
            .iter()
            .cloned()
            .chain([long("wavers", &[]), long("leaves", &[])]),
    );

    let soft = of_person(&cast, "soft");
    let deadline = &soft[1]["deadline"];
    assert_eq!(between(&soft[1]["timestamp"], deadline), 4_000);
    assert!(between(&soft[1]["timestamp"], &soft[2]["timestamp"]) >= 2_000);
    assert!(between(deadline, &soft[3]["timestamp"]) >= 0);
    let at_once = of_person(&cast, "at_once");
    let said: Vec<&Value> = at_once.iter().map(|it| &it["message"]).collect();
    assert_eq!(said, [&json!("Ask in #gpus for more."); 3]);
    assert_eq!(soft[0]["message"], Value::Null);

    // Who is gone is done with, and who stops after a while.
    let turned = json!(Timestamp::from(SystemTime::now()).to_rfc3339());
    cast.turns("wavers", &[holds(0, GIB)]);
    cast.ends("leaves");
    let over = [long("wavers", &["over"]), long("leaves", &["over"])];
    cast.tells(first.iter().cloned().chain(over));
    let ended = &of_person(&cast, "wavers")[2]["timestamp"];
    // What a poll finds counts from the poll before, which may be late.
    assert!(between(&turned, ended) >= 2_000);
    daemon.stop();
}

const HARD: &str = r#"
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
[user_policies.@only_told]
memory_limit_gb = 1
action = "warn"
"#;

#[test]
fn where_the_guard_enforces_access_ends_at_first_sight_and_limits_after_a_second_look() {
    let mut cast = Cast::on(2);
    cast.person("barred", &[holds(1, GIB)]);
    cast.person("greedy", &[holds(0, 2 * GIB)]);
    cast.person("eager", &[holds(0, GIB).works(60)]);
    cast.person("spared", &[holds(0, 2 * GIB)]);
    cast.person("only_told", &[holds(0, 2 * GIB)]);
    cast.rules(HARD);
    let daemon = cast.start();
    let memory = |rule: &str, who: &str, steps: &[&str]| {
        let told = Told::of(rule, who).measured(2 * GIB, GIB);
        told.steps(steps)
    };
    let barred = Told::of("gpu 1: user", "barred");
    let eager = Told::of("default: utilization", "eager");
    cast.tells([
        barred.steps(&["violated", "ended barred"]),
        memory("default: memory", "greedy", &["violated", "ended greedy"]),
        eager.measured(60, 50).steps(&["violated", "told"]),
        memory("user spared: memory", "spared", &["violated", "warned"]),
        memory("user only_told: memory", "only_told", &["violated", "told"]),
    ]);
    let at = |who, step: usize| of_person(&cast, who)[step]["timestamp"].clone();
    // Two samples: none is shorter than three quarters of a second.
    let since = &of_person(&cast, "greedy")[0]["evidence"]["since"];
    assert!(between(since, &at("greedy", 0)) >= 1_500);
    assert_eq!(between(&at("greedy", 0), &at("greedy", 1)), 0);
    // The first sample tells of a moment, and of no amount.
    assert_eq!(between(&at("barred", 0), &at("barred", 1)), 0);
    assert!(between(&at("barred", 1), &at("greedy", 1)) > 0);
    let status = cast.stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(
        json!([status["mode"], status["rehearses"], status["open"]]),
        json!(["dry-run", "enforce", 5])
    );

    cast.rules("[global]\nenabled = false\ndefault_memory_limit_gb = 1\n");
    daemon.signal(Signal::HUP);
    gpukill_tests::harness::becomes(&json!(["disabled", 0]), || {
        let status = cast.stage.json(&["guard", "status", "-o", "json"]);
        json!([status["mode"], status["open"]])
    });
    daemon.stop();
}
