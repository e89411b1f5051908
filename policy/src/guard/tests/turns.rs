//! What each look adds to a clock, and what it takes back.

use super::words::line;
use super::*;
use gpukill_proto::guard::{GuardRecord, Measured};

/// bob may hold 20 GiB.
fn guard(mode: GuardMode) -> Guard {
    Guard::new(Rules {
        mode,
        defaults: memory(20),
        ..rules()
    })
}

fn world() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

fn lines(records: &[GuardRecord]) -> Vec<String> {
    records.iter().map(line).collect()
}

#[test]
fn one_look_at_which_it_holds_begins_the_time_to_settle_anew() {
    let (mut guard, mut world) = (guard(GuardMode::Soft), world());
    guard.watches(&mut world, 20);
    for _ in 0..2 {
        world.process(100).uses(0, 20, 50);
        assert_eq!(lines(&guard.watches(&mut world, 29)), [""; 0]);
        world.process(100).uses(0, 21, 50);
        assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    }
    world.process(100).uses(0, 20, 50);
    assert_eq!(guard.watches(&mut world, 30).len(), 1);
    assert_eq!(guard.memory.violations(), []);
}

#[test]
fn what_a_violation_is_known_by_is_what_was_seen_last() {
    let (mut guard, mut world) = (guard(GuardMode::Soft), world());
    for gib in [21, 25, 22] {
        world.process(100).uses(0, gib, 50);
        guard.watches(&mut world, 2);
        let open = guard.memory.violations();
        let measured: Vec<_> = open.iter().map(|it| it.evidence.measured).collect();
        let expected = Measured {
            value: gib * GIB,
            limit: 20 * GIB,
        };
        assert_eq!(measured, [Some(expected)]);
    }
}

#[test]
fn what_did_not_hold_at_the_second_look_began_at_the_third() {
    let (mut guard, mut world) = (guard(GuardMode::Soft), world());
    guard.watches(&mut world, 1);
    world.process(100).uses(0, 20, 50);
    guard.watches(&mut world, 1);
    world.process(100).uses(0, 21, 50);
    let expected = [
        "00:00:40 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:20 [soft]",
        "00:00:40 bob: default: memory: warned, ends 00:05:40 [soft]",
    ];
    assert_eq!(lines(&guard.watches(&mut world, 2)), expected);
}

#[test]
fn where_nobody_could_be_ended_two_looks_tell_of_who_comes_then() {
    let (mut guard, mut world) = (guard(GuardMode::Enforce), world());
    let told = lines(&guard.watches(&mut world, 8));
    let spared = "00:01:20 bob: default: memory: nobody is ended: tree 100 was ended, and is \
                  there still [enforce]";
    assert_eq!(told.last().map(String::as_str), Some(spared));
    world.processes.clear();
    world.start(200, "bob").uses(0, 21, 50).job("tree 200");
    assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    let expected = [
        "00:01:40 bob: default: memory: ends tree 200 of bob (priority 5, 1 on GPUs, which works) \
         [enforce]",
    ];
    assert_eq!(lines(&guard.watches(&mut world, 1)), expected);
}

#[test]
fn at_the_deadline_nobody_is_warned_any_more() {
    let (mut guard, mut world) = (guard(GuardMode::Soft), world());
    guard.watches(&mut world, 2);
    world.process(100).uses(0, 20, 50);
    guard.watches(&mut world, 29);
    world.process(100).uses(0, 21, 50);
    // It is 00:05:20, and confirmed is nothing yet.
    assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    assert_eq!(guard.memory.violations()[0].deadline, Some(world.now));
}

#[test]
fn who_was_ended_has_as_long_to_go_whatever_time_nobody_looked() {
    let (mut guard, mut world) = (guard(GuardMode::Enforce), world());
    assert_eq!(guard.watches(&mut world, 2).len(), 2);
    world.now = world.now.plus_seconds(3_600);
    assert_eq!(lines(&guard.watches(&mut world, 5)), [""; 0]);
    let steps: Vec<_> = guard.watches(&mut world, 1);
    let steps: Vec<_> = steps.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["spared"]);
}
