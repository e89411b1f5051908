//! Rule selectors: user, group, image, namespace, program, command, GPU.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on};
use gpukill_tests::harness::{NOBODY_UID, skip};
use serde_json::json;
use std::process::Command;

const RULES: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "program"
processes = ["trainer", "note*"]
duration_limit_hours = 0

[[rules]]
name = "command"
command = '1000 0\.25$'
duration_limit_hours = 0

[[rules]]
name = "users"
users = ["@alice"]
duration_limit_hours = 0

[[rules]]
name = "gpus"
gpus = [1]
except_users = ["@bob"]
duration_limit_hours = 0

[[rules]]
name = "both"
users = ["@alice", "@dave"]
processes = ["trainer"]
duration_limit_hours = 0

[[rules]]
name = "images"
images = ["lab/*"]
duration_limit_hours = 0

[[rules]]
name = "pods"
kubernetes_namespaces = ["team"]
duration_limit_hours = 0

[[rules]]
name = "either"
users = ["@erin"]
images = ["other/*"]
duration_limit_hours = 0

[[rules]]
name = "accounts"
slurm_accounts = ["vision"]
duration_limit_hours = 0

[[rules]]
name = "unix"
unix_groups = ["GROUP"]
duration_limit_hours = 0

[group_policies.project]
images = ["lab/*"]
kubernetes_namespaces = ["team"]
total_memory_limit_gb = 1
"#;

fn container_id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// Writes the files of the container runtimes.
fn write_container_files(scenario: &Scenario) {
    let write = |file: String, text: serde_json::Value| {
        let path = scenario.test_box.path("home").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.to_string()).unwrap();
    };
    for (digit, name, image) in [('1', "torch", "lab/torch:2"), ('2', "web", "other/web")] {
        write(
            format!(
                "var/lib/docker/containers/{}/config.v2.json",
                container_id(digit)
            ),
            json!({"Name": format!("/{name}"), "Config": {"Image": image}}),
        );
    }
    write(
        format!(
            "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
            container_id('3')
        ),
        json!({"ociVersion": "1.1.0", "annotations": {
            "io.kubernetes.cri.container-name": "trainer",
            "io.kubernetes.cri.image-name": "elsewhere/torch:2",
            "io.kubernetes.cri.sandbox-name": "train-0",
            "io.kubernetes.cri.sandbox-namespace": "team",
        }}),
    );
}

#[test]
fn all_selectors_of_a_rule_must_match() {
    let mut scenario = Scenario::new(2);
    write_container_files(&scenario);
    let one = [memory_on(0, GIB)];
    scenario.add_person("alice", &one);
    scenario.add_person("bob", &[memory_on(1, GIB)]);
    scenario.add_person("carol", &[memory_on(1, GIB)]);
    scenario.add_person("erin", &one);
    for (person, program) in [
        ("dave", "trainer"),
        ("frank", "notebook"),
        ("grace", "trainers"),
    ] {
        scenario.add_process(SimulatedProcess {
            person,
            program,
            usage: &one,
            ..SimulatedProcess::default()
        });
    }
    for (person, argument) in [("heidi", "0.25"), ("ivan", "0.255")] {
        scenario.add_process(SimulatedProcess {
            person,
            argument,
            usage: &one,
            ..SimulatedProcess::default()
        });
    }
    scenario.add_process(SimulatedProcess {
        person: "veiled",
        usage: &one,
        unreadable_files: &["cmdline"],
        ..SimulatedProcess::default()
    });
    let docker = |digit| format!("0::/system.slice/docker-{}.scope\n", container_id(digit));
    let pod = "kubepods.slice/kubepods-pod74ba62da_1a3d_11e7_bb11_080027cb0e22.slice";
    let cgroups = [
        ("torch", docker('1')),
        ("web", docker('2')),
        (
            "pod",
            format!("0::/{pod}/cri-containerd-{}.scope\n", container_id('3')),
        ),
        ("unnamed", docker('4')),
        (
            "batch",
            "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n".to_owned(),
        ),
    ];
    for (person, cgroup) in &cgroups {
        scenario.add_process(SimulatedProcess {
            person,
            cgroup,
            usage: &one,
            ..SimulatedProcess::default()
        });
    }
    let group = group_and_user_names(NOBODY_UID);
    if group.is_some() {
        let part = SimulatedProcess {
            person: "grouped",
            usage: &one,
            ..SimulatedProcess::default()
        };
        scenario.add_process_as(NOBODY_UID, part, std::process::Stdio::null());
    }
    let (group_name, user_name) = group.clone().unwrap_or_default();
    scenario.rules(&RULES.replace("GROUP", &group_name));
    let daemon = scenario.start_daemon();
    let violation = |name: &str, person: &str| {
        ExpectedViolation::new(&format!("rule {name}: duration"), person).at_or_over(0)
    };
    // Soft mode never ends a process if its owner cannot be warned.
    let only_recorded =
        |violation: ExpectedViolation| violation.with_steps(&["violated", "exempt"]);
    let mut expected = vec![
        violation("program", "dave"),
        violation("program", "frank"),
        violation("command", "heidi"),
        violation("users", "alice"),
        violation("gpus", "carol"),
        violation("both", "dave"),
        only_recorded(violation("images", "container torch").with_processes(&["torch"])),
        only_recorded(violation("pods", "pod team/train-0").with_processes(&["pod"])),
        violation("either", "erin"),
        only_recorded(violation("either", "container web").with_processes(&["web"])),
        only_recorded(
            ExpectedViolation::new("group project: total memory", "group project")
                .with_processes(&["torch", "pod"])
                .with_value(2 * GIB, GIB)
                // A container without a runtime file has an unknown image.
                .with_unknown(1),
        ),
    ];
    if group.is_some() {
        expected.push(only_recorded(
            violation("unix", &user_name).with_processes(&["grouped"]),
        ));
    } else {
        skip("the name service knows no group of nobody");
    }
    scenario.assert_records(expected);
    let unclear = "whether the rule applies to it is not known";
    scenario.assert_unevaluated(&[
        "rule command: duration: its command line is not known",
        &format!("rule images: duration: {unclear}"),
        &format!("rule accounts: duration: {unclear}"),
    ]);
    daemon.stop();
}

/// The names of a user's first group and of the user.
fn group_and_user_names(uid: u32) -> Option<(String, String)> {
    let id = |option: &str| {
        let ran = Command::new("id").args([option, &uid.to_string()]).output();
        let ran = ran.ok().filter(|ran| ran.status.success())?;
        let text = String::from_utf8(ran.stdout).ok()?;
        Some(text.split_whitespace().next()?.to_owned())
    };
    Some((id("-Gn")?, id("-nu")?))
}
