//! Whom a rule means: by user, group, image, namespace, program, command, GPU.

use super::super::GIB;
use super::{Cast, Part, Told, holds};
use gpukill_tests::harness::{NOBODY, skip};
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

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// What the runtimes of the box tell of its containers.
fn containers(cast: &Cast) {
    let write = |file: String, text: serde_json::Value| {
        let path = cast.stage.path("home").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.to_string()).unwrap();
    };
    for (digit, name, image) in [('1', "torch", "lab/torch:2"), ('2', "web", "other/web")] {
        write(
            format!("var/lib/docker/containers/{}/config.v2.json", id(digit)),
            json!({"Name": format!("/{name}"), "Config": {"Image": image}}),
        );
    }
    write(
        format!(
            "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
            id('3')
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
fn a_rule_means_those_whom_all_that_it_says_names() {
    let mut cast = Cast::on(2);
    containers(&cast);
    let one = [holds(0, GIB)];
    cast.person("alice", &one);
    cast.person("bob", &[holds(1, GIB)]);
    cast.person("carol", &[holds(1, GIB)]);
    cast.person("erin", &one);
    for (who, program) in [
        ("dave", "trainer"),
        ("frank", "notebook"),
        ("grace", "trainers"),
    ] {
        cast.plays(Part {
            who,
            program,
            holds: &one,
            ..Part::default()
        });
    }
    for (who, argument) in [("heidi", "0.25"), ("ivan", "0.255")] {
        cast.plays(Part {
            who,
            argument,
            holds: &one,
            ..Part::default()
        });
    }
    cast.plays(Part {
        who: "veiled",
        holds: &one,
        hides: &["cmdline"],
        ..Part::default()
    });
    let docker = |digit| format!("0::/system.slice/docker-{}.scope\n", id(digit));
    let pod = "kubepods.slice/kubepods-pod74ba62da_1a3d_11e7_bb11_080027cb0e22.slice";
    let cgroups = [
        ("torch", docker('1')),
        ("web", docker('2')),
        (
            "pod",
            format!("0::/{pod}/cri-containerd-{}.scope\n", id('3')),
        ),
        ("unnamed", docker('4')),
        (
            "batch",
            "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n".to_owned(),
        ),
    ];
    for (who, cgroup) in &cgroups {
        cast.plays(Part {
            who,
            cgroup,
            holds: &one,
            ..Part::default()
        });
    }
    let group = group_of(NOBODY);
    if group.is_some() {
        let part = Part {
            who: "grouped",
            holds: &one,
            ..Part::default()
        };
        cast.plays_as(NOBODY, part, std::process::Stdio::null());
    }
    let (group_name, user_name) = group.clone().unwrap_or_default();
    cast.rules(&RULES.replace("GROUP", &group_name));
    let daemon = cast.start();
    let told = |name: &str, who: &str| Told::of(&format!("rule {name}: duration"), who).beyond(0);
    // Whom nobody can warn is not ended after a warning.
    let spared = |told: Told| told.steps(&["violated", "spared"]);
    let mut expected = vec![
        told("program", "dave"),
        told("program", "frank"),
        told("command", "heidi"),
        told("users", "alice"),
        told("gpus", "carol"),
        told("both", "dave"),
        spared(told("images", "container torch").by(&["torch"])),
        spared(told("pods", "pod team/train-0").by(&["pod"])),
        told("either", "erin"),
        spared(told("either", "container web").by(&["web"])),
        spared(
            Told::of("group project: total memory", "group project")
                .by(&["torch", "pod"])
                .measured(2 * GIB, GIB)
                // Of a container that has no file the image is not known.
                .unknown(1),
        ),
    ];
    if group.is_some() {
        expected.push(spared(told("unix", &user_name).by(&["grouped"])));
    } else {
        skip("the name service knows no group of nobody");
    }
    cast.tells(expected);
    let unclear = "whether it is one of those that the rule is about is not known";
    cast.leaves_unjudged(&[
        "rule command: duration: its command line is not known",
        &format!("rule images: duration: {unclear}"),
        &format!("rule accounts: duration: {unclear}"),
    ]);
    daemon.stop();
}

/// The name of the first group of a user, and that of the user.
fn group_of(uid: u32) -> Option<(String, String)> {
    let id = |option: &str| {
        let ran = Command::new("id").args([option, &uid.to_string()]).output();
        let ran = ran.ok().filter(|ran| ran.status.success())?;
        let text = String::from_utf8(ran.stdout).ok()?;
        Some(text.split_whitespace().next()?.to_owned())
    };
    Some((id("-Gn")?, id("-nu")?))
}
