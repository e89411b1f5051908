//! What processes must not do.

use super::*;
use crate::guard::schedule::Hours;
use gpukill_proto::guard::RuleKind;

#[test]
fn a_process_may_hold_a_device_as_long_as_the_limit() {
    let rules = limits(Limits {
        duration: Some(minutes(1)),
        ..Limits::default()
    });
    let busy = bob(|_| ());
    assert_eq!(seen(rules.clone(), &mut busy.clone(), 6).0, [""; 0]);
    // At the seventh bucket it has been 70 s, at the eighth that is confirmed.
    assert_eq!(seen(rules.clone(), &mut busy.clone(), 7).0, [""; 0]);
    assert_eq!(
        seen(rules.clone(), &mut busy.clone(), 8).0,
        ["default: duration"]
    );
    let nobody_knows = bob(|it| _ = it.utilization(0, Told::Failed));
    assert_eq!(
        seen(rules.clone(), &mut nobody_knows.clone(), 8).0,
        ["default: duration"]
    );
    let gone = bob(|it| it.is_present = false);
    assert_eq!(seen(rules, &mut gone.clone(), 8).0, [""; 0]);
}

fn idle(limit: u64) -> Limits {
    Limits {
        idle: Some(minutes(limit)),
        idle_min_memory: gib(5),
        ..Limits::default()
    }
}

#[test]
fn what_is_idle_at_a_time_is_what_is_said_of_that_time() {
    let rules = |of_time: Option<u64>| Rules {
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
        ..limits(Limits {
            idle_min_memory: gib(5),
            ..Limits::default()
        })
    };
    for (of_time, expected) in [
        (None, &["time night: idle"][..]),
        (Some(9), &["time night: idle"]),
        (Some(11), &[]),
    ] {
        let mut world = bob(|it| _ = it.uses(0, 10, 0));
        assert_eq!(
            seen(rules(of_time), &mut world, 8).0,
            expected,
            "{of_time:?}"
        );
    }
}

#[test]
fn a_job_is_idle_when_all_of_it_does_nothing_for_the_whole_time() {
    let rules = limits(idle(1));
    let still = |change: fn(&mut World)| {
        let mut world = bob(|it| _ = it.uses(0, 10, 4).job("tree 100"));
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
            still(|it| _ = it.process(100).memory(0, Told::Failed)),
            Unknown,
        ),
        (
            "whether it works is unknown",
            still(|it| _ = it.process(100).utilization(0, Told::Unsupported)),
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
            still(|it| _ = it.process(100).connections(Told::Known(1))),
            No,
        ),
        (
            "whether anybody is connected is unknown",
            still(|it| _ = it.process(100).connections(Told::Failed)),
            Unknown,
        ),
        (
            "nobody is connected",
            still(|it| _ = it.process(100).connections(Told::Known(0))),
            Yes,
        ),
    ];
    check(&rules, "default: idle", 6, &cases);
    assert_eq!(seen(rules.clone(), &mut still(|_| ()), 5).0, [""; 0]);
    let loaded = Conduct::Idle {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: true,
        cpu_below: None,
    };
    let rules = Rules {
        behaviours: vec![behaviour("loaded", loaded)],
        ..super::rules()
    };
    let served = still(|it| _ = it.process(100).connections(Told::Known(9)));
    check(
        &rules,
        "rule loaded: idle",
        6,
        &[("for a rule that says so", served, Yes)],
    );
}

#[test]
fn a_job_that_computes_without_its_gpu_is_not_idle_where_a_rule_asks_for_it() {
    let conduct = |cpu_below| Conduct::Idle {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below,
    };
    let rules = of_behaviour(conduct(Some(Percent(10))));
    let takes = |percent| bob(|it| _ = it.uses(0, 10, 0).computes(percent));
    let cases = [
        ("little", takes(Some(9)), Yes),
        ("at the threshold", takes(Some(10)), No),
        ("much", takes(Some(400)), No),
        ("unknown", takes(None), Unknown),
    ];
    check(&rules, "rule it: idle", 6, &cases);
    let asks_not = of_behaviour(conduct(None));
    check(
        &asks_not,
        "rule it: idle",
        6,
        &[("not asked", takes(Some(400)), Yes)],
    );
    // Once it does nothing any more, its time begins.
    let mut world = takes(Some(100));
    let mut guard = Guard::new(rules);
    guard.watches(&mut world, 9);
    world.process(100).computes(Some(0));
    guard.watches(&mut world, 5);
    assert_eq!(guard.memory.violations(), []);
    guard.watches(&mut world, 1);
    assert_eq!(guard.memory.violations().len(), 1);
}

#[test]
fn one_bucket_of_which_nothing_is_known_counts_for_nothing() {
    let mut world = bob(|it| _ = it.uses(0, 10, 0));
    let mut guard = Guard::new(limits(idle(1)));
    guard.watches(&mut world, 5);
    world.process(100).utilization(0, Told::Failed);
    guard.watches(&mut world, 1);
    assert_eq!(guard.memory.violations(), []);
    world.process(100).utilization(0, Told::Known(0));
    guard.watches(&mut world, 1);
    assert_eq!(guard.memory.violations().len(), 1);
}

fn of_behaviour(conduct: Conduct) -> Rules {
    Rules {
        behaviours: vec![behaviour("it", conduct)],
        ..rules()
    }
}

#[test]
fn little_work_with_much_memory_for_long_is_waste() {
    let rules = of_behaviour(Conduct::Waste {
        below: Percent(10),
        min_memory: Bytes(10 * GIB),
        hours: minutes(2),
    });
    let cases = [
        ("little", bob(|it| _ = it.uses(0, 10, 9)), Yes),
        ("at the threshold", bob(|it| _ = it.uses(0, 10, 10)), No),
        ("it holds less", bob(|it| _ = it.uses(0, 9, 0)), No),
        (
            "two ranks, of which one works",
            bob(|it| _ = it.uses(0, 10, 0).uses(1, 1, 20)),
            No,
        ),
        (
            "unknown",
            bob(|it| _ = it.utilization(0, Told::Failed)),
            Unknown,
        ),
        (
            "its memory is unknown",
            bob(|it| _ = it.uses(0, 10, 0).memory(0, Told::Failed)),
            Unknown,
        ),
    ];
    check(&rules, "rule it: waste", 12, &cases);
    let little = || bob(|it| _ = it.uses(0, 10, 9));
    assert_eq!(seen(rules, &mut little(), 11).0, [""; 0]);
}

#[test]
fn work_without_end_that_frees_nothing_is_a_runaway() {
    let rule = |orphaned| {
        of_behaviour(Conduct::Runaway {
            above: Percent(90),
            limit: minutes(1),
            orphaned,
        })
    };
    let cases = [
        ("at work", bob(|it| _ = it.uses(0, 10, 91)), Yes),
        ("at the threshold", bob(|it| _ = it.uses(0, 10, 90)), No),
        (
            "unknown",
            bob(|it| _ = it.utilization(0, Told::Failed)),
            Unknown,
        ),
        (
            "its memory is unknown",
            bob(|it| _ = it.uses(0, 10, 91).memory(0, Told::Failed)),
            Unknown,
        ),
    ];
    check(&rule(false), "rule it: runaway", 6, &cases);
    let orphan = |is: Option<bool>| {
        bob(|it| {
            it.uses(0, 10, 91);
            it.about.is_orphaned = is;
        })
    };
    let cases = [
        ("an orphan", orphan(Some(true)), Yes),
        ("none", orphan(Some(false)), No),
        ("unknown", orphan(None), Unknown),
    ];
    check(&rule(true), "rule it: runaway", 6, &cases);
    // Memory that fell by more than a twentieth: it begins anew.
    for (bytes, expected) in [(95 * GIB / 10, 1), (94 * GIB / 10, 0)] {
        let mut world = bob(|it| _ = it.uses(0, 10, 91));
        let mut guard = Guard::new(rule(false));
        guard.watches(&mut world, 3);
        world.process(100).memory(0, Told::Known(bytes));
        guard.watches(&mut world, 3);
        assert_eq!(guard.memory.violations().len(), expected, "{bytes}");
    }
}

#[test]
fn more_memory_in_each_quarter_is_growth() {
    let rules = || {
        of_behaviour(Conduct::Growth {
            by: Bytes(11 * GIB),
            within: minutes(2),
        })
    };
    let grows = |steps: [u64; 12]| {
        let mut world = bob(|_| ());
        let mut guard = Guard::new(rules());
        for gib in steps {
            world.process(100).uses(0, gib, 50);
            guard.watches(&mut world, 1);
        }
        guard.memory.violations().len()
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
    let mut unknown = bob(|it| _ = it.memory(0, Told::Failed));
    let (violated, unjudged) = seen(rules(), &mut unknown, 12);
    assert_eq!(
        (violated.len(), unjudged),
        (0, vec!["rule it: growth".to_owned()])
    );
}

#[test]
fn a_rule_is_about_whom_it_selects() {
    let rule = |change: fn(&mut Behaviour)| {
        let mut behaviour = behaviour("it", Conduct::Duration(Duration::ZERO));
        change(&mut behaviour);
        Rules {
            behaviours: vec![behaviour],
            ..rules()
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
            &[("", bob(|_| ()), expected)],
        );
    }
    let unread = bob(|it| it.about.command = None);
    let rules = rule(|it| it.command = pattern("train"));
    check(
        &rules,
        "rule it: duration",
        2,
        &[("unread", unread, Unknown)],
    );
}

#[test]
fn every_kind_of_rule_has_its_course() {
    let book = Rulebook::of(rules());
    for (kind, action) in [
        (RuleKind::Utilization, GuardAction::Warn),
        (RuleKind::TotalUtilization, GuardAction::Warn),
        (RuleKind::GpuUtilization, GuardAction::Warn),
        (RuleKind::Memory, GuardAction::Terminate),
        (RuleKind::User, GuardAction::Terminate),
    ] {
        let course = book.course(crate::guard::judge::Policy::Default, kind);
        assert_eq!(course.map(|it| it.action), Some(action), "{kind:?}");
    }
}
