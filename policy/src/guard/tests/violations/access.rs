//! Access rules: what is not allowed at all.

use super::*;
use crate::guard::schedule::{Hours, Weekday};
use gpukill_proto::guard::GuardStep;

#[test]
fn device_allows_and_blocks_users() {
    let rules = rules_with_gpu(|it| {
        it.allowed_users = names(&["1001", "alice", "eve"]);
        it.blocked_users = names(&["eve"]);
    });
    let owned = |name: &str| host_with_bob(|it| it.facts.owner = Some(person(name)));
    let cases = [
        ("allowed by number", host_with_bob(|_| ()), No),
        ("allowed by name", owned("alice"), No),
        ("not allowed", owned("dave"), Yes),
        ("blocked, though allowed", owned("eve"), Yes),
        (
            "unknown",
            host_with_bob(|it| it.facts.owner = None),
            Unknown,
        ),
    ];
    check(&rules, "gpu 0: user", 1, &cases);
}

#[test]
fn device_allows_some_processes() {
    let rules = rules_with_gpu(|it| {
        it.allowed_processes = globs(&["python*"]);
        it.blocked_processes = globs(&["*miner"]);
    });
    let cases = [
        ("allowed", host_with_bob(|_| ()), No),
        (
            "not allowed",
            host_with_bob(|it| _ = it.named("blender")),
            Yes,
        ),
        (
            "blocked, though allowed",
            host_with_bob(|it| _ = it.named("python-miner")),
            Yes,
        ),
        (
            "blocked by its executable",
            host_with_bob(|it| it.facts.executable = Some("/tmp/miner".into())),
            Yes,
        ),
        (
            "unknown",
            host_with_bob(|it| {
                it.facts.name = None;
                it.facts.executable = None;
            }),
            Unknown,
        ),
    ];
    check(&rules, "gpu 0: process", 1, &cases);
}

#[test]
fn user_policy_then_groups_allow_devices() {
    let user = |allowed: &str, blocked: &str| UserPolicy {
        name: "bob".into(),
        allowed_gpus: gpus(allowed),
        blocked_gpus: gpus(blocked),
        ..UserPolicy::default()
    };
    let rules_of = |users: Vec<UserPolicy>, blocked: &str| RuleSet {
        users,
        groups: vec![GroupPolicy {
            blocked_gpus: gpus(blocked),
            ..group_policy()
        }],
        ..dry_run_rules()
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
        let (violated, _) = evaluate_rules(rules, &mut host_with_bob(|_| ()), 1);
        assert_eq!(violated.first().map(String::as_str), expected);
    }
}

#[test]
fn maintenance_blocks_everybody() {
    let rules = rules_with_gpu(|it| {
        it.maintenance = Some(Hours {
            from: 0,
            to: 1,
            days: vec![Weekday::Monday],
        });
    });
    let mut world = host_with_bob(|it| {
        it.facts.owner = None;
        it.uses(1, 1, 0);
    });
    let mut guard = TestGuard::new(rules);
    let violations_of = |guard: &mut TestGuard, world: &mut TestHost| -> Vec<(u32, String)> {
        let records = guard.evaluate_next(world).records;
        let runs = records.iter().filter(|it| it.step == GuardStep::Violated);
        runs.map(|it| (it.evidence.runs[0].gpu_index, it.rule.to_string()))
            .collect()
    };
    assert_eq!(
        violations_of(&mut guard, &mut world),
        [(0, "gpu 0: maintenance".to_owned())]
    );
    guard.evaluate_samples(&mut world, 5);
    assert_eq!(guard.state.violations().len(), 1);
    // From 00:01 on the violation settles. It is over after five minutes.
    guard.evaluate_samples(&mut world, 29);
    assert_eq!(guard.state.violations().len(), 1);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(guard.state.violations(), []);
}

#[test]
fn time_policy_allows_users_and_limits() {
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
        RuleSet {
            times: vec![policy],
            ..dry_run_rules()
        }
    };
    let blocked = of(|it| it.blocked_users = names(&["bob"]));
    let later = |mut world: TestHost| {
        world.now = Timestamp(3_600_000);
        world
    };
    let cases = [
        ("blocked", host_with_bob(|_| ()), Yes),
        (
            "another",
            host_with_bob(|it| it.facts.owner = Some(person("alice"))),
            No,
        ),
        ("at another time", later(host_with_bob(|_| ())), No),
        (
            "unknown",
            host_with_bob(|it| it.facts.owner = None),
            Unknown,
        ),
    ];
    check(&blocked, "time night: hours", 1, &cases);
    let limited = of(|it| it.limits.memory = gib(9));
    let cases = [
        ("over", host_with_bob(|_| ()), Yes),
        ("at another time", later(host_with_bob(|_| ())), No),
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
        &[("beside", host_with_bob(|_| ()), No)],
    );
}
