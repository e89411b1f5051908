//! How many processes, how much of a group, of one process, and how much is left.

use super::super::GIB;
use super::{Cast, Hold, Part, Told, holds, holds_unknown};
use serde_json::json;

/// Processes of one person, each called by the person and its number.
fn several(cast: &mut Cast, who: &str, each: &[&[Hold]]) -> Vec<String> {
    let called = each.iter().enumerate().map(|(number, holds)| {
        let called = format!("{who} {number}");
        cast.plays(Part {
            who,
            called: Some(&called),
            holds,
            ..Part::default()
        });
        called
    });
    called.collect()
}

const PROCESSES: &str = r#"
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
[group_policies.crowd]
members = ["@many", "@pupil"]
max_concurrent_processes = 3
[group_policies.few]
members = ["@wide", "@pupil"]
max_concurrent_processes = 3
"#;

#[test]
fn processes_of_a_person_and_of_a_group_count_once_however_many_gpus_each_has() {
    let mut cast = Cast::on(2);
    let one = [holds(0, GIB)];
    let both = [holds(0, GIB), holds(1, GIB)];
    let three = several(&mut cast, "three", &[&one, &one, &both]);
    several(&mut cast, "wide", &[&both, &both]);
    cast.person("none", &one);
    let many = several(&mut cast, "many", &[&one, &one, &one]);
    cast.person("pupil", &one);
    let tutor = several(&mut cast, "tutor", &[&one, &one]);
    cast.rules(PROCESSES);
    let daemon = cast.start();
    let names = |called: &[String]| -> Vec<String> { called.to_vec() };
    let by = |told: Told, called: &[String]| {
        let called: Vec<&str> = called.iter().map(String::as_str).collect();
        told.by(&called)
    };
    // One of them is on both.
    let three: Vec<String> = [names(&three), vec!["three 2".to_owned()]].concat();
    let crowd: Vec<String> = [names(&many), vec!["pupil".to_owned()]].concat();
    let told = |rule, who, value, limit| Told::of(rule, who).measured(value, limit);
    cast.tells([
        by(told("default: processes", "three", 3, 2), &three),
        told("user none: processes", "none", 1, 0),
        by(told("group class: processes", "tutor", 2, 1), &tutor),
        by(
            told("group crowd: total processes", "group crowd", 4, 3),
            &crowd,
        ),
    ]);
    daemon.stop();
}

const AMOUNTS: &str = r#"
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
fn memory_of_groups_of_each_process_and_what_is_left_are_judged_beyond_the_limit() {
    let mut cast = Cast::on(7);
    for (gpu, used) in [(3, 78 * GIB), (4, 78 * GIB + 1)] {
        cast.gpu(gpu, json!({"memory": {"total": 80 * GIB, "used": used}}));
    }
    let broken = json!({"nvmlDeviceGetMemoryInfo": 999, "nvmlDeviceGetMemoryInfo_v2": 999});
    cast.gpu(5, json!({"errors": broken}));
    // The host's memory is not to be kept free for others.
    cast.gpu(6, json!({"name": "NVIDIA GB10", "memory": {"total": 0}}));
    cast.person("alice", &[holds(0, 2 * GIB), holds(1, GIB)]);
    cast.person("bob", &[holds(1, GIB + 1)]);
    cast.person("carol", &[holds(0, GIB)]);
    cast.person("veiled", &[holds_unknown(2)]);
    // Each process by itself, and on this GPU alone.
    cast.person("fat", &[holds(2, GIB + 1), holds(0, 8 * GIB)]);
    several(&mut cast, "fit", &[&[holds(2, GIB)], &[holds(2, GIB)]]);
    for (gpu, who) in [(3, "left_enough"), (4, "left_less"), (5, "on_blind")] {
        cast.person(who, &[holds(gpu, GIB)]);
    }
    cast.person("on_unified", &[holds(6, 100 * GIB)]);
    cast.rules(AMOUNTS);
    let daemon = cast.start();
    let told = |rule, who, value, limit| Told::of(rule, who).measured(value, limit);
    cast.tells([
        told(
            "group over: total memory",
            "group over",
            4 * GIB + 1,
            4 * GIB,
        )
        .by(&["alice", "alice", "bob"]),
        told("gpu 2: process memory", "fat", GIB + 1, GIB),
        told("gpu spare: reserved memory", "gpu 4", 2 * GIB - 1, 2 * GIB).by(&["left_less"]),
    ]);
    cast.leaves_unjudged(&[
        "group unclear: total memory: how much memory 1 of its processes hold is not known",
        "gpu 2: process memory: how much memory it holds is not known",
        "gpu spare: reserved memory: how much memory it has is not known",
    ]);
    let unjudged = cast.unjudged();
    let of_hosts = unjudged.iter().find(|it| it.starts_with("gpu hosts"));
    assert_eq!(of_hosts, None);
    daemon.stop();
}
