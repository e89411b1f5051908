//! Whom no rule is about.

use super::super::GIB;
use super::{Cast, Part, Told, holds};
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
fn who_is_protected_or_may_be_is_not_told_of_and_counts_for_nobody() {
    let mut cast = Cast::on(1);
    let triton = "5".repeat(64);
    let file = format!("home/var/lib/docker/containers/{triton}/config.v2.json");
    let file = cast.stage.path(&file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let config = json!({"Name": "/serve", "Config": {"Image": "nvcr.io/triton:24"}});
    std::fs::write(file, config.to_string()).unwrap();
    let much = [holds(0, 2 * GIB)];
    cast.person("saint", &much);
    cast.person("sheep", &much);
    cast.person("sinner", &much);
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
        // Which image that is, nobody knows.
        (
            "unnamed",
            "sleep",
            "0",
            format!("0::/system.slice/docker-{}.scope\n", "6".repeat(64)),
        ),
    ];
    let own = cast.uid("own_unit");
    let nearly = [
        // Users can call programs of their own as they like.
        ("desktop", "Xorg", "0", "0::/\n".to_owned()),
        ("desktops", "Xorg2", "0", "0::/\n".to_owned()),
        ("unmarked", "sleep", "0.755", "0::/\n".to_owned()),
        // A user can call a unit of their own as they like.
        (
            "own_unit",
            "sleep",
            "0",
            format!(
                "0::/user.slice/user-{own}.slice/user@{own}.service/app.slice/inference.service\n"
            ),
        ),
    ];
    for (who, program, argument, cgroup) in protected.iter().chain(&nearly) {
        cast.plays(Part {
            who,
            program,
            argument,
            cgroup,
            holds: &much,
            ..Part::default()
        });
    }
    cast.rules(RULES);
    let daemon = cast.start();
    let told = |who| Told::of("default: memory", who).measured(2 * GIB, GIB);
    cast.tells([
        told("sinner"),
        told("desktop"),
        told("desktops"),
        told("unmarked"),
        told("own_unit"),
        Told::of("gpu 0: user", "sinner"),
    ]);
    daemon.stop();
}
