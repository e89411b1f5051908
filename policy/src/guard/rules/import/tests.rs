//! Import and export of rules as JSON.

use super::*;
use crate::guard::rules::RuleSet;
use crate::guard::rules::lint::lint;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const EVERY_FIELD: &str = include_str!("../parse/tests/every_field.toml");

fn parse_rules(text: &str) -> RuleSet {
    RuleSet {
        positions: BTreeMap::new(),
        ..parse::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
    }
}

#[test]
fn export_and_import_round_trip() {
    let json = to_json(EVERY_FIELD).unwrap();
    let imported = from_json(&json).unwrap();
    assert_eq!(imported.notices, Vec::<String>::new());
    assert_eq!(parse_rules(&imported.text), parse_rules(EVERY_FIELD));
    // The imported text exports to the same JSON.
    assert_eq!(to_json(&imported.text).unwrap(), json);
    let times = "[[time_policies]]\nname = 'a'\nstart_time = 09:00:00\nend_time = '17:00'\nmemory_limit_gb = 1.5\n";
    let json = to_json(times).unwrap();
    let expected = json!({"time_policies": [
        {"name": "a", "start_time": "09:00", "end_time": "17:00", "memory_limit_gb": 1.5}
    ]});
    assert_eq!(json, expected);
    assert_eq!(
        parse_rules(&from_json(&json).unwrap().text),
        parse_rules(times)
    );
    assert!(to_json("[global]\nenabeld = true\n").is_err());
}

/// A file of gpu-kill, with keys that its command line cannot set.
fn gpu_kill_export() -> Value {
    json!({
        "global": {
            "enabled": true, "default_memory_limit_gb": 16.0,
            "default_utilization_limit_pct": 80.0, "default_duration_limit_hours": 12.0,
            "check_interval_seconds": 60, "dry_run": true
        },
        "user_policies": {
            "developer": {
                "username": "developer", "memory_limit_gb": 8.5, "utilization_limit_pct": 72.5,
                "duration_limit_hours": 12.0, "max_concurrent_processes": 3, "priority": 200,
                "allowed_gpus": [0, 1], "blocked_gpus": [],
                "time_overrides": [{
                    "start_time": "20:00", "end_time": "08:00", "days_of_week": [0, 6],
                    "overrides": {
                        "memory_limit_gb": 64.0, "utilization_limit_pct": null,
                        "duration_limit_hours": null, "max_concurrent_processes": null
                    }
                }]
            }
        },
        "group_policies": {
            "researchers": {
                "group_name": "researchers", "total_memory_limit_gb": 32.0,
                "total_utilization_limit_pct": 80.0, "max_concurrent_processes": 10,
                "priority": 3, "allowed_gpus": [], "blocked_gpus": [], "members": ["alice"]
            }
        },
        "gpu_policies": {
            "0": {
                "gpu_index": 0, "max_memory_gb": 24.0, "max_utilization_pct": 90.0,
                "reserved_memory_gb": 2.0, "allowed_users": [], "blocked_users": [],
                "maintenance_window": {
                    "start_time": "02:00", "end_time": "04:00", "days_of_week": [1],
                    "message": "updates"
                }
            },
            "1": {
                "gpu_index": 1, "max_memory_gb": 24.0, "max_utilization_pct": 90.0,
                "reserved_memory_gb": 0.0, "maintenance_window": null
            }
        },
        "time_policies": [{
            "name": "night", "start_time": "22:00", "end_time": "06:00", "days_of_week": [],
            "memory_multiplier": 1.5, "utilization_multiplier": 1.0, "duration_multiplier": 2.0
        }],
        "enforcement": {
            "soft_enforcement": true, "hard_enforcement": false, "grace_period_seconds": 300,
            "max_warnings": 3,
            "notifications": {
                "console": true, "log_file": true, "email": false, "email_recipients": [],
                "webhook": true, "webhook_url": "http://example.org"
            }
        },
        "metadata": {
            "version": "1.0.0", "created_at": "2025-01-01T00:00:00Z",
            "last_modified": "2025-01-01T00:00:00Z", "description": "x"
        }
    })
}

#[test]
fn imports_gpu_kill_exports_with_notices() {
    let imported = from_json(&gpu_kill_export()).unwrap();
    assert_eq!(imported.text, include_str!("tests/imported.toml"));
    assert_eq!(
        imported.notices,
        [
            "metadata is ignored",
            "global.check_interval_seconds is ignored: rules are evaluated with each sample of \
            the daemon",
            "enforcement.notifications is ignored (console, log_file, webhook): owners are warned \
            on their terminals, and everything is in the journal",
            "user_policies.developer.priority: 200 becomes 100, the highest priority",
            "time_policies.night is left out: it has only multipliers, which are not supported; \
            write the limits themselves",
            "user_policies.developer.utilization_limit_pct: 72.5 becomes 73: percentages are whole \
             numbers",
            "hours are local time of the host; gpu-kill used UTC",
            "utilization limits apply to GPU utilization; gpu-kill compared them with memory",
        ]
    );
    assert_eq!(lint(&parse::parse(&imported.text).unwrap()), []);
}

#[test]
fn every_key_of_gpu_kill_is_documented() {
    fn keys<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(table) => {
                for (key, value) in table {
                    found.insert(key);
                    keys(value, found);
                }
            }
            Value::Array(list) => list.iter().for_each(|item| keys(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let page = include_str!("../../../../../docs/from-gpu-kill.md");
    let (_, section) = page.split_once("\n## Rules\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let code = section.split('`').skip(1).step_by(2);
    let words = code.flat_map(|code| code.split(|c: char| !c.is_ascii_lowercase() && c != '_'));
    let documented: BTreeSet<&str> = words.collect();
    let guard = gpu_kill_export();
    let rogue = include_str!("../../../rogue/import/theirs.json");
    let rogue: Value = serde_json::from_str(rogue).unwrap();
    let mut theirs = BTreeSet::new();
    keys(&guard, &mut theirs);
    keys(&rogue, &mut theirs);
    // The names of policies.
    for name in ["developer", "researchers", "0", "1"] {
        theirs.remove(name);
    }
    let missing: Vec<_> = theirs.difference(&documented).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn writes_empty_lists_before_tables() {
    let json = json!({"user_policies": {"a": {"priority": 1}}, "time_policies": [], "rules": []});
    let text = from_json(&json).unwrap().text;
    assert_eq!(text, "rules = []\n\n[user_policies.a]\npriority = 1\n");
}

#[test]
fn rejects_null_in_a_list() {
    let json = json!({"gpu_policies": {"0": {"allowed_users": [null]}}});
    let mistakes: Vec<String> = from_json(&json)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        mistakes,
        ["gpu_policies.0.allowed_users: item 1 of the list is null; leave it out"]
    );
    // A key that is null counts as absent: gpu-kill writes such keys.
    let json = json!({"user_policies": {"a": {"priority": 1, "allowed_gpus": null}}});
    let text = from_json(&json).unwrap().text;
    assert_eq!(text, "[user_policies.a]\npriority = 1\n");
}

#[test]
fn rejects_other_json() {
    for json in [
        json!(null),
        json!([]),
        json!("x"),
        json!({"globl": {}}),
        json!({"global": {"enabled": "yes"}}),
        json!({"time_policies": [{"name": "a", "days_of_week": [7], "memory_limit_gb": 1}]}),
        json!({"user_policies": {"a": {"memory_limit_gb": 1e300}}}),
    ] {
        let refused = from_json(&json);
        assert!(
            refused.as_ref().is_err_and(|mistakes| !mistakes.is_empty()),
            "{json} is {refused:?}"
        );
    }
    let hidden = json!({"user_policies": {"a\"]\n[global]\nenabled = false #": {"priority": 1}}});
    assert!(from_json(&hidden).is_err());
}

#[test]
fn mistakes_have_a_path_and_no_line() {
    let json = json!({
        "global": {"enabled": "yes", "enabeld": true},
        "user_policies": {"alice": {"allowed_gpus": [0, 1.5], "memory_limit_gb": -1}},
        "time_policies": [
            {"name": "a", "start_time": "9", "end_time": "17:00", "memory_limit_gb": 1},
            {"name": "b", "start_time": "09:00", "end_time": "17:00", "memory_limit_gb": 1},
            {"name": "b", "start_time": "09:00", "end_time": "17:00", "memory_limit_gb": 1},
        ],
    });
    let mistakes = from_json(&json).unwrap_err();
    let actual: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(
        actual,
        [
            "global.enabeld: unknown key; did you mean enabled?",
            "global.enabled: \"yes\" is not valid: write true or false",
            "user_policies.alice.allowed_gpus[1]: 1.5 is not a text in quotes; write \"1.5\"",
            "user_policies.alice.memory_limit_gb: -1 is not a number of GiB from 0 to 1048576, \
            nor a text like \"512MiB\"",
            "time_policies.a.start_time: \"9\" is not a time of day, \"00:00\" to \"24:00\"",
            "time_policies.b: is a duplicate name",
        ]
    );
}
