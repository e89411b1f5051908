//! Of several people who share what is too much, the one who came last is ended: nobody who
//! held their share before, however small the jobs of the newcomer are.

use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use proptest::prelude::*;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

/// 8 GiB of a device stay free, whoever uses it.
fn reserving() -> Rules {
    Rules {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            reserved_memory: gib(8),
            ..GpuPolicy::default()
        }],
        ..enforcing_at_once()
    }
}

/// All of a group hold 72 GiB together.
fn of_a_group() -> Rules {
    Rules {
        groups: vec![GroupPolicy {
            name: "lab".into(),
            members: Members {
                users: names(&["alice", "bob", "carol"]),
                ..Members::default()
            },
            total_memory: gib(72),
            ..GroupPolicy::default()
        }],
        ..enforcing_at_once()
    }
}

fn enforcing_at_once() -> Rules {
    let mut rules = enforcing();
    rules.enforcement.cooldown = Duration::ZERO;
    rules.enforcement.max_ended = 1_000;
    rules
}

fn holds(world: &mut World, pid: u32, mib: u64) {
    world
        .process(pid)
        .uses(0, 0, 50)
        .memory(0, Told::Known(mib * MIB));
}

fn comes(world: &mut World, pid: u32, owner: &str, mib: u64) {
    world.start(pid, owner).job(&format!("{owner} {pid}"));
    holds(world, pid, mib);
}

/// Whose jobs are ended, in their order, where each goes at once.
fn ended(guard: &mut Guard, world: &mut World, buckets: usize) -> Vec<u32> {
    let mut ended = Vec::new();
    for _ in 0..buckets {
        for record in guard.watches(world, 1) {
            if let GuardStep::Ended(victim) = record.step {
                for told in victim.runs {
                    world.processes.remove(&told.run.pid);
                    ended.push(told.run.pid);
                }
            }
        }
    }
    ended
}

#[test]
fn many_small_jobs_of_a_newcomer_end_nobody_who_was_there_before() {
    for rules in [reserving(), of_a_group()] {
        let (mut guard, mut world) = (Guard::new(rules), World::new(1));
        comes(&mut world, 1, "bob", 70 * 1024);
        assert_eq!(ended(&mut guard, &mut world, 5), [0; 0]);
        for pid in 100..125 {
            comes(&mut world, pid, "alice", 300);
        }
        // Of 77.3 GiB all above 72 goes, the newest first: 19 jobs of 300 MiB.
        let gone = ended(&mut guard, &mut world, 120);
        assert_eq!(gone, (106..125).rev().collect::<Vec<_>>());
    }
}

#[test]
fn what_grows_came_as_late_as_it_grew() {
    for rules in [reserving(), of_a_group()] {
        let (mut guard, mut world) = (Guard::new(rules), World::new(1));
        comes(&mut world, 1, "alice", 300);
        ended(&mut guard, &mut world, 2);
        comes(&mut world, 2, "bob", 70 * 1024);
        assert_eq!(ended(&mut guard, &mut world, 5), [0; 0]);
        // A job that only kept a place grows.
        holds(&mut world, 1, 4 * 1024);
        // What an allocator takes and returns is no growth.
        holds(&mut world, 2, 71 * 1024);
        assert_eq!(ended(&mut guard, &mut world, 10), [1]);
    }
}

#[test]
fn what_was_given_back_is_claimed_anew() {
    let (mut guard, mut world) = (Guard::new(reserving()), World::new(1));
    comes(&mut world, 1, "alice", 60 * 1024);
    ended(&mut guard, &mut world, 2);
    holds(&mut world, 1, 300);
    ended(&mut guard, &mut world, 1);
    comes(&mut world, 2, "bob", 70 * 1024);
    assert_eq!(ended(&mut guard, &mut world, 3), [0; 0]);
    holds(&mut world, 1, 20 * 1024);
    assert_eq!(ended(&mut guard, &mut world, 10), [1]);

    // Or left, and taken again by the same process.
    let (mut guard, mut world) = (Guard::new(reserving()), World::new(1));
    comes(&mut world, 1, "alice", 60 * 1024);
    ended(&mut guard, &mut world, 2);
    let away = world.processes.remove(&1).unwrap();
    ended(&mut guard, &mut world, 1);
    comes(&mut world, 2, "bob", 70 * 1024);
    assert_eq!(ended(&mut guard, &mut world, 3), [0; 0]);
    world.processes.insert(1, away);
    holds(&mut world, 1, 20 * 1024);
    assert_eq!(ended(&mut guard, &mut world, 10), [1]);
}

#[test]
fn a_list_that_fails_for_a_moment_makes_nobody_come_later() {
    let (mut guard, mut world) = (Guard::new(reserving()), World::new(1));
    comes(&mut world, 1, "bob", 70 * 1024);
    ended(&mut guard, &mut world, 2);
    comes(&mut world, 2, "alice", 1024);
    ended(&mut guard, &mut world, 2);
    world.process(1).memory(0, Told::Failed);
    ended(&mut guard, &mut world, 2);
    world.devices[0].is_listed = false;
    ended(&mut guard, &mut world, 2);
    world.devices[0].is_listed = true;
    holds(&mut world, 1, 70 * 1024);
    comes(&mut world, 3, "alice", 2 * 1024);
    assert_eq!(ended(&mut guard, &mut world, 10), [3]);
}

#[test]
fn nobody_is_ended_for_a_newcomer_who_may_not_be_ended() {
    let spares: [fn(&mut World); 3] = [
        // Whose it is, is not known.
        |world| world.process(2).about.owner = None,
        // What owns it is not known.
        |world| world.process(2).about.scheduler = None,
        // What it holds is not known.
        |world| {
            world.process(2).memory(0, Told::Failed);
            world.devices[0].used = Some(6 * GIB);
        },
    ];
    for (at, spare) in spares.into_iter().enumerate() {
        let (mut guard, mut world) = (Guard::new(reserving()), World::new(1));
        comes(&mut world, 1, "bob", 70 * 1024);
        ended(&mut guard, &mut world, 2);
        comes(&mut world, 2, "alice", 6 * 1024);
        spare(&mut world);
        let records = guard.watches(&mut world, 10);
        let is_end = |record: &&GuardRecord| matches!(record.step, GuardStep::Ended(_));
        assert_eq!(records.iter().find(is_end), None, "{at}");
        let spared = records.iter().find_map(|record| match &record.step {
            GuardStep::Spared(why) => Some(why.as_str()),
            _ => None,
        });
        let why = spared.expect("it is said why");
        let before = "bob 1: others who may not be ended came after it";
        assert!(why.contains(before), "{at}: {why}");
        // What is too much without it is still the older one's.
        world.processes.get_mut(&2).unwrap().is_present = false;
        world.processes.remove(&2);
        world.devices[0].used = Some(3 * GIB);
        assert_eq!(ended(&mut guard, &mut world, 10), [1], "{at}");
    }
}

proptest! {
    #[test]
    fn an_older_holder_is_never_ended_while_newer_ones_go_on(
        arrivals in proptest::collection::vec((0_usize..3, 200_u64..30_000), 2..20),
    ) {
        let (mut guard, mut world) = (Guard::new(reserving()), World::new(1));
        let mut came: Vec<(u32, usize)> = Vec::new();
        for (pid, (person, mib)) in (1..).zip(arrivals) {
            comes(&mut world, pid, ["alice", "bob", "carol"][person], mib);
            came.push((pid, person));
            let gone: BTreeSet<u32> = ended(&mut guard, &mut world, 4).into_iter().collect();
            for (pid, person) in came.iter().filter(|it| gone.contains(&it.0)) {
                let after = came.iter().filter(|it| it.0 > *pid && !gone.contains(&it.0));
                prop_assert!(after.clone().all(|it| it.1 == *person), "{pid} {came:?} {gone:?}");
            }
            came.retain(|it| !gone.contains(&it.0));
        }
    }
}
