//! Victim selection, jobs that are left to a scheduler, and protected jobs.

use super::super::GIB;
use super::{ExpectedViolation, GpuUsage, Scenario, SimulatedProcess, memory_on};

const RULES: &str = r#"
[global]
default_memory_limit_gb = 4
[enforcement]
soft_enforcement = false
hard_enforcement = true
cooldown_seconds = 0

[protect]
command = '0\.75$'

[user_policies.@low]
priority = 1
memory_limit_gb = 80
[user_policies.@high]
memory_limit_gb = 80

[group_policies.important]
members = ["@high"]
priority = 9
[group_policies.class]
members = ["@low", "@high"]
total_memory_limit_gb = 8

[gpu_policies."1"]
blocked_users = ["@torn", "@kept"]
"#;

fn process_of<'a>(person: &'a str, name: &'a str, usage: &'a [GpuUsage]) -> SimulatedProcess<'a> {
    SimulatedProcess {
        person,
        name: Some(name),
        usage,
        ..SimulatedProcess::default()
    }
}

#[test]
fn lowest_priority_newest_job_ends_first() {
    let mut scenario = Scenario::new(2);
    let much = |gib| [memory_on(0, gib * GIB)];
    scenario.add_process(process_of("low", "low old", &much(3)));
    scenario.add_process(process_of("low", "low new", &much(3)));
    scenario.add_process(process_of("high", "high", &much(6)));
    // Either job would do: the newest is ended.
    scenario.add_process(process_of("two", "two old", &much(3)));
    scenario.add_process(process_of("two", "two new", &much(2)));
    // The newest alone would not do.
    scenario.add_process(process_of("three", "three old", &much(5)));
    scenario.add_process(process_of("three", "three new", &much(1)));
    let unit = "0::/system.slice/train.service\n";
    for (person, name, argument, gpu) in [
        ("torn", "torn here", "0", 0),
        ("torn", "torn there", "0", 1),
        ("kept", "kept", "0", 1),
        // A protected process.
        ("kept", "keeper", "0.75", 0),
    ] {
        let unit = format!("{}\n", unit.trim().replace("train", person));
        scenario.add_process(SimulatedProcess {
            cgroup: &unit,
            argument,
            ..process_of(person, name, &[memory_on(gpu, GIB)])
        });
    }
    scenario.add_process(SimulatedProcess {
        cgroup: "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n",
        ..process_of("batch", "batch", &much(5))
    });
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    let class = |by: &[&str], gib, steps: &[&str]| {
        let violation = ExpectedViolation::new("group class: total memory", "group class");
        violation
            .with_processes(by)
            .with_value(gib * GIB, 8 * GIB)
            .with_steps(steps)
    };
    let memory = |person, by: &[&str], gib, steps: &[&str]| {
        let violation = ExpectedViolation::new("default: memory", person);
        violation
            .with_processes(by)
            .with_value(gib * GIB, 4 * GIB)
            .with_steps(steps)
    };
    scenario.assert_records([
        class(
            &["low old", "low new", "high"],
            12,
            &["violated", "ended low new", "ended low old"],
        ),
        memory(
            "two",
            &["two old", "two new"],
            5,
            &["violated", "ended two new"],
        ),
        memory(
            "three",
            &["three old", "three new"],
            6,
            &["violated", "ended three old"],
        ),
        ExpectedViolation::new("gpu 1: user", "torn")
            .with_processes(&["torn there"])
            .with_steps(&["violated", "ended torn here torn there"]),
        ExpectedViolation::new("gpu 1: user", "kept").with_steps(&["violated", "exempt"]),
        memory(
            "batch",
            &["batch"],
            5,
            &["violated", "left batch to scancel 1234"],
        ),
    ]);
    daemon.stop();
}
