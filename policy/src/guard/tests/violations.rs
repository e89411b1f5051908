//! Each kind of rule is violated above its limit: not below it, not at the limit itself,
//! and not where a value is unknown.

mod access;
mod amounts;
mod behaviour;
mod groups;
mod rogue;

use super::*;

/// The rules that are violated after this many samples, and those that could not be
/// evaluated in the last one.
pub(super) fn evaluate_rules(
    rules: RuleSet,
    world: &mut TestHost,
    samples: usize,
) -> (Vec<String>, Vec<String>) {
    let mut guard = TestGuard::new(rules);
    let mut undetermined = Vec::new();
    for _ in 0..samples {
        undetermined = guard.evaluate_next(world).undetermined;
    }
    let violated = guard.state.violations();
    (
        violated.iter().map(|it| it.rule.to_string()).collect(),
        undetermined.iter().map(|it| it.rule.to_string()).collect(),
    )
}

/// Checks the result of a rule for each world: violated, not violated, or unknown.
pub(super) fn check(
    rules: &RuleSet,
    rule: &str,
    samples: usize,
    cases: &[(&str, TestHost, ExpectedResult)],
) {
    for (case, world, expected) in cases {
        let (violated, undetermined) = evaluate_rules(rules.clone(), &mut world.clone(), samples);
        let says = match (violated.as_slice(), undetermined.as_slice()) {
            ([one], _) if one == rule => Yes,
            ([], []) => No,
            ([], [one, ..]) if one == rule => Unknown,
            other => panic!("{case}: {other:?}"),
        };
        assert_eq!(says, *expected, "{rule}: {case}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedResult {
    Yes,
    No,
    Unknown,
}
pub(super) use ExpectedResult::*;

/// One process of bob's.
pub(super) fn host_with_bob(change: impl FnOnce(&mut TestProcess)) -> TestHost {
    let mut world = TestHost::new(2);
    let process = world.start(100, "bob").uses(0, 10, 50);
    change(process);
    world
}

pub(super) fn rules_with_limits(limits: Limits) -> RuleSet {
    RuleSet {
        defaults: limits,
        ..dry_run_rules()
    }
}

pub(super) fn group_policy() -> GroupPolicy {
    GroupPolicy {
        name: "students".into(),
        members: Members {
            users: names(&["bob"]),
            unix_groups: names(&["students"]),
            ..Members::default()
        },
        ..GroupPolicy::default()
    }
}

pub(super) fn rules_with_group(policy: GroupPolicy) -> RuleSet {
    RuleSet {
        groups: vec![policy],
        ..dry_run_rules()
    }
}

/// bob, and alice who may be in a group.
pub(super) fn host_with_bob_and_alice(group: Option<&str>) -> TestHost {
    let mut world = host_with_bob(|_| ());
    let alice = world.start(101, "alice").uses(0, 10, 50);
    alice.facts.groups = group.map(|group| names(&[group]));
    world
}

pub(super) fn rules_with_gpu(change: impl FnOnce(&mut GpuPolicy)) -> RuleSet {
    let mut policy = GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        ..GpuPolicy::default()
    };
    change(&mut policy);
    RuleSet {
        gpus: vec![policy],
        ..dry_run_rules()
    }
}
