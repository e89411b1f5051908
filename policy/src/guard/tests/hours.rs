//! Time policies apply by the local time at which something was observed.

use super::super::schedule::Hours;
use super::*;

/// bob may use no device between these minutes of the day.
fn rules_closed_between(from: u16, to: u16) -> RuleSet {
    RuleSet {
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
        ..dry_run_rules()
    }
}

fn host_at(seconds: i64) -> TestHost {
    let mut world = TestHost::new(1);
    world.now = Timestamp(seconds * 1_000);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

#[test]
fn leaving_before_the_window_is_allowed() {
    let mut guard = TestGuard::new(rules_closed_between(1, 60));
    let mut world = host_at(10);
    assert_eq!(guard.evaluate_samples(&mut world, 4), []);
    world.process(100).is_present = false;
    assert_eq!(guard.evaluate_samples(&mut world, 1), []);
    assert_eq!(world.now, Timestamp(60_000));
}

#[test]
fn leaving_in_the_window_ends_nothing() {
    let mut guard = TestGuard::new(rules_closed_between(1, 60));
    let mut world = host_at(60);
    world.process(100).is_present = false;
    let steps = guard.evaluate_samples(&mut world, 1);
    let steps: Vec<&str> = steps.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["violated"]);
}

#[test]
fn sample_belongs_to_the_time_it_begins() {
    for (hour, expected) in [(8, 0), (9, 1), (16, 1), (17, 0)] {
        let mut guard = TestGuard::new(rules_closed_between(9 * 60, 17 * 60));
        let mut world = host_at(hour * 3_600);
        let sample = world.next_sample(3_600_000);
        let actual = super::super::evaluate(&guard.compiled_rules, &mut guard.state, &sample);
        let violated = actual
            .records
            .iter()
            .filter(|it| it.step.name() == "violated");
        assert_eq!(violated.count(), expected, "{hour}");
    }
}
