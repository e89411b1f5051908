//! Growth rules: memory that increases steadily.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on, unknown_memory_on};

const UNIT: &str = "0::/system.slice/train.service\n";

const RULES: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "leak"
growth_gb = 2
growth_hours = "5s"
"#;

#[test]
fn steady_growth_is_a_leak() {
    let mut scenario = Scenario::new(1);
    for person in ["leaks", "slow", "stair"] {
        scenario.add_person(person, &[memory_on(0, GIB)]);
    }
    scenario.add_person("steady", &[memory_on(0, 40 * GIB)]);
    scenario.add_person("vague", &[unknown_memory_on(0)]);
    // One process of the job grows; the other does not.
    for name in ["leaking part", "other part"] {
        scenario.add_process(SimulatedProcess {
            person: "job",
            name: Some(name),
            usage: &[memory_on(0, GIB)],
            cgroup: UNIT,
            ..SimulatedProcess::default()
        });
    }
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    let violation =
        |person| ExpectedViolation::new("rule leak: growth", person).at_or_over(2 * GIB);
    let mut turn = 0;
    scenario.assert_records_while(
        [
            violation("leaks"),
            violation("job").with_processes(&["leaking part"]),
        ],
        |scenario| {
            turn += 1;
            scenario.set_usage("leaks", &[memory_on(0, GIB + turn * GIB)]);
            scenario.set_usage("leaking part", &[memory_on(0, GIB + turn * GIB)]);
            // Less than 2 GiB in five seconds.
            scenario.set_usage("slow", &[memory_on(0, GIB + turn * GIB / 16)]);
            // A single large step, without further growth.
            let step = if turn > 3 { 8 * GIB } else { 0 };
            scenario.set_usage("stair", &[memory_on(0, GIB + step)]);
        },
    );
    scenario.assert_unevaluated(&[
        "rule leak: growth: how much memory it held all the time is not known",
    ]);
    daemon.stop();
}
