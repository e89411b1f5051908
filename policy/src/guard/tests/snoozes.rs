//! Snoozes: a warned owner asks for more time.

mod display;

use super::super::enforcement::order::SnoozeRequest;
use super::super::warning_state::SnoozeError;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, OpenViolation};

const MAX_LISTED: u32 = 16;

fn soft_guard(change: impl FnOnce(&mut RuleSet)) -> TestGuard {
    let mut rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: memory_limit(20),
        ..dry_run_rules()
    };
    rules.enforcement.snooze = minutes(10);
    change(&mut rules);
    TestGuard::new(rules)
}

fn world() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

const ALICE: u32 = 1_000;
const BOB: u32 = 1_001;
const CAROL: u32 = 1_002;

/// What the owner of a process is granted now: the second of the new deadline, and the
/// snoozes left.
fn snooze(
    guard: &mut TestGuard,
    world: &TestHost,
    (pid, owner): (u32, u32),
) -> Result<Vec<(i64, u32)>, SnoozeError> {
    let snoozer = SnoozeRequest {
        requester: owner,
        owner,
        process: (pid, u64::from(pid) * 10),
        job: None,
    };
    let granted = guard
        .state
        .snooze(&guard.compiled_rules, &snoozer, world.now)?;
    let granted = granted.into_iter().map(|record| match record.step {
        GuardStep::Snoozed {
            by,
            owner: snooze_owner,
            until,
            left,
        } => {
            assert_eq!((by, snooze_owner, record.at), (owner, owner, world.now));
            (until.0 / 1_000, left)
        }
        other => panic!("{other:?}"),
    });
    Ok(granted.collect())
}

fn steps(records: &[GuardRecord]) -> Vec<(i64, &str)> {
    let steps = records.iter();
    steps.map(|it| (it.at.0 / 1_000, it.step.name())).collect()
}

/// Each warned person: the second at which the grace period ends, and the snoozes left.
fn readers(open: &OpenViolation) -> Vec<(u32, i64, u32)> {
    let readers = open.readers.iter();
    let actual = readers.map(|it| (it.uid, it.deadline.0 / 1_000, it.snoozes_left));
    actual.collect()
}

#[test]
fn snooze_moves_the_end_and_warns_again() {
    let (mut guard, mut world) = (soft_guard(|_| ()), world());
    guard.evaluate_samples(&mut world, 15);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(920, 0)]));
    let open = &guard.state.violations()[0];
    assert_eq!(open.deadline, Some(Timestamp(920_000)));
    assert_eq!(readers(open), [(BOB, 920, 0)]);
    let records = guard.evaluate_samples(&mut world, 80);
    let expected = [
        (620, "warned"),
        (720, "warned"),
        (820, "warned"),
        (920, "ended"),
    ];
    assert_eq!(steps(&records), expected);
}

#[test]
fn rule_limits_the_number_of_snoozes() {
    for (whole, own, times) in [
        (1, None, 1),
        (0, None, 0),
        (3, None, 3),
        (1, Some(2), 2),
        (2, Some(0), 0),
    ] {
        let mut guard = soft_guard(|it| {
            it.enforcement.max_snoozes = whole;
            it.users = vec![UserPolicy {
                name: "bob".into(),
                limits: memory_limit(20),
                measures: Measures {
                    max_snoozes: own,
                    ..Measures::default()
                },
                ..UserPolicy::default()
            }];
        });
        let mut world = world();
        guard.evaluate_samples(&mut world, 3);
        for nth in 1..=times {
            let until = 320 + 600 * i64::from(nth);
            let expected = Ok(vec![(until, times - nth)]);
            assert_eq!(
                snooze(&mut guard, &world, (100, BOB)),
                expected,
                "{whole} {own:?}"
            );
            // The state survives being stored.
            let text = serde_json::to_string(&guard.state).unwrap();
            guard.state = serde_json::from_str(&text).unwrap();
        }
        let refused = snooze(&mut guard, &world, (100, BOB));
        assert_eq!(refused, Err(SnoozeError::NoneLeft), "{whole} {own:?}");
    }
}

#[test]
fn late_snooze_has_its_full_length() {
    let (mut guard, mut world) = (soft_guard(|_| ()), world());
    guard.evaluate_samples(&mut world, 10);
    // Nothing is ended while the memory is unknown.
    world.process(100).memory(0, TestReading::Failed);
    assert_eq!(guard.evaluate_samples(&mut world, 90), []);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(1_600, 0)]));
    world.process(100).uses(0, 21, 50);
    let records = guard.evaluate_samples(&mut world, 61);
    let expected = [
        (1_300, "warned"),
        (1_400, "warned"),
        (1_500, "warned"),
        (1_600, "ended"),
    ];
    assert_eq!(steps(&records), expected);
}

fn add_group_of_both(guard: &mut RuleSet) {
    guard.defaults = Limits::default();
    guard.groups = vec![GroupPolicy {
        name: "all".into(),
        members: Members {
            users: names(&["alice", "bob"]),
            ..Members::default()
        },
        total_memory: gib(20),
        ..GroupPolicy::default()
    }];
}

#[test]
fn snooze_is_per_person_in_a_group() {
    let (mut guard, mut world) = (soft_guard(add_group_of_both), world());
    world.start(101, "alice").uses(0, 21, 50).job("alice's");
    guard.evaluate_samples(&mut world, 3);
    assert_eq!(snooze(&mut guard, &world, (101, ALICE)), Ok(vec![(920, 0)]));
    let open = &guard.state.violations()[0];
    assert_eq!(open.deadline, Some(Timestamp(320_000)));
    assert_eq!(readers(open), [(ALICE, 920, 0), (BOB, 320, 1)]);
    let own = |uid| open.deadline_for(uid).map(|it| it.0 / 1_000);
    assert_eq!((own(Some(ALICE)), own(Some(BOB))), (Some(920), Some(320)));
    assert_eq!((own(Some(0)), own(None)), (Some(320), Some(320)));
    let ended = |records: Vec<GuardRecord>| {
        let ended = records.iter().filter_map(|it| {
            let victim = it.step.victim()?;
            Some((it.at.0 / 1_000, victim.job.owner.name.clone()))
        });
        ended.collect::<Vec<_>>()
    };
    // alice is the victim: no other person's job is ended instead.
    assert_eq!(ended(guard.evaluate_samples(&mut world, 30)), []);
    let expected = [(920, "alice".to_owned())];
    assert_eq!(ended(guard.evaluate_samples(&mut world, 60)), expected);
}

#[test]
fn unlisted_process_can_be_snoozed() {
    let (mut guard, mut world) = (soft_guard(add_group_of_both), TestHost::new(1));
    for pid in 0..2 * MAX_LISTED {
        world
            .start(200 + pid, "alice")
            .uses(0, 2, 50)
            .job("alice's");
    }
    world.start(100, "bob").uses(0, 1, 50).job("bob's");
    world.start(101, "carol").uses(0, 1, 50).job("carol's");
    guard.evaluate_samples(&mut world, 3);
    let open = &guard.state.violations()[0];
    assert_eq!(open.evidence.runs.len(), MAX_LISTED as usize);
    let is_reported = |pid| open.evidence.runs.iter().any(|it| it.run.pid == pid);
    // One process of each person is listed before the others.
    let last = 199 + 2 * MAX_LISTED;
    assert!(is_reported(100) && !is_reported(last));
    assert_eq!(
        snooze(&mut guard, &world, (last, ALICE)),
        Ok(vec![(920, 0)])
    );
}

#[test]
fn only_the_warned_owner_gets_a_snooze() {
    let (mut guard, mut world) = (soft_guard(add_group_of_both), world());
    world.start(101, "carol").uses(0, 30, 50).job("carol's");
    guard.evaluate_samples(&mut world, 1);
    // The violation is not confirmed yet.
    let refused = snooze(&mut guard, &world, (100, BOB));
    assert_eq!(refused, Err(SnoozeError::NotBroken));
    guard.evaluate_samples(&mut world, 2);
    for (process, why) in [
        ((101, CAROL), SnoozeError::NotBroken),
        ((100, CAROL), SnoozeError::NotWarned),
        ((102, BOB), SnoozeError::NotBroken),
    ] {
        let before = serde_json::to_value(&guard.state).unwrap();
        assert_eq!(snooze(&mut guard, &world, process), Err(why), "{process:?}");
        assert_eq!(serde_json::to_value(&guard.state).unwrap(), before);
    }
}

#[test]
fn no_snooze_when_nothing_is_ended() {
    let warns = |it: &mut RuleSet| {
        add_group_of_both(it);
        it.groups[0].measures.action = Some(GuardAction::Warn);
    };
    let mut exempt = world();
    exempt.process(100).facts.owner = Some(person("container vllm"));
    for (mut guard, mut world) in [(soft_guard(warns), world()), (soft_guard(|_| ()), exempt)] {
        guard.evaluate_samples(&mut world, 3);
        assert!(!guard.state.violations().is_empty());
        let refused = snooze(&mut guard, &world, (100, BOB));
        // The evidence names processes in both cases.
        let is_bobs = !guard.state.violations()[0].evidence.runs.is_empty();
        assert!(is_bobs);
        assert_eq!(refused, Err(SnoozeError::NothingEnds));
    }
}

#[test]
fn new_violation_has_new_snoozes() {
    let (mut guard, mut world) = (soft_guard(|_| ()), world());
    guard.evaluate_samples(&mut world, 3);
    assert!(snooze(&mut guard, &world, (100, BOB)).is_ok());
    world.process(100).uses(0, 20, 50);
    // The pause is too short: it is the same violation.
    guard.evaluate_samples(&mut world, 29);
    world.process(100).uses(0, 21, 50);
    guard.evaluate_samples(&mut world, 2);
    let refused = snooze(&mut guard, &world, (100, BOB));
    assert_eq!(refused, Err(SnoozeError::NoneLeft));
    world.process(100).uses(0, 20, 50);
    assert_eq!(
        steps(&guard.evaluate_samples(&mut world, 31)).last(),
        Some(&(640, "over"))
    );
    world.process(100).uses(0, 21, 50);
    guard.evaluate_samples(&mut world, 2);
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(1_570, 0)]));
}

#[test]
fn snooze_cancels_a_chosen_order() {
    let (mut guard, mut world) = (soft_guard(|_| ()), world());
    guard.evaluate_samples(&mut world, 31);
    let evaluation = super::super::evaluate(
        &guard.compiled_rules,
        &mut guard.state,
        &world.next_sample(SAMPLE_MS),
    );
    let endings = guard.state.enforcements(&evaluation.records);
    assert_eq!(endings.len(), 1);
    assert!(guard.state.is_still_chosen(&endings[0]));
    assert_eq!(snooze(&mut guard, &world, (100, BOB)), Ok(vec![(920, 0)]));
    assert!(!guard.state.is_still_chosen(&endings[0]));
    let records = guard.evaluate_samples(&mut world, 62);
    assert_eq!(steps(&records).pop(), Some((920, "ended")));
}

#[test]
fn no_snooze_after_signals() {
    let (mut guard, mut world) = (soft_guard(|_| ()), world());
    guard.evaluate_samples(&mut world, 32);
    let refused = snooze(&mut guard, &world, (100, BOB));
    assert_eq!(refused, Err(SnoozeError::TooLate));
}

/// When these records end jobs.
fn end_times(records: &[GuardRecord]) -> Vec<i64> {
    let ends = records.iter().filter(|it| it.step.victim().is_some());
    ends.map(|it| it.at.0 / 1_000).collect()
}

fn rules_in_mode(mode: GuardMode) -> RuleSet {
    let mut rules = RuleSet {
        mode,
        armed_mode: match mode {
            GuardMode::Enforce => EnforcementMode::Enforce,
            GuardMode::Disabled | GuardMode::DryRun | GuardMode::Soft => EnforcementMode::Soft,
        },
        defaults: memory_limit(20),
        ..dry_run_rules()
    };
    rules.enforcement.snooze = minutes(30);
    rules
}

#[test]
fn survives_every_mode_change() {
    for between in [
        GuardMode::Disabled,
        GuardMode::DryRun,
        GuardMode::Soft,
        GuardMode::Enforce,
    ] {
        for then in [GuardMode::Soft, GuardMode::Enforce, GuardMode::DryRun] {
            let (mut guard, mut world) = (TestGuard::new(rules_in_mode(GuardMode::Soft)), world());
            guard.evaluate_samples(&mut world, 3);
            let granted = snooze(&mut guard, &world, (100, BOB));
            let until = granted.unwrap()[0].0;
            guard.compiled_rules = CompiledRules::new(rules_in_mode(between));
            let mut records = guard.evaluate_samples(&mut world, 10);
            // It also survives a restart.
            let text = serde_json::to_string(&guard.state).unwrap();
            guard.state = serde_json::from_str(&text).unwrap();
            guard.compiled_rules = CompiledRules::new(rules_in_mode(then));
            records.extend(guard.evaluate_samples(&mut world, 240));
            let ended = end_times(&records);
            let first = ended.first().copied().unwrap_or_default();
            assert!(
                first >= until,
                "{between:?} {then:?}: {ended:?} before {until}"
            );
            // The end is no later than a whole grace period after the snooze.
            assert!(
                first <= until + 320,
                "{between:?} {then:?}: {ended:?} after {until}"
            );
        }
    }
}

#[test]
fn removed_rule_voids_the_snooze() {
    let own = |name: &str, gib| {
        let mut rules = rules_in_mode(GuardMode::Soft);
        rules.defaults = Limits::default();
        rules.users = vec![UserPolicy {
            name: name.into(),
            limits: memory_limit(gib),
            ..UserPolicy::default()
        }];
        rules
    };
    let voided = |records: &[GuardRecord]| -> Vec<(u32, i64)> {
        let voided = records.iter().filter_map(|record| match record.step {
            GuardStep::SnoozeVoided { owner, until } => Some((owner, until.0 / 1_000)),
            _ => None,
        });
        voided.collect()
    };
    let (mut guard, mut world) = (TestGuard::new(own("bob", 20)), world());
    guard.evaluate_samples(&mut world, 3);
    let until = snooze(&mut guard, &world, (100, BOB)).unwrap()[0].0;
    guard.compiled_rules = CompiledRules::new(own("bob", 16));
    let records = guard.evaluate_samples(&mut world, 60);
    assert_eq!((voided(&records), end_times(&records)), (vec![], vec![]));
    guard.compiled_rules = CompiledRules::new(own("1001", 16));
    let records = guard.evaluate_samples(&mut world, 60);
    assert_eq!(voided(&records), [(BOB, until)]);
    // The other rule warns bob, and its grace period ends before the snooze.
    assert_eq!(end_times(&records).len(), 1);
}

#[test]
fn other_rule_still_ends_the_job() {
    let (mut guard, mut world) = (TestGuard::new(rules_in_mode(GuardMode::Soft)), world());
    guard.evaluate_samples(&mut world, 3);
    snooze(&mut guard, &world, (100, BOB)).unwrap();
    let mut rules = rules_in_mode(GuardMode::Soft);
    rules.defaults.processes = Some(0);
    guard.compiled_rules = CompiledRules::new(rules);
    assert_eq!(end_times(&guard.evaluate_samples(&mut world, 60)).len(), 1);
}
