//! Attribution of processes to the login user.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on};

const RULES: &str = r#"
[global]
person = "login"
default_memory_limit_gb = 3
[enforcement]
max_warnings = 1

[user_policies."@bob"]
memory_limit_gb = 1
"#;

#[test]
fn login_user_owns_sudo_processes() {
    let mut scenario = Scenario::new(1);
    let (alice, bob) = (scenario.uid("alice"), scenario.uid("bob"));
    let much = [memory_on(0, 2 * GIB)];
    let docker = format!("0::/system.slice/docker-{}.scope\n", "7".repeat(64));
    let parts = [
        ("alice", "own", Some(alice), "0::/\n"),
        // Started with sudo.
        ("service", "lent", Some(alice), "0::/\n"),
        ("carol", "borrowed", Some(bob), "0::/\n"),
        // A service has no login user; its own usage stays below the limit.
        ("service", "served", Some(u32::MAX), "0::/\n"),
        // A process in a container belongs to the container.
        ("dave", "boxed", Some(alice), docker.as_str()),
    ];
    for (person, name, login, cgroup) in parts {
        scenario.add_process(SimulatedProcess {
            person,
            name: Some(name),
            usage: &much,
            login,
            cgroup,
            ..SimulatedProcess::default()
        });
    }
    scenario.add_process(SimulatedProcess {
        person: "erin",
        usage: &[memory_on(0, 4 * GIB)],
        unreadable_files: &["loginuid"],
        ..SimulatedProcess::default()
    });
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    scenario.assert_records(vec![
        ExpectedViolation::new("default: memory", "alice")
            .with_processes(&["own", "lent"])
            .with_value(4 * GIB, 3 * GIB),
        ExpectedViolation::new("user bob: memory", "bob")
            .with_processes(&["borrowed"])
            .with_value(2 * GIB, GIB),
    ]);
    scenario.assert_unevaluated(&["default: memory: its owner is not known"]);
    daemon.stop();
}
