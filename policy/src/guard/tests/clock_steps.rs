//! What each sample adds to the clock of a violation, and what it takes back.

use super::record_text::record_line;
use super::*;
use gpukill_proto::guard::{GuardRecord, Measurement};

/// bob may hold 20 GiB.
fn guard_in_mode(mode: GuardMode) -> TestGuard {
    TestGuard::new(RuleSet {
        mode,
        defaults: memory_limit(20),
        ..dry_run_rules()
    })
}

fn world() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

fn lines(records: &[GuardRecord]) -> Vec<String> {
    records.iter().map(record_line).collect()
}

#[test]
fn one_violating_sample_restarts_settling() {
    let (mut guard, mut world) = (guard_in_mode(GuardMode::Soft), world());
    guard.evaluate_samples(&mut world, 20);
    for _ in 0..2 {
        world.process(100).uses(0, 20, 50);
        assert_eq!(lines(&guard.evaluate_samples(&mut world, 29)), [""; 0]);
        world.process(100).uses(0, 21, 50);
        assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    }
    world.process(100).uses(0, 20, 50);
    assert_eq!(guard.evaluate_samples(&mut world, 30).len(), 1);
    assert_eq!(guard.state.violations(), []);
}

#[test]
fn evidence_is_from_the_last_sample() {
    let (mut guard, mut world) = (guard_in_mode(GuardMode::Soft), world());
    for gib in [21, 25, 22] {
        world.process(100).uses(0, gib, 50);
        guard.evaluate_samples(&mut world, 2);
        let open = guard.state.violations();
        let measured: Vec<_> = open.iter().map(|it| it.evidence.measured).collect();
        let expected = Measurement {
            value: gib * GIB,
            limit: 20 * GIB,
        };
        assert_eq!(measured, [Some(expected)]);
    }
}

#[test]
fn unconfirmed_start_does_not_count() {
    let (mut guard, mut world) = (guard_in_mode(GuardMode::Soft), world());
    guard.evaluate_samples(&mut world, 1);
    world.process(100).uses(0, 20, 50);
    guard.evaluate_samples(&mut world, 1);
    world.process(100).uses(0, 21, 50);
    let expected = [
        "00:00:40 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:20 [soft]",
        "00:00:40 bob: default: memory: warned, ends 00:05:40 [soft]",
    ];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 2)), expected);
}

#[test]
fn new_victim_needs_two_samples() {
    let (mut guard, mut world) = (guard_in_mode(GuardMode::Enforce), world());
    let actual = lines(&guard.evaluate_samples(&mut world, 8));
    let exempt = "00:01:20 bob: default: memory: nobody is ended: tree 100 was ended and is still \
                  running [enforce]";
    assert_eq!(actual.last().map(String::as_str), Some(exempt));
    world.processes.clear();
    world.start(200, "bob").uses(0, 21, 50).job("tree 200");
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    let expected = [
        "00:01:40 bob: default: memory: ends tree 200 of bob (priority 5, 1 on GPUs, which works) \
         [enforce]",
    ];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), expected);
}

#[test]
fn no_warning_at_the_deadline() {
    let (mut guard, mut world) = (guard_in_mode(GuardMode::Soft), world());
    guard.evaluate_samples(&mut world, 2);
    world.process(100).uses(0, 20, 50);
    guard.evaluate_samples(&mut world, 29);
    world.process(100).uses(0, 21, 50);
    // At 00:05:20 the violation is not confirmed yet.
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    assert_eq!(guard.state.violations()[0].deadline, Some(world.now));
}

#[test]
fn gap_extends_the_time_to_exit() {
    let (mut guard, mut world) = (guard_in_mode(GuardMode::Enforce), world());
    assert_eq!(guard.evaluate_samples(&mut world, 2).len(), 2);
    world.now = world.now.plus_seconds(3_600);
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 5)), [""; 0]);
    let steps: Vec<_> = guard.evaluate_samples(&mut world, 1);
    let steps: Vec<_> = steps.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["exempt"]);
}
