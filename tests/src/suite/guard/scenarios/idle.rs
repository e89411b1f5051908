//! Idle and duration rules.

use super::super::GIB;
use super::{
    ExpectedViolation, GpuUsage, Scenario, SimulatedProcess, memory_on, unknown_memory_on,
};
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// The unit of a job with several processes.
const UNIT: &str = "0::/system.slice/train.service\n";

const IDLE_RULES: &str = r#"
[global]
default_idle_limit_minutes = "3s"
default_idle_min_memory_gb = 1
[enforcement]
max_warnings = 1
idle_below_pct = 10

[user_policies.@patient]
idle_limit_minutes = 60
[user_policies.@greedy]
idle_min_memory_gb = 4
[user_policies.@greedier]
idle_limit_minutes = "4s"
idle_min_memory_gb = 4
[user_policies.@veiled]
idle_limit_minutes = "3s"
[user_policies.@vague]
idle_limit_minutes = "3s"
[user_policies.@shut]
idle_limit_minutes = "3s"

[group_policies.quick]
members = ["@quick"]
idle_limit_minutes = "2s"

[[rules]]
name = "servers"
users = ["@server", "@alone", "@sparse"]
idle_limit_minutes = "2s"
idle_min_memory_gb = 2
idle_with_connections = true
services = "end"
"#;

/// Adds a process with a listening socket and this many connected clients.
fn add_listening_process(
    scenario: &mut Scenario,
    person: &str,
    usage: &[GpuUsage],
    clients: usize,
) -> Vec<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let uid = scenario.uid(person);
    let part = SimulatedProcess {
        person,
        usage,
        ..SimulatedProcess::default()
    };
    scenario.add_process_as(uid, part, OwnedFd::from(listener));
    let connect = |_| TcpStream::connect(address).unwrap();
    (0..clients).map(connect).collect()
}

#[test]
fn job_is_idle_without_work_and_clients() {
    let mut scenario = Scenario::new(2);
    scenario.set_gpu(1, json!({"process_utilization": false}));
    let at = |percent| memory_on(0, GIB).with_utilization(percent);
    scenario.add_person("idle", &[at(9)]);
    scenario.add_person("works", &[at(10)]);
    scenario.add_person("light", &[memory_on(0, GIB - 1)]);
    // A process that works on one GPU is not idle on another.
    scenario.add_person("elsewhere", &[at(0), memory_on(1, GIB)]);
    scenario.add_person("patient", &[at(0)]);
    scenario.add_person("quick", &[at(0)]);
    scenario.add_person("greedy", &[memory_on(0, 4 * GIB - 1)]);
    scenario.add_person("greedier", &[memory_on(0, 4 * GIB)]);
    scenario.add_person("veiled", &[memory_on(1, GIB)]);
    scenario.add_person("vague", &[unknown_memory_on(0)]);
    for (person, name, percent) in [
        ("ranks", "rank 0", 0),
        ("ranks", "rank 1", 10),
        ("stuck", "stuck 0", 0),
        ("stuck", "stuck 1", 9),
    ] {
        scenario.add_process(SimulatedProcess {
            person,
            name: Some(name),
            usage: &[at(percent)],
            cgroup: UNIT,
            ..SimulatedProcess::default()
        });
    }
    let two = [memory_on(0, 2 * GIB)];
    let clients = add_listening_process(&mut scenario, "server", &two, 2);
    add_listening_process(&mut scenario, "alone", &two, 0);
    let more = add_listening_process(&mut scenario, "sparse", &[memory_on(0, 2 * GIB - 1)], 1);
    scenario.add_process(SimulatedProcess {
        person: "shut",
        usage: &[at(0)],
        unreadable_files: &["fd"],
        ..SimulatedProcess::default()
    });
    scenario.rules(IDLE_RULES);
    let daemon = scenario.start_daemon();
    let violation = |rule, person, seconds: u64| {
        ExpectedViolation::new(rule, person).at_or_over(seconds * 1_000)
    };
    scenario.assert_records([
        violation("default: idle", "idle", 3),
        violation("default: idle", "stuck", 3).with_processes(&["stuck 0", "stuck 1"]),
        // A service is warned about, but not ended.
        violation("default: idle", "alone", 3).with_steps(&["violated", "notified"]),
        violation("group quick: idle", "quick", 2),
        violation("user greedier: idle", "greedier", 4),
        violation("rule servers: idle", "server", 2),
        violation("rule servers: idle", "alone", 2),
    ]);
    scenario.assert_unevaluated(&[
        "user veiled: idle: whether it worked all the time is not known",
        "user vague: idle: how much memory it holds is not known",
        "user shut: idle: whether it worked all the time is not known",
    ]);
    drop((clients, more));
    daemon.stop();
}

const DURATION_RULES: &str = r#"
[global]
default_duration_limit_hours = "2s"
[enforcement]
max_warnings = 1

[user_policies.@patient]
duration_limit_hours = 1
[user_policies.@quick]
duration_limit_hours = 0

[group_policies.class]
members = ["@pupil"]
duration_limit_hours = "3s"

[[rules]]
name = "long"
users = ["@patient"]
duration_limit_hours = "4s"
"#;

#[test]
fn duration_counts_from_the_start() {
    let mut scenario = Scenario::new(2);
    scenario.set_gpu(1, json!({"process_utilization": false}));
    for person in ["early", "patient", "quick", "pupil"] {
        scenario.add_person(person, &[memory_on(0, GIB).with_utilization(90)]);
    }
    scenario.add_person("veiled", &[unknown_memory_on(1)]);
    scenario.add_person("late", &[]);
    scenario.rules(DURATION_RULES);
    let daemon = scenario.start_daemon();
    let violation = |rule, person, seconds: u64| {
        ExpectedViolation::new(rule, person).at_or_over(seconds * 1_000)
    };
    let first = [
        violation("default: duration", "early", 2),
        violation("default: duration", "veiled", 2),
        violation("user quick: duration", "quick", 0),
        violation("group class: duration", "pupil", 3),
        violation("rule long: duration", "patient", 4),
    ];
    scenario.assert_records(first.clone());
    // A process that starts later has its own time.
    scenario.set_usage("late", &[memory_on(0, GIB)]);
    scenario.write_driver_state();
    let late = violation("default: duration", "late", 2);
    scenario.assert_records(first.into_iter().chain([late]));
    daemon.stop();
}
