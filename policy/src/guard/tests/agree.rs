//! A dry run, a test of rules and a replay say the same of the same samples.

use super::super::acting::Snoozer;
use super::super::bucket::Bucket;
use super::super::judge;
use super::super::replay::Replay;
use super::*;
use gpukill_proto::guard::{GuardRecord, OpenViolation};

/// Samples of somebody with two big jobs, one of whom has leave for a while, and of an
/// intruder who does nothing.
fn samples() -> Vec<Bucket> {
    let mut world = World::new(2);
    world.start(100, "bob").uses(0, 15, 50).job("old");
    world.start(101, "bob").uses(0, 9, 60).job("new");
    world.start(200, "carol").uses(1, 4, 0).job("notebook");
    let mut samples: Vec<Bucket> = (0..60).map(|_| world.bucket(TEN_SECONDS)).collect();
    world.start(201, "carol").uses(0, 30, 90).job("train");
    world.process(200).uses(1, 4, 90);
    samples.extend((0..60).map(|_| world.bucket(TEN_SECONDS)));
    world.processes.remove(&101);
    samples.extend((0..60).map(|_| world.bucket(TEN_SECONDS)));
    samples
}

fn tables() -> Vec<Rules> {
    let with = |change: fn(&mut Rules)| {
        let mut rules = Rules {
            mode: GuardMode::DryRun,
            rehearsed: Rehearsed::Soft,
            defaults: memory(20),
            ..rules()
        };
        change(&mut rules);
        rules
    };
    vec![
        with(|_| ()),
        with(|it| it.rehearsed = Rehearsed::Enforce),
        with(|it| {
            it.defaults.idle = Some(minutes(5));
            it.defaults.processes = Some(1);
        }),
        with(|it| {
            it.rehearsed = Rehearsed::Enforce;
            it.gpus = vec![GpuPolicy {
                name: "1".into(),
                gpus: gpus("1"),
                blocked_users: names(&["carol"]),
                ..GpuPolicy::default()
            }];
        }),
    ]
}

/// What a violation is, whenever it was noticed.
fn told(open: Vec<OpenViolation>) -> Vec<(String, String, Option<Timestamp>)> {
    let told = open.into_iter();
    told.map(|it| (it.rule.to_string(), it.subject.to_string(), it.ended_at))
        .collect()
}

#[test]
fn a_dry_run_a_test_and_a_replay_agree_on_the_same_samples() {
    for rules in tables() {
        let samples = samples();
        let book = Rulebook::of(rules.clone());
        let mut live = Memory::default();
        let mut records: Vec<GuardRecord> = Vec::new();
        for (nth, sample) in samples.iter().enumerate() {
            records.extend(judge(&book, &mut live, sample).records);
            if nth == 20 {
                // Who has none is refused, which changes nothing.
                let snoozer = Snoozer {
                    by: 1_001,
                    owner: 1_001,
                    process: (100, 1_000),
                    job: Some("old"),
                };
                let _ = live.snooze(&book, snoozer, sample.until);
            }
        }
        // A test begins at the oldest sample, as a replay does, and knows of the snoozes.
        let mut replay = Replay::new(rules.clone(), Timestamp(0));
        for grant in live.snoozes() {
            replay.snoozed(grant.clone());
        }
        for sample in &samples {
            replay.add(sample).unwrap();
        }
        let replayed = replay.finish();
        let steps = |records: &[GuardRecord]| -> Vec<_> {
            let decided = records.iter().filter(|it| it.step.name() != "warned");
            decided
                .map(|it| {
                    (
                        it.at,
                        it.rule.to_string(),
                        it.step.name(),
                        it.subject.to_string(),
                    )
                })
                .collect()
        };
        assert_eq!(steps(&replayed.records), steps(&records), "{rules:#?}");
        assert_eq!(told(replayed.open), told(live.violations()), "{rules:#?}");
        assert!(!live.violations().is_empty(), "a rule is broken at the end");
    }
}

#[test]
fn a_test_of_rules_that_are_broken_now_says_so_with_the_simulated_end_beside_it() {
    let samples = samples();
    for rules in tables() {
        let mut replay = Replay::new(rules.clone(), Timestamp(0));
        for sample in &samples {
            replay.add(sample).unwrap();
        }
        let open = replay.finish().open;
        let is_noted = |it: &OpenViolation| it.ended_at.is_some();
        assert!(open.iter().any(is_noted), "{rules:#?}: {open:#?}");
    }
}
