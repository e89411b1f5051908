//! Rules on the number of processes, on the memory of groups and single processes, and on
//! reserved memory.

use super::super::GIB;
use super::{
    ExpectedViolation, GpuUsage, Scenario, SimulatedProcess, memory_on, unknown_memory_on,
};
use serde_json::json;

/// Adds several processes of one person, named by the person and an index.
fn add_processes(scenario: &mut Scenario, person: &str, each: &[&[GpuUsage]]) -> Vec<String> {
    let names = each.iter().enumerate().map(|(number, usage)| {
        let name = format!("{person} {number}");
        scenario.add_process(SimulatedProcess {
            person,
            name: Some(&name),
            usage,
            ..SimulatedProcess::default()
        });
        name
    });
    names.collect()
}

const PROCESS_RULES: &str = r#"
[global]
default_max_concurrent_processes = 2
[enforcement]
max_warnings = 1

[user_policies.@none]
max_concurrent_processes = 0
[user_policies.@many]
max_concurrent_processes = 3

[group_policies.class]
members = ["@pupil", "@tutor"]
max_concurrent_processes_each = 1
[group_policies.course]
members = ["@many", "@pupil"]
max_concurrent_processes = 3
[group_policies.few]
members = ["@wide", "@pupil"]
max_concurrent_processes = 3
"#;

#[test]
fn processes_on_two_gpus_count_once() {
    let mut scenario = Scenario::new(2);
    let one = [memory_on(0, GIB)];
    let both = [memory_on(0, GIB), memory_on(1, GIB)];
    let three = add_processes(&mut scenario, "three", &[&one, &one, &both]);
    add_processes(&mut scenario, "wide", &[&both, &both]);
    scenario.add_person("none", &one);
    let many = add_processes(&mut scenario, "many", &[&one, &one, &one]);
    scenario.add_person("pupil", &one);
    let tutor = add_processes(&mut scenario, "tutor", &[&one, &one]);
    scenario.rules(PROCESS_RULES);
    let daemon = scenario.start_daemon();
    let names = |processes: &[String]| -> Vec<String> { processes.to_vec() };
    let by = |violation: ExpectedViolation, processes: &[String]| {
        let processes: Vec<&str> = processes.iter().map(String::as_str).collect();
        violation.with_processes(&processes)
    };
    // One of the processes is on both GPUs.
    let three: Vec<String> = [names(&three), vec!["three 2".to_owned()]].concat();
    let course: Vec<String> = [names(&many), vec!["pupil".to_owned()]].concat();
    let violation =
        |rule, person, value, limit| ExpectedViolation::new(rule, person).with_value(value, limit);
    scenario.assert_records([
        by(violation("default: processes", "three", 3, 2), &three),
        violation("user none: processes", "none", 1, 0),
        by(violation("group class: processes", "tutor", 2, 1), &tutor),
        by(
            violation("group course: total processes", "group course", 4, 3),
            &course,
        ),
    ]);
    daemon.stop();
}

const MEMORY_RULES: &str = r#"
[enforcement]
max_warnings = 1

[group_policies.over]
members = ["@alice", "@bob"]
total_memory_limit_gb = 4
[group_policies.exact]
members = ["@alice", "@carol"]
total_memory_limit_gb = 4
[group_policies.unclear]
members = ["@carol", "@veiled"]
total_memory_limit_gb = 4

[gpu_policies."2"]
max_memory_gb = 1

[gpu_policies.spare]
gpus = [3, "4-5"]
reserved_memory_gb = 2

[gpu_policies.hosts]
gpus = [6]
reserved_memory_gb = 2
"#;

#[test]
fn memory_limits_of_groups_processes_and_gpus() {
    let mut scenario = Scenario::new(7);
    for (gpu, used) in [(3, 78 * GIB), (4, 78 * GIB + 1)] {
        scenario.set_gpu(gpu, json!({"memory": {"total": 80 * GIB, "used": used}}));
    }
    let broken = json!({"nvmlDeviceGetMemoryInfo": 999, "nvmlDeviceGetMemoryInfo_v2": 999});
    scenario.set_gpu(5, json!({"errors": broken}));
    // Unified memory is not reserved: it is the memory of the host.
    scenario.set_gpu(6, json!({"name": "NVIDIA GB10", "memory": {"total": 0}}));
    scenario.add_person("alice", &[memory_on(0, 2 * GIB), memory_on(1, GIB)]);
    scenario.add_person("bob", &[memory_on(1, GIB + 1)]);
    scenario.add_person("carol", &[memory_on(0, GIB)]);
    scenario.add_person("veiled", &[unknown_memory_on(2)]);
    // The limit applies to each process by itself, and on this GPU only.
    scenario.add_person("fat", &[memory_on(2, GIB + 1), memory_on(0, 8 * GIB)]);
    add_processes(
        &mut scenario,
        "fit",
        &[&[memory_on(2, GIB)], &[memory_on(2, GIB)]],
    );
    for (gpu, person) in [(3, "left_enough"), (4, "left_less"), (5, "on_blind")] {
        scenario.add_person(person, &[memory_on(gpu, GIB)]);
    }
    scenario.add_person("on_unified", &[memory_on(6, 100 * GIB)]);
    scenario.rules(MEMORY_RULES);
    let daemon = scenario.start_daemon();
    let violation =
        |rule, person, value, limit| ExpectedViolation::new(rule, person).with_value(value, limit);
    scenario.assert_records([
        violation(
            "group over: total memory",
            "group over",
            4 * GIB + 1,
            4 * GIB,
        )
        .with_processes(&["alice", "alice", "bob"]),
        violation("gpu 2: process memory", "fat", GIB + 1, GIB),
        violation("gpu spare: reserved memory", "gpu 4", 2 * GIB - 1, 2 * GIB)
            .with_processes(&["left_less"]),
    ]);
    scenario.assert_unevaluated(&[
        "group unclear: total memory: how much memory 1 of its processes hold is not known",
        "gpu 2: process memory: how much memory it holds is not known",
        "gpu spare: reserved memory: how much memory it has is not known",
    ]);
    let undetermined = scenario.unevaluated_rules();
    let of_hosts = undetermined.iter().find(|it| it.starts_with("gpu hosts"));
    assert_eq!(of_hosts, None);
    daemon.stop();
}
