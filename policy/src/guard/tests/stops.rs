//! Time in which nobody looked, and clocks that are set.

use super::words::line;
use super::*;

fn warned() -> (Guard, World) {
    let rules = Rules {
        mode: GuardMode::Soft,
        defaults: Limits {
            memory: gib(20),
            ..Limits::default()
        },
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    world.now = Timestamp(86_400_000);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    assert_eq!(guard.watches(&mut world, 3).len(), 2);
    (guard, world)
}

/// What is told in so many seconds after the beginning of the day, by a clock that is
/// set forward by so many more.
fn after(clock: i64, guard: &mut Guard, world: &mut World) -> Vec<(i64, String)> {
    let told = guard.watches(world, 40);
    let told = told.iter().map(|record| {
        let at = record.at.0 / 1_000 - 86_400 - clock;
        let told = line(record);
        let said = told.split(": default: memory: ").nth(1).unwrap_or_default();
        let said = said.split(", ends").next().unwrap_or_default();
        (at, said.replace(" [soft]", ""))
    });
    told.collect()
}

#[test]
fn time_in_which_nobody_looked_is_no_part_of_the_grace() {
    // Forward, by days or for the time that the daemon was away, and back.
    for seconds in [0, 30 * 86_400, 3_600, 31, -3_600] {
        let (mut guard, mut world) = warned();
        let text = serde_json::to_string(&guard.memory).unwrap();
        guard.memory = serde_json::from_str(&text).unwrap();
        world.now = world.now.plus_seconds(seconds);
        let expected = [
            (120, "warned again (2)".to_owned()),
            (220, "warned again (3)".to_owned()),
            (
                320,
                "ends tree 100 of bob (priority 5, 1 on GPUs, which works)".to_owned(),
            ),
            (
                380,
                "nobody is ended: tree 100 was ended, and is there still".to_owned(),
            ),
        ];
        let told = after(seconds, &mut guard, &mut world);
        assert_eq!(told, expected, "{seconds}");
        let open = &guard.memory.violations()[0];
        let deadline = Timestamp((86_400 + 320 + seconds) * 1_000);
        assert_eq!(open.deadline, Some(deadline), "{seconds}");
    }
}

#[test]
fn a_short_stop_is_part_of_the_grace() {
    let (mut guard, mut world) = warned();
    let before = guard.memory.violations()[0].deadline;
    world.now = world.now.plus_seconds(30);
    guard.watches(&mut world, 2);
    assert_eq!(guard.memory.violations()[0].deadline, before);
}

#[test]
fn of_a_long_stretch_what_was_seen_of_it_is_part_of_the_grace() {
    let (mut guard, mut world) = warned();
    let before = guard.memory.violations()[0].deadline;
    // As a replay sees an hour of which ten minutes are in the store.
    let mut hour = world.bucket(3_600_000);
    hour.seen_ms = 600_000;
    let _ = super::super::judge(&guard.book, &mut guard.memory, &hour);
    let after = before.map(|it| it.plus_seconds(3_000));
    assert_eq!(guard.memory.violations()[0].deadline, after);
}

#[test]
fn of_two_stops_neither_is_part_of_the_grace() {
    let (mut guard, mut world) = warned();
    let mut told = Vec::new();
    for (stops, buckets) in [(1, 10), (2, 30)] {
        world.now = world.now.plus_seconds(3_600);
        let records = guard.watches(&mut world, buckets);
        told.extend(records.iter().map(|record| {
            let at = record.at.0 / 1_000 - 86_400 - stops * 3_600;
            (at, record.step.name())
        }));
    }
    let expected = [
        (120, "warned"),
        (220, "warned"),
        (320, "ended"),
        (380, "spared"),
    ];
    assert_eq!(told, expected);
}
