//! What is remembered is bounded, and goes with what it is about.

use super::super::bucket::Bucket;
use super::super::judge::judge;
use super::super::memory::sight::Sight;
use super::super::memory::streak::{SHORT, Streak, Through};
use super::super::memory::window::{Held, Load, Part, SLOTS, Waste, Window};
use super::*;
use proptest::prelude::*;

const HOUR: u64 = 3_600_000;

proptest! {
    #[test]
    fn a_window_has_at_most_so_many_parts_and_loses_nothing_that_is_in_it(
        lengths in proptest::collection::vec(1..200_000_u64, 1..200),
        window_ms in 1..HOUR,
        start in 0..10 * HOUR,
    ) {
        let mut now = i64::try_from(start).unwrap();
        let mut window = Window::from(Timestamp(now));
        let mut all = Vec::new();
        for length in lengths {
            let from = now;
            now += i64::try_from(length).unwrap();
            let load = Load { seen_ms: length, held_ms: length, known_ms: length, total: length };
            window.add(window_ms, Timestamp(from), Timestamp(now), load);
            all.push((now, length));
            prop_assert!(window.slots().count() <= SLOTS);
        }
        let begin = now - i64::try_from(window_ms).unwrap();
        let within: u64 = all.iter().filter(|(until, _)| *until > begin).map(|(_, ms)| ms).sum();
        let kept: u64 = window.slots().map(|slot| slot.part.seen_ms).sum();
        // A part that lies half outside is kept whole.
        let each = window_ms.div_ceil(SLOTS as u64 - 1);
        let longest = all.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
        prop_assert!(within <= kept && kept <= within + each + longest, "{within} {kept}");
    }
}

#[test]
fn who_is_gone_is_forgotten() {
    let waste = Conduct::Waste {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(60),
    };
    let grows = Conduct::Growth {
        by: Bytes(GIB),
        within: minutes(60),
    };
    let runs = Conduct::Runaway {
        above: Percent(0),
        limit: minutes(60),
        orphaned: false,
    };
    let rules = Rules {
        rehearsed: Rehearsed::Enforce,
        defaults: Limits {
            memory: gib(1),
            utilization: Some(Percent(1)),
            ..Limits::default()
        },
        behaviours: vec![
            behaviour("waste", waste),
            behaviour("growth", grows),
            behaviour("runaway", runs),
        ],
        ..rules()
    };
    let written = |guard: &Guard| {
        let mut memory = guard.memory.clone();
        // People are counted for a day.
        memory.fit = Default::default();
        serde_json::to_string(&memory).unwrap()
    };
    let mut guard = Guard::new(rules);
    let mut world = World::new(2);
    for pid in 100..120 {
        world.start(pid, "bob").uses(0, 2, 50);
    }
    guard.watches(&mut world, 10);
    assert!(written(&guard).len() > 2_000);
    world.processes.clear();
    // Who was ended of late counts for ten minutes.
    guard.watches(&mut world, 61);
    let mut expected = Memory {
        until: Some(world.now),
        by: (5, 300_000),
        ..Memory::default()
    };
    expected.sight.look(&world.bucket(0), true);
    expected.sight.look(&world.bucket(TEN_SECONDS), true);
    assert_eq!(written(&guard), serde_json::to_string(&expected).unwrap());
}

/// Rules that look back over five minutes.
fn looking_back(kind: usize) -> Rules {
    let mut rules = rules();
    match kind {
        0 => rules.defaults.utilization = Some(Percent(60)),
        1 => {
            rules.gpus = vec![GpuPolicy {
                name: "0".into(),
                gpus: gpus("0"),
                max_utilization: Some(Percent(60)),
                ..GpuPolicy::default()
            }];
        }
        2 => {
            let waste = Conduct::Waste {
                below: Percent(95),
                min_memory: Bytes(0),
                hours: minutes(5),
            };
            rules.behaviours = vec![behaviour("waste", waste)];
        }
        _ => {
            let idle = Conduct::Idle {
                limit: minutes(5),
                min_memory: Bytes(0),
                with_connections: kind == 3,
                cpu_below: None,
            };
            rules.enforcement.idle_below = Percent(91);
            rules.behaviours = vec![behaviour("idle", idle)];
        }
    }
    rules
}

fn worked() -> World {
    let mut world = World::new(1);
    world.devices[0].utilization = Some(90);
    world.start(100, "bob").uses(0, 2, 90).job("tree 100");
    world
}

/// After how many buckets something is told, if after so few.
fn told_after(guard: &mut Guard, world: &mut World) -> Option<usize> {
    (1..200).find(|_| !guard.watches(world, 1).is_empty())
}

#[test]
fn what_was_before_a_gap_is_not_looked_back_at() {
    // Of five minutes at more than 60 % these are enough, whatever the rest was; and who
    // was idle through a gap is not known until after the first look.
    for (kind, expected, again) in [
        (0, 21, 21),
        (1, 21, 21),
        (2, 30, 30),
        (3, 30, 31),
        (4, 30, 31),
    ] {
        let (mut guard, mut world) = (Guard::new(looking_back(kind)), worked());
        assert_eq!(told_after(&mut guard, &mut world), Some(expected), "{kind}");
        let (mut guard, mut world) = (Guard::new(looking_back(kind)), worked());
        assert_eq!(guard.watches(&mut world, 20), [], "{kind}");
        world.now = world.now.plus_seconds(40);
        assert_eq!(told_after(&mut guard, &mut world), Some(again), "{kind}");
    }
}

#[test]
fn what_was_remembered_by_other_settings_is_not_looked_back_at() {
    for (kind, expected) in [(0, 9), (1, 9), (3, 30)] {
        let (mut guard, mut world) = (Guard::new(looking_back(kind)), worked());
        assert_eq!(guard.watches(&mut world, 20), [], "{kind}");
        let mut rules = looking_back(kind);
        rules.enforcement.utilization_window = minutes(2);
        rules.enforcement.idle_below.0 += 1;
        guard.book = Rulebook::of(rules);
        assert_eq!(told_after(&mut guard, &mut world), Some(expected), "{kind}");
    }
}

#[test]
fn a_poll_that_comes_late_is_no_gap() {
    let (mut guard, mut world) = (Guard::new(looking_back(0)), worked());
    guard.watches(&mut world, 20);
    world.now = world.now.plus_seconds(2);
    assert_eq!(told_after(&mut guard, &mut world), Some(1));
}

#[test]
fn a_moment_and_a_stretch_that_was_not_seen_as_a_whole_are_gaps() {
    for (kind, length, seen_ms) in [(2, 0, 0), (3, 40_000, 10_000)] {
        let (mut guard, mut world) = (Guard::new(looking_back(kind)), worked());
        guard.watches(&mut world, 20);
        let mut bucket = world.bucket(length);
        bucket.seen_ms = seen_ms;
        assert_eq!(judge(&guard.book, &mut guard.memory, &bucket).records, []);
        assert_eq!(told_after(&mut guard, &mut world), Some(30), "{kind}");
    }
}

mod kept;

#[test]
fn a_policy_holds_for_a_device_that_comes_later() {
    let rules = Rules {
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(2));
    world.devices[1].is_there = false;
    world.start(100, "bob").uses(1, 2, 50);
    assert_eq!(guard.watches(&mut world, 3), []);
    world.devices[1].is_there = true;
    assert_eq!(told_after(&mut guard, &mut world), Some(1));
}

#[test]
fn a_streak_lasts_since_the_last_moment_that_broke_it_or_is_not_known() {
    let at = |seconds: i64| Timestamp(seconds * 1_000);
    for (broken, unknown, expected) in [(10, 20, 20), (30, 20, 30)] {
        let mut streak = Streak::from(at(0));
        streak.breaks(at(broken));
        streak.is_unknown(SHORT + 1, at(unknown));
        // Until it is read again, nothing is known of now.
        let through = streak.through(50_000, at(200), at(0));
        assert_eq!(through, Through::Unknown);
        streak.goes_on();
        let through = streak.through(50_000, at(200), at(0));
        let known = 1_000 * u64::try_from(200 - expected).unwrap();
        assert_eq!(through, Through::Since(at(expected), known));
    }
    // Looked at for forty seconds of fifty.
    for (began, expected) in [
        (80, Through::Unknown),
        (95, Through::Not),
        (100, Through::Not),
    ] {
        let through = Streak::from(at(100)).through(50_000, at(140), at(began));
        assert_eq!(through, expected, "{began}");
    }
}

#[test]
fn what_ends_where_a_part_of_a_window_ends_is_in_that_part() {
    let load = |ms| Load {
        seen_ms: ms,
        held_ms: ms,
        known_ms: ms,
        total: ms,
    };
    let mut window = Window::from(Timestamp(0));
    for (from, until) in [(0, 500), (500, 1_000), (1_000, 1_500)] {
        // Parts of a second.
        window.add(63_000, Timestamp(from), Timestamp(until), load(500));
    }
    let slots = window
        .slots()
        .map(|it| (it.from.0, it.until.0, it.part.seen_ms));
    assert_eq!(
        slots.collect::<Vec<_>>(),
        [(0, 1_000, 1_000), (1_000, 1_500, 500)]
    );
}

#[test]
fn a_device_has_told_when_it_names_somebody_or_says_that_there_is_nobody() {
    let id = gpukill_proto::snapshot::DeviceId("GPU-0".into());
    let has_told = |world: &mut World, ms: u64, change: fn(&mut Bucket)| {
        let mut bucket = world.bucket(ms);
        change(&mut bucket);
        let mut sight = Sight::default();
        sight.look(&bucket, true);
        sight.is_of_all([&id])
    };
    let works = |bucket: &mut Bucket| {
        for device in bucket.devices.values_mut() {
            (device.usage.held_ms, device.usage.busy_ms) = (0, 10_000);
        }
    };
    assert!(has_told(&mut worked(), 0, |_| ()));
    assert!(has_told(&mut worked(), TEN_SECONDS, works));
    let mut unlisted = worked();
    unlisted.devices[0].is_listed = false;
    assert!(!has_told(&mut unlisted, TEN_SECONDS, |_| ()));
    assert!(!has_told(&mut worked(), TEN_SECONDS, |it| it
        .devices
        .clear()));
    let free = |bucket: &mut Bucket| {
        for device in bucket.devices.values_mut() {
            (device.usage.held_ms, device.usage.free_ms) = (0, 10_000);
        }
    };
    assert!(has_told(&mut World::new(1), TEN_SECONDS, free));
    assert!(!has_told(&mut World::new(1), TEN_SECONDS, works));
}

#[test]
fn where_somebody_was_ended_how_hard_others_worked_is_looked_at_anew() {
    let mut rules = looking_back(0);
    (rules.mode, rules.rehearsed) = (GuardMode::Enforce, Rehearsed::Enforce);
    rules.users = vec![UserPolicy {
        name: "alice".into(),
        limits: memory(1),
        ..UserPolicy::default()
    }];
    let (mut guard, mut world) = (Guard::new(rules), worked());
    assert_eq!(guard.watches(&mut world, 15), []);
    world.start(200, "alice").uses(0, 2, 0).job("tree 200");
    let steps: Vec<_> = guard.watches(&mut world, 2);
    let steps: Vec<_> = steps.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["violated", "ended"]);
    // But for the end of hers.
    world.processes.remove(&200);
    assert_eq!(guard.watches(&mut world, 1).len(), 1);
    assert_eq!(told_after(&mut guard, &mut world), Some(20));
}

#[test]
fn parts_of_a_window_add_up_and_what_is_not_known_of_one_is_not_known_of_all() {
    fn sum<P: Part + Clone>(parts: &[P]) -> P {
        let (first, rest) = parts.split_first().expect("there are some");
        rest.iter().fold(first.clone(), |mut sum, part| {
            sum.merge(part.clone());
            sum
        })
    }
    let known = |unknown: Option<usize>| 7 - unknown.map_or(0, |at| 1_u64 << at);
    for unknown in [None, Some(0), Some(1), Some(2)] {
        let load = |at| Load {
            seen_ms: 1_u64 << at,
            held_ms: 1_u64 << at,
            known_ms: u64::from(unknown != Some(at)) << at,
            total: 10_u64 << at,
        };
        let expected = Load {
            seen_ms: 7,
            held_ms: 7,
            known_ms: known(unknown),
            total: 70,
        };
        assert_eq!(sum(&[load(0), load(1), load(2)]), expected);
        for of_load in [true, false] {
            let waste = |at| Waste {
                held_ms: 1_u64 << at,
                total: 10_u64 << at,
                known_ms: u64::from(!of_load || unknown != Some(at)) << at,
                least: [5, 3, 4][at],
                is_memory_unknown: !of_load && unknown == Some(at),
                has_served: false,
                may_have_served: false,
            };
            let expected = Waste {
                held_ms: 7,
                total: 70,
                known_ms: known(unknown.filter(|_| of_load)),
                least: 3,
                is_memory_unknown: !of_load && unknown.is_some(),
                has_served: false,
                may_have_served: false,
            };
            assert_eq!(sum(&[waste(0), waste(1), waste(2)]), expected);
        }
        let held = |at| Held {
            total: 10_u64 << at,
            known_ms: 1_u64 << at,
            is_unknown: unknown == Some(at),
        };
        let expected = Held {
            total: 70,
            known_ms: 7,
            is_unknown: unknown.is_some(),
        };
        assert_eq!(sum(&[held(0), held(1), held(2)]), expected);
    }
}

#[test]
fn a_window_covers_what_was_looked_at_or_could_not_have_been() {
    let at = |seconds: i64| Timestamp(seconds * 1_000);
    let window = Window::<Load>::from(at(100));
    for (until, began, expected) in [
        (150, 0, Some(true)),
        (140, 80, None),
        (140, 90, None),
        (140, 95, Some(false)),
        (140, 100, Some(false)),
    ] {
        let covers = window.covers(50_000, at(until), at(began));
        assert_eq!(covers, expected, "{until} {began}");
    }
}
