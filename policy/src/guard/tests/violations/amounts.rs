//! Limits on amounts.

use super::*;

#[test]
fn memory_limit_covers_all_devices() {
    let rules = rules_with_limits(Limits {
        memory: gib(20),
        ..Limits::default()
    });
    let unknown = |it: &mut TestProcess| {
        it.uses(1, 0, 0).memory(1, TestReading::Failed);
    };
    let cases = [
        ("below", host_with_bob(|_| ()), No),
        (
            "at the limit",
            host_with_bob(|it| _ = it.uses(1, 10, 0)),
            No,
        ),
        ("over", host_with_bob(|it| _ = it.uses(1, 11, 0)), Yes),
        ("a part is unknown", host_with_bob(unknown), Unknown),
        (
            "what is known is too much",
            host_with_bob(|it| {
                unknown(it);
                it.uses(0, 21, 0);
            }),
            Yes,
        ),
        (
            "nobody's",
            host_with_bob(|it| it.facts.owner = None),
            Unknown,
        ),
    ];
    check(&rules, "default: memory", 2, &cases);
}

#[test]
fn limit_needs_two_samples() {
    let rules = rules_with_limits(Limits {
        memory: gib(9),
        ..Limits::default()
    });
    assert_eq!(
        evaluate_rules(rules.clone(), &mut host_with_bob(|_| ()), 1).0,
        [""; 0]
    );
    assert_eq!(
        evaluate_rules(rules, &mut host_with_bob(|_| ()), 2).0,
        ["default: memory"]
    );
}

#[test]
fn utilization_limit_is_a_mean() {
    let rules = rules_with_limits(Limits {
        utilization: Some(Percent(50)),
        ..Limits::default()
    });
    let second = |percent| {
        let mut world = host_with_bob(|_| ());
        world.start(101, "bob").uses(0, 1, percent);
        world
    };
    let cases = [
        ("at the limit", host_with_bob(|_| ()), No),
        ("over", host_with_bob(|it| _ = it.uses(0, 10, 51)), Yes),
        ("two together", second(1), Yes),
        (
            "each on its own device",
            host_with_bob(|it| _ = it.uses(1, 1, 50)),
            No,
        ),
        (
            "unknown",
            host_with_bob(|it| _ = it.utilization(0, TestReading::Failed)),
            Unknown,
        ),
    ];
    check(&rules, "default: utilization", 30, &cases);
    // The mean over half of the window is half of it.
    let mut busy = host_with_bob(|it| _ = it.uses(0, 10, 100));
    assert_eq!(
        evaluate_rules(rules.clone(), &mut busy.clone(), 15).0,
        [""; 0]
    );
    assert_eq!(
        evaluate_rules(rules, &mut busy, 16).0,
        ["default: utilization"]
    );
}

#[test]
fn process_limit_counts_processes_once() {
    let rules = rules_with_limits(Limits {
        processes: Some(1),
        ..Limits::default()
    });
    let two = |change: fn(&mut TestProcess)| {
        let mut world = host_with_bob(|_| ());
        change(world.start(101, "bob").uses(0, 1, 0));
        world
    };
    let cases = [
        (
            "one on two devices",
            host_with_bob(|it| _ = it.uses(1, 1, 0)),
            No,
        ),
        ("two", two(|_| ()), Yes),
        ("one follows another", two(|it| it.is_present = false), No),
        (
            "another's",
            two(|it| it.facts.owner = Some(person("alice"))),
            No,
        ),
    ];
    check(&rules, "default: processes", 2, &cases);
}

#[test]
fn process_memory_limit() {
    let rules = rules_with_gpu(|it| it.max_memory = gib(10));
    let cases = [
        ("at the limit", host_with_bob(|_| ()), No),
        (
            "over",
            host_with_bob(|it| _ = it.memory(0, TestReading::Known(10 * GIB + 1))),
            Yes,
        ),
        (
            "on another device",
            host_with_bob(|it| _ = it.uses(1, 11, 0)),
            No,
        ),
        ("two together", host_with_bob_and_alice(None), No),
        (
            "unknown",
            host_with_bob(|it| _ = it.memory(0, TestReading::Failed)),
            Unknown,
        ),
        (
            "nobody's",
            host_with_bob(|it| {
                it.facts.owner = None;
                it.uses(0, 11, 0);
            }),
            Yes,
        ),
    ];
    check(&rules, "gpu 0: process memory", 2, &cases);
}

#[test]
fn device_utilization_limit() {
    let rules = rules_with_gpu(|it| it.max_utilization = Some(Percent(90)));
    let at = |percent: Option<u64>| {
        let mut world = host_with_bob(|_| ());
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
fn reserved_memory_must_stay_free() {
    let rules = rules_with_gpu(|it| it.reserved_memory = gib(2));
    let with = |change: fn(&mut TestDevice)| {
        let mut world = host_with_bob(|_| ());
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
fn ambiguous_devices_are_not_evaluated() {
    let mut rules = rules_with_gpu(|it| {
        it.max_memory = gib(1);
        it.reserved_memory = gib(80);
        it.max_utilization = Some(Percent(1));
        it.blocked_users = names(&["bob"]);
        it.gpus = gpus("5-2");
    });
    rules.times = vec![TimePolicy {
        name: "day".into(),
        limits: Limits {
            memory: gib(1),
            idle: Some(minutes(0)),
            ..Limits::default()
        },
        gpus: gpus("5-2"),
        ..TimePolicy::default()
    }];
    let (violated, mut undetermined) = evaluate_rules(rules, &mut host_with_bob(|_| ()), 30);
    undetermined.dedup();
    let expected = [
        "gpu 0: process memory",
        "gpu 0: gpu utilization",
        "gpu 0: reserved memory",
        "gpu 0: user",
        "time day: memory",
        "time day: idle",
    ];
    assert_eq!((violated, undetermined), (vec![], names(&expected)));
}
