//! Rules on behaviour.

use super::*;
use crate::guard::schedule::Hours;
use gpukill_proto::guard::RuleKind;

#[test]
fn duration_limit() {
    let rules = rules_with_limits(Limits {
        duration: Some(minutes(1)),
        ..Limits::default()
    });
    let busy = host_with_bob(|_| ());
    assert_eq!(
        evaluate_rules(rules.clone(), &mut busy.clone(), 6).0,
        [""; 0]
    );
    // The process has held the device for 70 s at the seventh sample. The eighth one
    // confirms it.
    assert_eq!(
        evaluate_rules(rules.clone(), &mut busy.clone(), 7).0,
        [""; 0]
    );
    assert_eq!(
        evaluate_rules(rules.clone(), &mut busy.clone(), 8).0,
        ["default: duration"]
    );
    let nobody_knows = host_with_bob(|it| _ = it.utilization(0, TestReading::Failed));
    assert_eq!(
        evaluate_rules(rules.clone(), &mut nobody_knows.clone(), 8).0,
        ["default: duration"]
    );
    let gone = host_with_bob(|it| it.is_present = false);
    assert_eq!(evaluate_rules(rules, &mut gone.clone(), 8).0, [""; 0]);
}

fn idle_limit(limit: u64) -> Limits {
    Limits {
        idle: Some(minutes(limit)),
        idle_min_memory: gib(5),
        ..Limits::default()
    }
}

#[test]
fn idle_limit_follows_time_overrides() {
    let rules = |of_time: Option<u64>| RuleSet {
        times: vec![TimePolicy {
            name: "night".into(),
            hours: Hours {
                from: 0,
                to: 0,
                days: Vec::new(),
            },
            limits: Limits {
                idle: Some(minutes(1)),
                idle_min_memory: of_time.and_then(gib),
                ..Limits::default()
            },
            ..TimePolicy::default()
        }],
        ..rules_with_limits(Limits {
            idle_min_memory: gib(5),
            ..Limits::default()
        })
    };
    for (of_time, expected) in [
        (None, &["time night: idle"][..]),
        (Some(9), &["time night: idle"]),
        (Some(11), &[]),
    ] {
        let mut world = host_with_bob(|it| _ = it.uses(0, 10, 0));
        assert_eq!(
            evaluate_rules(rules(of_time), &mut world, 8).0,
            expected,
            "{of_time:?}"
        );
    }
}

#[test]
fn job_is_idle_as_a_whole() {
    let rules = rules_with_limits(idle_limit(1));
    let still = |change: fn(&mut TestHost)| {
        let mut world = host_with_bob(|it| _ = it.uses(0, 10, 4).job("tree 100"));
        change(&mut world);
        world
    };
    let cases = [
        ("idle", still(|_| ()), Yes),
        (
            "at the threshold it works",
            still(|it| _ = it.process(100).uses(0, 10, 5)),
            No,
        ),
        (
            "it holds little",
            still(|it| _ = it.process(100).uses(0, 4, 0)),
            No,
        ),
        (
            "how much is unknown",
            still(|it| _ = it.process(100).memory(0, TestReading::Failed)),
            Unknown,
        ),
        (
            "whether it works is unknown",
            still(|it| _ = it.process(100).utilization(0, TestReading::Unsupported)),
            Unknown,
        ),
        (
            "it works on another device",
            still(|it| _ = it.process(100).uses(1, 1, 90)),
            No,
        ),
        (
            "another rank works",
            still(|it| _ = it.start(101, "bob").uses(1, 1, 90).job("tree 100")),
            No,
        ),
        (
            "another job works",
            still(|it| _ = it.start(101, "bob").uses(1, 1, 90).job("tree 101")),
            Yes,
        ),
        (
            "somebody is connected",
            still(|it| _ = it.process(100).connections(TestReading::Known(1))),
            No,
        ),
        (
            "whether anybody is connected is unknown",
            still(|it| _ = it.process(100).connections(TestReading::Failed)),
            Unknown,
        ),
        (
            "nobody is connected",
            still(|it| _ = it.process(100).connections(TestReading::Known(0))),
            Yes,
        ),
    ];
    check(&rules, "default: idle", 6, &cases);
    assert_eq!(
        evaluate_rules(rules.clone(), &mut still(|_| ()), 5).0,
        [""; 0]
    );
    let loaded = ForbiddenBehaviour::Idle(IdleParams {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: true,
        cpu_below: None,
    });
    let rules = RuleSet {
        behaviours: vec![behaviour_rule("loaded", loaded)],
        ..dry_run_rules()
    };
    let served = still(|it| _ = it.process(100).connections(TestReading::Known(9)));
    check(
        &rules,
        "rule loaded: idle",
        6,
        &[("for a rule that says so", served, Yes)],
    );
}

#[test]
fn cpu_work_prevents_idleness() {
    let behaviour = |cpu_below| {
        ForbiddenBehaviour::Idle(IdleParams {
            limit: minutes(1),
            min_memory: Bytes(0),
            with_connections: false,
            cpu_below,
        })
    };
    let rules = rules_with_behaviour(behaviour(Some(Percent(10))));
    let takes = |percent| host_with_bob(|it| _ = it.uses(0, 10, 0).computes(percent));
    let cases = [
        ("little", takes(Some(9)), Yes),
        ("at the threshold", takes(Some(10)), No),
        ("much", takes(Some(400)), No),
        ("unknown", takes(None), Unknown),
    ];
    check(&rules, "rule it: idle", 6, &cases);
    let asks_not = rules_with_behaviour(behaviour(None));
    check(
        &asks_not,
        "rule it: idle",
        6,
        &[("not asked", takes(Some(400)), Yes)],
    );
    // Once it stops computing, its idle time begins.
    let mut world = takes(Some(100));
    let mut guard = TestGuard::new(rules);
    guard.evaluate_samples(&mut world, 9);
    world.process(100).computes(Some(0));
    guard.evaluate_samples(&mut world, 5);
    assert_eq!(guard.state.violations(), []);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(guard.state.violations().len(), 1);
}

#[test]
fn one_unknown_sample_is_ignored() {
    let mut world = host_with_bob(|it| _ = it.uses(0, 10, 0));
    let mut guard = TestGuard::new(rules_with_limits(idle_limit(1)));
    guard.evaluate_samples(&mut world, 5);
    world.process(100).utilization(0, TestReading::Failed);
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(guard.state.violations(), []);
    world.process(100).utilization(0, TestReading::Known(0));
    guard.evaluate_samples(&mut world, 1);
    assert_eq!(guard.state.violations().len(), 1);
}

fn rules_with_behaviour(behaviour: ForbiddenBehaviour) -> RuleSet {
    RuleSet {
        behaviours: vec![behaviour_rule("it", behaviour)],
        ..dry_run_rules()
    }
}

#[test]
fn waste_rule() {
    let rules = rules_with_behaviour(ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(10),
        min_memory: Bytes(10 * GIB),
        hours: minutes(2),
    }));
    let cases = [
        ("little", host_with_bob(|it| _ = it.uses(0, 10, 9)), Yes),
        (
            "at the threshold",
            host_with_bob(|it| _ = it.uses(0, 10, 10)),
            No,
        ),
        (
            "it holds less",
            host_with_bob(|it| _ = it.uses(0, 9, 0)),
            No,
        ),
        (
            "two ranks, of which one works",
            host_with_bob(|it| _ = it.uses(0, 10, 0).uses(1, 1, 20)),
            No,
        ),
        (
            "unknown",
            host_with_bob(|it| _ = it.utilization(0, TestReading::Failed)),
            Unknown,
        ),
        (
            "its memory is unknown",
            host_with_bob(|it| _ = it.uses(0, 10, 0).memory(0, TestReading::Failed)),
            Unknown,
        ),
    ];
    check(&rules, "rule it: waste", 12, &cases);
    let little = || host_with_bob(|it| _ = it.uses(0, 10, 9));
    assert_eq!(evaluate_rules(rules, &mut little(), 11).0, [""; 0]);
}

#[test]
fn runaway_rule() {
    let rule = |orphaned| {
        rules_with_behaviour(ForbiddenBehaviour::Runaway(RunawayParams {
            above: Percent(90),
            limit: minutes(1),
            orphaned,
        }))
    };
    let cases = [
        ("at work", host_with_bob(|it| _ = it.uses(0, 10, 91)), Yes),
        (
            "at the threshold",
            host_with_bob(|it| _ = it.uses(0, 10, 90)),
            No,
        ),
        (
            "unknown",
            host_with_bob(|it| _ = it.utilization(0, TestReading::Failed)),
            Unknown,
        ),
        (
            "its memory is unknown",
            host_with_bob(|it| _ = it.uses(0, 10, 91).memory(0, TestReading::Failed)),
            Unknown,
        ),
    ];
    check(&rule(false), "rule it: runaway", 6, &cases);
    let orphan = |is: Option<bool>| {
        host_with_bob(|it| {
            it.uses(0, 10, 91);
            it.facts.is_orphaned = is;
        })
    };
    let cases = [
        ("an orphan", orphan(Some(true)), Yes),
        ("none", orphan(Some(false)), No),
        ("unknown", orphan(None), Unknown),
    ];
    check(&rule(true), "rule it: runaway", 6, &cases);
    // Memory that fell by more than a twentieth restarts the measurement.
    for (bytes, expected) in [(95 * GIB / 10, 1), (94 * GIB / 10, 0)] {
        let mut world = host_with_bob(|it| _ = it.uses(0, 10, 91));
        let mut guard = TestGuard::new(rule(false));
        guard.evaluate_samples(&mut world, 3);
        world.process(100).memory(0, TestReading::Known(bytes));
        guard.evaluate_samples(&mut world, 3);
        assert_eq!(guard.state.violations().len(), expected, "{bytes}");
    }
}

#[test]
fn growth_rule() {
    let rules = || {
        rules_with_behaviour(ForbiddenBehaviour::Growth(GrowthParams {
            by: Bytes(11 * GIB),
            within: minutes(2),
        }))
    };
    let grows = |steps: [u64; 12]| {
        let mut world = host_with_bob(|_| ());
        let mut guard = TestGuard::new(rules());
        for gib in steps {
            world.process(100).uses(0, gib, 50);
            guard.evaluate_samples(&mut world, 1);
        }
        guard.state.violations().len()
    };
    assert_eq!(grows([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), 1);
    assert_eq!(grows([3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]), 0, "by less");
    assert_eq!(
        grows([1, 9, 2, 9, 1, 9, 2, 9, 1, 9, 2, 20]),
        0,
        "single samples"
    );
    assert_eq!(grows([1, 1, 1, 5, 5, 5, 4, 4, 4, 20, 20, 20]), 0, "it fell");
    assert_eq!(
        grows([1, 1, 1, 20, 20, 20, 20, 20, 20, 20, 20, 20]),
        0,
        "once"
    );
    let mut unknown = host_with_bob(|it| _ = it.memory(0, TestReading::Failed));
    let (violated, undetermined) = evaluate_rules(rules(), &mut unknown, 12);
    assert_eq!(
        (violated.len(), undetermined),
        (0, vec!["rule it: growth".to_owned()])
    );
}

#[test]
fn rule_applies_to_its_selection() {
    let rule = |change: fn(&mut BehaviourRule)| {
        let mut behaviour = behaviour_rule("it", ForbiddenBehaviour::Duration(Duration::ZERO));
        change(&mut behaviour);
        RuleSet {
            behaviours: vec![behaviour],
            ..dry_run_rules()
        }
    };
    let cases = [
        (rule(|_| ()), Yes),
        (rule(|it| it.members.users = names(&["bob"])), Yes),
        (rule(|it| it.members.users = names(&["alice"])), No),
        (rule(|it| it.except_users = names(&["bob"])), No),
        (rule(|it| it.gpus = gpus("0")), Yes),
        (rule(|it| it.gpus = gpus("1")), No),
        (rule(|it| it.processes = globs(&["py*"])), Yes),
        (rule(|it| it.processes = globs(&["py"])), No),
        (rule(|it| it.command = pattern("train")), Yes),
        (rule(|it| it.command = pattern("serve")), No),
    ];
    for (rules, expected) in cases {
        check(
            &rules,
            "rule it: duration",
            2,
            &[("", host_with_bob(|_| ()), expected)],
        );
    }
    let unread = host_with_bob(|it| it.facts.command = None);
    let rules = rule(|it| it.command = pattern("train"));
    check(
        &rules,
        "rule it: duration",
        2,
        &[("unread", unread, Unknown)],
    );
}

#[test]
fn every_rule_kind_has_a_course() {
    let compiled_rules = CompiledRules::new(dry_run_rules());
    for (kind, action) in [
        (RuleKind::Utilization, GuardAction::Warn),
        (RuleKind::TotalUtilization, GuardAction::Warn),
        (RuleKind::GpuUtilization, GuardAction::Warn),
        (RuleKind::Memory, GuardAction::Terminate),
        (RuleKind::User, GuardAction::Terminate),
    ] {
        let response = compiled_rules.response(crate::guard::evaluate::PolicyIndex::Default, kind);
        assert_eq!(response.map(|it| it.action), Some(action), "{kind:?}");
    }
}
