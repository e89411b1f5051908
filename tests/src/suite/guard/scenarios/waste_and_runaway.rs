//! Waste and runaway rules: low utilization with much memory, and constant high utilization.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on, unknown_memory_on};
use serde_json::json;

const UNIT: &str = "0::/system.slice/train.service\n";

const WASTE_RULES: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "waste"
except_users = ["@excepted", "@veiled", "@vague"]
waste_below_pct = 10
waste_min_memory_gb = 2
waste_hours = "3s"

[[rules]]
name = "veiled"
users = ["@veiled"]
waste_below_pct = 10
waste_hours = "3s"

[[rules]]
name = "vague"
users = ["@vague"]
waste_below_pct = 10
waste_min_memory_gb = 2
waste_hours = "3s"
"#;

#[test]
fn waste_counts_the_whole_job() {
    let mut scenario = Scenario::new(2);
    scenario.set_gpu(1, json!({"process_utilization": false}));
    let at = |percent| memory_on(0, 2 * GIB).with_utilization(percent);
    scenario.add_person("wastes", &[at(9)]);
    scenario.add_person("works", &[at(10)]);
    scenario.add_person("lean", &[memory_on(0, 2 * GIB - 1)]);
    scenario.add_person("excepted", &[at(0)]);
    scenario.add_person("veiled", &[memory_on(1, 2 * GIB)]);
    scenario.add_person("vague", &[unknown_memory_on(0)]);
    // The memory of a job is the sum over its processes, the utilization the mean.
    for (person, name, percent) in [
        ("halves", "half 0", 0),
        ("halves", "half 1", 18),
        ("whole", "whole 0", 0),
        ("whole", "whole 1", 20),
    ] {
        scenario.add_process(SimulatedProcess {
            person,
            name: Some(name),
            usage: &[memory_on(0, GIB).with_utilization(percent)],
            cgroup: UNIT,
            ..SimulatedProcess::default()
        });
    }
    scenario.rules(WASTE_RULES);
    let daemon = scenario.start_daemon();
    scenario.assert_records([
        ExpectedViolation::new("rule waste: waste", "wastes").with_value(9, 10),
        ExpectedViolation::new("rule waste: waste", "halves")
            .with_processes(&["half 0", "half 1"])
            .with_value(9, 10),
    ]);
    scenario.assert_unevaluated(&[
        "rule veiled: waste: whether it worked all the time is not known",
        "rule vague: waste: how much memory it held all the time is not known",
    ]);
    daemon.stop();
}

const RUNAWAY_RULES: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "runaway"
except_users = ["@orphan", "@child", "@veiled", "@vague"]
runaway_above_pct = 90
runaway_minutes = "4s"

[[rules]]
name = "orphans"
users = ["@orphan", "@child", "@calm"]
runaway_above_pct = 90
runaway_minutes = "2s"
runaway_orphaned = true

[[rules]]
name = "veiled"
users = ["@veiled", "@vague"]
runaway_above_pct = 90
runaway_minutes = "2s"
"#;

#[test]
fn runaway_needs_constant_work_and_memory() {
    let mut scenario = Scenario::new(2);
    scenario.set_gpu(1, json!({"process_utilization": false}));
    // The sum stays below the memory of the card.
    let at = |percent| memory_on(0, 10 * GIB).with_utilization(percent);
    scenario.add_person("hot", &[at(91)]);
    scenario.add_person("warm", &[at(90)]);
    scenario.add_person("frees", &[at(100)]);
    scenario.add_person("breathes", &[at(100)]);
    scenario.add_person("child", &[at(100)]);
    for (person, percent) in [("orphan", 100), ("calm", 50)] {
        scenario.add_process(SimulatedProcess {
            person,
            usage: &[at(percent)],
            is_orphan: true,
            ..SimulatedProcess::default()
        });
    }
    scenario.add_person("veiled", &[memory_on(1, GIB)]);
    scenario.add_person("vague", &[unknown_memory_on(0).with_utilization(100)]);
    scenario.rules(RUNAWAY_RULES);
    let daemon = scenario.start_daemon();
    let (mut memory, mut turn) = (10 * GIB, 0);
    let expected = [
        ExpectedViolation::new("rule runaway: runaway", "hot").at_or_over(4_000),
        ExpectedViolation::new("rule runaway: runaway", "breathes").at_or_over(4_000),
        ExpectedViolation::new("rule orphans: runaway", "orphan").at_or_over(2_000),
    ];
    scenario.assert_records_while(expected, |scenario| {
        // One process releases a tenth each time; the other releases a fortieth and takes it
        // back.
        memory -= memory / 10;
        scenario.set_usage("frees", &[memory_on(0, memory).with_utilization(100)]);
        turn += 1;
        let little = turn % 2 * GIB / 4;
        scenario.set_usage(
            "breathes",
            &[memory_on(0, 10 * GIB - little).with_utilization(100)],
        );
    });
    scenario
        .assert_unevaluated(&["rule veiled: runaway: whether it worked all the time is not known"]);
    daemon.stop();
}
