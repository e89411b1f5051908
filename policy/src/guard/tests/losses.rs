//! A device that is gone, and processes that have ended: no violation waits for them.

use super::*;
use gpukill_proto::guard::{GuardStep, Subject};
use gpukill_proto::snapshot::DeviceId;
use std::collections::BTreeSet;

/// bob holds too much on two devices together, and is where he may not be on the second.
fn broken() -> (Guard, World) {
    let rules = Rules {
        defaults: memory(80),
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(2));
    let process = world.start(100, "bob").job("train");
    process.uses(0, 62, 50).uses(1, 30, 50);
    guard.watches(&mut world, 3);
    assert_eq!(guard.memory.violations().len(), 2);
    world.devices[1].is_there = false;
    (guard, world)
}

/// What goes on after so many buckets, where the daemon says this besides.
fn goes_on(
    (guard, world): (&mut Guard, &mut World),
    buckets: usize,
    (gone, lives): (&[&str], bool),
) -> Vec<String> {
    let gone: BTreeSet<DeviceId> = gone.iter().map(|id| DeviceId((*id).into())).collect();
    for _ in 0..buckets {
        guard.memory.loses(&gone, &|_, _| lives);
        let records = guard.watches(world, 1);
        assert!(
            records
                .iter()
                .all(|it| !matches!(it.step, GuardStep::Ended(_)))
        );
    }
    let open = guard.memory.violations().into_iter();
    let shown = open.map(|it| match it.subject {
        Subject::Run(_) => format!("{} of a process", it.rule),
        _ => it.rule.to_string(),
    });
    shown.collect()
}

const BOTH: [&str; 2] = ["default: memory", "gpu 1: user of a process"];

#[test]
fn what_was_held_of_a_device_that_is_gone_is_not_waited_for() {
    let (mut guard, mut world) = broken();
    // It may come back, and what it holds is not known.
    let away = goes_on((&mut guard, &mut world), 28, (&[], true));
    assert_eq!(away, BOTH);
    // Its driver does not list it any more: the rest, 62 GiB, is not too much.
    let gone = goes_on((&mut guard, &mut world), 1, (&["GPU-1"], true));
    assert_eq!(gone, ["default: memory"]);
    let none = [""; 0];
    let settled = goes_on((&mut guard, &mut world), 30, (&["GPU-1"], true));
    assert_eq!(settled, none);
}

#[test]
fn a_violation_ends_with_its_process_whatever_its_device_says() {
    let (mut guard, mut world) = broken();
    world.processes.clear();
    world.devices[0].is_there = false;
    let lives = goes_on((&mut guard, &mut world), 3, (&[], true));
    assert_eq!(lives, BOTH);
    let ended = goes_on((&mut guard, &mut world), 1, (&[], false));
    assert_eq!(ended, ["default: memory"]);
    let settled = goes_on((&mut guard, &mut world), 30, (&[], false));
    assert_eq!(settled, [""; 0]);
}

#[test]
fn a_process_that_is_only_out_of_sight_is_still_known() {
    let (mut guard, mut world) = broken();
    let open = guard.memory.violations();
    let kept = goes_on((&mut guard, &mut world), 300, (&[], true));
    assert_eq!(kept, BOTH);
    assert_eq!(guard.memory.violations(), open);
}
