//! A container that root made and several users share.

use super::super::enforcement::order::SignalStatus;
use super::*;
use gpukill_proto::guard::{EnforcementOutcome, GuardRecord, GuardStep};

/// Processes of these users in one container, which owns them all.
fn add_container(world: &mut TestHost, members: &[(u32, Option<u32>, u64)]) {
    for (pid, uid, gib) in members {
        let process = world.start(*pid, "container lab");
        process.uses(0, *gib, 50).job("container lab");
        process.facts.is_contained = Some(true);
        process.facts.user = uid.map(|uid| (None, uid));
    }
}

fn enforce_limits(limits: Limits) -> RuleSet {
    RuleSet {
        mode: GuardMode::Enforce,
        armed_mode: EnforcementMode::Enforce,
        defaults: limits,
        ..dry_run_rules()
    }
}

/// The processes that are ended, one list an end.
fn ended_pids(records: &[GuardRecord]) -> Vec<Vec<u32>> {
    let victims = records.iter().filter_map(|it| it.step.victim());
    victims
        .map(|victim| victim.runs.iter().map(|process| process.run.pid).collect())
        .collect()
}

#[test]
fn ends_only_the_processes_of_one_user() {
    let mut world = TestHost::new(1);
    add_container(
        &mut world,
        &[
            (100, Some(0), 1),
            (101, Some(1001), 15),
            (102, Some(1001), 5),
            (103, Some(1002), 1),
        ],
    );
    let mut guard = TestGuard::new(enforce_limits(memory_limit(20)));
    let evaluations: Vec<_> = (0..2).map(|_| guard.evaluate_next(&mut world)).collect();
    let records: Vec<_> = evaluations.into_iter().flat_map(|it| it.records).collect();
    // The processes of one user suffice. All that this user has there is ended.
    assert_eq!(ended_pids(&records), [[101, 102]]);
    let chosen = records
        .iter()
        .find(|it| it.step.victim().is_some())
        .unwrap();
    let [ending] = &guard.state.enforcements(std::slice::from_ref(chosen))[..] else {
        panic!("one job is ended");
    };
    let pids: Vec<u32> = ending.processes.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [101, 102]);
    // Processes of other users, present or new, do not join the order.
    add_container(&mut world, &[(104, Some(1002), 1)]);
    assert_eq!(
        ended_pids(&guard.evaluate_samples(&mut world, 1)),
        Vec::<Vec<u32>>::new()
    );
    for id in [101, 102] {
        world.processes.remove(&id);
    }
    let records = guard.evaluate_samples(&mut world, 3);
    assert!(records.iter().any(|it| matches!(it.step, GuardStep::Over)));
    assert_eq!(ended_pids(&records), Vec::<Vec<u32>>::new());
}

#[test]
fn joint_violation_ends_users_in_turn() {
    let mut world = TestHost::new(1);
    add_container(
        &mut world,
        &[(101, Some(1001), 4), (102, Some(1002), 4), (103, None, 4)],
    );
    let mut rules = enforce_limits(Limits {
        duration: Some(minutes(0)),
        ..Limits::default()
    });
    rules.enforcement.cooldown = Duration::ZERO;
    let mut guard = TestGuard::new(rules);
    let mut ended = Vec::new();
    for _ in 0..12 {
        let records = guard.evaluate_samples(&mut world, 1);
        for ending in guard.state.enforcements(&records) {
            let outcome = EnforcementOutcome {
                job: ending.record.step.victim().unwrap().job.clone(),
                ended: 1,
                left: 0,
                why: None,
            };
            guard
                .state
                .record_outcome(&ending, (outcome, SignalStatus::Sent), world.now);
        }
        for pids in ended_pids(&records) {
            world.processes.retain(|pid, _| !pids.contains(pid));
            ended.push(pids);
        }
    }
    assert_eq!(ended.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn user_and_root_are_one_job() {
    for users in [
        [Some(0), Some(0)],
        [Some(0), Some(1001)],
        [Some(1001), Some(1001)],
    ] {
        let mut world = TestHost::new(1);
        add_container(&mut world, &[(101, users[0], 15), (102, users[1], 15)]);
        let records =
            TestGuard::new(enforce_limits(memory_limit(20))).evaluate_samples(&mut world, 2);
        assert_eq!(ended_pids(&records), [[101, 102]], "{users:?}");
    }
}

#[test]
fn nested_namespace_does_not_protect() {
    let mut world = TestHost::new(1);
    add_container(&mut world, &[(101, Some(1001), 30), (102, Some(1002), 1)]);
    // carol has her own namespace; bob's process belongs to the container.
    let nested = &mut world.process(102).facts;
    nested.owner = Some(person("carol"));
    nested.in_host_user_namespace = Some(false);
    let records = TestGuard::new(enforce_limits(memory_limit(20))).evaluate_samples(&mut world, 2);
    assert_eq!(ended_pids(&records), [[101]]);
}
