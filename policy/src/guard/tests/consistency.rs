//! A dry run, a test of rules and a replay find the same in the same samples.

use super::super::enforcement::order::SnoozeRequest;
use super::super::evaluate;
use super::super::replay::Replay;
use super::super::sample::GuardSample;
use super::*;
use gpukill_proto::guard::{GuardRecord, OpenViolation};

/// Samples of bob with two big jobs, one of which ends later, and of carol with an idle
/// notebook that works later.
fn samples() -> Vec<GuardSample> {
    let mut world = TestHost::new(2);
    world.start(100, "bob").uses(0, 15, 50).job("old");
    world.start(101, "bob").uses(0, 9, 60).job("new");
    world.start(200, "carol").uses(1, 4, 0).job("notebook");
    let mut samples: Vec<GuardSample> = (0..60).map(|_| world.next_sample(SAMPLE_MS)).collect();
    world.start(201, "carol").uses(0, 30, 90).job("train");
    world.process(200).uses(1, 4, 90);
    samples.extend((0..60).map(|_| world.next_sample(SAMPLE_MS)));
    world.processes.remove(&101);
    samples.extend((0..60).map(|_| world.next_sample(SAMPLE_MS)));
    samples
}

fn rule_sets() -> Vec<RuleSet> {
    let with = |change: fn(&mut RuleSet)| {
        let mut rules = RuleSet {
            mode: GuardMode::DryRun,
            armed_mode: EnforcementMode::Soft,
            defaults: memory_limit(20),
            ..dry_run_rules()
        };
        change(&mut rules);
        rules
    };
    vec![
        with(|_| ()),
        with(|it| it.armed_mode = EnforcementMode::Enforce),
        with(|it| {
            it.defaults.idle = Some(minutes(5));
            it.defaults.processes = Some(1);
        }),
        with(|it| {
            it.armed_mode = EnforcementMode::Enforce;
            it.gpus = vec![GpuPolicy {
                name: "1".into(),
                gpus: gpus("1"),
                blocked_users: names(&["carol"]),
                ..GpuPolicy::default()
            }];
        }),
    ]
}

/// A violation without the time at which it was noticed.
fn comparable(open: Vec<OpenViolation>) -> Vec<(String, String, Option<Timestamp>)> {
    let actual = open.into_iter();
    actual
        .map(|it| (it.rule.to_string(), it.subject.to_string(), it.ended_at))
        .collect()
}

#[test]
fn dry_run_test_and_replay_agree() {
    for rules in rule_sets() {
        let samples = samples();
        let compiled_rules = CompiledRules::new(rules.clone());
        let mut live = GuardState::default();
        let mut records: Vec<GuardRecord> = Vec::new();
        for (nth, sample) in samples.iter().enumerate() {
            records.extend(evaluate(&compiled_rules, &mut live, sample).records);
            if nth == 20 {
                // A snooze that is not possible is refused, which changes nothing.
                let snoozer = SnoozeRequest {
                    requester: 1_001,
                    owner: 1_001,
                    process: (100, 1_000),
                    job: Some("old".to_owned()),
                };
                let _ = live.snooze(&compiled_rules, &snoozer, sample.until);
            }
        }
        // A test of rules begins at the oldest sample, like a replay, and knows the
        // snoozes.
        let mut replay = Replay::new(rules.clone(), Timestamp(0));
        for grant in live.snoozes() {
            replay.add_snooze(grant.clone());
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
        assert_eq!(
            comparable(replayed.open),
            comparable(live.violations()),
            "{rules:#?}"
        );
        assert!(!live.violations().is_empty(), "a rule is broken at the end");
    }
}

#[test]
fn test_shows_violations_and_simulated_ends() {
    let samples = samples();
    for rules in rule_sets() {
        let mut replay = Replay::new(rules.clone(), Timestamp(0));
        for sample in &samples {
            replay.add(sample).unwrap();
        }
        let open = replay.finish().open;
        let is_noted = |it: &OpenViolation| it.ended_at.is_some();
        assert!(open.iter().any(is_noted), "{rules:#?}: {open:#?}");
    }
}
