//! The circuit breaker: a guard that ends one job after another stops.

use super::super::enforcement::order::{Enforcement, SignalStatus};
use super::super::evaluate;
use super::*;
use gpukill_proto::guard::{EnforcementOutcome, GuardRecord, GuardStep};

/// None of these people may use a GPU. `max_ended` jobs may be ended in ten minutes.
fn rules_forbidding_all(mode: GuardMode, max_ended: u32) -> RuleSet {
    let mut rules = RuleSet {
        mode,
        armed_mode: EnforcementMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&PEOPLE),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    rules.enforcement.max_ended = max_ended;
    rules
}

const PEOPLE: [&str; 5] = ["alice", "bob", "carol", "dave", "eve"];

/// Each process belongs to another person.
fn add_intruders(world: &mut TestHost, pids: std::ops::Range<u32>) {
    for pid in pids {
        let job = format!("tree {pid}");
        let owner = PEOPLE[pid as usize % PEOPLE.len()];
        world.start(pid, owner).uses(0, 1, 50).job(&job);
    }
}

/// The second and the decision of each record, without opened and closed violations: the
/// ended job, or after how many jobs the guard stops.
fn decisions(records: &[GuardRecord]) -> Vec<(i64, String)> {
    let mut acts: Vec<(i64, String)> = Vec::new();
    for record in records {
        let at = record.at.0 / 1_000;
        match &record.step {
            GuardStep::Ended(victim) => acts.push((at, victim.job.id.clone())),
            GuardStep::Tripped { ended } => acts.push((at, format!("stops after {ended}"))),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Exempt(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Outcome(_) => {}
        }
    }
    acts
}

fn decision(at: i64, what: &str) -> (i64, String) {
    (at, what.to_owned())
}

fn refused_outcome(ending: &Enforcement) -> (EnforcementOutcome, SignalStatus) {
    let GuardStep::Ended(victim) = &ending.record.step else {
        panic!("{ending:?}");
    };
    let outcome = EnforcementOutcome {
        job: victim.job.clone(),
        ended: 0,
        left: 1,
        why: Some("process 100 is protected: it is Xorg".into()),
    };
    (outcome, SignalStatus::Unsent)
}

#[test]
fn stops_before_one_job_too_many() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 2));
    let mut world = TestHost::new(1);
    add_intruders(&mut world, 100..104);
    let expected = [
        decision(10, "tree 100"),
        decision(10, "tree 101"),
        decision(10, "stops after 2"),
    ];
    assert_eq!(decisions(&guard.evaluate_samples(&mut world, 1)), expected);
    assert_eq!(guard.state.tripped_at(), Some(Timestamp(10_000)));
    // As after their signals.
    world.processes.retain(|pid, _| *pid > 101);
    add_intruders(&mut world, 104..106);
    // However long it lasts.
    assert_eq!(decisions(&guard.evaluate_samples(&mut world, 200)), []);
    world.processes.remove(&104);
    world.processes.remove(&105);
    add_intruders(&mut world, 106..107);
    guard.state.resume();
    assert_eq!(guard.state.tripped_at(), None);
    let acts = decisions(&guard.evaluate_samples(&mut world, 2));
    let acts: Vec<_> = acts.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(acts.len(), 3, "{acts:?}");
    assert_eq!(acts[2], "stops after 2");
}

#[test]
fn dry_run_reports_the_trip() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::DryRun, 2));
    let mut world = TestHost::new(1);
    add_intruders(&mut world, 100..104);
    let expected = [
        decision(10, "tree 100"),
        decision(10, "tree 101"),
        decision(10, "stops after 2"),
        decision(10, "tree 102"),
        decision(10, "tree 103"),
    ];
    assert_eq!(decisions(&guard.evaluate_samples(&mut world, 1)), expected);
    add_intruders(&mut world, 104..105);
    let expected = [decision(20, "tree 104")];
    assert_eq!(
        decisions(&guard.evaluate_samples(&mut world, 100)),
        expected
    );
}

#[test]
fn simulated_ends_do_not_count_when_armed() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::DryRun, 2));
    let mut world = TestHost::new(1);
    add_intruders(&mut world, 100..102);
    let expected = [decision(10, "tree 100"), decision(10, "tree 101")];
    assert_eq!(decisions(&guard.evaluate_samples(&mut world, 3)), expected);
    guard.compiled_rules = CompiledRules::new(rules_forbidding_all(GuardMode::Enforce, 2));
    add_intruders(&mut world, 102..103);
    let expected = [
        decision(40, "tree 100"),
        decision(40, "tree 101"),
        decision(40, "stops after 2"),
    ];
    assert_eq!(decisions(&guard.evaluate_samples(&mut world, 1)), expected);
}

#[test]
fn ends_count_for_ten_minutes() {
    for (after, expected) in [
        (59, decision(600, "stops after 2")),
        (60, decision(610, "tree 102")),
    ] {
        let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 2));
        let mut world = TestHost::new(1);
        add_intruders(&mut world, 100..102);
        guard.evaluate_samples(&mut world, 1);
        world.processes.clear();
        guard.evaluate_samples(&mut world, after - 1);
        add_intruders(&mut world, 102..103);
        assert_eq!(
            decisions(&guard.evaluate_samples(&mut world, 1)),
            [expected],
            "{after}"
        );
    }
}

#[test]
fn unobserved_time_does_not_count() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 1));
    let mut world = TestHost::new(1);
    add_intruders(&mut world, 100..101);
    guard.evaluate_samples(&mut world, 1);
    world.processes.clear();
    guard.evaluate_samples(&mut world, 1);
    world.now = world.now.plus_seconds(3_600);
    guard.evaluate_samples(&mut world, 1);
    add_intruders(&mut world, 101..102);
    let expected = [decision(3_640, "stops after 1")];
    assert_eq!(decisions(&guard.evaluate_samples(&mut world, 1)), expected);
}

#[test]
fn failed_ends_do_not_count() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 1));
    let mut world = TestHost::new(1);
    add_intruders(&mut world, 100..101);
    let mut actual = Vec::new();
    for _ in 0..30 {
        let evaluation = evaluate(
            &guard.compiled_rules,
            &mut guard.state,
            &world.next_sample(SAMPLE_MS),
        );
        actual.extend(decisions(&evaluation.records));
        for ending in guard.state.enforcements(&evaluation.records) {
            let record = guard
                .state
                .record_outcome(&ending, refused_outcome(&ending), world.now);
            assert_eq!(record.step.name(), "outcome");
        }
    }
    // Each try is recorded, at growing intervals.
    let expected: Vec<_> = [10, 70, 190].map(|at| decision(at, "tree 100")).into();
    assert_eq!(actual, expected);
    assert_eq!(guard.state.tripped_at(), None);
}

#[test]
fn trip_survives_restart_and_reboot() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 1));
    let mut world = TestHost::new(1);
    add_intruders(&mut world, 100..102);
    guard.evaluate_samples(&mut world, 1);
    let text = serde_json::to_string(&guard.state).unwrap();
    let read: GuardState = serde_json::from_str(&text).unwrap();
    for memory in [read.clone(), read.into_rebooted()] {
        assert_eq!(memory.tripped_at(), Some(Timestamp(10_000)));
        guard.state = memory;
        let mut world = world.clone();
        add_intruders(&mut world, 102..104);
        assert_eq!(decisions(&guard.evaluate_samples(&mut world, 10)), []);
    }
}

#[test]
fn one_person_cannot_trip_the_breaker() {
    for most in [1, 2, 5] {
        let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, most));
        let mut world = TestHost::new(1);
        for pid in 100..140 {
            world
                .start(pid, "bob")
                .uses(0, 1, 50)
                .job(&format!("tree {pid}"));
        }
        let mut ended = 0;
        for _ in 0..60 {
            let records = guard.evaluate_next(&mut world).records;
            let victims: Vec<u32> = records
                .iter()
                .filter_map(|it| Some(it.step.victim()?.runs[0].run.pid))
                .collect();
            // Only a few at a time, so that jobs of others need not wait.
            assert!(victims.len() <= 4, "{most}: {victims:?}");
            for ending in guard.state.enforcements(&records) {
                let (mut outcome, _) = refused_outcome(&ending);
                (outcome.ended, outcome.left) = (1, 0);
                guard
                    .state
                    .record_outcome(&ending, (outcome, SignalStatus::Sent), world.now);
            }
            world.processes.retain(|pid, _| !victims.contains(pid));
            ended += victims.len();
            // The state survives being stored.
            let text = serde_json::to_string(&guard.state).unwrap();
            guard.state = serde_json::from_str(&text).unwrap();
        }
        assert_eq!((ended, guard.state.tripped_at()), (40, None), "{most}");
    }
}

#[test]
fn job_waits_for_a_free_slot() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 100));
    let mut world = TestHost::new(1);
    for pid in 100..105 {
        world
            .start(pid, "bob")
            .uses(0, 1, 50)
            .job(&format!("tree {pid}"));
    }
    let enforcements = |guard: &mut TestGuard, world: &mut TestHost| {
        let records = guard.evaluate_next(world).records;
        guard.state.enforcements(&records)
    };
    let mut first = enforcements(&mut guard, &mut world);
    assert_eq!(first.len(), 4);
    first
        .iter()
        .for_each(|ending| guard.state.mark_started(ending));
    // Further samples record nothing about the fifth job.
    for _ in 0..3 {
        assert!(enforcements(&mut guard, &mut world).is_empty());
    }
    // carol waits for none of them.
    world.start(200, "carol").uses(0, 1, 50).job("tree 200");
    let ending = enforcements(&mut guard, &mut world);
    assert_eq!(ending.len(), 1);
    let pids: Vec<u32> = ending[0].processes.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [200]);
    let over = first.pop().expect("there are four");
    let (mut outcome, _) = refused_outcome(&over);
    (outcome.ended, outcome.left) = (1, 0);
    let _ = guard
        .state
        .record_outcome(&over, (outcome, SignalStatus::Sent), world.now);
    assert_eq!(enforcements(&mut guard, &mut world).len(), 1);
}

#[test]
fn each_person_counts_at_most_twice() {
    let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, 5));
    let mut world = TestHost::new(1);
    for (pid, owner) in (100..).zip([
        "bob", "bob", "bob", "bob", "alice", "alice", "carol", "dave",
    ]) {
        world
            .start(pid, owner)
            .uses(0, 1, 50)
            .job(&format!("tree {pid}"));
    }
    // alice has two jobs; bob has four, of which two count; carol has one. A job of dave's
    // would be one too many.
    let acts = decisions(&guard.evaluate_samples(&mut world, 1));
    let ended = acts.iter().filter(|(_, what)| what.starts_with("tree"));
    assert_eq!(ended.count(), 7, "{acts:?}");
    assert_eq!(acts.last(), Some(&decision(10, "stops after 5")));
    assert!(guard.state.tripped_at().is_some());
}

#[test]
fn containers_stop_no_ends_of_users() {
    let mut rules = rules_forbidding_all(GuardMode::Enforce, 3);
    let container = |pid: u32| format!("container {pid}");
    rules.gpus[0]
        .blocked_users
        .extend((100..105).map(container));
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    for pid in 100..105 {
        let process = world.start(pid, &container(pid)).uses(0, 1, 50);
        process.job(&format!("tree {pid}"));
    }
    let expected = [100, 101, 102].map(|pid| decision(10, &format!("tree {pid}")));
    let records = guard.evaluate_samples(&mut world, 1);
    assert_eq!(decisions(&records), expected);
    let is_refused = |record: &&GuardRecord| matches!(&record.step, GuardStep::Exempt(why) if why.starts_with("too many jobs of"));
    assert_eq!(records.iter().filter(is_refused).count(), 2);
    assert_eq!(guard.state.tripped_at(), None);
    assert_eq!(guard.state.others_tripped_at(), Some(Timestamp(10_000)));
    world.processes.retain(|pid, _| *pid > 102);
    // The ends in ten minutes are as few as ever. Then that of a user follows.
    world.start(200, "alice").uses(0, 1, 50).job("tree 200");
    let acts = decisions(&guard.evaluate_samples(&mut world, 62));
    let [(at, job)] = acts.as_slice() else {
        panic!("{acts:?}");
    };
    assert!((610..=630).contains(at), "{acts:?}");
    assert_eq!(job, "tree 200");
    // Several users stop it for everybody.
    for (pid, owner) in (201..).zip(["alice", "bob", "carol", "dave"]) {
        world
            .start(pid, owner)
            .uses(0, 1, 50)
            .job(&format!("tree {pid}"));
    }
    world.processes.remove(&200);
    let acts = decisions(&guard.evaluate_samples(&mut world, 1));
    assert_eq!(
        acts.last().map(|(_, what)| what.as_str()),
        Some("stops after 3")
    );
    assert!(guard.state.tripped_at().is_some());
    guard.state.resume();
    assert_eq!(guard.state.others_tripped_at(), None);
}

#[test]
fn containers_stop_no_ends_of_users_however_few_are_allowed() {
    for most in [1_u32, 2] {
        let mut rules = rules_forbidding_all(GuardMode::Enforce, most);
        let container = |pid: u32| format!("container {pid}");
        rules.gpus[0]
            .blocked_users
            .extend((100..103).map(container));
        let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
        for pid in 100..103 {
            let process = world.start(pid, &container(pid)).uses(0, 1, 50);
            process.job(&format!("tree {pid}"));
        }
        let acts = decisions(&guard.evaluate_samples(&mut world, 1));
        assert_eq!(acts.len(), most as usize, "{acts:?}");
        world.processes.retain(|pid, _| *pid > 101);
        world.start(200, "alice").uses(0, 1, 50).job("tree 200");
        let records = guard.evaluate_samples(&mut world, 62);
        // Her job waits, and the record says why, once.
        let waits: Vec<&GuardRecord> = records
            .iter()
            .filter(|it| matches!(&it.step, GuardStep::Exempt(why) if why.contains("it waits")))
            .collect();
        assert_eq!(waits.len(), 1, "{most}: {waits:?}");
        assert_eq!(waits[0].at, Timestamp(20_000));
        assert_eq!(waits[0].evidence.runs[0].run.pid, 200);
        let acts = decisions(&records);
        let [(at, job)] = acts.as_slice() else {
            panic!("{most}: {acts:?}");
        };
        assert!((610..=630).contains(at), "{acts:?}");
        assert_eq!(job, "tree 200");
        assert_eq!(guard.state.tripped_at(), None);
    }
}

/// What happens in one sample: intruders come, all leave, the daemon restarts, or nothing
/// is observed for a while.
type BreakerEvent = (u8, bool, bool, u8);

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn ends_in_any_ten_minutes_are_bounded(
        history in proptest::collection::vec(
            proptest::prelude::any::<BreakerEvent>(),
            1..120,
        ),
        most in 1..4_u32,
    ) {
        let mut guard = TestGuard::new(rules_forbidding_all(GuardMode::Enforce, most));
        let mut world = TestHost::new(1);
        let mut pids = 100..;
        let mut ended: Vec<(Timestamp, u32)> = Vec::new();
        for (come, leave, is_new, away) in history {
            if leave {
                world.processes.clear();
            }
            // In most samples nobody comes.
            if come % 16 == 0 {
                let pid = pids.next().expect("there are enough");
                add_intruders(&mut world, pid..pid + 1);
            }
            if is_new {
                let text = serde_json::to_string(&guard.state).unwrap();
                guard.state = serde_json::from_str(&text).unwrap();
            }
            if away % 16 == 0 {
                world.now = world.now.plus_seconds(i64::from(away));
            }
            for record in guard.evaluate_next(&mut world).records {
                if let Some(victim) = record.step.victim() {
                    let uid = victim.job.owner.uid.expect("each is a user");
                    ended.push((record.at, uid));
                    let of_late = ended.iter().filter(|(at, _)| {
                        record.at.since(*at) < Duration::from_secs(600)
                    });
                    let people: std::collections::BTreeSet<u32> =
                        of_late.map(|(_, uid)| *uid).collect();
                    proptest::prop_assert!(people.len() <= most as usize);
                }
            }
        }
    }
}
