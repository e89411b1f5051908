//! Polls without a reading, among many that have one.

use super::super::bucket::Bucket;
use super::super::replay::{Replay, Replayed};
use super::*;
use gpukill_proto::guard::Measured;

/// A quarter of an hour of bob, who works at 60 %; of each sample this says for how many
/// milliseconds there was a reading.
fn samples(known_ms: impl Fn(usize) -> u64) -> Vec<Bucket> {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 20, 60).job("train");
    let samples = (0..90).map(|nth| {
        let mut bucket = world.bucket(TEN_SECONDS);
        for judged in bucket.runs.values_mut() {
            let gauge = &mut judged.usage.utilization;
            gauge.known_ms = known_ms(nth);
            gauge.total = u128::from(60 * gauge.known_ms);
            gauge.most = (gauge.known_ms > 0).then_some(60);
        }
        bucket
    });
    samples.collect()
}

fn replayed(rules: Rules, samples: &[Bucket]) -> Replayed {
    let mut replay = Replay::new(rules, Timestamp(0));
    for sample in samples {
        replay.add(sample).unwrap();
    }
    replay.finish()
}

fn at_most(percent: u32) -> Rules {
    let mut rules = Rules {
        defaults: Limits {
            utilization: Some(Percent(percent)),
            ..Limits::default()
        },
        ..rules()
    };
    rules.enforcement.utilization_window = minutes(10);
    rules
}

/// The seconds that something is not known, and the last mean in percent.
fn told(replayed: &Replayed) -> (u64, Option<u64>) {
    let unknown = replayed.not_judged.iter().map(|it| it.for_ms / 1_000).sum();
    let measured = replayed.open.first().and_then(|it| it.evidence.measured);
    (unknown, measured.map(|Measured { value, .. }| value))
}

#[test]
fn a_poll_without_a_reading_makes_no_window_unknown_and_counts_as_no_idleness() {
    // A process's first poll, one in each sample, and a sample without any.
    let first = |nth| if nth == 0 { 8_000 } else { 10_000 };
    let each = |_| 9_500;
    let one = |nth| if nth == 30 { 0 } else { 10_000 };
    // Of the very first sample alone not enough is known.
    for (what, samples, unknown) in [
        ("first", samples(first), 10),
        ("each", samples(each), 0),
        ("one", samples(one), 0),
    ] {
        let of = |percent| told(&replayed(at_most(percent), &samples));
        assert_eq!(of(50), (unknown, Some(60)), "{what}");
        assert_eq!(of(70), (unknown, None), "{what}");
    }
}

#[test]
fn where_most_readings_are_missing_the_mean_is_not_known() {
    let half = samples(|nth| if nth % 2 == 0 { 10_000 } else { 0 });
    let (unknown, mean) = told(&replayed(at_most(50), &half));
    assert!(unknown > 0 && mean.is_none(), "{unknown} {mean:?}");
}

#[test]
fn waste_is_judged_by_the_mean_of_the_readings_and_doubted_where_those_missing_may_matter() {
    let wasteful = |below| Rules {
        behaviours: vec![behaviour(
            "waste",
            Conduct::Waste {
                below: Percent(below),
                min_memory: Bytes(0),
                hours: minutes(10),
            },
        )],
        ..rules()
    };
    let each = samples(|_| 9_500);
    assert_eq!(told(&replayed(wasteful(70), &each)), (0, Some(60)));
    assert_eq!(told(&replayed(wasteful(60), &each)), (0, None));
    // Five in a hundred may have been at work.
    let (unknown, mean) = told(&replayed(wasteful(61), &each));
    assert!(unknown > 0 && mean.is_none(), "{unknown} {mean:?}");
}

#[test]
fn what_is_not_there_for_so_long_is_not_idle_whatever_its_first_reading() {
    let rules = Rules {
        defaults: Limits {
            idle: Some(minutes(10)),
            ..Limits::default()
        },
        ..rules()
    };
    let mut idle = samples(|nth| if nth == 0 { 8_000 } else { 10_000 });
    for bucket in &mut idle {
        for judged in bucket.runs.values_mut() {
            judged.usage.utilization.total = 0;
            judged.usage.utilization.most = Some(0);
        }
    }
    let replayed = replayed(rules, &idle);
    let (unknown, _) = told(&replayed);
    // In the first sample that is ten minutes after its beginning that one counts still.
    assert!(unknown <= 20, "{unknown}");
    assert_eq!(replayed.open.len(), 1);
}
