//! Memory limits, and which of several limits applies to a person.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on, unknown_memory_on};

const RULES: &str = r#"
[global]
default_memory_limit_gb = 2
[enforcement]
max_warnings = 1

[user_policies.@own]
memory_limit_gb = 8
[user_policies.@own_over]
memory_limit_gb = "1536MiB"
[user_policies.@nobody_knows]
memory_limit_gb = 2
[user_policies.@enough_known]
memory_limit_gb = 2

[group_policies.lab]
members = ["@pupil", "@tutor", "@both", "@own"]
memory_limit_gb = 4
[group_policies.strict]
members = ["@both"]
memory_limit_gb = 3
"#;

#[test]
fn most_specific_memory_limit_applies() {
    let mut scenario = Scenario::new(3);
    // Memory on all GPUs counts together, including unified memory.
    scenario.set_gpu(2, serde_json::json!({"memory": {"total": 0}}));
    for (name, usage) in [
        ("here", memory_on(0, GIB)),
        ("there", memory_on(1, GIB + 1)),
    ] {
        scenario.add_process(SimulatedProcess {
            person: "over",
            name: Some(name),
            usage: &[usage],
            ..SimulatedProcess::default()
        });
    }
    scenario.add_person("over_unified", &[memory_on(2, 2 * GIB + 1)]);
    scenario.add_person("exact", &[memory_on(0, GIB), memory_on(1, GIB)]);
    scenario.add_person("under", &[memory_on(0, 2 * GIB - 1)]);
    // A user limit replaces all others.
    scenario.add_person("own", &[memory_on(0, 8 * GIB)]);
    scenario.add_person("own_over", &[memory_on(1, 3 * GIB / 2 + 1)]);
    // A group limit replaces the default; the strictest of several groups applies.
    scenario.add_person("pupil", &[memory_on(1, 4 * GIB)]);
    scenario.add_person("tutor", &[memory_on(1, 4 * GIB + 1)]);
    scenario.add_person("both", &[memory_on(1, 3 * GIB + 1)]);
    scenario.add_person("nobody_knows", &[unknown_memory_on(0)]);
    for (name, usage) in [
        ("more", memory_on(1, 3 * GIB)),
        ("some", unknown_memory_on(0)),
    ] {
        scenario.add_process(SimulatedProcess {
            person: "enough_known",
            name: Some(name),
            usage: &[usage],
            ..SimulatedProcess::default()
        });
    }
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    let violation =
        |rule, person, value, limit| ExpectedViolation::new(rule, person).with_value(value, limit);
    scenario.assert_records([
        violation("default: memory", "over", 2 * GIB + 1, 2 * GIB)
            .with_processes(&["here", "there"]),
        violation("default: memory", "over_unified", 2 * GIB + 1, 2 * GIB),
        violation(
            "user own_over: memory",
            "own_over",
            3 * GIB / 2 + 1,
            3 * GIB / 2,
        ),
        violation("group lab: memory", "tutor", 4 * GIB + 1, 4 * GIB),
        violation("group strict: memory", "both", 3 * GIB + 1, 3 * GIB),
        violation(
            "user enough_known: memory",
            "enough_known",
            3 * GIB,
            2 * GIB,
        )
        .with_processes(&["more", "some"])
        .with_unknown(1),
    ]);
    scenario.assert_unevaluated(&[
        "user nobody_knows: memory: how much memory 1 of its processes hold is not known",
    ]);
    daemon.stop();
}
