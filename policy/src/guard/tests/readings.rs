//! Polls without a reading among many with one.

use super::super::replay::{Replay, ReplayResult};
use super::super::sample::GuardSample;
use super::*;
use gpukill_proto::guard::Measurement;

/// A quarter of an hour of bob's process at 60 %. The function returns for how many
/// milliseconds of each sample there was a reading.
fn samples(known_ms: impl Fn(usize) -> u64) -> Vec<GuardSample> {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 20, 60).job("train");
    let samples = (0..90).map(|nth| {
        let mut sample = world.next_sample(SAMPLE_MS);
        for run_sample in sample.runs.values_mut() {
            let gauge = &mut run_sample.usage.utilization;
            gauge.known_ms = known_ms(nth);
            gauge.total = u128::from(60 * gauge.known_ms);
            gauge.max = (gauge.known_ms > 0).then_some(60);
        }
        sample
    });
    samples.collect()
}

fn replay(rules: RuleSet, samples: &[GuardSample]) -> ReplayResult {
    let mut replay = Replay::new(rules, Timestamp(0));
    for sample in samples {
        replay.add(sample).unwrap();
    }
    replay.finish()
}

fn utilization_rules(percent: u32) -> RuleSet {
    let mut rules = RuleSet {
        defaults: Limits {
            utilization: Some(Percent(percent)),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    rules.enforcement.utilization_window = minutes(10);
    rules
}

/// The seconds in which something is unknown, and the last mean in percent.
fn unknown_seconds_and_mean(replayed: &ReplayResult) -> (u64, Option<u64>) {
    let unknown = replayed
        .not_evaluated
        .iter()
        .map(|it| it.for_ms / 1_000)
        .sum();
    let measured = replayed.open.first().and_then(|it| it.evidence.measured);
    (unknown, measured.map(|Measurement { value, .. }| value))
}

#[test]
fn missed_poll_keeps_the_window_known() {
    // A process's first poll, one poll in each sample, and a sample without any reading.
    let first = |nth| if nth == 0 { 8_000 } else { 10_000 };
    let each = |_| 9_500;
    let one = |nth| if nth == 30 { 0 } else { 10_000 };
    // Only for the very first sample, too little is known.
    for (what, samples, unknown) in [
        ("first", samples(first), 10),
        ("each", samples(each), 0),
        ("one", samples(one), 0),
    ] {
        let of = |percent| unknown_seconds_and_mean(&replay(utilization_rules(percent), &samples));
        assert_eq!(of(50), (unknown, Some(60)), "{what}");
        assert_eq!(of(70), (unknown, None), "{what}");
    }
}

#[test]
fn mean_needs_most_readings() {
    let half = samples(|nth| if nth % 2 == 0 { 10_000 } else { 0 });
    let (unknown, mean) = unknown_seconds_and_mean(&replay(utilization_rules(50), &half));
    assert!(unknown > 0 && mean.is_none(), "{unknown} {mean:?}");
}

#[test]
fn missing_readings_can_make_waste_unknown() {
    let wasteful = |below| RuleSet {
        behaviours: vec![behaviour_rule(
            "waste",
            ForbiddenBehaviour::Waste(WasteParams {
                below: Percent(below),
                min_memory: Bytes(0),
                hours: minutes(10),
            }),
        )],
        ..dry_run_rules()
    };
    let each = samples(|_| 9_500);
    assert_eq!(
        unknown_seconds_and_mean(&replay(wasteful(70), &each)),
        (0, Some(60))
    );
    assert_eq!(
        unknown_seconds_and_mean(&replay(wasteful(60), &each)),
        (0, None)
    );
    // Five in a hundred samples may have been at work.
    let (unknown, mean) = unknown_seconds_and_mean(&replay(wasteful(61), &each));
    assert!(unknown > 0 && mean.is_none(), "{unknown} {mean:?}");
}

#[test]
fn new_process_is_not_idle() {
    let rules = RuleSet {
        defaults: Limits {
            idle: Some(minutes(10)),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    let mut idle = samples(|nth| if nth == 0 { 8_000 } else { 10_000 });
    for sample in &mut idle {
        for run_sample in sample.runs.values_mut() {
            run_sample.usage.utilization.total = 0;
            run_sample.usage.utilization.max = Some(0);
        }
    }
    let replayed = replay(rules, &idle);
    let (unknown, _) = unknown_seconds_and_mean(&replayed);
    // In the first sample that ends ten minutes after the start, that poll still counts.
    assert!(unknown <= 20, "{unknown}");
    assert_eq!(replayed.open.len(), 1);
}
