//! Who would have been ended is told of for as long as they are there.

use super::super::{Ghost, but_for_ghosts};
use super::*;
use gpukill_proto::guard::{
    Evidence, JudgedJob, Measured, OpenViolation, RuleKind, RuleName, RuleSource, Subject, Told,
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

/// Of a ghost the job, the processes of the evidence, those that are there, and how many
/// seconds after a moment it would have been ended.
type Seen = (String, Vec<u32>, Vec<u32>, Option<i64>);

fn told(guard: &Guard, since: Timestamp) -> Vec<Seen> {
    let ghosts = guard.memory.ghosts().into_iter();
    let told = ghosts.map(
        |Ghost {
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
fn a_ghost_is_shown_with_what_was_known_when_it_was_ended() {
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
    let expected = Ghost {
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
            },
            message: None,
        },
        processes: started.into(),
    };
    assert_eq!(guard.memory.ghosts(), [expected]);
}

#[test]
fn a_ghost_is_shown_until_its_last_process_ends() {
    let (mut guard, mut world) = (Guard::new(at_most_20()), two_jobs());
    let began = world.now;
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), []);
    let ghost = |there: &[u32]| vec![("new".to_owned(), vec![101, 102], there.to_vec(), Some(20))];
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), ghost(&[101, 102]));
    guard.watches(&mut world, 30);
    assert_eq!(guard.memory.violations(), []);
    assert_eq!(told(&guard, began), ghost(&[101, 102]));
    // Also by a daemon that was away for an hour, and of a time that it was away.
    read_again(&mut guard);
    world.now = world.now.plus_seconds(3_600);
    guard.watches(&mut world, 2);
    assert_eq!(told(&guard, began), ghost(&[101, 102]));
    // Who joins it is gone too.
    world.processes.remove(&101);
    world.start(103, "bob").uses(0, 1, 50).job("new");
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), ghost(&[102, 103]));
    world.processes.remove(&102);
    guard.watches(&mut world, 1);
    assert_eq!(told(&guard, began), ghost(&[103]));
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
        assert_eq!(guard.memory.ghosts().len(), 1);
        guard.book = Rulebook::of(changed);
        guard.watches(&mut world, 1);
        assert_eq!(guard.memory.ghosts(), []);
    }
}

#[test]
fn who_is_really_ended_is_no_ghost() {
    let rules = Rules {
        mode: GuardMode::Enforce,
        ..at_most_20()
    };
    let (mut guard, mut world) = (Guard::new(rules), two_jobs());
    guard.watches(&mut world, 3);
    assert_eq!(guard.memory.ghosts(), []);
}

#[test]
fn a_violation_that_is_a_ghosts_alone_is_not_told_twice() {
    // One job of bob's alone, of more processes than are told of: the violation is over one
    // bucket after its end.
    let of_job = Rules {
        rehearsed: Rehearsed::Enforce,
        defaults: Limits {
            duration: Some(minutes(0)),
            ..Limits::default()
        },
        ..rules()
    };
    let mut world = World::new(1);
    for pid in 100..120 {
        world.start(pid, "bob").uses(0, 1, 50).job("many");
    }
    let mut guard = Guard::new(of_job);
    guard.watches(&mut world, 2);
    let (open, ghosts) = (guard.memory.violations(), guard.memory.ghosts());
    assert_eq!((open.len(), ghosts.len()), (1, 1));
    assert_eq!(but_for_ghosts(open, &ghosts), []);
    // One of two jobs: what the other does goes on.
    let (mut guard, mut world) = (Guard::new(at_most_20()), two_jobs());
    guard.watches(&mut world, 2);
    let (open, ghosts) = (guard.memory.violations(), guard.memory.ghosts());
    assert_eq!((open.len(), ghosts.len()), (1, 1));
    assert_eq!(but_for_ghosts(open.clone(), &ghosts), open);
    // For another rule.
    let mut other = open[0].clone();
    other.rule.kind = RuleKind::Processes;
    other.evidence.runs.retain(|told| told.run.pid == 101);
    other.evidence.count = 1;
    assert_eq!(but_for_ghosts(vec![other.clone()], &ghosts), [other]);
}

#[test]
fn what_was_remembered_before_ghosts_were_shown_is_read() {
    let (mut guard, mut world) = (Guard::new(at_most_20()), two_jobs());
    guard.watches(&mut world, 2);
    let mut written = serde_json::to_value(&guard.memory).unwrap();
    let ended = written["ended"][0][1].as_object_mut().unwrap();
    assert!(ended.remove("shown").is_some());
    guard.memory = serde_json::from_value(written).unwrap();
    let records = guard.watches(&mut world, 3);
    let steps: Vec<&str> = records.iter().map(|it| it.step.name()).collect();
    // It counts as gone as before, so that the rule is kept, and nobody knows for what.
    assert_eq!(steps, ["over"]);
    assert_eq!(guard.memory.ghosts(), []);
}

#[test]
fn what_is_over_says_whether_somebody_would_have_been_ended_for_it() {
    let overs = |rules: Rules, change: fn(&mut World)| {
        let (mut guard, mut world) = (Guard::new(rules), two_jobs());
        let mut records = guard.watches(&mut world, 2);
        change(&mut world);
        // What was not seen for five minutes is over.
        records.extend(guard.watches(&mut world, 40));
        let overs = records.into_iter().filter(|it| it.step.name() == "over");
        overs.map(|it| it.is_rehearsed).collect::<Vec<_>>()
    };
    let goes = |world: &mut World| world.processes.retain(|pid, _| *pid == 100);
    assert_eq!(overs(at_most_20(), |_| ()), [true]);
    let soft = Rules {
        rehearsed: Rehearsed::Soft,
        ..at_most_20()
    };
    assert_eq!(overs(soft, goes), [false]);
    let enforce = Rules {
        mode: GuardMode::Enforce,
        ..at_most_20()
    };
    assert_eq!(overs(enforce, goes), [false]);
}
