//! How much is too much.

use super::*;

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
fn a_rule_about_devices_that_cannot_be_told_apart_is_not_judged() {
    let mut rules = of_gpu(|it| {
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
    let (violated, mut unjudged) = seen(rules, &mut bob(|_| ()), 30);
    unjudged.dedup();
    let expected = [
        "gpu 0: process memory",
        "gpu 0: gpu utilization",
        "gpu 0: reserved memory",
        "gpu 0: user",
        "time day: memory",
        "time day: idle",
    ];
    assert_eq!((violated, unjudged), (vec![], names(&expected)));
}
