//! An unobserved process is neither present nor gone.

use super::super::evaluate::evaluate;
use super::record_text::record_line;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};

fn lines(records: &[GuardRecord]) -> Vec<String> {
    records.iter().map(record_line).collect()
}

/// bob holds too much, for too long, on a device that he may not use.
fn rules_forbidding_bob() -> RuleSet {
    RuleSet {
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
        ..dry_run_rules()
    }
}

fn world() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world.start(200, "bob").uses(0, 1, 50).job("tree 100");
    world
}

/// Reasons for a device not to report its processes: its list fails, it is absent, or the
/// daemon restarted and the driver is slow.
fn blinding_causes() -> [fn(&mut TestGuard, &mut TestHost); 3] {
    [
        |_, world| world.devices[0].reports_processes = false,
        |_, world| world.devices[0].is_present = false,
        |guard, world| {
            let kept = std::mem::take(&mut world.processes);
            world.devices[0].reports_processes = false;
            world.now = world.now.plus_seconds(5);
            let text = serde_json::to_string(&guard.state).expect("it can be written");
            guard.state = serde_json::from_str(&text).expect("it can be read");
            let _ = evaluate(
                &guard.compiled_rules,
                &mut guard.state,
                &world.next_sample(0),
            );
            assert_eq!(guard.evaluate_samples(world, 3), []);
            world.processes = kept;
        },
    ]
}

/// The number of samples after which a violation that does not hold is over.
const SETTLED_SAMPLES: usize = 30;

#[test]
fn unobserved_violations_stand_still() {
    for (at, blind) in blinding_causes().into_iter().enumerate() {
        let (mut guard, mut world) = (TestGuard::new(rules_forbidding_bob()), world());
        guard.evaluate_samples(&mut world, 14);
        let open = guard.state.violations();
        let rules: Vec<String> = open.iter().map(|it| it.rule.to_string()).collect();
        let all = ["default: memory", "default: duration", "default: processes"];
        let of_gpu = ["gpu 0: user", "gpu 0: user"];
        assert_eq!(rules, [&all[..], &of_gpu].concat(), "{at}");
        blind(&mut guard, &mut world);
        assert_eq!(
            lines(&guard.evaluate_samples(&mut world, 3)),
            [""; 0],
            "{at}"
        );
        assert_eq!(guard.state.violations(), open, "{at}");
        world.devices[0].reports_processes = true;
        world.devices[0].is_present = true;
        let actual = lines(&guard.evaluate_samples(&mut world, 2));
        let goes_on = |line: &String| line.contains(": warned again");
        assert_eq!(actual.iter().find(|line| !goes_on(line)), None, "{at}");
        assert_eq!(guard.state.violations().len(), open.len(), "{at}");
        // A process that is observed to be absent is gone.
        world.processes.clear();
        let over = guard.evaluate_samples(&mut world, SETTLED_SAMPLES);
        assert_eq!(over.len(), open.len(), "{at}");
        assert_eq!(guard.state.violations(), [], "{at}");
    }
}

#[test]
fn nothing_begins_unobserved() {
    let (mut guard, mut world) = (TestGuard::new(rules_forbidding_bob()), world());
    world.devices[0].reports_processes = false;
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 40)), [""; 0]);
}

#[test]
fn unobserved_simulated_end_stays_ended() {
    for (at, blind) in blinding_causes().into_iter().enumerate() {
        let (mut guard, mut world) = (TestGuard::new(rules_forbidding_bob()), world());
        let ends = |records: &[GuardRecord]| {
            let actual = lines(records);
            actual
                .iter()
                .filter(|line| line.contains("ends tree"))
                .count()
        };
        assert!(ends(&guard.evaluate_samples(&mut world, 40)) > 0, "{at}");
        guard.evaluate_samples(&mut world, 40);
        blind(&mut guard, &mut world);
        guard.evaluate_samples(&mut world, 3);
        world.devices[0].reports_processes = true;
        world.devices[0].is_present = true;
        assert_eq!(
            lines(&guard.evaluate_samples(&mut world, 80)),
            [""; 0],
            "{at}"
        );
    }
}

#[test]
fn lost_device_is_dropped_after_a_day() {
    let stays_away: fn(&mut TestHost) = |_| ();
    // The device is back but reports nothing, and all its processes have ended meanwhile.
    let is_silent: fn(&mut TestHost) = |world| {
        world.devices[0].is_present = true;
        world.devices[0].reports_processes = false;
        world.processes.clear();
    };
    for goes_on in [stays_away, is_silent] {
        let (mut guard, mut world) = (TestGuard::new(rules_forbidding_bob()), world());
        guard.evaluate_samples(&mut world, 14);
        let open = guard.state.violations();
        assert_eq!(open.len(), 5);
        world.devices[0].is_present = false;
        // Unobserved time is no part of the day.
        guard.evaluate_samples(&mut world, 10);
        world.now = world.now.plus_seconds(2 * 86_400);
        goes_on(&mut world);
        let actual = guard.evaluate_samples(&mut world, 24 * 360 - 11);
        assert_eq!(lines(&actual), [""; 0]);
        assert_eq!(guard.state.violations().len(), 5);
        let text = serde_json::to_string(&guard.state).expect("it can be written");
        guard.state = serde_json::from_str(&text).expect("it can be read");
        let over = guard.evaluate_samples(&mut world, SETTLED_SAMPLES);
        assert_eq!(over.len(), 5);
        assert!(over.iter().all(|record| record.step == GuardStep::Over));
        assert_eq!(guard.state.violations(), []);
    }
}

#[test]
fn a_report_restarts_the_day() {
    let (mut guard, mut world) = (TestGuard::new(rules_forbidding_bob()), world());
    guard.evaluate_samples(&mut world, 14);
    for _ in 0..2 {
        world.devices[0].is_present = false;
        assert_eq!(
            lines(&guard.evaluate_samples(&mut world, 24 * 360 - 1)),
            [""; 0]
        );
        world.devices[0].is_present = true;
        guard.evaluate_samples(&mut world, 1);
        assert_eq!(guard.state.violations().len(), 5);
    }
}

#[test]
fn ended_on_a_lost_device_is_dropped() {
    let (mut guard, mut world) = (TestGuard::new(rules_forbidding_bob()), world());
    guard.evaluate_samples(&mut world, 40);
    let simulated = |guard: &TestGuard| !guard.state.simulated_ends().is_empty();
    assert!(simulated(&guard));
    world.devices[0].is_present = false;
    guard.evaluate_samples(&mut world, 24 * 360 - 1);
    assert!(simulated(&guard));
    guard.evaluate_samples(&mut world, SETTLED_SAMPLES);
    assert!(!simulated(&guard));
    // In the end nothing is known of the device itself.
    guard.evaluate_samples(&mut world, 24 * 360);
    let text = serde_json::to_string(&guard.state).expect("it can be written");
    assert!(!text.contains("GPU-0"), "{text}");
}
