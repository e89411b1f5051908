//! Utilization limits of persons, groups and whole GPUs, by the mean over the window.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on};
use serde_json::json;

const RULES: &str = r#"
[global]
default_utilization_limit_pct = 50
[enforcement]
max_warnings = 1
# Between the second sample and the third, so that the third is the first of all.
utilization_window_minutes = 0.042

[user_policies.@own]
utilization_limit_pct = 90
[user_policies.@own_over]
utilization_limit_pct = 20
action = "terminate"
[user_policies.@veiled]
utilization_limit_pct = 50

[group_policies.pupils]
members = ["@pupil"]
utilization_limit_pct = 10

[group_policies.crew]
members = ["@bob", "@carol"]
total_utilization_limit_pct = 70

[gpu_policies.hot]
gpus = ["3-5"]
max_utilization_pct = 90
"#;

#[test]
fn utilization_is_per_gpu_and_only_warned() {
    let mut scenario = Scenario::new(6);
    scenario.set_gpu(2, json!({"process_utilization": false}));
    let busy = |percent| json!({"utilization": {"gpu": percent}});
    scenario.set_gpu(3, busy(json!(91)));
    scenario.set_gpu(4, busy(json!(90)));
    scenario.set_gpu(5, json!({"utilization": null}));
    let at = |gpu, percent| memory_on(gpu, GIB).with_utilization(percent);
    scenario.add_person("over", &[at(0, 51)]);
    scenario.add_person("exact", &[at(0, 50)]);
    scenario.add_person("spread", &[at(0, 40), at(1, 40)]);
    for (name, percent) in [("one", 26), ("other", 25)] {
        scenario.add_process(SimulatedProcess {
            person: "pair",
            name: Some(name),
            usage: &[at(1, percent)],
            ..SimulatedProcess::default()
        });
    }
    scenario.add_person("own", &[at(0, 90)]);
    scenario.add_person("own_over", &[at(1, 21)]);
    scenario.add_person("pupil", &[at(1, 11)]);
    scenario.add_person("veiled", &[at(2, 99)]);
    scenario.add_person("bob", &[at(0, 40), at(1, 40)]);
    scenario.add_person("carol", &[at(0, 31), at(1, 30)]);
    for (gpu, person) in [(3, "on_hot"), (4, "on_warm"), (5, "on_blind")] {
        scenario.add_person(person, &[at(gpu, 1)]);
    }
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    let violation = |rule, person, value, limit| {
        let violation = ExpectedViolation::new(rule, person).with_value(value, limit);
        violation.with_steps(&["violated", "notified"])
    };
    scenario.assert_records([
        violation("default: utilization", "over", 51, 50),
        violation("default: utilization", "pair", 51, 50).with_processes(&["one", "other"]),
        violation("user own_over: utilization", "own_over", 21, 20)
            .with_steps(&["violated", "warned"]),
        violation("group pupils: utilization", "pupil", 11, 10),
        violation(
            "group crew: total utilization",
            "group crew on gpu 0",
            71,
            70,
        )
        .with_processes(&["bob", "carol"]),
        violation("gpu hot: gpu utilization", "gpu 3", 91, 90).with_processes(&["on_hot"]),
    ]);
    scenario.assert_unevaluated(&[
        "user veiled: utilization: the utilization of 1 of the processes is not known",
        "gpu hot: gpu utilization: how busy it was is not known",
    ]);
    daemon.stop();
}

const LONG_WINDOW_RULES: &str = r#"
[global]
default_utilization_limit_pct = 50
[gpu_policies."0"]
max_utilization_pct = 50
[enforcement]
utilization_window_minutes = 1
"#;

#[test]
fn short_work_is_below_a_minutes_mean() {
    let mut scenario = Scenario::new(1);
    scenario.set_gpu(0, json!({"utilization": {"gpu": 100}}));
    scenario.add_person("eager", &[memory_on(0, GIB).with_utilization(100)]);
    scenario.rules(LONG_WINDOW_RULES);
    let daemon = scenario.start_daemon();
    scenario.wait_for_samples(1);
    scenario.assert_records([]);
    daemon.stop();
}
