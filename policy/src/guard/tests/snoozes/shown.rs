//! What screens show of what is snoozed: the same end everywhere, and no more warnings than
//! the rule allows.

use super::*;
use crate::guard::judge;
use crate::guard::replay::Replay;

/// What a screen shows of a violation: when it ends, how often its owner was warned, and
/// how often they may ask.
fn shown(open: &OpenViolation) -> (Option<i64>, u32, Vec<(u32, i64, u32)>) {
    let end = open.deadline.map(|it| it.0 / 1_000);
    (end, open.warnings, readers(open))
}

#[test]
fn a_test_shows_the_end_that_the_guard_shows_of_what_is_snoozed() {
    for rehearsed in [Rehearsed::Soft, Rehearsed::Enforce] {
        let mut rules = in_mode(GuardMode::DryRun);
        rules.rehearsed = rehearsed;
        rules.enforcement.max_warnings = 2;
        let (mut guard, mut world) = (Guard::new(rules.clone()), world());
        let mut samples = Vec::new();
        for nth in 0..150 {
            if nth == 20 {
                let granted = snooze(&mut guard, &world, (100, BOB));
                assert_eq!(granted.is_ok(), rehearsed == Rehearsed::Soft);
            }
            let sample = world.bucket(TEN_SECONDS);
            let _ = judge(&guard.book, &mut guard.memory, &sample);
            samples.push(sample);
            // A test knows of the snooze from its beginning on.
            let mut replay = Replay::new(rules.clone(), Timestamp(0));
            for grant in guard.memory.snoozes() {
                replay.snoozed(grant.clone());
            }
            if nth % 10 != 1 {
                continue;
            }
            for sample in &samples {
                replay.add(sample).unwrap();
            }
            let tested: Vec<_> = replay.finish().open.iter().map(shown).collect();
            let live: Vec<_> = guard.memory.violations().iter().map(shown).collect();
            assert_eq!(tested, live, "{rehearsed:?} {nth}");
        }
    }
}

#[test]
fn nobody_is_warned_more_often_than_the_rule_says_also_after_more_time() {
    let (mut guard, mut world) = (soft(|it| it.enforcement.max_warnings = 2), world());
    let mut records = guard.watches(&mut world, 25);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(920, 0)]));
    assert_eq!(guard.memory.violations()[0].warnings, 0);
    records.extend(guard.watches(&mut world, 60));
    let times: Vec<(i64, u32, bool)> = records
        .iter()
        .filter_map(|it| match it.step {
            GuardStep::Warned { times, .. } => {
                Some((it.at.0 / 1_000, times, guard.memory.is_first_warning(it)))
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
    assert_eq!(guard.memory.violations()[0].warnings, 2);
}
