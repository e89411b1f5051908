//! A simulated end is a note on a violation, which goes on for all to see.

use super::super::SimulatedEnd;
use super::*;
use gpukill_proto::guard::{
    Evidence, GuardRecord, JudgedJob, Measured, OpenViolation, RuleKind, RuleName, RuleSource,
    Subject, Told,
};

/// bob may hold 20 GiB, and is ended for more at once.
fn at_most_20() -> Rules {
    Rules {
        rehearsed: Rehearsed::Enforce,
        defaults: memory(20),
        ..rules()
    }
}

/// An old job of bob's of 15 GiB, and a new one of two processes of 5 each.
fn two_jobs() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 15, 50).job("old");
    world.now = world.now.plus_seconds(10);
    for pid in [101, 102] {
        world.start(pid, "bob").uses(0, 5, 50).job("new");
    }
    world
}

/// Of a end the job, the processes of the evidence, those that are there, and how many
/// seconds after a moment it would have been ended.
type Seen = (String, Vec<u32>, Vec<u32>, Option<i64>);

fn told(guard: &Guard, since: Timestamp) -> Vec<Seen> {
    let ends = guard.memory.simulated_ends().into_iter();
    let told = ends.map(
        |SimulatedEnd {
             violation,
             processes,
         }| {
            let Subject::Job(job) = violation.subject else {
                panic!("{:?}", violation.subject)
            };
            let ended_at = violation.ended_at.map(|at| (at.0 - since.0) / 1_000);
            let runs = violation.evidence.runs.iter().map(|told| told.run.pid);
            let there = processes.iter().map(|(pid, _)| *pid);
            (job.id, runs.collect(), there.collect(), ended_at)
        },
    );
    told.collect()
}

fn read_again(guard: &mut Guard) {
    let text = serde_json::to_string(&guard.memory).unwrap();
    guard.memory = serde_json::from_str(&text).unwrap();
}

#[test]
fn a_end_is_shown_with_what_was_known_when_it_was_ended() {
    let (mut guard, mut world) = (Guard::new(at_most_20()), two_jobs());
    let began = world.now;
    guard.watches(&mut world, 2);
    let runs: Vec<Told> = guard.memory.violations()[0].evidence.runs.clone();
    let started = [101, 102].map(|pid| {
        let told = runs.iter().find(|told| told.run.pid == pid).unwrap();
        (pid, told.run.start_ticks)
    });
    let of_new = runs.into_iter().filter(|told| told.run.pid > 100);
    let at = began.plus_seconds(20);
    let expected = SimulatedEnd {
        violation: OpenViolation {
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            subject: Subject::Job(JudgedJob {
                owner: person("bob"),
                id: "new".into(),
                shown: "new".into(),
            }),
            mode: GuardMode::DryRun,
            action: GuardAction::Terminate,
            violated_at: at,
            warned_at: None,
            warnings: 0,
            deadline: None,
            readers: Vec::new(),
            own_policy: None,
            snoozed_until: None,
            not_broken_since: None,
            ended_at: Some(at),
            evidence: Evidence {
                measured: Some(Measured {
                    value: 25 * GIB,
                    limit: 20 * GIB,
                }),
                since: began,
                runs: of_new.collect(),
                count: 2,
                unknown: 0,
                threat: None,
                is_spared_service: false,
            },
            message: None,
        },
        processes: started.into(),
    };
    assert_eq!(guard.memory.simulated_ends(), [expected]);
}

#[test]
fn a_end_is_shown_until_its_last_process_ends() {
    let (mut guard, mut world) = (Guard::new(at_most_20()), two_jobs());
    let began = world.now;
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), []);
    let end = |there: &[u32]| vec![("new".to_owned(), vec![101, 102], there.to_vec(), Some(20))];
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), end(&[101, 102]));
    guard.watches(&mut world, 30);
    // It is broken still, and that is said.
    let open = guard.memory.violations();
    let ended: Vec<_> = open.iter().map(|it| it.ended_at).collect();
    assert_eq!(ended, [Some(began.plus_seconds(20))]);
    assert_eq!(told(&guard, began), end(&[101, 102]));
    // Also by a daemon that was away for an hour, and of a time that it was away.
    read_again(&mut guard);
    world.now = world.now.plus_seconds(3_600);
    guard.watches(&mut world, 2);
    assert_eq!(told(&guard, began), end(&[101, 102]));
    // Who joins it is gone too.
    world.processes.remove(&101);
    world.start(103, "bob").uses(0, 1, 50).job("new");
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), end(&[102, 103]));
    world.processes.remove(&102);
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), end(&[103]));
    world.processes.remove(&103);
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), []);
}

#[test]
fn what_rules_that_changed_would_have_ended_is_told_no_more() {
    for changed in [
        Rules {
            defaults: memory(40),
            ..at_most_20()
        },
        Rules {
            mode: GuardMode::Soft,
            ..at_most_20()
        },
        Rules {
            mode: GuardMode::Disabled,
            ..at_most_20()
        },
    ] {
        let (mut guard, mut world) = (Guard::new(at_most_20()), two_jobs());
        guard.watches(&mut world, 2);
        assert_eq!(guard.memory.simulated_ends().len(), 1);
        guard.book = Rulebook::of(changed);
        guard.watches(&mut world, 1);
        assert_eq!(guard.memory.simulated_ends(), []);
    }
}

#[test]
fn who_is_really_ended_is_no_end() {
    let rules = Rules {
        mode: GuardMode::Enforce,
        ..at_most_20()
    };
    let (mut guard, mut world) = (Guard::new(rules), two_jobs());
    guard.watches(&mut world, 3);
    assert_eq!(guard.memory.simulated_ends(), []);
}

/// Jobs that would have been ended, by the rule, end by end.
fn ends(records: &[GuardRecord]) -> Vec<(RuleKind, String)> {
    let ends = records.iter();
    let ends = ends.filter_map(|it| Some((it.rule.kind, it.step.victim()?.job.id.clone())));
    ends.collect()
}

#[test]
fn other_rules_see_a_job_that_one_would_have_ended() {
    // alice may not use the GPU, and is idle, holds too much, and has too many processes.
    let rules = Rules {
        rehearsed: Rehearsed::Enforce,
        defaults: Limits {
            memory: gib(20),
            processes: Some(1),
            idle: Some(minutes(10)),
            ..Limits::default()
        },
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&["alice"]),
            max_memory: gib(25),
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let mut world = World::new(1);
    for pid in [100, 101] {
        world.start(pid, "alice").uses(0, 15, 0).job("train");
    }
    let mut guard = Guard::new(rules);
    let records = guard.watches(&mut world, 150);
    let of = |kind| (kind, "train".to_owned());
    let found: std::collections::BTreeSet<_> = ends(&records).into_iter().collect();
    let kinds = [
        RuleKind::User,
        RuleKind::Memory,
        RuleKind::Processes,
        RuleKind::Idle,
    ];
    for kind in kinds {
        assert!(found.contains(&of(kind)), "{kind:?} {found:?}");
    }
    let open = guard.memory.violations();
    for kind in kinds {
        let is_noted = open
            .iter()
            .any(|it| it.rule.kind == kind && it.ended_at.is_some());
        assert!(is_noted, "{kind:?} {open:#?}");
    }
}
