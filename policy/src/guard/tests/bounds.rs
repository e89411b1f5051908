//! Rules multiply with processes: what is kept of that is bounded, and what there is no
//! room for is told.

use super::super::judge::{Beyond, Bounds, judge_within};
use super::super::replay::{Replay, TooMuch};
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};

/// So many processes of as many jobs, each with 4 GiB.
fn crowd(processes: u32) -> World {
    let mut world = World::new(1);
    for pid in 1..=processes {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    world
}

/// So many rules of one kind.
fn many(rules: usize, conduct: &Conduct) -> Rules {
    let one = |nth| behaviour(&format!("rule{nth}"), conduct.clone());
    Rules {
        behaviours: (0..rules).map(one).collect(),
        ..Rules::default()
    }
}

const AT_ONCE: Conduct = Conduct::Duration(Duration::ZERO);

fn wasted() -> Conduct {
    Conduct::Waste {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(60),
    }
}

/// What comes of so many buckets, and why the replay ended before.
fn tried(rules: Rules, world: &mut World) -> Result<(usize, usize), TooMuch> {
    let mut replay = Replay::new(rules, Timestamp(0));
    for _ in 0..3 {
        replay.add(&world.bucket(TEN_SECONDS))?;
    }
    let replayed = replay.finish();
    Ok((replayed.runs, replayed.open.len()))
}

#[test]
fn a_replay_of_rules_that_tell_of_too_much_ends_and_says_what_to_do() {
    // As many as there is room for.
    assert_eq!(tried(many(10, &AT_ONCE), &mut crowd(100)), Ok((100, 1_000)));
    let violations = tried(many(10, &AT_ONCE), &mut crowd(101));
    assert_eq!(violations, Err(TooMuch::Violations));
    assert_eq!(
        TooMuch::Violations.to_string(),
        "these rules tell of more than 1000 violations at once: try fewer rules, or a shorter time"
    );
    assert_eq!(tried(many(30, &wasted()), &mut crowd(100)), Ok((100, 0)));
    let looked_back = tried(many(31, &wasted()), &mut crowd(100));
    assert_eq!(looked_back, Err(TooMuch::LookedBack));
    let pairs = tried(many(10_000, &AT_ONCE), &mut crowd(101));
    assert_eq!(pairs, Err(TooMuch::Pairs(10_000, 101)));
}

#[test]
fn violations_beyond_the_room_are_not_opened_and_told_of_and_others_go_on() {
    let bounds = Bounds {
        violations: 5,
        ..Bounds::LIVE
    };
    let (mut world, mut memory) = (crowd(3), Memory::default());
    let book = Rulebook::of(many(1, &AT_ONCE));
    let mut beyond = |world: &mut World| {
        let bucket = world.bucket(TEN_SECONDS);
        let judgement = judge_within(&bounds, &book, &mut memory, &bucket);
        (judgement.beyond, memory.violations().len())
    };
    let none = Beyond::default();
    let two = Beyond {
        violations: 2,
        ..none
    };
    assert_eq!(beyond(&mut world), (none, 0));
    assert_eq!(beyond(&mut world), (none, 3));
    for pid in 4..=7 {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    assert_eq!(beyond(&mut world), (two, 3));
    assert_eq!(beyond(&mut world), (two, 5));
    // Whoever goes leaves room to others.
    world.processes.remove(&1);
    world.processes.remove(&2);
    assert_eq!(beyond(&mut world), (two, 3));
    assert_eq!(beyond(&mut world), (none, 3));
    assert_eq!(beyond(&mut world), (none, 5));
}

#[test]
fn what_is_not_among_too_many_findings_is_not_over() {
    let mut rules = many(1, &AT_ONCE);
    // Who would be ended is found no more.
    rules.behaviours[0].measures.action = Some(GuardAction::Warn);
    let book = Rulebook::of(rules);
    let (mut world, mut memory) = (crowd(3), Memory::default());
    for _ in 0..2 {
        let bucket = world.bucket(TEN_SECONDS);
        let _ = judge_within(&Bounds::LIVE, &book, &mut memory, &bucket);
    }
    let few = Bounds {
        findings: 1,
        ..Bounds::LIVE
    };
    for _ in 0..100 {
        let bucket = world.bucket(TEN_SECONDS);
        let judgement = judge_within(&few, &book, &mut memory, &bucket);
        assert_eq!(judgement.beyond.findings, 2);
        let is_over = |record: &GuardRecord| record.step == GuardStep::Over;
        assert!(!judgement.records.iter().any(is_over));
    }
    assert_eq!(memory.violations().len(), 3);
}

#[test]
fn the_first_rules_look_back_and_the_others_are_not_judged() {
    let bounds = Bounds {
        looked_back: 4,
        ..Bounds::LIVE
    };
    let book = Rulebook::of(many(2, &wasted()));
    let (mut world, mut memory) = (crowd(3), Memory::default());
    let bucket = world.bucket(TEN_SECONDS);
    let judgement = judge_within(&bounds, &book, &mut memory, &bucket);
    assert_eq!(judgement.beyond.looked_back, 3);
    let rules: Vec<String> = judgement
        .unjudged
        .iter()
        .map(|it| format!("{}: {}", it.rule, it.why))
        .collect();
    let why = "rule rule1: waste: rules look back over more than there is room for";
    assert_eq!(rules, [why; 3]);
    assert_eq!(memory.conduct.len(), 1);
}
