//! What keeps the guard from ending a job at the current sample: memory that is still being
//! released, a gap, a clock that jumps.

use super::super::evaluate;
use super::*;
use gpukill_proto::guard::GuardRecord;

/// For each ended job, the seconds since `since` and the name.
fn ends_since(since: Timestamp, records: &[GuardRecord]) -> Vec<(i64, String)> {
    let ended = records.iter().filter_map(|record| {
        let victim = record.step.victim()?;
        let at = record.at.0 - since.0;
        Some((at / 1_000, victim.job.id.clone()))
    });
    ended.collect()
}

fn end(at: i64, job: &str) -> (i64, String) {
    (at, job.to_owned())
}

const DAY: Timestamp = Timestamp(86_400_000);

/// Processes that hold too much, each in a job of its own: the owner and the device.
fn world(processes: &[(&str, usize)]) -> TestHost {
    let mut world = TestHost::new(2);
    world.now = DAY;
    for (pid, (owner, device)) in (100..).zip(processes) {
        let job = format!("tree {pid}");
        world.start(pid, owner).uses(*device, 21, 50).job(&job);
    }
    world
}

/// Each person may hold 20 GiB.
fn guard_with_memory_limit() -> TestGuard {
    TestGuard::new(RuleSet {
        mode: GuardMode::Enforce,
        defaults: memory_limit(20),
        ..dry_run_rules()
    })
}

/// Only root may use a device.
fn guard_forbidding_all() -> TestGuard {
    TestGuard::new(RuleSet {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "all".into(),
            gpus: [gpus("0"), gpus("1")].concat(),
            blocked_users: names(&["alice", "bob", "carol"]),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    })
}

#[test]
fn limit_waits_for_released_memory() {
    let mut guard = guard_with_memory_limit();
    let mut world = world(&[("alice", 0), ("alice", 0), ("bob", 0)]);
    let mut records = guard.evaluate_samples(&mut world, 2);
    assert_eq!(
        ends_since(DAY, &records),
        [end(20, "tree 101"), end(20, "tree 102")]
    );
    world.processes.remove(&101);
    world.processes.remove(&102);
    records.extend(guard.evaluate_samples(&mut world, 10));
    let expected = [
        end(20, "tree 101"),
        end(20, "tree 102"),
        end(80, "tree 100"),
    ];
    assert_eq!(ends_since(DAY, &records), expected);
}

#[test]
fn access_violation_does_not_wait() {
    let mut guard = guard_forbidding_all();
    let mut world = world(&[("alice", 0), ("bob", 0), ("carol", 1)]);
    let expected = [
        end(10, "tree 100"),
        end(10, "tree 101"),
        end(10, "tree 102"),
    ];
    assert_eq!(
        ends_since(DAY, &guard.evaluate_samples(&mut world, 1)),
        expected
    );
}

#[test]
fn clock_set_back_keeps_the_cooldown() {
    for back in [1, 5, 25, 30, 31, 3_600] {
        let mut guard = guard_with_memory_limit();
        let mut world = world(&[("alice", 0), ("alice", 0)]);
        guard.evaluate_samples(&mut world, 2);
        world.processes.remove(&101);
        let before = world.now;
        world.now = before.plus_seconds(-back);
        let records = guard.evaluate_samples(&mut world, 20);
        let since = before.plus_seconds(-back);
        let ended = ends_since(since, &records);
        assert_eq!(ended.len(), 1, "{back} {ended:?}");
        assert!(ended[0].0 >= 60, "{back} {ended:?}");
    }
}

#[test]
fn nothing_ends_on_clock_jumps_or_gaps() {
    // The milliseconds between the end of the last sample and the start of this one; how
    // much longer the sample is by the wall clock than by the observed time; and whether
    // that is a jump.
    let cases = [
        (0, 0, false),
        (1_999, 0, false),
        (-1_999, 0, false),
        (2_001, 0, true),
        (-2_001, 0, true),
        (3_600_000, 0, true),
        (-3_600_000, 0, true),
        (0, 1_999, false),
        (0, 2_001, true),
        (0, -2_001, true),
        (0, 86_400_000, true),
    ];
    for (apart, longer, jumps) in cases {
        for is_first in [false, true] {
            // Nothing comes before the very first sample.
            if is_first && apart != 0 {
                continue;
            }
            let (mut guard, mut world) = (guard_forbidding_all(), world(&[]));
            if !is_first {
                guard.evaluate_samples(&mut world, 3);
            }
            world.now = Timestamp(world.now.0 + apart);
            world.start(100, "bob").uses(0, 1, 50).job("tree 100");
            let mut sample = world.next_sample(SAMPLE_MS);
            sample.until = Timestamp(sample.until.0 + longer);
            world.now = sample.until;
            let records = evaluate(&guard.compiled_rules, &mut guard.state, &sample).records;
            let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
            let expected = if jumps {
                &["violated"][..]
            } else {
                &["violated", "ended"]
            };
            assert_eq!(steps, expected, "{apart} {longer} {is_first}");
            let next = guard.evaluate_samples(&mut world, 1);
            let steps: Vec<_> = next.iter().map(|it| it.step.name()).collect();
            let expected = if jumps { &["ended"][..] } else { &[] };
            assert_eq!(steps, expected, "{apart} {longer} {is_first}");
        }
    }
}

#[test]
fn empty_sample_ends_nothing_after_a_gap() {
    for is_first in [false, true] {
        let (mut guard, mut world) = (guard_forbidding_all(), world(&[]));
        if !is_first {
            guard.evaluate_samples(&mut world, 3);
        }
        world.start(100, "bob").uses(0, 1, 50).job("tree 100");
        let mut sample = world.next_sample(SAMPLE_MS);
        sample.from = sample.until;
        sample.observed_ms = 0;
        let records = evaluate(&guard.compiled_rules, &mut guard.state, &sample).records;
        let mut steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
        assert_eq!(steps.len(), 1 + usize::from(is_first), "{steps:?}");
        let next = guard.evaluate_samples(&mut world, 1);
        steps.extend(next.iter().map(|it| it.step.name()));
        assert_eq!(steps, ["violated", "ended"], "{is_first}");
    }
}
