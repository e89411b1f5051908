//! What keeps the guard from ending somebody in this very bucket: memory that comes back
//! still, a gap, a clock that jumps.

use super::super::judge;
use super::*;
use gpukill_proto::guard::GuardRecord;

/// Seconds since a moment, and whose job is ended then.
fn ended(since: Timestamp, records: &[GuardRecord]) -> Vec<(i64, String)> {
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

/// Processes that hold too much, a job each: whose, and on which device.
fn world(processes: &[(&str, usize)]) -> World {
    let mut world = World::new(2);
    world.now = DAY;
    for (pid, (owner, device)) in (100..).zip(processes) {
        let job = format!("tree {pid}");
        world.start(pid, owner).uses(*device, 21, 50).job(&job);
    }
    world
}

/// Each may hold 20 GiB.
fn small() -> Guard {
    Guard::new(Rules {
        mode: GuardMode::Enforce,
        defaults: memory(20),
        ..rules()
    })
}

/// Nobody but root may use a device.
fn forbidden() -> Guard {
    Guard::new(Rules {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "all".into(),
            gpus: [gpus("0"), gpus("1")].concat(),
            blocked_users: names(&["alice", "bob", "carol"]),
            ..GpuPolicy::default()
        }],
        ..rules()
    })
}

#[test]
fn for_an_amount_no_other_job_of_theirs_is_ended_while_memory_comes_back() {
    let mut guard = small();
    let mut world = world(&[("alice", 0), ("alice", 0), ("bob", 0)]);
    let mut records = guard.watches(&mut world, 2);
    assert_eq!(
        ended(DAY, &records),
        [end(20, "tree 101"), end(20, "tree 102")]
    );
    world.processes.remove(&101);
    world.processes.remove(&102);
    records.extend(guard.watches(&mut world, 10));
    let expected = [
        end(20, "tree 101"),
        end(20, "tree 102"),
        end(80, "tree 100"),
    ];
    assert_eq!(ended(DAY, &records), expected);
}

#[test]
fn what_is_not_allowed_at_all_waits_for_no_memory() {
    let mut guard = forbidden();
    let mut world = world(&[("alice", 0), ("bob", 0), ("carol", 1)]);
    let expected = [
        end(10, "tree 100"),
        end(10, "tree 101"),
        end(10, "tree 102"),
    ];
    assert_eq!(ended(DAY, &guard.watches(&mut world, 1)), expected);
}

#[test]
fn a_clock_that_is_set_back_a_little_shortens_no_cooldown() {
    for back in [1, 5, 25, 30, 31, 3_600] {
        let mut guard = small();
        let mut world = world(&[("alice", 0), ("alice", 0)]);
        guard.watches(&mut world, 2);
        world.processes.remove(&101);
        let before = world.now;
        world.now = before.plus_seconds(-back);
        let records = guard.watches(&mut world, 20);
        let since = before.plus_seconds(-back);
        let ended = ended(since, &records);
        assert_eq!(ended.len(), 1, "{back} {ended:?}");
        assert!(ended[0].0 >= 60, "{back} {ended:?}");
    }
}

#[test]
fn nobody_is_ended_in_a_bucket_in_which_the_clock_jumps_or_after_a_gap() {
    // Where the bucket begins after the last one ended, how much longer it is by the
    // clock on the wall than by what was seen, in milliseconds, and whether that is a jump.
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
            // Of the first bucket of all nothing comes before.
            if is_first && apart != 0 {
                continue;
            }
            let (mut guard, mut world) = (forbidden(), world(&[]));
            if !is_first {
                guard.watches(&mut world, 3);
            }
            world.now = Timestamp(world.now.0 + apart);
            world.start(100, "bob").uses(0, 1, 50).job("tree 100");
            let mut bucket = world.bucket(TEN_SECONDS);
            bucket.until = Timestamp(bucket.until.0 + longer);
            world.now = bucket.until;
            let records = judge(&guard.book, &mut guard.memory, &bucket).records;
            let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
            let expected = if jumps {
                &["violated"][..]
            } else {
                &["violated", "ended"]
            };
            assert_eq!(steps, expected, "{apart} {longer} {is_first}");
            let next = guard.watches(&mut world, 1);
            let steps: Vec<_> = next.iter().map(|it| it.step.name()).collect();
            let expected = if jumps { &["ended"][..] } else { &[] };
            assert_eq!(steps, expected, "{apart} {longer} {is_first}");
        }
    }
}

#[test]
fn a_bucket_of_a_moment_ends_nobody_after_a_gap_and_may_as_the_first_of_all() {
    for is_first in [false, true] {
        let (mut guard, mut world) = (forbidden(), world(&[]));
        if !is_first {
            guard.watches(&mut world, 3);
        }
        world.start(100, "bob").uses(0, 1, 50).job("tree 100");
        let mut bucket = world.bucket(TEN_SECONDS);
        bucket.from = bucket.until;
        bucket.seen_ms = 0;
        let records = judge(&guard.book, &mut guard.memory, &bucket).records;
        let mut steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
        assert_eq!(steps.len(), 1 + usize::from(is_first), "{steps:?}");
        let next = guard.watches(&mut world, 1);
        steps.extend(next.iter().map(|it| it.step.name()));
        assert_eq!(steps, ["violated", "ended"], "{is_first}");
    }
}
