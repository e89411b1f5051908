//! A container that root made and several users share.

use super::super::acting::Signals;
use super::*;
use gpukill_proto::guard::{Acted, GuardRecord, GuardStep};

/// Processes of these users in one container, which is the owner of all.
fn container(world: &mut World, members: &[(u32, Option<u32>, u64)]) {
    for (pid, uid, gib) in members {
        let process = world.start(*pid, "container lab");
        process.uses(0, *gib, 50).job("container lab");
        process.about.is_contained = Some(true);
        process.about.user = uid.map(|uid| (None, uid));
    }
}

fn enforced(limits: Limits) -> Rules {
    Rules {
        mode: GuardMode::Enforce,
        rehearsed: Rehearsed::Enforce,
        defaults: limits,
        ..rules()
    }
}

/// The processes that are ended, end by end.
fn ends(records: &[GuardRecord]) -> Vec<Vec<u32>> {
    let victims = records.iter().filter_map(|it| it.step.victim());
    victims
        .map(|victim| victim.runs.iter().map(|told| told.run.pid).collect())
        .collect()
}

#[test]
fn the_processes_of_one_user_are_ended_and_those_of_the_others_go_on() {
    let mut world = World::new(1);
    container(
        &mut world,
        &[
            (100, Some(0), 1),
            (101, Some(1001), 15),
            (102, Some(1001), 5),
            (103, Some(1002), 1),
        ],
    );
    let mut guard = Guard::new(enforced(memory(20)));
    let judged: Vec<_> = (0..2).map(|_| guard.looks(&mut world)).collect();
    let records: Vec<_> = judged.into_iter().flat_map(|it| it.records).collect();
    // One that suffices alone, and as a whole what that user has there.
    assert_eq!(ends(&records), [[101, 102]]);
    let chosen = records
        .iter()
        .find(|it| it.step.victim().is_some())
        .unwrap();
    let [ending] = &guard.memory.endings(std::slice::from_ref(chosen))[..] else {
        panic!("one job is ended");
    };
    let pids: Vec<u32> = ending.processes.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [101, 102]);
    // Who is there of the others, or comes, does not join them.
    container(&mut world, &[(104, Some(1002), 1)]);
    assert_eq!(ends(&guard.watches(&mut world, 1)), Vec::<Vec<u32>>::new());
    for id in [101, 102] {
        world.processes.remove(&id);
    }
    let records = guard.watches(&mut world, 3);
    assert!(records.iter().any(|it| matches!(it.step, GuardStep::Over)));
    assert_eq!(ends(&records), Vec::<Vec<u32>>::new());
}

#[test]
fn what_all_do_together_ends_them_one_after_the_other() {
    let mut world = World::new(1);
    container(
        &mut world,
        &[(101, Some(1001), 4), (102, Some(1002), 4), (103, None, 4)],
    );
    let mut rules = enforced(Limits {
        duration: Some(minutes(0)),
        ..Limits::default()
    });
    rules.enforcement.cooldown = Duration::ZERO;
    let mut guard = Guard::new(rules);
    let mut ended = Vec::new();
    for _ in 0..12 {
        let records = guard.watches(&mut world, 1);
        for ending in guard.memory.endings(&records) {
            let acted = Acted {
                job: ending.record.step.victim().unwrap().job.clone(),
                ended: 1,
                left: 0,
                why: None,
            };
            guard
                .memory
                .acted(&ending, (acted, Signals::Sent), world.now);
        }
        for pids in ends(&records) {
            world.processes.retain(|pid, _| !pids.contains(pid));
            ended.push(pids);
        }
    }
    assert_eq!(ended.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_user_and_root_are_one_job() {
    for users in [
        [Some(0), Some(0)],
        [Some(0), Some(1001)],
        [Some(1001), Some(1001)],
    ] {
        let mut world = World::new(1);
        container(&mut world, &[(101, users[0], 15), (102, users[1], 15)]);
        let records = Guard::new(enforced(memory(20))).watches(&mut world, 2);
        assert_eq!(ends(&records), [[101, 102]], "{users:?}");
    }
}

#[test]
fn a_namespace_of_ones_own_in_a_shared_container_spares_nobody() {
    let mut world = World::new(1);
    container(&mut world, &[(101, Some(1001), 30), (102, Some(1002), 1)]);
    // carol is behind her own namespace, and bob's process is the container's.
    let nested = &mut world.process(102).about;
    nested.owner = Some(person("carol"));
    nested.is_of_the_box = Some(false);
    let records = Guard::new(enforced(memory(20))).watches(&mut world, 2);
    assert_eq!(ends(&records), [[101]]);
}
