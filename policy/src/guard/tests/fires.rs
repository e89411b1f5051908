//! Each kind of rule fires when it should, not below, not at the limit itself, and not
//! where something is not known.

use super::super::schedule::{Day, Hours};
use super::*;
use gpukill_proto::guard::{GuardStep, RuleKind};

/// The names of the rules that are violated after so many buckets, and those that
/// could not be judged in the last.
fn seen(rules: Rules, world: &mut World, buckets: usize) -> (Vec<String>, Vec<String>) {
    let mut guard = Guard::new(rules);
    let mut unjudged = Vec::new();
    for _ in 0..buckets {
        unjudged = guard.looks(world).unjudged;
    }
    let violated = guard.memory.violations();
    (
        violated.iter().map(|it| it.rule.to_string()).collect(),
        unjudged.iter().map(|it| it.rule.to_string()).collect(),
    )
}

/// What a rule says of worlds: violated, or not, or that it cannot be told.
fn check(rules: &Rules, rule: &str, buckets: usize, cases: &[(&str, World, Says)]) {
    for (case, world, expected) in cases {
        let (violated, unjudged) = seen(rules.clone(), &mut world.clone(), buckets);
        let says = match (violated.as_slice(), unjudged.as_slice()) {
            ([one], _) if one == rule => Yes,
            ([], []) => No,
            ([], [one, ..]) if one == rule => Unknown,
            other => panic!("{case}: {other:?}"),
        };
        assert_eq!(says, *expected, "{rule}: {case}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Yes,
    No,
    Unknown,
}
use Says::*;

/// One process of bob's.
fn bob(change: impl FnOnce(&mut Process)) -> World {
    let mut world = World::new(2);
    let process = world.start(100, "bob").uses(0, 10, 50);
    change(process);
    world
}

fn limits(limits: Limits) -> Rules {
    Rules {
        defaults: limits,
        ..rules()
    }
}

#[test]
fn a_person_may_hold_as_much_memory_as_the_limit_on_all_devices_together() {
    let rules = limits(Limits {
        memory: gib(20),
        ..Limits::default()
    });
    let unknown = |it: &mut Process| {
        it.uses(1, 0, 0).memory(1, Told::Failed);
    };
    let cases = [
        ("below", bob(|_| ()), No),
        ("at the limit", bob(|it| _ = it.uses(1, 10, 0)), No),
        ("over", bob(|it| _ = it.uses(1, 11, 0)), Yes),
        ("a part is unknown", bob(unknown), Unknown),
        (
            "what is known is too much",
            bob(|it| {
                unknown(it);
                it.uses(0, 21, 0);
            }),
            Yes,
        ),
        ("nobody's", bob(|it| it.about.owner = None), Unknown),
    ];
    check(&rules, "default: memory", 2, &cases);
}

#[test]
fn a_limit_needs_a_second_look() {
    let rules = limits(Limits {
        memory: gib(9),
        ..Limits::default()
    });
    assert_eq!(seen(rules.clone(), &mut bob(|_| ()), 1).0, [""; 0]);
    assert_eq!(seen(rules, &mut bob(|_| ()), 2).0, ["default: memory"]);
}

#[test]
fn a_person_may_work_a_device_as_much_as_the_limit_on_average() {
    let rules = limits(Limits {
        utilization: Some(Percent(50)),
        ..Limits::default()
    });
    let second = |percent| {
        let mut world = bob(|_| ());
        world.start(101, "bob").uses(0, 1, percent);
        world
    };
    let cases = [
        ("at the limit", bob(|_| ()), No),
        ("over", bob(|it| _ = it.uses(0, 10, 51)), Yes),
        ("two together", second(1), Yes),
        (
            "each on its own device",
            bob(|it| _ = it.uses(1, 1, 50)),
            No,
        ),
        (
            "unknown",
            bob(|it| _ = it.utilization(0, Told::Failed)),
            Unknown,
        ),
    ];
    check(&rules, "default: utilization", 30, &cases);
    // For half of the window it is half of it.
    let mut busy = bob(|it| _ = it.uses(0, 10, 100));
    assert_eq!(seen(rules.clone(), &mut busy.clone(), 15).0, [""; 0]);
    assert_eq!(seen(rules, &mut busy, 16).0, ["default: utilization"]);
}

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

#[test]
fn a_person_may_have_as_many_processes_as_the_limit_on_however_many_devices() {
    let rules = limits(Limits {
        processes: Some(1),
        ..Limits::default()
    });
    let two = |change: fn(&mut Process)| {
        let mut world = bob(|_| ());
        change(world.start(101, "bob").uses(0, 1, 0));
        world
    };
    let cases = [
        ("one on two devices", bob(|it| _ = it.uses(1, 1, 0)), No),
        ("two", two(|_| ()), Yes),
        ("one follows another", two(|it| it.is_present = false), No),
        (
            "another's",
            two(|it| it.about.owner = Some(person("alice"))),
            No,
        ),
    ];
    check(&rules, "default: processes", 2, &cases);
}

fn students() -> GroupPolicy {
    GroupPolicy {
        name: "students".into(),
        members: Members {
            users: names(&["bob"]),
            unix_groups: names(&["students"]),
            ..Members::default()
        },
        ..GroupPolicy::default()
    }
}

fn of_group(policy: GroupPolicy) -> Rules {
    Rules {
        groups: vec![policy],
        ..rules()
    }
}

/// bob, and alice who is in a group or not.
fn two(group: Option<&str>) -> World {
    let mut world = bob(|_| ());
    let alice = world.start(101, "alice").uses(0, 10, 50);
    alice.about.groups = group.map(|group| names(&[group]));
    world
}

#[test]
fn a_group_is_limited_as_a_whole() {
    let rules = of_group(GroupPolicy {
        total_memory: gib(19),
        ..students()
    });
    let cases = [
        ("one member", two(Some("staff")), No),
        ("two members", two(Some("students")), Yes),
        ("who may be a member", two(None), Unknown),
    ];
    check(&rules, "group students: total memory", 2, &cases);
    let rules = of_group(GroupPolicy {
        total_processes: Some(1),
        ..students()
    });
    check(&rules, "group students: total processes", 2, &cases);
    let rules = of_group(GroupPolicy {
        total_utilization: Some(Percent(99)),
        ..students()
    });
    check(&rules, "group students: total utilization", 30, &cases);
    let rules = of_group(GroupPolicy {
        total_memory: gib(20),
        total_processes: Some(2),
        total_utilization: Some(Percent(100)),
        ..students()
    });
    let (violated, _) = seen(rules, &mut two(Some("students")), 30);
    assert_eq!(violated, [""; 0], "at the limits");
}

#[test]
fn a_project_is_a_group() {
    let members = |change: fn(&mut Members)| {
        let mut members = Members::default();
        change(&mut members);
        of_group(GroupPolicy {
            name: "project".into(),
            members,
            total_memory: gib(9),
            ..GroupPolicy::default()
        })
    };
    let of_image = members(|it| it.images = globs(&["vllm/*"]));
    let of_account = members(|it| it.slurm_accounts = names(&["physics"]));
    let of_namespace = members(|it| it.kubernetes_namespaces = names(&["ml"]));
    let inside = bob(|it| {
        it.about.image = Some(Some("vllm/vllm:latest".into()));
        it.about.account = Some(Some("physics".into()));
        it.about.pod = Some(Some(("ml".into(), "train-0".into())));
    });
    let beside = bob(|it| {
        it.about.image = Some(Some("pytorch".into()));
        it.about.account = Some(Some("chemistry".into()));
        it.about.pod = Some(Some(("web".into(), "ml".into())));
    });
    let unknown = bob(|it| {
        it.about.image = None;
        it.about.account = None;
        it.about.pod = None;
    });
    for rules in [of_image, of_account, of_namespace] {
        let cases = [
            ("inside", inside.clone(), Yes),
            ("beside", beside.clone(), No),
            ("outside", bob(|_| ()), No),
            ("unknown", unknown.clone(), Unknown),
        ];
        check(&rules, "group project: total memory", 2, &cases);
    }
}

fn of_gpu(change: impl FnOnce(&mut GpuPolicy)) -> Rules {
    let mut policy = GpuPolicy {
        name: "0".into(),
        gpus: gpus("0"),
        ..GpuPolicy::default()
    };
    change(&mut policy);
    Rules {
        gpus: vec![policy],
        ..rules()
    }
}

#[test]
fn each_process_may_hold_so_much_of_a_device() {
    let rules = of_gpu(|it| it.max_memory = gib(10));
    let cases = [
        ("at the limit", bob(|_| ()), No),
        (
            "over",
            bob(|it| _ = it.memory(0, Told::Known(10 * GIB + 1))),
            Yes,
        ),
        ("on another device", bob(|it| _ = it.uses(1, 11, 0)), No),
        ("two together", two(None), No),
        ("unknown", bob(|it| _ = it.memory(0, Told::Failed)), Unknown),
        (
            "nobody's",
            bob(|it| {
                it.about.owner = None;
                it.uses(0, 11, 0);
            }),
            Yes,
        ),
    ];
    check(&rules, "gpu 0: process memory", 2, &cases);
}

#[test]
fn a_device_may_be_worked_as_much_as_its_limit() {
    let rules = of_gpu(|it| it.max_utilization = Some(Percent(90)));
    let at = |percent: Option<u64>| {
        let mut world = bob(|_| ());
        world.devices[0].utilization = percent;
        world.devices[1].utilization = Some(100);
        world
    };
    let cases = [
        ("at the limit", at(Some(90)), No),
        ("over", at(Some(91)), Yes),
        ("unknown", at(None), Unknown),
    ];
    check(&rules, "gpu 0: gpu utilization", 30, &cases);
}

#[test]
fn memory_is_kept_free_of_devices_that_have_their_own() {
    let rules = of_gpu(|it| it.reserved_memory = gib(2));
    let with = |change: fn(&mut Device)| {
        let mut world = bob(|_| ());
        world.devices[0].used = Some(68 * GIB);
        change(&mut world.devices[0]);
        world
    };
    let cases = [
        ("as much as is reserved", with(|_| ()), No),
        ("less", with(|it| it.used = Some(68 * GIB + 1)), Yes),
        (
            "of the host's memory",
            with(|it| {
                it.used = Some(79 * GIB);
                it.is_unified = true;
            }),
            No,
        ),
        (
            "nobody knows how much it has",
            with(|it| it.memory = None),
            Unknown,
        ),
        (
            "nobody knows how much is used",
            with(|it| it.used = None),
            Unknown,
        ),
    ];
    check(&rules, "gpu 0: reserved memory", 2, &cases);
}

#[test]
fn a_device_is_for_some_and_not_for_others() {
    let rules = of_gpu(|it| {
        it.allowed_users = names(&["1001", "alice", "eve"]);
        it.blocked_users = names(&["eve"]);
    });
    let owned = |name: &str| bob(|it| it.about.owner = Some(person(name)));
    let cases = [
        ("allowed by number", bob(|_| ()), No),
        ("allowed by name", owned("alice"), No),
        ("not allowed", owned("dave"), Yes),
        ("blocked, though allowed", owned("eve"), Yes),
        ("unknown", bob(|it| it.about.owner = None), Unknown),
    ];
    check(&rules, "gpu 0: user", 1, &cases);
}

#[test]
fn a_device_is_for_some_processes() {
    let rules = of_gpu(|it| {
        it.allowed_processes = globs(&["python*"]);
        it.blocked_processes = globs(&["*miner"]);
    });
    let cases = [
        ("allowed", bob(|_| ()), No),
        ("not allowed", bob(|it| _ = it.named("blender")), Yes),
        (
            "blocked, though allowed",
            bob(|it| _ = it.named("python-miner")),
            Yes,
        ),
        (
            "blocked by its executable",
            bob(|it| it.about.executable = Some("/tmp/miner".into())),
            Yes,
        ),
        (
            "unknown",
            bob(|it| {
                it.about.name = None;
                it.about.executable = None;
            }),
            Unknown,
        ),
    ];
    check(&rules, "gpu 0: process", 1, &cases);
}

#[test]
fn a_person_uses_the_devices_that_their_policy_or_else_their_groups_allow() {
    let user = |allowed: &str, blocked: &str| UserPolicy {
        name: "bob".into(),
        allowed_gpus: gpus(allowed),
        blocked_gpus: gpus(blocked),
        ..UserPolicy::default()
    };
    let rules_of = |users: Vec<UserPolicy>, blocked: &str| Rules {
        users,
        groups: vec![GroupPolicy {
            blocked_gpus: gpus(blocked),
            ..students()
        }],
        ..rules()
    };
    let cases = [
        (rules_of(vec![user("0", "1")], "7"), None),
        (rules_of(vec![user("1", "7")], "7"), Some("user bob: gpu")),
        (rules_of(vec![user("0-1", "0")], "7"), Some("user bob: gpu")),
        (rules_of(vec![user("00:00.0", "7")], "0"), None),
        (rules_of(vec![], "0"), Some("group students: gpu")),
        (rules_of(vec![], "*H100*"), Some("group students: gpu")),
        (rules_of(vec![], "1"), None),
    ];
    for (rules, expected) in cases {
        let (violated, _) = seen(rules, &mut bob(|_| ()), 1);
        assert_eq!(violated.first().map(String::as_str), expected);
    }
}

#[test]
fn nobody_uses_a_device_that_is_maintained() {
    let rules = of_gpu(|it| {
        it.maintenance = Some(Hours {
            from: 0,
            to: 1,
            days: vec![Day::Monday],
        });
    });
    let mut world = bob(|it| {
        it.about.owner = None;
        it.uses(1, 1, 0);
    });
    let mut guard = Guard::new(rules);
    let told = |guard: &mut Guard, world: &mut World| -> Vec<(u32, String)> {
        let records = guard.looks(world).records;
        let runs = records.iter().filter(|it| it.step == GuardStep::Violated);
        runs.map(|it| (it.evidence.runs[0].gpu_index, it.rule.to_string()))
            .collect()
    };
    assert_eq!(
        told(&mut guard, &mut world),
        [(0, "gpu 0: maintenance".to_owned())]
    );
    guard.watches(&mut world, 4);
    assert_eq!(guard.memory.violations().len(), 1);
    // 00:01 and on: it settles, and is over after five minutes.
    guard.watches(&mut world, 29);
    assert_eq!(guard.memory.violations().len(), 1);
    guard.watches(&mut world, 1);
    assert_eq!(guard.memory.violations(), []);
}

#[test]
fn some_hours_are_for_some_and_have_limits_of_their_own() {
    let of = |change: fn(&mut TimePolicy)| {
        let mut policy = TimePolicy {
            name: "night".into(),
            hours: Hours {
                from: 0,
                to: 60,
                days: Vec::new(),
            },
            ..TimePolicy::default()
        };
        change(&mut policy);
        Rules {
            times: vec![policy],
            ..rules()
        }
    };
    let blocked = of(|it| it.blocked_users = names(&["bob"]));
    let later = |mut world: World| {
        world.now = Timestamp(3_600_000);
        world
    };
    let cases = [
        ("blocked", bob(|_| ()), Yes),
        (
            "another",
            bob(|it| it.about.owner = Some(person("alice"))),
            No,
        ),
        ("at another time", later(bob(|_| ())), No),
        ("unknown", bob(|it| it.about.owner = None), Unknown),
    ];
    check(&blocked, "time night: hours", 1, &cases);
    let limited = of(|it| it.limits.memory = gib(9));
    let cases = [
        ("over", bob(|_| ()), Yes),
        ("at another time", later(bob(|_| ())), No),
    ];
    check(&limited, "time night: memory", 2, &cases);
    let on_the_other = of(|it| {
        it.limits.memory = gib(9);
        it.gpus = gpus("1");
    });
    check(
        &on_the_other,
        "time night: memory",
        2,
        &[("beside", bob(|_| ()), No)],
    );
}

fn idle(limit: u64) -> Limits {
    Limits {
        idle: Some(minutes(limit)),
        idle_min_memory: gib(5),
        ..Limits::default()
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
fn one_bucket_of_which_nothing_is_known_makes_the_time_before_it_unknown() {
    let mut world = bob(|it| _ = it.uses(0, 10, 0));
    let mut guard = Guard::new(limits(idle(1)));
    guard.watches(&mut world, 5);
    world.process(100).utilization(0, Told::Failed);
    guard.watches(&mut world, 1);
    world.process(100).utilization(0, Told::Known(0));
    guard.watches(&mut world, 5);
    assert_eq!(guard.memory.violations(), []);
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
    assert_eq!(grows([2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), 0, "by less");
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
        let course = book.course(super::super::judge::Policy::Default, kind);
        assert_eq!(course.map(|it| it.action), Some(action), "{kind:?}");
    }
}
