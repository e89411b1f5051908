//! The life of a violation: when it is reported, when a job is ended, and when it is over.

use super::super::schedule::Hours;
use super::record_text::record_line;
use super::*;
use gpukill_proto::guard::{GuardStep, UnfinishedEnd};

fn rules_with_memory_limit(change: impl FnOnce(&mut RuleSet)) -> RuleSet {
    let mut rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: Limits {
            memory: gib(20),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    change(&mut rules);
    rules
}

fn world() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

fn lines(records: &[gpukill_proto::guard::GuardRecord]) -> Vec<String> {
    records.iter().map(record_line).collect()
}

#[test]
fn warns_reminds_and_ends_after_grace() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|_| ()));
    let actual = lines(&guard.evaluate_samples(&mut world(), 40));
    let expected = [
        "00:00:20 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:00 [soft]",
        "00:00:20 bob: default: memory: warned, ends 00:05:20 [soft]",
        "00:02:00 bob: default: memory: warned again (2), ends 00:05:20 [soft]",
        "00:03:40 bob: default: memory: warned again (3), ends 00:05:20 [soft]",
        "00:05:20 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [soft]",
        "00:06:20 bob: default: memory: nobody is ended: tree 100 was ended and is still running \
         [soft]",
    ];
    assert_eq!(actual, expected);
    let open = &guard.state.violations()[0];
    assert_eq!(
        (open.warnings, open.ended_at, open.unfinished_end),
        (3, None, Some(UnfinishedEnd::UnderWay(Timestamp(320_000))))
    );
    assert_eq!(open.warned_at, Some(Timestamp(20_000)));
    assert_eq!(open.deadline, Some(Timestamp(320_000)));
}

#[test]
fn dry_run_records_each_step_once() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|it| it.mode = GuardMode::DryRun));
    let actual = lines(&guard.evaluate_samples(&mut world(), 60));
    let expected = [
        "00:00:20 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:00 [dry-run]",
        "00:00:20 bob: default: memory: warned, ends 00:05:20 [dry-run]",
        "00:02:00 bob: default: memory: warned again (2), ends 00:05:20 [dry-run]",
        "00:03:40 bob: default: memory: warned again (3), ends 00:05:20 [dry-run]",
        "00:05:20 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [dry-run]",
    ];
    assert_eq!(actual, expected);
}

#[test]
fn enforce_ends_after_the_second_sample() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|it| it.mode = GuardMode::Enforce));
    let actual = lines(&guard.evaluate_samples(&mut world(), 3));
    let expected = [
        "00:00:20 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:00 [enforce]",
        "00:00:20 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [enforce]",
    ];
    assert_eq!(actual, expected);
}

#[test]
fn enforce_ends_access_violations_at_once() {
    let rules = RuleSet {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let mut guard = TestGuard::new(rules);
    let actual = lines(&guard.evaluate_samples(&mut world(), 1));
    let expected = [
        "00:00:10 100 on GPU-0: gpu 0: user: violated [enforce]",
        "00:00:10 100 on GPU-0: gpu 0: user: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [enforce]",
    ];
    assert_eq!(actual, expected);
}

#[test]
fn rule_mode_can_only_be_milder() {
    let of = |whole: GuardMode, own: GuardMode| {
        let rules = rules_with_memory_limit(|it| {
            it.mode = whole;
            it.armed_mode = EnforcementMode::Enforce;
            let limits = std::mem::take(&mut it.defaults);
            it.users = vec![UserPolicy {
                name: "bob".into(),
                limits,
                measures: Measures {
                    mode: Some(own),
                    ..Measures::default()
                },
                ..UserPolicy::default()
            }];
        });
        let records = TestGuard::new(rules).evaluate_samples(&mut world(), 2);
        let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
        (records.first().map(|it| it.mode), steps)
    };
    use GuardMode::*;
    for (whole, own, mode, step) in [
        (Enforce, Enforce, Enforce, "ended"),
        (Enforce, Soft, Soft, "warned"),
        (Soft, Enforce, Soft, "warned"),
        (Enforce, DryRun, DryRun, "ended"),
        (DryRun, Enforce, DryRun, "ended"),
        (DryRun, Soft, DryRun, "warned"),
    ] {
        assert_eq!(
            of(whole, own),
            (Some(mode), vec!["violated", step]),
            "{whole:?} {own:?}"
        );
    }
    assert_eq!(of(Enforce, Disabled), (None, vec![]));
    assert_eq!(of(Disabled, Enforce), (None, vec![]));
}

#[test]
fn warn_action_ends_nothing() {
    let rules = rules_with_memory_limit(|it| {
        it.mode = GuardMode::Enforce;
        it.defaults = Limits::default();
        it.groups = vec![GroupPolicy {
            name: "all".into(),
            members: Members {
                users: names(&["bob"]),
                ..Members::default()
            },
            total_memory: gib(1),
            measures: Measures {
                action: Some(GuardAction::Warn),
                message: Some("ask before you take so much".into()),
                ..Measures::default()
            },
            ..GroupPolicy::default()
        }];
    });
    let records = TestGuard::new(rules).evaluate_samples(&mut world(), 60);
    let warned = |times| GuardStep::Warned {
        times,
        deadline: None,
    };
    let steps: Vec<_> = records.iter().map(|it| it.step.clone()).collect();
    assert_eq!(
        steps,
        [GuardStep::Violated, warned(1), warned(2), warned(3)]
    );
    let message = Some("ask before you take so much".to_owned());
    assert!(records.iter().all(|it| it.message == message));
}

#[test]
fn short_pause_keeps_the_deadline() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|_| ()));
    let mut world = world();
    guard.evaluate_samples(&mut world, 20);
    world.process(100).uses(0, 20, 50);
    // A little less than five minutes.
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 29)), [""; 0]);
    world.process(100).uses(0, 21, 50);
    let expected = [
        "00:08:30 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [soft]",
    ];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 2)), expected);
}

#[test]
fn long_pause_ends_the_violation() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|_| ()));
    let mut world = world();
    guard.evaluate_samples(&mut world, 20);
    world.process(100).uses(0, 20, 50);
    let expected = ["00:08:20 bob: default: memory: over [soft]"];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 31)), expected);
    world.process(100).uses(0, 21, 50);
    let expected = [
        "00:08:50 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:08:30 [soft]",
        "00:08:50 bob: default: memory: warned, ends 00:13:50 [soft]",
    ];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 2)), expected);
}

#[test]
fn unknown_readings_change_nothing() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|_| ()));
    let mut world = world();
    guard.evaluate_samples(&mut world, 1);
    world.process(100).memory(0, TestReading::Failed);
    guard.evaluate_samples(&mut world, 1);
    world.process(100).uses(0, 21, 50);
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(guard.state.violations().len(), 1);
    world.process(100).memory(0, TestReading::Failed);
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 100)), [""; 0]);
    assert_eq!(guard.state.violations().len(), 1);
    // The deadline has long passed. One sample finds the violation again, the next one
    // confirms it.
    world.process(100).uses(0, 21, 50);
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    assert_eq!(
        guard.evaluate_samples(&mut world, 1)[0].step.name(),
        "ended"
    );
}

#[test]
fn gap_confirms_nothing() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|_| ()));
    let mut world = world();
    guard.evaluate_samples(&mut world, 1);
    world.now = Timestamp(600_000);
    let mut after = world.next_sample(10_000);
    after.from = after.until;
    after.observed_ms = 0;
    let evaluation = super::super::evaluate(&guard.compiled_rules, &mut guard.state, &after);
    assert_eq!(evaluation, super::super::Evaluation::default());
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    // A gap without a sample: only the time is missing.
    world.now = world.now.plus_seconds(600);
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 1)), [""; 0]);
    assert_eq!(guard.evaluate_samples(&mut world, 1).len(), 2);
}

#[test]
fn ends_after_the_owner_left_the_device() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|_| ()));
    let mut world = world();
    guard.evaluate_samples(&mut world, 3);
    world.processes.clear();
    let settled = guard.compiled_rules.rules().enforcement.settled_after;
    let samples = usize::try_from(settled.as_secs() / 10).unwrap();
    assert_eq!(
        lines(&guard.evaluate_samples(&mut world, samples - 1)),
        [""; 0]
    );
    let over = lines(&guard.evaluate_samples(&mut world, 1));
    assert_eq!(over, ["00:05:30 bob: default: memory: over [soft]"]);
    assert_eq!(guard.state.violations(), []);
}

#[test]
fn ends_at_once_with_the_job() {
    let rules = RuleSet {
        defaults: Limits {
            idle: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    world.start(100, "bob").uses(0, 1, 0).job("tree 100");
    assert_eq!(guard.evaluate_samples(&mut world, 6).len(), 2);
    world.processes.clear();
    let over = guard.evaluate_samples(&mut world, 1);
    assert_eq!(
        over.iter().map(|it| it.step.name()).collect::<Vec<_>>(),
        ["over"]
    );
}

#[test]
fn only_the_changed_rule_restarts() {
    let rules = |limit: u64, of_gpu: u64| {
        rules_with_memory_limit(|it| {
            it.defaults.memory = gib(limit);
            it.gpus = vec![GpuPolicy {
                name: "0".into(),
                gpus: gpus("0"),
                max_memory: gib(of_gpu),
                ..GpuPolicy::default()
            }];
        })
    };
    let mut guard = TestGuard::new(rules(20, 20));
    let mut world = world();
    guard.evaluate_samples(&mut world, 10);
    guard.compiled_rules = CompiledRules::new(rules(19, 20));
    let expected = [
        "00:01:50 bob: default: memory: outdated [soft]",
        "00:02:00 bob: default: memory: violated, 21.0 GiB of 19.0 GiB since 00:01:40 [soft]",
        "00:02:00 bob: default: memory: warned, ends 00:07:00 [soft]",
        "00:02:00 100 on GPU-0: gpu 0: process memory: warned again (2), ends 00:05:20 [soft]",
    ];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 2)), expected);
}

#[test]
fn arming_restarts_violations() {
    let mut guard = TestGuard::new(rules_with_memory_limit(|it| it.mode = GuardMode::DryRun));
    let mut world = world();
    guard.evaluate_samples(&mut world, 40);
    guard.compiled_rules = CompiledRules::new(rules_with_memory_limit(|_| ()));
    let expected = [
        "00:06:50 bob: default: memory: outdated [dry-run]",
        "00:07:00 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:06:40 [soft]",
        "00:07:00 bob: default: memory: warned, ends 00:12:00 [soft]",
    ];
    assert_eq!(lines(&guard.evaluate_samples(&mut world, 2)), expected);
}

#[test]
fn time_limit_replaces_the_general_one() {
    let rules = rules_with_memory_limit(|it| {
        it.users = vec![UserPolicy {
            name: "bob".into(),
            limits: Limits {
                memory: gib(40),
                ..Limits::default()
            },
            overrides: vec![TimeOverride {
                hours: Hours {
                    from: 1,
                    to: 2,
                    days: Vec::new(),
                },
                limits: Limits {
                    memory: gib(10),
                    ..Limits::default()
                },
            }],
            ..UserPolicy::default()
        }];
    });
    let mut guard = TestGuard::new(rules);
    let actual = lines(&guard.evaluate_samples(&mut world(), 12));
    let expected = [
        "00:01:20 bob: user bob: memory: violated, 21.0 GiB of 10.0 GiB since 00:01:00 [soft]",
        "00:01:20 bob: user bob: memory: warned, ends 00:06:20 [soft]",
    ];
    assert_eq!(actual, expected);
}

#[test]
fn window_violation_keeps_its_start() {
    let mut rules = RuleSet {
        mode: GuardMode::Soft,
        behaviours: vec![behaviour_rule(
            "waste",
            ForbiddenBehaviour::Waste(WasteParams {
                below: Percent(10),
                min_memory: Bytes(GIB),
                hours: minutes(10),
            }),
        )],
        ..dry_run_rules()
    };
    rules.enforcement.grace = minutes(60);
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    world.start(100, "bob").uses(0, 21, 1).job("tree 100");
    guard.evaluate_samples(&mut world, 62);
    let first = guard.state.violations().remove(0);
    let (since, warned) = (first.evidence.since, first.warned_at.unwrap());
    assert!(since < warned, "{since:?} {warned:?}");
    // Longer than another whole window.
    guard.evaluate_samples(&mut world, 90);
    let open = guard.state.violations().remove(0);
    assert_eq!((open.evidence.since, open.warned_at), (since, Some(warned)));
}
