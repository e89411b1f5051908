//! How long a job is idle: what counts, what does not, and what restarts the idle time.

use super::super::replay::Replay;
use super::super::state::streak::{MAX_UNKNOWN_DIVISOR, MAX_UNKNOWN_MS, Streak, StreakStatus};
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use proptest::prelude::*;

/// Idle after this many minutes, ended after a grace period of two.
fn rules_with_idle_limit(limit: u64) -> RuleSet {
    let mut rules = RuleSet {
        mode: GuardMode::Soft,
        ..dry_run_rules()
    };
    rules.defaults.idle = Some(minutes(limit));
    rules.enforcement.grace = minutes(2);
    rules.enforcement.max_warnings = 1;
    rules
}

fn idle_job() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 10, 0).job("notebook");
    world
}

/// The step, the minute and the second of each record.
fn steps(records: &[GuardRecord]) -> Vec<String> {
    let step_text = |record: &GuardRecord| {
        let seconds = record.at.0 / 1_000;
        let name = record.step.name();
        format!("{name} {:02}:{:02}", seconds / 60, seconds % 60)
    };
    records.iter().map(step_text).collect()
}

#[test]
fn end_of_idleness_ends_the_warning() {
    let (mut guard, mut world) = (TestGuard::new(rules_with_idle_limit(1)), idle_job());
    let warned = ["violated 01:00", "warned 01:00"];
    assert_eq!(steps(&guard.evaluate_samples(&mut world, 9)), warned);
    world.process(100).connections(TestReading::Known(1));
    assert_eq!(
        steps(&guard.evaluate_samples(&mut world, 3)),
        ["over 01:40"]
    );
    // The grace period of the first warning ends long before that of the second.
    world.process(100).connections(TestReading::Known(0));
    let expected = ["violated 03:00", "warned 03:00", "ended 05:00"];
    assert_eq!(steps(&guard.evaluate_samples(&mut world, 18)), expected);
}

#[test]
fn idle_again_warns_again() {
    let (mut guard, mut world) = (TestGuard::new(rules_with_idle_limit(1)), idle_job());
    guard.evaluate_samples(&mut world, 6);
    world.process(100).utilization(0, TestReading::Failed);
    assert_eq!(guard.evaluate_samples(&mut world, 6), []);
    world.process(100).utilization(0, TestReading::Known(0));
    let expected = ["warned 03:00", "ended 05:00"];
    assert_eq!(steps(&guard.evaluate_samples(&mut world, 18)), expected);
}

/// The steps for a job that is idle, with a limit of five minutes, when these samples have
/// no reading.
fn steps_without_readings(
    missing: &[usize],
    daemon: impl Fn(usize, &mut TestGuard),
) -> Vec<String> {
    let (mut guard, mut world) = (TestGuard::new(rules_with_idle_limit(5)), idle_job());
    let mut records = Vec::new();
    for nth in 0..80 {
        let reading = match missing.contains(&nth) {
            true => TestReading::Failed,
            false => TestReading::Known(0),
        };
        world.process(100).utilization(0, reading);
        daemon(nth, &mut guard);
        records.extend(guard.evaluate_samples(&mut world, 1));
    }
    let mut steps = steps(&records);
    steps.truncate(2);
    steps
}

#[test]
fn missing_readings_neither_count_nor_restart() {
    let at = |time: &str| ["violated", "warned"].map(|step| format!("{step} {time}"));
    let none = |_: usize, _: &mut TestGuard| ();
    assert_eq!(steps_without_readings(&[], none), at("05:00"));
    assert_eq!(steps_without_readings(&[20], none), at("05:10"));
    assert_eq!(steps_without_readings(&[10, 20, 21], none), at("05:30"));
    // Four missing samples in a row, or four in five minutes, are too many: the idle time
    // restarts at 03:50.
    assert_eq!(steps_without_readings(&[19, 20, 21, 22], none), at("08:50"));
    assert_eq!(steps_without_readings(&[1, 8, 15, 22], none), at("08:50"));
}

#[test]
fn evidence_has_start_and_known_time() {
    let (mut guard, mut world) = (TestGuard::new(rules_with_idle_limit(5)), idle_job());
    guard.evaluate_samples(&mut world, 20);
    world.process(100).utilization(0, TestReading::Failed);
    guard.evaluate_samples(&mut world, 1);
    world.process(100).utilization(0, TestReading::Known(0));
    let records = guard.evaluate_samples(&mut world, 12);
    let evidence = records.first().map(|record| &record.evidence);
    let actual = evidence.map(|it| (it.since, it.measured.map(|it| it.value)));
    assert_eq!(actual, Some((Timestamp(0), Some(300_000))));
}

#[test]
fn quick_restart_keeps_idle_time() {
    let decided = |away_ms: u64| {
        let (mut guard, mut world) = (TestGuard::new(rules_with_idle_limit(5)), idle_job());
        let mut records = guard.evaluate_samples(&mut world, 20);
        world.next_sample(away_ms);
        // The first poll reports a single moment.
        let mut first = world.next_sample(0);
        first.from = first.until;
        let evaluation = super::super::evaluate(&guard.compiled_rules, &mut guard.state, &first);
        records.extend(evaluation.records);
        records.extend(guard.evaluate_samples(&mut world, 40));
        steps(&records).first().cloned()
    };
    assert_eq!(decided(20_000), Some("violated 05:20".to_owned()));
    assert_eq!(decided(40_000), Some("violated 09:00".to_owned()));
}

#[test]
fn replay_counts_idleness_like_live() {
    let (mut guard, mut world) = (TestGuard::new(rules_with_idle_limit(5)), idle_job());
    let mut replay = Replay::new(rules_with_idle_limit(5), Timestamp(0));
    let mut live = Vec::new();
    for nth in 0..60 {
        let reading = match nth % 25 {
            7 | 8 => TestReading::Failed,
            _known => TestReading::Known(0),
        };
        world.process(100).utilization(0, reading);
        let sample = world.next_sample(SAMPLE_MS);
        let evaluation = super::super::evaluate(&guard.compiled_rules, &mut guard.state, &sample);
        live.extend(
            evaluation
                .records
                .into_iter()
                .filter(|it| matches!(it.step, GuardStep::Violated)),
        );
        replay.add(&sample).unwrap();
    }
    let replayed = replay.finish();
    let first = replayed.outcomes.iter().map(|it| it.violated).sum::<u64>();
    assert_eq!((live.len(), first), (1, 1));
    assert_eq!(live[0].at, Timestamp(320_000));
    assert_eq!(
        replayed.open.first().map(|it| it.violated_at),
        Some(live[0].at)
    );
}

/// What a sample reports: idle, at work, or nothing.
fn samples() -> impl Strategy<Value = Vec<(Option<bool>, u64)>> {
    let reading = prop_oneof![
        12 => Just(Some(false)),
        1 => Just(Some(true)),
        3 => Just(None),
    ];
    proptest::collection::vec((reading, 1_000_u64..15_000), 1..300)
}

proptest! {
    #[test]
    fn idle_despite_short_gaps(
        samples in samples(),
        length in 1_000_u64..900_000,
    ) {
        let mut streak = Streak::starting_at(Timestamp(0));
        let mut past: Vec<(Option<bool>, Timestamp, u64)> = Vec::new();
        let mut now = 0;
        for (reading, ms) in samples {
            now += i64::try_from(ms).unwrap();
            let until = Timestamp(now);
            match reading {
                Some(true) => streak.record_broken(until),
                Some(false) => streak.record_unbroken(),
                None => streak.record_unknown(ms, until),
            }
            past.push((reading, until, ms));
            let sum = |past: &[(Option<bool>, Timestamp, u64)], what: Option<bool>| -> u64 {
                past.iter().filter(|it| it.0 == what).map(|it| it.2).sum()
            };
            match streak.status(length, until, Timestamp(0)) {
                StreakStatus::Since(since, known) => {
                    let after: Vec<_> = past.iter().copied().filter(|it| it.1 > since).collect();
                    prop_assert_eq!(sum(&after, Some(true)), 0);
                    prop_assert_eq!(sum(&after, Some(false)), known);
                    prop_assert!(known >= length);
                    let elapsed = u64::try_from(now - since.0).unwrap();
                    prop_assert!(sum(&after, None) <= MAX_UNKNOWN_MS.max(elapsed / MAX_UNKNOWN_DIVISOR));
                    let in_a_row = after.split(|it| it.0.is_some()).map(|it| sum(it, None));
                    prop_assert!(in_a_row.max().unwrap_or(0) <= MAX_UNKNOWN_MS);
                }
                // With no reading missing, the answer is known.
                StreakStatus::Broken | StreakStatus::Unknown => {
                    let idle = past.rsplit(|it| it.0 != Some(false)).next().unwrap_or_default();
                    prop_assert!(sum(idle, Some(false)) < length);
                }
            }
        }
    }
}

/// As docs/guard.md states: job state that is kept for any rules counts for a new rule,
/// too. What is measured for one rule only is measured from when the rule exists.
#[test]
fn new_rule_uses_kept_state() {
    let with = |behaviour: Option<ForbiddenBehaviour>, mode: GuardMode| RuleSet {
        mode,
        behaviours: behaviour
            .map(|it| behaviour_rule("new", it))
            .into_iter()
            .collect(),
        ..dry_run_rules()
    };
    let ten = minutes(10);
    let idle = ForbiddenBehaviour::Idle(IdleParams {
        limit: ten,
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    });
    let waste = ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: ten,
    });
    let kinds = [
        (ForbiddenBehaviour::Duration(ten), 1, 1),
        (idle, 1, 59),
        (waste, 59, 59),
    ];
    for (behaviour, of_new, of_disabled) in kinds {
        for (before, expected) in [
            (GuardMode::DryRun, of_new),
            (GuardMode::Disabled, of_disabled),
        ] {
            let (mut guard, mut world) = (TestGuard::new(with(None, before)), idle_job());
            guard.evaluate_samples(&mut world, 90);
            guard.compiled_rules =
                CompiledRules::new(with(Some(behaviour.clone()), GuardMode::DryRun));
            let is_broken = |guard: &TestGuard| !guard.state.violations().is_empty();
            let mut samples = 0;
            while !is_broken(&guard) && samples < 100 {
                guard.evaluate_samples(&mut world, 1);
                samples += 1;
            }
            // A duration limit needs two samples.
            assert!(
                (expected..expected + 3).contains(&samples),
                "{behaviour:?} after {before:?}: {samples}"
            );
        }
    }
}
