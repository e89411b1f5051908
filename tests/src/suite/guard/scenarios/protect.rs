//! Processes that are exempt from all rules.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on};
use serde_json::json;

const RULES: &str = r#"
[global]
default_memory_limit_gb = 1
[enforcement]
max_warnings = 1

[protect]
users = ["@saint"]
processes = ["Xorg"]
command = '0\.75$'
images = ["*/triton:*"]
units = ["inference.service"]

[group_policies.flock]
members = ["@saint", "@sheep"]
total_memory_limit_gb = 2
memory_limit_gb = 8

[gpu_policies."0"]
blocked_users = ["@saint", "@sinner"]
"#;

#[test]
fn protected_processes_do_not_count() {
    let mut scenario = Scenario::new(1);
    let triton = "5".repeat(64);
    let file = format!("home/var/lib/docker/containers/{triton}/config.v2.json");
    let file = scenario.test_box.path(&file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let config = json!({"Name": "/serve", "Config": {"Image": "nvcr.io/triton:24"}});
    std::fs::write(file, config.to_string()).unwrap();
    let much = [memory_on(0, 2 * GIB)];
    scenario.add_person("saint", &much);
    scenario.add_person("sheep", &much);
    scenario.add_person("sinner", &much);
    let protected = [
        ("marked", "sleep", "0.75", "0::/\n".to_owned()),
        (
            "image",
            "sleep",
            "0",
            format!("0::/system.slice/docker-{triton}.scope\n"),
        ),
        (
            "unit",
            "sleep",
            "0",
            "0::/system.slice/inference.service\n".to_owned(),
        ),
        // The image of this container is unknown.
        (
            "unnamed",
            "sleep",
            "0",
            format!("0::/system.slice/docker-{}.scope\n", "6".repeat(64)),
        ),
    ];
    let own = scenario.uid("own_unit");
    let nearly = [
        // Users choose the names of their programs.
        ("desktop", "Xorg", "0", "0::/\n".to_owned()),
        ("desktops", "Xorg2", "0", "0::/\n".to_owned()),
        ("unmarked", "sleep", "0.755", "0::/\n".to_owned()),
        // Users choose the names of their units.
        (
            "own_unit",
            "sleep",
            "0",
            format!(
                "0::/user.slice/user-{own}.slice/user@{own}.service/app.slice/inference.service\n"
            ),
        ),
    ];
    for (person, program, argument, cgroup) in protected.iter().chain(&nearly) {
        scenario.add_process(SimulatedProcess {
            person,
            program,
            argument,
            cgroup,
            usage: &much,
            ..SimulatedProcess::default()
        });
    }
    scenario.rules(RULES);
    let daemon = scenario.start_daemon();
    let violation =
        |person| ExpectedViolation::new("default: memory", person).with_value(2 * GIB, GIB);
    scenario.assert_records([
        violation("sinner"),
        violation("desktop"),
        violation("desktops"),
        violation("unmarked"),
        violation("own_unit"),
        ExpectedViolation::new("gpu 0: user", "sinner"),
    ]);
    daemon.stop();
}
