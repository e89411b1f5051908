//! Rules multiply with processes. What is kept is bounded, and what exceeds the bound is
//! reported.

use super::super::evaluate::{EvaluationBounds, Overflow, evaluate_within};
use super::super::replay::{Replay, ReplayError};
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};

/// This many processes, each in a job of its own with 4 GiB.
fn host_with(processes: u32) -> TestHost {
    let mut world = TestHost::new(1);
    for pid in 1..=processes {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    world
}

/// This many rules of one kind.
fn rules_with(rules: usize, behaviour: &ForbiddenBehaviour) -> RuleSet {
    let one = |nth| behaviour_rule(&format!("rule{nth}"), behaviour.clone());
    RuleSet {
        behaviours: (0..rules).map(one).collect(),
        ..RuleSet::default()
    }
}

const AT_ONCE: ForbiddenBehaviour = ForbiddenBehaviour::Duration(Duration::ZERO);

fn waste() -> ForbiddenBehaviour {
    ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(60),
    })
}

/// The numbers of processes and of violations after three samples, or why the replay ended
/// early.
fn replay_three_samples(
    rules: RuleSet,
    world: &mut TestHost,
) -> Result<(usize, usize), ReplayError> {
    let mut replay = Replay::new(rules, Timestamp(0));
    for _ in 0..3 {
        replay.add(&world.next_sample(SAMPLE_MS))?;
    }
    let replayed = replay.finish();
    Ok((replayed.runs, replayed.open.len()))
}

#[test]
fn replay_ends_when_too_much_is_found() {
    // As many as the bound allows.
    assert_eq!(
        replay_three_samples(rules_with(10, &AT_ONCE), &mut host_with(100)),
        Ok((100, 1_000))
    );
    let violations = replay_three_samples(rules_with(10, &AT_ONCE), &mut host_with(101));
    assert_eq!(violations, Err(ReplayError::Violations));
    assert_eq!(
        ReplayError::Violations.to_string(),
        "these rules find more than 1000 violations at once: try fewer rules, or a shorter time"
    );
    assert_eq!(
        replay_three_samples(rules_with(30, &waste()), &mut host_with(100)),
        Ok((100, 0))
    );
    let looked_back = replay_three_samples(rules_with(31, &waste()), &mut host_with(100));
    assert_eq!(looked_back, Err(ReplayError::LookedBack));
    let pairs = replay_three_samples(rules_with(10_000, &AT_ONCE), &mut host_with(101));
    assert_eq!(pairs, Err(ReplayError::Pairs(10_000, 101)));
}

#[test]
fn excess_violations_are_reported_not_opened() {
    let bounds = EvaluationBounds {
        violations: 5,
        ..EvaluationBounds::LIVE
    };
    let (mut world, mut memory) = (host_with(3), GuardState::default());
    let compiled_rules = CompiledRules::new(rules_with(1, &AT_ONCE));
    let mut beyond = |world: &mut TestHost| {
        let sample = world.next_sample(SAMPLE_MS);
        let evaluation = evaluate_within(&bounds, &compiled_rules, &mut memory, &sample);
        (evaluation.overflow, memory.violations().len())
    };
    let none = Overflow::default();
    let two = Overflow {
        violations: 2,
        ..none
    };
    assert_eq!(beyond(&mut world), (none, 0));
    assert_eq!(beyond(&mut world), (none, 3));
    for pid in 4..=7 {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    assert_eq!(beyond(&mut world), (two, 3));
    assert_eq!(beyond(&mut world), (two, 5));
    // A process that ends makes room for others.
    world.processes.remove(&1);
    world.processes.remove(&2);
    assert_eq!(beyond(&mut world), (two, 3));
    assert_eq!(beyond(&mut world), (none, 3));
    assert_eq!(beyond(&mut world), (none, 5));
}

#[test]
fn excess_findings_do_not_end_violations() {
    let mut rules = rules_with(1, &AT_ONCE);
    // A job that a dry run counts as ended would no longer be found.
    rules.behaviours[0].measures.action = Some(GuardAction::Warn);
    let compiled_rules = CompiledRules::new(rules);
    let (mut world, mut memory) = (host_with(3), GuardState::default());
    for _ in 0..2 {
        let sample = world.next_sample(SAMPLE_MS);
        let _ = evaluate_within(
            &EvaluationBounds::LIVE,
            &compiled_rules,
            &mut memory,
            &sample,
        );
    }
    let few = EvaluationBounds {
        findings: 1,
        ..EvaluationBounds::LIVE
    };
    for _ in 0..100 {
        let sample = world.next_sample(SAMPLE_MS);
        let evaluation = evaluate_within(&few, &compiled_rules, &mut memory, &sample);
        assert_eq!(evaluation.overflow.findings, 2);
        let is_over = |record: &GuardRecord| record.step == GuardStep::Over;
        assert!(!evaluation.records.iter().any(is_over));
    }
    assert_eq!(memory.violations().len(), 3);
}

#[test]
fn only_the_first_rules_get_windows() {
    let bounds = EvaluationBounds {
        lookback_windows: 4,
        ..EvaluationBounds::LIVE
    };
    let compiled_rules = CompiledRules::new(rules_with(2, &waste()));
    let (mut world, mut memory) = (host_with(3), GuardState::default());
    let sample = world.next_sample(SAMPLE_MS);
    let evaluation = evaluate_within(&bounds, &compiled_rules, &mut memory, &sample);
    assert_eq!(evaluation.overflow.lookback_windows, 3);
    let rules: Vec<String> = evaluation
        .undetermined
        .iter()
        .map(|it| format!("{}: {}", it.rule, it.why))
        .collect();
    let why = "rule rule1: waste: the rules look back over too many jobs and processes";
    assert_eq!(rules, [why; 3]);
    assert_eq!(memory.conduct.len(), 1);
}
