//! Access rules: forbidden GPUs, persons, programs and times.

use super::super::GIB;
use super::{ExpectedViolation, GpuUsage, Scenario, SimulatedProcess, memory_on};

const ON_GPU: [GpuUsage; 8] = {
    let mut on = [memory_on(0, GIB); 8];
    let mut gpu = 0;
    while gpu < on.len() {
        on[gpu].gpu = gpu;
        gpu += 1;
    }
    on
};

const RULES: &str = r#"
[enforcement]
max_warnings = 1

[user_policies.@confined]
allowed_gpus = [0]
[user_policies.@let_in]
allowed_gpus = ["0-1"]
[user_policies.@barred]
allowed_gpus = [0, 1]
blocked_gpus = ["GPU-00000000-0000-0000-0000-000000000001"]
[user_policies.@elsewhere]
blocked_gpus = ["0000:1c:00.0"]

[group_policies.class]
members = ["@pupil", "@away", "@let_in"]
blocked_gpus = [1]
[group_policies.guests]
members = ["@visitor"]
allowed_gpus = [0]

[gpu_policies."2"]
allowed_users = ["@guest", "@unwanted"]
blocked_users = ["@unwanted"]

[gpu_policies."3"]
allowed_processes = ["trainer", "miner*"]
blocked_processes = ["miner-of-old-coins"]
"#;

#[test]
fn forbidden_access_is_reported_at_once() {
    let mut scenario = Scenario::new(4);
    scenario.add_person("confined", &[ON_GPU[0], ON_GPU[1]]);
    scenario.add_person("let_in", &[ON_GPU[0], ON_GPU[1]]);
    scenario.add_person("barred", &[ON_GPU[0], ON_GPU[1]]);
    scenario.add_person("elsewhere", &[ON_GPU[0]]);
    scenario.add_person("pupil", &[ON_GPU[1]]);
    scenario.add_person("away", &[ON_GPU[0]]);
    scenario.add_person("visitor", &[ON_GPU[0], ON_GPU[1]]);
    for person in ["guest", "unwanted", "stranger"] {
        scenario.add_person(person, &[ON_GPU[2]]);
    }
    scenario.add_process(SimulatedProcess {
        person: "veiled",
        usage: &[ON_GPU[2]],
        unreadable_files: &["status"],
        ..SimulatedProcess::default()
    });
    let programs = ["trainer", "train", "miner2", "miner-of-old-coins"];
    for (person, program) in ["trains", "nearly", "mines", "mines_old"]
        .iter()
        .zip(programs)
    {
        scenario.add_process(SimulatedProcess {
            person,
            usage: &[ON_GPU[3]],
            program,
            ..SimulatedProcess::default()
        });
    }
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    scenario.assert_records([
        ExpectedViolation::new("user confined: gpu", "confined"),
        ExpectedViolation::new("user barred: gpu", "barred"),
        ExpectedViolation::new("group class: gpu", "pupil"),
        ExpectedViolation::new("group guests: gpu", "visitor"),
        ExpectedViolation::new("gpu 2: user", "unwanted"),
        ExpectedViolation::new("gpu 2: user", "stranger"),
        ExpectedViolation::new("gpu 3: process", "nearly"),
        // The kernel truncates process names to 15 bytes; the executable's file has the whole
        // name.
        ExpectedViolation::new("gpu 3: process", "mines_old"),
    ]);
    scenario.assert_unevaluated(&["gpu 2: user: its owner is not known"]);
    daemon.stop();
}
