//! Who is out of sight is neither there nor gone.

use super::super::judge::judge;
use super::words::line;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};

fn lines(records: &[GuardRecord]) -> Vec<String> {
    records.iter().map(line).collect()
}

/// bob holds too much, too long, on a device on which he may not be.
fn forbidden() -> Rules {
    Rules {
        defaults: Limits {
            memory: gib(20),
            processes: Some(1),
            duration: Some(minutes(2)),
            ..Limits::default()
        },
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..rules()
    }
}

fn world() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world.start(200, "bob").uses(0, 1, 50).job("tree 100");
    world
}

/// What makes a device tell nothing of who uses it: its list fails, it is away, or the
/// daemon is started anew and the driver is slow.
fn blinded() -> [fn(&mut Guard, &mut World); 3] {
    [
        |_, world| world.devices[0].is_listed = false,
        |_, world| world.devices[0].is_there = false,
        |guard, world| {
            let kept = std::mem::take(&mut world.processes);
            world.devices[0].is_listed = false;
            world.now = world.now.plus_seconds(5);
            let text = serde_json::to_string(&guard.memory).expect("it can be written");
            guard.memory = serde_json::from_str(&text).expect("it can be read");
            let _ = judge(&guard.book, &mut guard.memory, &world.bucket(0));
            assert_eq!(guard.watches(world, 3), []);
            world.processes = kept;
        },
    ]
}

/// So many buckets after which what does not hold any more is over.
const SETTLED: usize = 30;

#[test]
fn violations_of_who_is_out_of_sight_stand_still() {
    for (at, blind) in blinded().into_iter().enumerate() {
        let (mut guard, mut world) = (Guard::new(forbidden()), world());
        guard.watches(&mut world, 14);
        let open = guard.memory.violations();
        let rules: Vec<String> = open.iter().map(|it| it.rule.to_string()).collect();
        let all = ["default: memory", "default: duration", "default: processes"];
        let of_gpu = ["gpu 0: user", "gpu 0: user"];
        assert_eq!(rules, [&all[..], &of_gpu].concat(), "{at}");
        blind(&mut guard, &mut world);
        assert_eq!(lines(&guard.watches(&mut world, 3)), [""; 0], "{at}");
        assert_eq!(guard.memory.violations(), open, "{at}");
        world.devices[0].is_listed = true;
        world.devices[0].is_there = true;
        let told = lines(&guard.watches(&mut world, 2));
        let goes_on = |line: &String| line.contains(": warned again");
        assert_eq!(told.iter().find(|line| !goes_on(line)), None, "{at}");
        assert_eq!(guard.memory.violations().len(), open.len(), "{at}");
        // Who is seen not to be there is gone.
        world.processes.clear();
        let over = guard.watches(&mut world, SETTLED);
        assert_eq!(over.len(), open.len(), "{at}");
        assert_eq!(guard.memory.violations(), [], "{at}");
    }
}

#[test]
fn nothing_begins_for_who_is_out_of_sight() {
    let (mut guard, mut world) = (Guard::new(forbidden()), world());
    world.devices[0].is_listed = false;
    assert_eq!(lines(&guard.watches(&mut world, 40)), [""; 0]);
}

#[test]
fn a_simulated_end_that_is_out_of_sight_comes_not_back() {
    for (at, blind) in blinded().into_iter().enumerate() {
        let (mut guard, mut world) = (Guard::new(forbidden()), world());
        let ends = |records: &[GuardRecord]| {
            let told = lines(records);
            told.iter()
                .filter(|line| line.contains("ends tree"))
                .count()
        };
        assert!(ends(&guard.watches(&mut world, 40)) > 0, "{at}");
        guard.watches(&mut world, 40);
        blind(&mut guard, &mut world);
        guard.watches(&mut world, 3);
        world.devices[0].is_listed = true;
        world.devices[0].is_there = true;
        assert_eq!(lines(&guard.watches(&mut world, 80)), [""; 0], "{at}");
    }
}

#[test]
fn who_is_known_by_a_device_that_does_not_come_back_is_gone_after_a_day() {
    let stays_away: fn(&mut World) = |_| ();
    // It is there again, but tells nothing, and all that used it have ended meanwhile.
    let is_silent: fn(&mut World) = |world| {
        world.devices[0].is_there = true;
        world.devices[0].is_listed = false;
        world.processes.clear();
    };
    for goes_on in [stays_away, is_silent] {
        let (mut guard, mut world) = (Guard::new(forbidden()), world());
        guard.watches(&mut world, 14);
        let open = guard.memory.violations();
        assert_eq!(open.len(), 5);
        world.devices[0].is_there = false;
        // What nobody looked at is no part of the day.
        guard.watches(&mut world, 10);
        world.now = world.now.plus_seconds(2 * 86_400);
        goes_on(&mut world);
        let told = guard.watches(&mut world, 24 * 360 - 11);
        assert_eq!(lines(&told), [""; 0]);
        assert_eq!(guard.memory.violations().len(), 5);
        let text = serde_json::to_string(&guard.memory).expect("it can be written");
        guard.memory = serde_json::from_str(&text).expect("it can be read");
        let over = guard.watches(&mut world, SETTLED);
        assert_eq!(over.len(), 5);
        assert!(over.iter().all(|record| record.step == GuardStep::Over));
        assert_eq!(guard.memory.violations(), []);
    }
}

#[test]
fn a_device_that_tells_within_a_day_begins_a_new_one() {
    let (mut guard, mut world) = (Guard::new(forbidden()), world());
    guard.watches(&mut world, 14);
    for _ in 0..2 {
        world.devices[0].is_there = false;
        assert_eq!(lines(&guard.watches(&mut world, 24 * 360 - 1)), [""; 0]);
        world.devices[0].is_there = true;
        guard.watches(&mut world, 1);
        assert_eq!(guard.memory.violations().len(), 5);
    }
}

#[test]
fn who_was_ended_on_a_device_that_does_not_come_back_is_forgotten_after_a_day() {
    let (mut guard, mut world) = (Guard::new(forbidden()), world());
    guard.watches(&mut world, 40);
    let simulated = |guard: &Guard| !guard.memory.simulated_ends().is_empty();
    assert!(simulated(&guard));
    world.devices[0].is_there = false;
    guard.watches(&mut world, 24 * 360 - 1);
    assert!(simulated(&guard));
    guard.watches(&mut world, SETTLED);
    assert!(!simulated(&guard));
    // And nothing is known of the device itself in the end.
    guard.watches(&mut world, 24 * 360);
    let text = serde_json::to_string(&guard.memory).expect("it can be written");
    assert!(!text.contains("GPU-0"), "{text}");
}
