//! Whoever was warned asks for more time.

mod shown;

use super::super::acting::Snoozer;
use super::super::warned::NotSnoozed;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, OpenViolation};

const MOST_TOLD: u32 = 16;

fn soft(change: impl FnOnce(&mut Rules)) -> Guard {
    let mut rules = Rules {
        mode: GuardMode::Soft,
        defaults: memory(20),
        ..rules()
    };
    rules.enforcement.snooze = minutes(10);
    change(&mut rules);
    Guard::new(rules)
}

fn world() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

const ALICE: u32 = 1_000;
const BOB: u32 = 1_001;
const CAROL: u32 = 1_002;

/// What a process's owner gets now: until what second, and how often more.
fn snooze(
    guard: &mut Guard,
    world: &World,
    (pid, owner): (u32, u32),
) -> Result<Vec<(i64, u32)>, NotSnoozed> {
    let snoozer = Snoozer {
        by: owner,
        owner,
        process: (pid, u64::from(pid) * 10),
        job: None,
    };
    let granted = guard.memory.snooze(&guard.book, snoozer, world.now)?;
    let granted = granted.into_iter().map(|record| match record.step {
        GuardStep::Snoozed {
            by,
            owner: whose,
            until,
            left,
        } => {
            assert_eq!((by, whose, record.at), (owner, owner, world.now));
            (until.0 / 1_000, left)
        }
        other => panic!("{other:?}"),
    });
    Ok(granted.collect())
}

fn steps(records: &[GuardRecord]) -> Vec<(i64, &str)> {
    let steps = records.iter();
    steps.map(|it| (it.at.0 / 1_000, it.step.name())).collect()
}

/// Each who was warned: the second at which their grace ends, and the snoozes left.
fn readers(open: &OpenViolation) -> Vec<(u32, i64, u32)> {
    let readers = open.readers.iter();
    let told = readers.map(|it| (it.uid, it.deadline.0 / 1_000, it.snoozes_left));
    told.collect()
}

#[test]
fn more_time_moves_the_end_and_warns_anew_before_it() {
    let (mut guard, mut world) = (soft(|_| ()), world());
    guard.watches(&mut world, 15);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(920, 0)]));
    let open = &guard.memory.violations()[0];
    assert_eq!(open.deadline, Some(Timestamp(920_000)));
    assert_eq!(readers(open), [(BOB, 920, 0)]);
    let records = guard.watches(&mut world, 80);
    let expected = [
        (620, "warned"),
        (720, "warned"),
        (820, "warned"),
        (920, "ended"),
    ];
    assert_eq!(steps(&records), expected);
}

#[test]
fn more_time_is_given_as_often_as_the_rule_allows() {
    for (whole, own, times) in [
        (1, None, 1),
        (0, None, 0),
        (3, None, 3),
        (1, Some(2), 2),
        (2, Some(0), 0),
    ] {
        let mut guard = soft(|it| {
            it.enforcement.max_snoozes = whole;
            it.users = vec![UserPolicy {
                name: "bob".into(),
                limits: memory(20),
                measures: Measures {
                    max_snoozes: own,
                    ..Measures::default()
                },
                ..UserPolicy::default()
            }];
        });
        let mut world = world();
        guard.watches(&mut world, 3);
        for nth in 1..=times {
            let until = 320 + 600 * i64::from(nth);
            let expected = Ok(vec![(until, times - nth)]);
            assert_eq!(
                snooze(&mut guard, &world, (100, BOB)),
                expected,
                "{whole} {own:?}"
            );
            // However often it is written down and read.
            let text = serde_json::to_string(&guard.memory).unwrap();
            guard.memory = serde_json::from_str(&text).unwrap();
        }
        let refused = snooze(&mut guard, &world, (100, BOB));
        assert_eq!(refused, Err(NotSnoozed::NoneLeft), "{whole} {own:?}");
    }
}

#[test]
fn whose_grace_is_over_already_gets_the_whole_of_what_is_given() {
    let (mut guard, mut world) = (soft(|_| ()), world());
    guard.watches(&mut world, 10);
    // Nobody is ended while what is held is not known.
    world.process(100).memory(0, Told::Failed);
    assert_eq!(guard.watches(&mut world, 90), []);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(1_600, 0)]));
    world.process(100).uses(0, 21, 50);
    let records = guard.watches(&mut world, 61);
    let expected = [
        (1_300, "warned"),
        (1_400, "warned"),
        (1_500, "warned"),
        (1_600, "ended"),
    ];
    assert_eq!(steps(&records), expected);
}

fn of_both(guard: &mut Rules) {
    guard.defaults = Limits::default();
    guard.groups = vec![GroupPolicy {
        name: "all".into(),
        members: Members {
            users: names(&["alice", "bob"]),
            ..Members::default()
        },
        total_memory: gib(20),
        ..GroupPolicy::default()
    }];
}

#[test]
fn in_a_group_more_time_is_ones_own() {
    let (mut guard, mut world) = (soft(of_both), world());
    world.start(101, "alice").uses(0, 21, 50).job("alice's");
    guard.watches(&mut world, 3);
    assert_eq!(snooze(&mut guard, &world, (101, ALICE)), Ok(vec![(920, 0)]));
    let open = &guard.memory.violations()[0];
    assert_eq!(open.deadline, Some(Timestamp(320_000)));
    assert_eq!(readers(open), [(ALICE, 920, 0), (BOB, 320, 1)]);
    let own = |uid| open.deadline_of(uid).map(|it| it.0 / 1_000);
    assert_eq!((own(Some(ALICE)), own(Some(BOB))), (Some(920), Some(320)));
    assert_eq!((own(Some(0)), own(None)), (Some(320), Some(320)));
    let ended = |records: Vec<GuardRecord>| {
        let ended = records.iter().filter_map(|it| {
            let victim = it.step.victim()?;
            Some((it.at.0 / 1_000, victim.job.owner.name.clone()))
        });
        ended.collect::<Vec<_>>()
    };
    // She is who is to go: nobody else goes in her place.
    assert_eq!(ended(guard.watches(&mut world, 30)), []);
    let expected = [(920, "alice".to_owned())];
    assert_eq!(ended(guard.watches(&mut world, 60)), expected);
}

#[test]
fn of_many_processes_each_can_be_named_though_only_some_are_told() {
    let (mut guard, mut world) = (soft(of_both), World::new(1));
    for pid in 0..2 * MOST_TOLD {
        world
            .start(200 + pid, "alice")
            .uses(0, 2, 50)
            .job("alice's");
    }
    world.start(100, "bob").uses(0, 1, 50).job("bob's");
    world.start(101, "carol").uses(0, 1, 50).job("carol's");
    guard.watches(&mut world, 3);
    let open = &guard.memory.violations()[0];
    assert_eq!(open.evidence.runs.len(), MOST_TOLD as usize);
    let told = |pid| open.evidence.runs.iter().any(|it| it.run.pid == pid);
    // One of each person is told of before others.
    let last = 199 + 2 * MOST_TOLD;
    assert!(told(100) && !told(last));
    assert_eq!(
        snooze(&mut guard, &world, (last, ALICE)),
        Ok(vec![(920, 0)])
    );
}

#[test]
fn nobody_else_gets_more_time() {
    let (mut guard, mut world) = (soft(of_both), world());
    world.start(101, "carol").uses(0, 30, 50).job("carol's");
    guard.watches(&mut world, 1);
    // It may be a violation, and is none yet.
    let refused = snooze(&mut guard, &world, (100, BOB));
    assert_eq!(refused, Err(NotSnoozed::NotBroken));
    guard.watches(&mut world, 2);
    for (process, why) in [
        ((101, CAROL), NotSnoozed::NotBroken),
        ((100, CAROL), NotSnoozed::NotWarned),
        ((102, BOB), NotSnoozed::NotBroken),
    ] {
        let before = serde_json::to_value(&guard.memory).unwrap();
        assert_eq!(snooze(&mut guard, &world, process), Err(why), "{process:?}");
        assert_eq!(serde_json::to_value(&guard.memory).unwrap(), before);
    }
}

#[test]
fn where_nothing_is_ended_there_is_nothing_to_put_off() {
    let warns = |it: &mut Rules| {
        of_both(it);
        it.groups[0].measures.action = Some(GuardAction::Warn);
    };
    let mut spared = world();
    spared.process(100).about.owner = Some(person("container vllm"));
    for (mut guard, mut world) in [(soft(warns), world()), (soft(|_| ()), spared)] {
        guard.watches(&mut world, 3);
        assert!(!guard.memory.violations().is_empty());
        let refused = snooze(&mut guard, &world, (100, BOB));
        // A container's violation is none of bob's.
        let is_bobs = !guard.memory.violations()[0].evidence.runs.is_empty();
        assert!(is_bobs);
        assert_eq!(refused, Err(NotSnoozed::NothingEnds));
    }
}

#[test]
fn after_it_is_over_more_time_can_be_had_anew() {
    let (mut guard, mut world) = (soft(|_| ()), world());
    guard.watches(&mut world, 3);
    assert!(snooze(&mut guard, &world, (100, BOB)).is_ok());
    world.process(100).uses(0, 20, 50);
    // Not for long enough: it is the same violation.
    guard.watches(&mut world, 29);
    world.process(100).uses(0, 21, 50);
    guard.watches(&mut world, 2);
    let refused = snooze(&mut guard, &world, (100, BOB));
    assert_eq!(refused, Err(NotSnoozed::NoneLeft));
    world.process(100).uses(0, 20, 50);
    assert_eq!(
        steps(&guard.watches(&mut world, 31)).last(),
        Some(&(640, "over"))
    );
    world.process(100).uses(0, 21, 50);
    guard.watches(&mut world, 2);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(1_570, 0)]));
}

#[test]
fn who_was_chosen_a_moment_ago_and_gets_more_time_is_not_ended() {
    let (mut guard, mut world) = (soft(|_| ()), world());
    guard.watches(&mut world, 31);
    let judged = super::super::judge(&guard.book, &mut guard.memory, &world.bucket(TEN_SECONDS));
    let endings = guard.memory.endings(&judged.records);
    assert_eq!(endings.len(), 1);
    assert!(guard.memory.may_begin(&guard.book, &endings[0]));
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(920, 0)]));
    assert!(!guard.memory.may_begin(&guard.book, &endings[0]));
    let records = guard.watches(&mut world, 62);
    assert_eq!(steps(&records).pop(), Some((920, "ended")));
}

#[test]
fn who_is_being_ended_gets_no_more_time() {
    let (mut guard, mut world) = (soft(|_| ()), world());
    guard.watches(&mut world, 32);
    let refused = snooze(&mut guard, &world, (100, BOB));
    assert_eq!(refused, Err(NotSnoozed::TooLate));
}

/// Ends of jobs that these records tell of.
fn ended(records: &[GuardRecord]) -> Vec<i64> {
    let ends = records.iter().filter(|it| it.step.victim().is_some());
    ends.map(|it| it.at.0 / 1_000).collect()
}

fn in_mode(mode: GuardMode) -> Rules {
    let mut rules = Rules {
        mode,
        rehearsed: match mode {
            GuardMode::Enforce => Rehearsed::Enforce,
            GuardMode::Disabled | GuardMode::DryRun | GuardMode::Soft => Rehearsed::Soft,
        },
        defaults: memory(20),
        ..rules()
    };
    rules.enforcement.snooze = minutes(30);
    rules
}

#[test]
fn a_snooze_survives_every_change_of_mode() {
    for between in [
        GuardMode::Disabled,
        GuardMode::DryRun,
        GuardMode::Soft,
        GuardMode::Enforce,
    ] {
        for then in [GuardMode::Soft, GuardMode::Enforce, GuardMode::DryRun] {
            let (mut guard, mut world) = (Guard::new(in_mode(GuardMode::Soft)), world());
            guard.watches(&mut world, 3);
            let granted = snooze(&mut guard, &world, (100, BOB));
            let until = granted.unwrap()[0].0;
            guard.book = Rulebook::of(in_mode(between));
            let mut records = guard.watches(&mut world, 10);
            // A restart, too.
            let text = serde_json::to_string(&guard.memory).unwrap();
            guard.memory = serde_json::from_str(&text).unwrap();
            guard.book = Rulebook::of(in_mode(then));
            records.extend(guard.watches(&mut world, 240));
            let ended = ended(&records);
            let first = ended.first().copied().unwrap_or_default();
            assert!(
                first >= until,
                "{between:?} {then:?}: {ended:?} before {until}"
            );
            // And no longer than with the whole grace after it.
            assert!(
                first <= until + 320,
                "{between:?} {then:?}: {ended:?} after {until}"
            );
        }
    }
}

#[test]
fn a_changed_rule_keeps_a_snooze_and_one_that_is_gone_voids_it_and_says_so() {
    let own = |name: &str, gib| {
        let mut rules = in_mode(GuardMode::Soft);
        rules.defaults = Limits::default();
        rules.users = vec![UserPolicy {
            name: name.into(),
            limits: memory(gib),
            ..UserPolicy::default()
        }];
        rules
    };
    let voided = |records: &[GuardRecord]| -> Vec<(u32, i64)> {
        let voided = records.iter().filter_map(|record| match record.step {
            GuardStep::SnoozeVoided { owner, until } => Some((owner, until.0 / 1_000)),
            _ => None,
        });
        voided.collect()
    };
    let (mut guard, mut world) = (Guard::new(own("bob", 20)), world());
    guard.watches(&mut world, 3);
    let until = snooze(&mut guard, &world, (100, BOB)).unwrap()[0].0;
    guard.book = Rulebook::of(own("bob", 16));
    let records = guard.watches(&mut world, 60);
    assert_eq!((voided(&records), ended(&records)), (vec![], vec![]));
    guard.book = Rulebook::of(own("1001", 16));
    let records = guard.watches(&mut world, 60);
    assert_eq!(voided(&records), [(BOB, until)]);
    // By the other rule bob is warned, and its grace is over before.
    assert_eq!(ended(&records).len(), 1);
}

#[test]
fn what_is_snoozed_for_one_rule_is_ended_for_another() {
    let (mut guard, mut world) = (Guard::new(in_mode(GuardMode::Soft)), world());
    guard.watches(&mut world, 3);
    snooze(&mut guard, &world, (100, BOB)).unwrap();
    let mut rules = in_mode(GuardMode::Soft);
    rules.defaults.processes = Some(0);
    guard.book = Rulebook::of(rules);
    assert_eq!(ended(&guard.watches(&mut world, 60)).len(), 1);
}
