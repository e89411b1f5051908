//! Each kind of rule fires when it should, not below, not at the limit itself, and not
//! where something is not known.

mod access;

mod amounts;

mod conduct;

mod groups;

mod rogue;

use super::*;

/// The names of the rules that are violated after so many buckets, and those that
/// could not be judged in the last.
pub(super) fn seen(rules: Rules, world: &mut World, buckets: usize) -> (Vec<String>, Vec<String>) {
    let mut guard = Guard::new(rules);
    let mut unjudged = Vec::new();
    for _ in 0..buckets {
        unjudged = guard.looks(world).unjudged;
    }
    let violated = guard.memory.violations();
    (
        violated.iter().map(|it| it.rule.to_string()).collect(),
        unjudged.iter().map(|it| it.rule.to_string()).collect(),
    )
}

/// What a rule says of worlds: violated, or not, or that it cannot be told.
pub(super) fn check(rules: &Rules, rule: &str, buckets: usize, cases: &[(&str, World, Says)]) {
    for (case, world, expected) in cases {
        let (violated, unjudged) = seen(rules.clone(), &mut world.clone(), buckets);
        let says = match (violated.as_slice(), unjudged.as_slice()) {
            ([one], _) if one == rule => Yes,
            ([], []) => No,
            ([], [one, ..]) if one == rule => Unknown,
            other => panic!("{case}: {other:?}"),
        };
        assert_eq!(says, *expected, "{rule}: {case}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    Yes,
    No,
    Unknown,
}
pub(super) use Says::*;

/// One process of bob's.
pub(super) fn bob(change: impl FnOnce(&mut Process)) -> World {
    let mut world = World::new(2);
    let process = world.start(100, "bob").uses(0, 10, 50);
    change(process);
    world
}

pub(super) fn limits(limits: Limits) -> Rules {
    Rules {
        defaults: limits,
        ..rules()
    }
}

pub(super) fn students() -> GroupPolicy {
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

pub(super) fn of_group(policy: GroupPolicy) -> Rules {
    Rules {
        groups: vec![policy],
        ..rules()
    }
}

/// bob, and alice who is in a group or not.
pub(super) fn two(group: Option<&str>) -> World {
    let mut world = bob(|_| ());
    let alice = world.start(101, "alice").uses(0, 10, 50);
    alice.about.groups = group.map(|group| names(&[group]));
    world
}

pub(super) fn of_gpu(change: impl FnOnce(&mut GpuPolicy)) -> Rules {
    let mut policy = GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        ..GpuPolicy::default()
    };
    change(&mut policy);
    Rules {
        gpus: vec![policy],
        ..rules()
    }
}
