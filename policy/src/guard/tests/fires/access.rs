//! What is not allowed at all.

use super::*;
use crate::guard::schedule::{Day, Hours};
use gpukill_proto::guard::GuardStep;

#[test]
fn a_device_is_for_some_and_not_for_others() {
    let rules = of_gpu(|it| {
        it.allowed_users = names(&["1001", "alice", "eve"]);
        it.blocked_users = names(&["eve"]);
    });
    let owned = |name: &str| bob(|it| it.about.owner = Some(person(name)));
    let cases = [
        ("allowed by number", bob(|_| ()), No),
        ("allowed by name", owned("alice"), No),
        ("not allowed", owned("dave"), Yes),
        ("blocked, though allowed", owned("eve"), Yes),
        ("unknown", bob(|it| it.about.owner = None), Unknown),
    ];
    check(&rules, "gpu 0: user", 1, &cases);
}

#[test]
fn a_device_is_for_some_processes() {
    let rules = of_gpu(|it| {
        it.allowed_processes = globs(&["python*"]);
        it.blocked_processes = globs(&["*miner"]);
    });
    let cases = [
        ("allowed", bob(|_| ()), No),
        ("not allowed", bob(|it| _ = it.named("blender")), Yes),
        (
            "blocked, though allowed",
            bob(|it| _ = it.named("python-miner")),
            Yes,
        ),
        (
            "blocked by its executable",
            bob(|it| it.about.executable = Some("/tmp/miner".into())),
            Yes,
        ),
        (
            "unknown",
            bob(|it| {
                it.about.name = None;
                it.about.executable = None;
            }),
            Unknown,
        ),
    ];
    check(&rules, "gpu 0: process", 1, &cases);
}

#[test]
fn a_person_uses_the_devices_that_their_policy_or_else_their_groups_allow() {
    let user = |allowed: &str, blocked: &str| UserPolicy {
        name: "bob".into(),
        allowed_gpus: gpus(allowed),
        blocked_gpus: gpus(blocked),
        ..UserPolicy::default()
    };
    let rules_of = |users: Vec<UserPolicy>, blocked: &str| Rules {
        users,
        groups: vec![GroupPolicy {
            blocked_gpus: gpus(blocked),
            ..students()
        }],
        ..rules()
    };
    let cases = [
        (rules_of(vec![user("0", "1")], "7"), None),
        (rules_of(vec![user("1", "7")], "7"), Some("user bob: gpu")),
        (rules_of(vec![user("0-1", "0")], "7"), Some("user bob: gpu")),
        (rules_of(vec![user("00:00.0", "7")], "0"), None),
        (rules_of(vec![], "0"), Some("group students: gpu")),
        (rules_of(vec![], "*H100*"), Some("group students: gpu")),
        (rules_of(vec![], "1"), None),
    ];
    for (rules, expected) in cases {
        let (violated, _) = seen(rules, &mut bob(|_| ()), 1);
        assert_eq!(violated.first().map(String::as_str), expected);
    }
}

#[test]
fn nobody_uses_a_device_that_is_maintained() {
    let rules = of_gpu(|it| {
        it.maintenance = Some(Hours {
            from: 0,
            to: 1,
            days: vec![Day::Monday],
        });
    });
    let mut world = bob(|it| {
        it.about.owner = None;
        it.uses(1, 1, 0);
    });
    let mut guard = Guard::new(rules);
    let told = |guard: &mut Guard, world: &mut World| -> Vec<(u32, String)> {
        let records = guard.looks(world).records;
        let runs = records.iter().filter(|it| it.step == GuardStep::Violated);
        runs.map(|it| (it.evidence.runs[0].gpu_index, it.rule.to_string()))
            .collect()
    };
    assert_eq!(
        told(&mut guard, &mut world),
        [(0, "gpu 0: maintenance".to_owned())]
    );
    guard.watches(&mut world, 5);
    assert_eq!(guard.memory.violations().len(), 1);
    // 00:01 and on: it settles, and is over after five minutes.
    guard.watches(&mut world, 29);
    assert_eq!(guard.memory.violations().len(), 1);
    guard.watches(&mut world, 1);
    assert_eq!(guard.memory.violations(), []);
}

#[test]
fn some_hours_are_for_some_and_have_limits_of_their_own() {
    let of = |change: fn(&mut TimePolicy)| {
        let mut policy = TimePolicy {
            name: "night".into(),
            hours: Hours {
                from: 0,
                to: 60,
                days: Vec::new(),
            },
            ..TimePolicy::default()
        };
        change(&mut policy);
        Rules {
            times: vec![policy],
            ..rules()
        }
    };
    let blocked = of(|it| it.blocked_users = names(&["bob"]));
    let later = |mut world: World| {
        world.now = Timestamp(3_600_000);
        world
    };
    let cases = [
        ("blocked", bob(|_| ()), Yes),
        (
            "another",
            bob(|it| it.about.owner = Some(person("alice"))),
            No,
        ),
        ("at another time", later(bob(|_| ())), No),
        ("unknown", bob(|it| it.about.owner = None), Unknown),
    ];
    check(&blocked, "time night: hours", 1, &cases);
    let limited = of(|it| it.limits.memory = gib(9));
    let cases = [
        ("over", bob(|_| ()), Yes),
        ("at another time", later(bob(|_| ())), No),
    ];
    check(&limited, "time night: memory", 2, &cases);
    let on_the_other = of(|it| {
        it.limits.memory = gib(9);
        it.gpus = gpus("1");
    });
    check(
        &on_the_other,
        "time night: memory",
        2,
        &[("beside", bob(|_| ()), No)],
    );
}
