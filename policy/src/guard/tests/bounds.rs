//! Rules multiply with processes. What is kept is bounded, and what exceeds the bound is
//! reported.

use super::super::evaluate::{EvaluationBounds, INSPECTED_RUNS, Overflow, evaluate_within};
use super::super::replay::{Replay, ReplayError};
use super::super::state::JobKey;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, Person, RuleKind, RuleSource};

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

/// Evaluates two samples with room for `violations`; returns the overflow of the last.
fn evaluate_two_samples(
    (violations, compiled_rules): (usize, &CompiledRules),
    memory: &mut GuardState,
    world: &mut TestHost,
) -> (Overflow, Vec<GuardRecord>) {
    let bounds = EvaluationBounds {
        violations,
        ..EvaluationBounds::LIVE
    };
    let (mut overflow, mut records) = (Overflow::default(), Vec::new());
    for _ in 0..2 {
        let sample = world.next_sample(SAMPLE_MS);
        let evaluation = evaluate_within(&bounds, compiled_rules, memory, &sample);
        overflow = evaluation.overflow;
        records.extend(evaluation.records);
    }
    (overflow, records)
}

#[test]
fn one_person_displaces_no_other() {
    let compiled_rules = CompiledRules::new(rules_with(1, &AT_ONCE));
    let (mut world, mut memory) = (host_with(0), GuardState::default());
    let violations = |memory: &GuardState| {
        let open = memory.violations();
        let is_of = |name: &str| {
            let owners = open
                .iter()
                .filter_map(|it| it.evidence.runs[0].owner.as_ref());
            owners.filter(|owner| owner.name == name).count()
        };
        (is_of("eve"), is_of("alice"), is_of("bob"))
    };
    for pid in 1..=20 {
        world.start(pid, "eve").uses(0, 4, 0);
    }
    let rules = (10, &compiled_rules);
    let (overflow, _) = evaluate_two_samples(rules, &mut memory, &mut world);
    assert_eq!((violations(&memory), overflow.violations), ((10, 0, 0), 10));
    for (pid, owner) in [(21, "alice"), (22, "alice"), (23, "bob")] {
        world.start(pid, owner).uses(0, 4, 0);
    }
    let (overflow, records) = evaluate_two_samples(rules, &mut memory, &mut world);
    assert_eq!((violations(&memory), overflow.violations), ((7, 2, 1), 13));
    let dropped = records.iter().filter(|record| {
        matches!(&record.step, GuardStep::Exempt(why) if why.starts_with("there is no room"))
    });
    assert_eq!(dropped.count(), 3);
    // However many more there are.
    for pid in 24..=100 {
        world.start(pid, "eve").uses(0, 4, 0);
    }
    let (_, records) = evaluate_two_samples(rules, &mut memory, &mut world);
    assert_eq!(violations(&memory), (7, 2, 1));
    let is_change =
        |it: &GuardRecord| matches!(it.step, GuardStep::Violated | GuardStep::Exempt(_));
    assert!(!records.iter().any(is_change));
    // With as many processes, each has the same; the odd place stays with its holder.
    for pid in 101..=200 {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    evaluate_two_samples(rules, &mut memory, &mut world);
    assert_eq!(violations(&memory), (5, 4, 1));
}

#[test]
fn containers_have_one_share() {
    let (mut world, mut memory) = (host_with(5), GuardState::default());
    for pid in 11..=30 {
        world
            .start(pid, &format!("container c{}", pid.min(25)))
            .uses(0, 4, 0);
    }
    let rules = CompiledRules::new(rules_with(1, &AT_ONCE));
    let (overflow, _) = evaluate_two_samples((15, &rules), &mut memory, &mut world);
    assert_eq!(overflow.violations, 10);
    let owners = memory.violations().into_iter();
    let owners = owners.filter_map(|mut it| it.evidence.runs.swap_remove(0).owner);
    let (users, containers): (Vec<Person>, Vec<Person>) = owners.partition(|it| it.uid.is_some());
    assert_eq!((users.len(), containers.len()), (5, 10));
    // The containers divide it: the six jobs of the last have one place.
    let of_last = containers.iter().filter(|it| it.name == "container c25");
    assert!(of_last.count() <= 1);
    // So do they with what rules look back over.
    let bounds = EvaluationBounds {
        lookback_windows: 15,
        ..EvaluationBounds::LIVE
    };
    let rules = CompiledRules::new(rules_with(1, &waste()));
    let sample = world.next_sample(SAMPLE_MS);
    let evaluation = evaluate_within(&bounds, &rules, &mut memory, &sample);
    assert_eq!(evaluation.overflow.lookback_windows, 10);
    let windows = memory.conduct.values().flat_map(|it| it.waste.keys());
    assert_eq!(windows.filter(|job| job.uid.is_some()).count(), 5);
}

#[test]
fn warnings_displace_no_rule_that_ends_jobs() {
    let mut rules = rules_with(1, &AT_ONCE);
    rules.behaviours[0].measures.action = Some(GuardAction::Warn);
    let (mut world, mut memory) = (host_with(5), GuardState::default());
    let warns = CompiledRules::new(rules.clone());
    evaluate_two_samples((5, &warns), &mut memory, &mut world);
    assert_eq!(memory.violations().len(), 5);
    rules.behaviours.push(behaviour_rule("ends", AT_ONCE));
    let ends = CompiledRules::new(rules);
    let (overflow, _) = evaluate_two_samples((7, &ends), &mut memory, &mut world);
    assert_eq!(overflow.violations, 3);
    let open = memory.violations();
    let of_rule = open
        .iter()
        .filter(|it| it.action == GuardAction::Terminate)
        .count();
    assert_eq!((open.len(), of_rule), (7, 5));
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
fn findings_of_one_person_displace_no_others() {
    let mut rules = RuleSet {
        defaults: memory_limit(6),
        ..rules_with(2, &AT_ONCE)
    };
    for rule in &mut rules.behaviours {
        rule.measures.action = Some(GuardAction::Warn);
    }
    let compiled_rules = CompiledRules::new(rules);
    let bounds = EvaluationBounds {
        findings: 30,
        ..EvaluationBounds::LIVE
    };
    let (mut world, mut memory) = (host_with(0), GuardState::default());
    for pid in 1..=20 {
        world.start(pid, "eve").uses(0, 4, 0);
    }
    for pid in 21..=22 {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    let mut evaluate_next = |world: &mut TestHost| {
        let sample = world.next_sample(SAMPLE_MS);
        let evaluation = evaluate_within(&bounds, &compiled_rules, &mut memory, &sample);
        assert!(evaluation.overflow.findings > 0);
        let is_of_alice = |owner: Option<&Person>| owner == Some(&person("alice"));
        let open = memory.violations().into_iter();
        let open = open.filter(|it| it.rule.source == RuleSource::Rule("rule1".into()));
        let of_alice = open.filter(|it| is_of_alice(it.evidence.runs[0].owner.as_ref()));
        let is_over = |record: &GuardRecord| {
            record.rule.kind == RuleKind::Memory && record.step == GuardStep::Over
        };
        (of_alice.count(), evaluation.records.iter().any(is_over))
    };
    // Her violations of the last rule are found.
    evaluate_next(&mut world);
    assert_eq!(evaluate_next(&mut world), (2, false));
    // She holds less than her limit: that violation ends.
    for pid in 21..=22 {
        world.process(pid).uses(0, 1, 0);
    }
    assert!((0..100).any(|_| evaluate_next(&mut world).1));
}

#[test]
fn first_rules_get_windows_first() {
    let bounds = EvaluationBounds {
        lookback_windows: 4,
        ..EvaluationBounds::LIVE
    };
    let compiled_rules = CompiledRules::new(rules_with(2, &waste()));
    let (mut world, mut memory) = (host_with(3), GuardState::default());
    let sample = world.next_sample(SAMPLE_MS);
    let evaluation = evaluate_within(&bounds, &compiled_rules, &mut memory, &sample);
    assert_eq!(evaluation.overflow.lookback_windows, 2);
    let rules: Vec<String> = evaluation
        .undetermined
        .iter()
        .map(|it| format!("{}: {}", it.rule, it.why))
        .collect();
    let why = "rule rule1: waste: the rules look back over too many jobs and processes";
    assert_eq!(rules, [why; 2]);
    let windows = memory.conduct.values().map(|it| it.waste.len());
    assert_eq!(windows.collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn one_person_takes_no_windows_of_others() {
    let bounds = EvaluationBounds {
        lookback_windows: 8,
        ..EvaluationBounds::LIVE
    };
    let compiled_rules = CompiledRules::new(rules_with(2, &waste()));
    let (mut world, mut memory) = (host_with(0), GuardState::default());
    for pid in 1..=20 {
        world.start(pid, "eve").uses(0, 4, 0);
    }
    for pid in 21..=22 {
        world.start(pid, "alice").uses(0, 4, 0);
    }
    let sample = world.next_sample(SAMPLE_MS);
    let evaluation = evaluate_within(&bounds, &compiled_rules, &mut memory, &sample);
    assert_eq!(evaluation.overflow.lookback_windows, 36);
    let windows = memory.conduct.values().map(|state| {
        let is_of_alice = |job: &&std::sync::Arc<JobKey>| job.uid == Some(1_000);
        let of_alice = state.waste.keys().filter(is_of_alice).count();
        (of_alice, state.waste.len())
    });
    assert_eq!(windows.collect::<Vec<_>>(), [(2, 6), (2, 2)]);
}

#[test]
fn processes_of_a_job_are_inspected_once_for_each_rule() {
    let idle = ForbiddenBehaviour::Idle(IdleParams {
        limit: Duration::from_secs(60),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    });
    let (processes, rules) = (200, 10);
    let mut world = TestHost::new(1);
    for pid in 1..=processes {
        world.start(pid, "alice").uses(0, 1, 0).job("tree 1");
    }
    let mut guard = TestGuard::new(RuleSet {
        mode: GuardMode::DryRun,
        ..rules_with(rules, &idle)
    });
    assert!(!guard.evaluate_samples(&mut world, 12).is_empty());
    INSPECTED_RUNS.set(0);
    guard.evaluate_samples(&mut world, 1).clear();
    // For the condition, and for the response.
    assert_eq!(INSPECTED_RUNS.get(), 2 * rules * processes as usize);
}
