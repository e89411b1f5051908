//! Rules on behaviour that concern many people may not fit the box; and what is only a guess
//! is warned of in every mode.

use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, Person};

/// Whoever does nothing for ten minutes is ended, after five minutes of grace.
fn idle(mode: GuardMode) -> Rules {
    Rules {
        mode,
        rehearsed: match mode {
            GuardMode::Enforce => Rehearsed::Enforce,
            GuardMode::Disabled | GuardMode::DryRun | GuardMode::Soft => Rehearsed::Soft,
        },
        defaults: Limits {
            idle: Some(minutes(10)),
            ..Limits::default()
        },
        ..rules()
    }
}

/// So many people with a busy job each, and of those so many first ones with idle ones.
fn people(all: u32, idle: u32, jobs_each: u32) -> World {
    let mut world = World::new(1);
    for nth in 0..all {
        let mut start = |pid: u32, percent| {
            let process = world.start(pid, "somebody").uses(0, 1, percent);
            process.job(&format!("tree {pid}"));
            process.about.owner = Some(Person {
                name: format!("user {nth}"),
                uid: Some(2_000 + nth),
            });
        };
        start(1_000 + nth, 80);
        if nth < idle {
            (0..jobs_each).for_each(|job| start(2_000 + 10 * nth + job, 0));
        }
    }
    world
}

fn ended(records: &[GuardRecord]) -> usize {
    records
        .iter()
        .filter(|it| it.step.victim().is_some())
        .count()
}

fn doubts(records: &[GuardRecord]) -> Vec<(u32, u32)> {
    let doubts = records.iter().filter_map(|it| match it.step {
        GuardStep::Doubted(it) => Some((it.people, it.of)),
        _ => None,
    });
    doubts.collect()
}

#[test]
fn idleness_and_waste_are_warned_of_before_an_end_in_every_mode() {
    let mut wasteful = idle(GuardMode::Enforce);
    wasteful.defaults.idle = None;
    wasteful.behaviours = vec![behaviour(
        "waste",
        Conduct::Waste {
            below: Percent(10),
            min_memory: Bytes(0),
            hours: minutes(10),
        },
    )];
    for mut rules in [idle(GuardMode::Enforce), idle(GuardMode::Soft), wasteful] {
        for (grace, expected) in [(minutes(2), 120), (Duration::ZERO, 300)] {
            rules.enforcement.grace = grace;
            let mut world = people(4, 1, 1);
            let records = Guard::new(rules.clone()).watches(&mut world, 120);
            let at = |name: &str| {
                let mut of = records.iter().filter(|it| it.step.name() == name);
                of.next().map(|it| it.at.0 / 1_000)
            };
            let (warned, ended) = (at("warned"), at("ended"));
            let waited = warned.zip(ended).map(|(warned, ended)| ended - warned);
            assert_eq!(waited, Some(expected), "{:?} {grace:?}", rules.mode);
        }
    }
}

#[test]
fn rules_that_concern_a_quarter_of_the_people_are_told_of_and_end_jobs_all_the_same() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let mut guard = Guard::new(idle(mode));
        let mut world = people(8, 3, 1);
        let records = guard.watches(&mut world, 200);
        assert_eq!(
            (doubts(&records), ended(&records)),
            (vec![(3, 8)], 3),
            "{mode:?}"
        );
        let doubt = guard
            .memory
            .doubt()
            .map(|it| (it.people, it.of, it.only_warn));
        assert_eq!(doubt, Some((3, 8, false)));
        // What is told of goes by itself.
        world.processes.retain(|pid, _| *pid < 2_000);
        guard.watches(&mut world, 24 * 360 + 60);
        assert_eq!(guard.memory.doubt(), None);
    }
}

#[test]
fn rules_that_concern_many_people_only_warn_until_they_are_confirmed() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let mut rules = idle(mode);
        rules.enforcement.max_ended = 100;
        let mut guard = Guard::new(rules.clone());
        let mut world = people(18, 10, 1);
        let records = guard.watches(&mut world, 200);
        assert_eq!(
            (doubts(&records), ended(&records)),
            (vec![(10, 18)], 0),
            "{mode:?}"
        );
        // It outlives a restart, and a pause.
        let text = serde_json::to_string(&guard.memory).unwrap();
        guard.memory = serde_json::from_str::<Memory>(&text).unwrap().at_rest();
        let records = guard.watches(&mut world, 200);
        assert_eq!((doubts(&records), ended(&records)), (vec![], 0), "{mode:?}");
        // An admin who sets the mode means these rules: they end, one warning later.
        guard.memory.goes_on();
        let records = guard.watches(&mut world, 200);
        assert_eq!(
            (doubts(&records), ended(&records)),
            (vec![], 10),
            "{mode:?}"
        );
        // Other rules on behaviour are another matter.
        rules.defaults.idle = Some(minutes(5));
        guard.book = Rulebook::of(rules);
        let records = guard.watches(&mut world, 60);
        assert_eq!(doubts(&records), [(10, 18)], "{mode:?}");
    }
}

#[test]
fn a_confirmation_outlives_whatever_says_nothing_of_behaviour() {
    let carol = |limits| UserPolicy {
        name: "carol".into(),
        limits,
        ..UserPolicy::default()
    };
    type Change<'c> = (&'static str, bool, &'c dyn Fn(&mut Rules));
    let changes: [Change<'_>; 6] = [
        ("a memory limit of one", true, &|it| {
            it.users.push(carol(memory(40)));
        }),
        ("a group", true, &|it| {
            it.groups.push(GroupPolicy {
                name: "ml".into(),
                total_memory: gib(80),
                ..GroupPolicy::default()
            });
        }),
        ("a limit on time", true, &|it| {
            it.behaviours
                .push(behaviour("long", Conduct::Duration(minutes(9_000))));
        }),
        ("the mode", true, &|it| it.mode = GuardMode::Enforce),
        ("an idle limit of one", false, &|it| {
            it.users.push(carol(Limits {
                idle: Some(minutes(7)),
                ..Limits::default()
            }));
        }),
        ("a rule on waste", false, &|it| {
            let waste = Conduct::Waste {
                below: Percent(10),
                min_memory: Bytes(0),
                hours: minutes(10),
            };
            it.behaviours.push(behaviour("waste", waste));
        }),
    ];
    for (what, is_kept, change) in changes {
        let mut rules = idle(GuardMode::Soft);
        rules.enforcement.max_ended = 100;
        let mut guard = Guard::new(rules.clone());
        let mut world = people(18, 10, 1);
        guard.watches(&mut world, 200);
        guard.memory.goes_on();
        guard.watches(&mut world, 2);
        assert_eq!(guard.memory.doubt(), None);
        change(&mut rules);
        guard.book = Rulebook::of(rules);
        let records = guard.watches(&mut world, 60);
        let expected = if is_kept { vec![] } else { vec![(10, 18)] };
        assert_eq!(doubts(&records), expected, "{what}");
    }
}

#[test]
fn few_people_raise_no_doubt_however_many_jobs_they_have() {
    for (all, idle_people, jobs) in [
        (1, 1, 9),
        (2, 2, 4),
        (4, 1, 9),
        (4, 2, 4),
        (12, 3, 2),
        (41, 10, 1),
    ] {
        let mut world = people(all, idle_people, jobs);
        let mut rules = idle(GuardMode::Enforce);
        rules.enforcement.max_ended = 100;
        let mut guard = Guard::new(rules);
        let records = guard.watches(&mut world, 200);
        assert_eq!(doubts(&records), [], "{all} {idle_people}");
        assert_eq!(guard.memory.doubt(), None);
        assert!(ended(&records) > 0, "{all} {idle_people}");
    }
}

#[test]
fn people_are_counted_over_a_day_and_no_longer() {
    let idle_in_turn = |hours: i64| {
        let mut guard = Guard::new(idle(GuardMode::Soft));
        let mut world = people(8, 0, 0);
        let mut records = Vec::new();
        for nth in 0..3 {
            let process = world.process(1_000 + nth);
            process.uses(0, 1, 0);
            records.extend(guard.watches(&mut world, 70));
            world.process(1_000 + nth).uses(0, 1, 80);
            let buckets = usize::try_from(hours * 360).unwrap();
            records.extend(guard.watches(&mut world, buckets));
        }
        doubts(&records)
    };
    assert_eq!(idle_in_turn(2), [(3, 8)]);
    assert_eq!(idle_in_turn(13), []);
}

#[test]
fn a_dry_run_says_that_rules_may_not_fit_and_goes_on() {
    let mut guard = Guard::new(idle(GuardMode::DryRun));
    let records = guard.watches(&mut people(4, 3, 1), 200);
    assert_eq!((doubts(&records), ended(&records)), (vec![(3, 4)], 3));
}

#[test]
fn limits_are_no_guess() {
    let mut rules = idle(GuardMode::Enforce);
    rules.defaults = memory(0);
    rules.enforcement.max_ended = 100;
    let mut guard = Guard::new(rules);
    let records = guard.watches(&mut people(4, 4, 1), 30);
    assert_eq!(doubts(&records), []);
    assert!(ended(&records) > 3);
}

#[test]
fn people_whom_other_rules_concerned_say_nothing_of_the_rules_of_now() {
    let blocked = || {
        let mut rules = rules();
        rules.mode = GuardMode::Soft;
        rules.gpus = vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_processes: globs(&["xmrig"]),
            ..GpuPolicy::default()
        }];
        rules
    };
    let mut milder = idle(GuardMode::Soft);
    milder.defaults.idle = Some(minutes(60));
    for (all, idle_people, changed) in [(8, 3, blocked()), (18, 10, blocked()), (8, 3, milder)] {
        let mut guard = Guard::new(idle(GuardMode::Soft));
        let mut world = people(all, idle_people, 1);
        guard.watches(&mut world, 200);
        assert!(guard.memory.doubt().is_some());
        guard.book = Rulebook::of(changed);
        guard.watches(&mut world, 2);
        assert_eq!(guard.memory.doubt(), None, "{all} {idle_people}");
    }
    // Rules on behaviour that only warn stay so until an admin has confirmed those of now.
    let mut guard = Guard::new(idle(GuardMode::Soft));
    let mut world = people(18, 10, 1);
    guard.watches(&mut world, 200);
    let mut other = idle(GuardMode::Soft);
    other.defaults.idle = Some(minutes(60));
    guard.book = Rulebook::of(other);
    guard.watches(&mut world, 2);
    assert_eq!(guard.memory.doubt().map(|it| it.only_warn), Some(true));
}
