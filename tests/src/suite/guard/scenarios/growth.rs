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
    let mut cast = Scenario::new(1);
    for who in ["leaks", "slow", "stair"] {
        cast.add_person(who, &[memory_on(0, GIB)]);
    }
    cast.add_person("steady", &[memory_on(0, 40 * GIB)]);
    cast.add_person("vague", &[unknown_memory_on(0)]);
    // One process of the job grows; the other does not.
    for called in ["leaking part", "other part"] {
        cast.add_process(SimulatedProcess {
            person: "job",
            name: Some(called),
            usage: &[memory_on(0, GIB)],
            cgroup: UNIT,
            ..SimulatedProcess::default()
        });
    }
    cast.rules(RULES);
    let daemon = cast.start_daemon();
    let told = |who| ExpectedViolation::new("rule leak: growth", who).at_or_over(2 * GIB);
    let mut turn = 0;
    cast.assert_records_while(
        [told("leaks"), told("job").with_processes(&["leaking part"])],
        |cast| {
            turn += 1;
            cast.set_usage("leaks", &[memory_on(0, GIB + turn * GIB)]);
            cast.set_usage("leaking part", &[memory_on(0, GIB + turn * GIB)]);
            // Less than 2 GiB in five seconds.
            cast.set_usage("slow", &[memory_on(0, GIB + turn * GIB / 16)]);
            // A single large step, without further growth.
            let step = if turn > 3 { 8 * GIB } else { 0 };
            cast.set_usage("stair", &[memory_on(0, GIB + step)]);
        },
    );
    cast.assert_unevaluated(&[
        "rule leak: growth: how much memory it held all the time is not known",
    ]);
    daemon.stop();
}
