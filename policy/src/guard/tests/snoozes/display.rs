//! How screens show a snooze: the same end everywhere, and no more warnings than the rule
//! allows.

use super::*;
use crate::guard::evaluate;
use crate::guard::replay::Replay;

/// What a screen shows of a violation: its end, the number of warnings, and the snoozes of
/// each owner.
fn displayed(open: &OpenViolation) -> (Option<i64>, u32, Vec<(u32, i64, u32)>) {
    let end = open.deadline.map(|it| it.0 / 1_000);
    (end, open.warnings, readers(open))
}

#[test]
fn test_and_guard_show_the_same_end() {
    for armed_mode in [EnforcementMode::Soft, EnforcementMode::Enforce] {
        let mut rules = rules_in_mode(GuardMode::DryRun);
        rules.armed_mode = armed_mode;
        rules.enforcement.max_warnings = 2;
        let (mut guard, mut world) = (TestGuard::new(rules.clone()), world());
        let mut samples = Vec::new();
        for nth in 0..150 {
            if nth == 20 {
                let granted = snooze(&mut guard, &world, (100, BOB));
                assert_eq!(granted.is_ok(), armed_mode == EnforcementMode::Soft);
            }
            let sample = world.next_sample(SAMPLE_MS);
            let _ = evaluate(&guard.compiled_rules, &mut guard.state, &sample);
            samples.push(sample);
            // A test of rules knows the snooze from its beginning on.
            let mut replay = Replay::new(rules.clone(), Timestamp(0));
            for grant in guard.state.snoozes() {
                replay.add_snooze(grant.clone());
            }
            if nth % 10 != 1 {
                continue;
            }
            for sample in &samples {
                replay.add(sample).unwrap();
            }
            let tested: Vec<_> = replay.finish().open.iter().map(displayed).collect();
            let live: Vec<_> = guard.state.violations().iter().map(displayed).collect();
            assert_eq!(tested, live, "{armed_mode:?} {nth}");
        }
    }
}

#[test]
fn snooze_does_not_add_warnings() {
    let (mut guard, mut world) = (soft_guard(|it| it.enforcement.max_warnings = 2), world());
    let mut records = guard.evaluate_samples(&mut world, 25);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(920, 0)]));
    assert_eq!(guard.state.violations()[0].warnings, 0);
    records.extend(guard.evaluate_samples(&mut world, 60));
    let times: Vec<(i64, u32, bool)> = records
        .iter()
        .filter_map(|it| match it.step {
            GuardStep::Warned { times, .. } => {
                Some((it.at.0 / 1_000, times, guard.state.is_first_warning(it)))
            }
            _ => None,
        })
        .collect();
    let expected = [
        (20, 1, true),
        (170, 2, false),
        (620, 1, false),
        (770, 2, false),
    ];
    assert_eq!(times, expected);
    assert_eq!(guard.state.violations()[0].warnings, 2);
}
