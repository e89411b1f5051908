//! What the clock on the wall showed when something was seen.

use super::super::schedule::Hours;
use super::*;

/// bob is not welcome between these minutes of the day.
fn closed(from: u16, to: u16) -> Rules {
    Rules {
        mode: GuardMode::Enforce,
        times: vec![TimePolicy {
            name: "lecture".into(),
            hours: Hours {
                from,
                to,
                days: Vec::new(),
            },
            blocked_users: names(&["bob"]),
            ..TimePolicy::default()
        }],
        ..rules()
    }
}

fn at(seconds: i64) -> World {
    let mut world = World::new(1);
    world.now = Timestamp(seconds * 1_000);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

#[test]
fn who_has_left_by_then_breaks_no_rule_that_begins_then() {
    let mut guard = Guard::new(closed(1, 60));
    let mut world = at(10);
    assert_eq!(guard.watches(&mut world, 4), []);
    world.process(100).is_present = false;
    assert_eq!(guard.watches(&mut world, 1), []);
    assert_eq!(world.now, Timestamp(60_000));
}

#[test]
fn who_was_there_in_a_part_of_a_forbidden_time_breaks_the_rule_and_is_not_ended() {
    let mut guard = Guard::new(closed(1, 60));
    let mut world = at(60);
    world.process(100).is_present = false;
    let steps = guard.watches(&mut world, 1);
    let steps: Vec<&str> = steps.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["violated"]);
}

#[test]
fn an_hour_belongs_to_the_time_that_it_begins_in() {
    for (hour, expected) in [(8, 0), (9, 1), (16, 1), (17, 0)] {
        let mut guard = Guard::new(closed(9 * 60, 17 * 60));
        let mut world = at(hour * 3_600);
        let bucket = world.bucket(3_600_000);
        let told = super::super::judge(&guard.book, &mut guard.memory, &bucket);
        let violated = told
            .records
            .iter()
            .filter(|it| it.step.name() == "violated");
        assert_eq!(violated.count(), expected, "{hour}");
    }
}
