//! If several people exceed a limit together, the last to arrive loses a job: never a person
//! who held their share before, however small the jobs of the newcomer are.

use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use proptest::prelude::*;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

/// 8 GiB of a device stay free.
fn reserve_rules() -> RuleSet {
    RuleSet {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            reserved_memory: gib(8),
            ..GpuPolicy::default()
        }],
        ..enforce_at_once()
    }
}

/// All members of a group may hold 72 GiB together.
fn group_rules() -> RuleSet {
    RuleSet {
        groups: vec![GroupPolicy {
            name: "lab".into(),
            members: Members {
                users: names(&["alice", "bob", "carol"]),
                ..Members::default()
            },
            total_memory: gib(72),
            ..GroupPolicy::default()
        }],
        ..enforce_at_once()
    }
}

fn enforce_at_once() -> RuleSet {
    let mut rules = enforce_rules();
    rules.enforcement.cooldown = Duration::ZERO;
    rules.enforcement.max_ended = 1_000;
    rules
}

fn set_memory(world: &mut TestHost, pid: u32, mib: u64) {
    world
        .process(pid)
        .uses(0, 0, 50)
        .memory(0, TestReading::Known(mib * MIB));
}

fn add_process(world: &mut TestHost, pid: u32, owner: &str, mib: u64) {
    world.start(pid, owner).job(&format!("{owner} {pid}"));
    set_memory(world, pid, mib);
}

/// The pids of ended jobs, in order. Each job goes at once.
fn ended_pids(guard: &mut TestGuard, world: &mut TestHost, samples: usize) -> Vec<u32> {
    let mut ended = Vec::new();
    for _ in 0..samples {
        for record in guard.evaluate_samples(world, 1) {
            if let GuardStep::Ended(victim) = record.step {
                for process in victim.runs {
                    world.processes.remove(&process.run.pid);
                    ended.push(process.run.pid);
                }
            }
        }
    }
    ended
}

#[test]
fn newcomer_loses_its_small_jobs() {
    for rules in [reserve_rules(), group_rules()] {
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        add_process(&mut world, 1, "bob", 70 * 1024);
        assert_eq!(ended_pids(&mut guard, &mut world, 5), [0; 0]);
        for pid in 100..125 {
            add_process(&mut world, pid, "alice", 300);
        }
        // Of 77.3 GiB, all above 72 goes, the newest first: 19 jobs of 300 MiB.
        let gone = ended_pids(&mut guard, &mut world, 120);
        assert_eq!(gone, (106..125).rev().collect::<Vec<_>>());
    }
}

#[test]
fn growth_counts_as_late() {
    for rules in [reserve_rules(), group_rules()] {
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        add_process(&mut world, 1, "alice", 300);
        ended_pids(&mut guard, &mut world, 2);
        add_process(&mut world, 2, "bob", 70 * 1024);
        assert_eq!(ended_pids(&mut guard, &mut world, 5), [0; 0]);
        // A small old job grows.
        set_memory(&mut world, 1, 4 * 1024);
        // Memory that an allocator takes and returns is no growth.
        set_memory(&mut world, 2, 71 * 1024);
        assert_eq!(ended_pids(&mut guard, &mut world, 10), [1]);
    }
}

#[test]
fn returned_memory_loses_its_age() {
    let (mut guard, mut world) = (TestGuard::new(reserve_rules()), TestHost::new(1));
    add_process(&mut world, 1, "alice", 60 * 1024);
    ended_pids(&mut guard, &mut world, 2);
    set_memory(&mut world, 1, 300);
    ended_pids(&mut guard, &mut world, 1);
    add_process(&mut world, 2, "bob", 70 * 1024);
    assert_eq!(ended_pids(&mut guard, &mut world, 3), [0; 0]);
    set_memory(&mut world, 1, 20 * 1024);
    assert_eq!(ended_pids(&mut guard, &mut world, 10), [1]);

    // The same process leaves the device and takes the memory again.
    let (mut guard, mut world) = (TestGuard::new(reserve_rules()), TestHost::new(1));
    add_process(&mut world, 1, "alice", 60 * 1024);
    ended_pids(&mut guard, &mut world, 2);
    let away = world.processes.remove(&1).unwrap();
    ended_pids(&mut guard, &mut world, 1);
    add_process(&mut world, 2, "bob", 70 * 1024);
    assert_eq!(ended_pids(&mut guard, &mut world, 3), [0; 0]);
    world.processes.insert(1, away);
    set_memory(&mut world, 1, 20 * 1024);
    assert_eq!(ended_pids(&mut guard, &mut world, 10), [1]);
}

#[test]
fn failed_list_keeps_the_age() {
    let (mut guard, mut world) = (TestGuard::new(reserve_rules()), TestHost::new(1));
    add_process(&mut world, 1, "bob", 70 * 1024);
    ended_pids(&mut guard, &mut world, 2);
    add_process(&mut world, 2, "alice", 1024);
    ended_pids(&mut guard, &mut world, 2);
    world.process(1).memory(0, TestReading::Failed);
    ended_pids(&mut guard, &mut world, 2);
    world.devices[0].reports_processes = false;
    ended_pids(&mut guard, &mut world, 2);
    world.devices[0].reports_processes = true;
    set_memory(&mut world, 1, 70 * 1024);
    add_process(&mut world, 3, "alice", 2 * 1024);
    assert_eq!(ended_pids(&mut guard, &mut world, 10), [3]);
}

#[test]
fn protected_newcomer_ends_nobody_else() {
    let spares: [fn(&mut TestHost); 3] = [
        // The owner is not known.
        |world| world.process(2).facts.owner = None,
        // The scheduler is not known.
        |world| world.process(2).facts.scheduler = None,
        // The memory is not known.
        |world| {
            world.process(2).memory(0, TestReading::Failed);
            world.devices[0].used = Some(6 * GIB);
        },
    ];
    for (at, spare) in spares.into_iter().enumerate() {
        let (mut guard, mut world) = (TestGuard::new(reserve_rules()), TestHost::new(1));
        add_process(&mut world, 1, "bob", 70 * 1024);
        ended_pids(&mut guard, &mut world, 2);
        add_process(&mut world, 2, "alice", 6 * 1024);
        spare(&mut world);
        let records = guard.evaluate_samples(&mut world, 10);
        let is_end = |record: &&GuardRecord| matches!(record.step, GuardStep::Ended(_));
        assert_eq!(records.iter().find(is_end), None, "{at}");
        let exempt = records.iter().find_map(|record| match &record.step {
            GuardStep::Exempt(why) => Some(why.as_str()),
            _ => None,
        });
        let why = exempt.expect("it is said why");
        let before = "bob 1: later jobs that may not be ended hold the excess";
        assert!(why.contains(before), "{at}: {why}");
        // Without the newcomer, the excess is that of the older holder.
        world.processes.get_mut(&2).unwrap().is_present = false;
        world.processes.remove(&2);
        world.devices[0].used = Some(3 * GIB);
        assert_eq!(ended_pids(&mut guard, &mut world, 10), [1], "{at}");
    }
}

proptest! {
    #[test]
    fn newer_holders_go_first(
        arrivals in proptest::collection::vec((0_usize..3, 200_u64..30_000), 2..20),
    ) {
        let (mut guard, mut world) = (TestGuard::new(reserve_rules()), TestHost::new(1));
        let mut came: Vec<(u32, usize)> = Vec::new();
        for (pid, (person, mib)) in (1..).zip(arrivals) {
            add_process(&mut world, pid, ["alice", "bob", "carol"][person], mib);
            came.push((pid, person));
            let gone: BTreeSet<u32> = ended_pids(&mut guard, &mut world, 4).into_iter().collect();
            for (pid, person) in came.iter().filter(|it| gone.contains(&it.0)) {
                let after = came.iter().filter(|it| it.0 > *pid && !gone.contains(&it.0));
                prop_assert!(after.clone().all(|it| it.1 == *person), "{pid} {came:?} {gone:?}");
            }
            came.retain(|it| !gone.contains(&it.0));
        }
    }
}
