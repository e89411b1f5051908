//! What a label of a container says of whose it is. Whoever starts one writes it: it
//! may make rules stricter, and loosens none.

use super::super::limits::{Limit, of, replaced};
use super::super::schedule::Civil;
use super::*;
use gpukill_proto::guard::{GuardStep, Person};

/// By its label it is hers: no user of the box.
fn labelled(name: &str) -> super::super::bucket::About {
    let mut about = about("bob");
    about.owner = Some(Person {
        name: name.into(),
        uid: None,
    });
    about.user = Some((Some("root".into()), 0));
    about
}

/// Which rules end a container of this label that holds 20 GiB and works, and which are
/// not judged.
fn judged(rules: &Rules, label: &str) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(1);
    let process = world.start(1, "bob").uses(0, 20, 90);
    process.about = labelled(label);
    process.job("docker 1");
    let mut guard = Guard::new(rules.clone());
    let first = guard.looks(&mut world);
    let second = guard.looks(&mut world);
    let broken = first.records.iter().chain(&second.records);
    let broken = broken.filter(|it| it.step == GuardStep::Violated);
    let unjudged = second.unjudged.iter();
    (
        broken.map(|it| it.rule.to_string()).collect(),
        unjudged.map(|it| it.rule.to_string()).collect(),
    )
}

fn of_gpu(allowed: &[&str], blocked: &[&str]) -> Rules {
    Rules {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(allowed),
            blocked_users: names(blocked),
            ..GpuPolicy::default()
        }],
        ..enforcing()
    }
}

fn of_time(allowed: &[&str], blocked: &[&str]) -> Rules {
    Rules {
        times: vec![TimePolicy {
            name: "day".into(),
            hours: super::super::schedule::Hours {
                from: 0,
                to: 1440,
                days: Vec::new(),
            },
            allowed_users: names(allowed),
            blocked_users: names(blocked),
            ..TimePolicy::default()
        }],
        ..enforcing()
    }
}

fn long(members: &[&str], excepted: &[&str]) -> Rules {
    let conduct = Conduct::Duration(Duration::from_secs(5));
    Rules {
        behaviours: vec![Behaviour {
            members: Members {
                users: names(members),
                ..Members::default()
            },
            except_users: names(excepted),
            ..behaviour("long", conduct)
        }],
        ..enforcing()
    }
}

/// What the defaults say, alice's own policy, and that of a group that names her.
fn limiting(default: Option<u64>, own: Option<u64>, of_group: Option<u64>) -> Rules {
    let limits = |gib: Option<u64>| gib.map_or_else(Limits::default, memory);
    Rules {
        defaults: limits(default),
        users: vec![UserPolicy {
            name: "alice".into(),
            limits: limits(own),
            ..UserPolicy::default()
        }],
        groups: vec![GroupPolicy {
            name: "ml".into(),
            members: Members {
                users: names(&["alice"]),
                ..Members::default()
            },
            limits: limits(of_group),
            ..GroupPolicy::default()
        }],
        ..enforcing()
    }
}

#[test]
fn a_label_keeps_a_container_from_much_and_allows_it_nothing() {
    let protecting = |rules: Rules| Rules {
        protect: Protect {
            users: names(&["alice"]),
            ..Protect::default()
        },
        ..rules
    };
    for (rules, broken) in [
        (of_gpu(&["alice"], &[]), &["gpu 0: user"][..]),
        (of_gpu(&[], &["alice"]), &["gpu 0: user"]),
        (of_gpu(&[], &["bob"]), &[]),
        (of_time(&["alice"], &[]), &["time day: hours"]),
        (of_time(&[], &["alice"]), &["time day: hours"]),
        (long(&[], &["alice"]), &["rule long: duration"]),
        (long(&["alice"], &[]), &["rule long: duration"]),
        (long(&["bob"], &[]), &[]),
        (
            protecting(limiting(Some(10), None, None)),
            &["default: memory"],
        ),
        // It holds 20. What is said of her holds besides, and replaces nothing.
        (limiting(Some(10), Some(40), Some(40)), &["default: memory"]),
        (limiting(Some(40), Some(10), None), &["user alice: memory"]),
        (limiting(Some(40), None, Some(10)), &["group ml: memory"]),
        (limiting(None, Some(10), Some(40)), &["user alice: memory"]),
        (limiting(None, Some(40), Some(10)), &["group ml: memory"]),
        (limiting(Some(40), Some(40), Some(40)), &[]),
    ] {
        let expected = (names(broken), Vec::new());
        assert_eq!(judged(&rules, "alice"), expected, "{rules:?}");
    }
    // Nor is a number more than its digits.
    let told = judged(&of_gpu(&["1000"], &[]), "1000");
    assert_eq!(told, (names(&["gpu 0: user"]), Vec::new()));
}

#[test]
fn what_a_label_makes_hold_is_told_besides() {
    let book = Rulebook::of(limiting(Some(10), Some(40), Some(30)));
    let told = |limits: Vec<Limit>| -> Vec<String> {
        let line = |it: Limit| format!("{} {:?}", it.rule, it.limit.map(|it| it / GIB));
        limits.into_iter().map(line).collect()
    };
    let (label, civil) = (labelled("alice"), Civil::default());
    assert_eq!(
        told(of(&book, &label, civil)),
        [
            "default: memory Some(10)",
            "user alice: memory Some(40)",
            "group ml: memory Some(30)"
        ]
    );
    assert_eq!(told(replaced(&book, &label, civil)), Vec::<String>::new());
    let alice = about("alice");
    assert_eq!(
        told(of(&book, &alice, civil)),
        ["user alice: memory Some(40)"]
    );
}

#[test]
fn an_idle_container_is_so_by_each_rule_with_its_own_memory() {
    let idle = |minutes, gib: u64| Limits {
        idle: Some(super::minutes(minutes)),
        idle_min_memory: Some(Bytes(gib * GIB)),
        ..Limits::default()
    };
    let mut rules = limiting(None, None, None);
    rules.mode = GuardMode::DryRun;
    rules.defaults = idle(4, 1);
    rules.users[0].limits = idle(2, 8);
    let watch = |gib, buckets| {
        let mut world = World::new(1);
        world.start(1, "bob").uses(0, gib, 0).about = labelled("alice");
        let mut guard = Guard::new(rules.clone());
        guard.watches(&mut world, buckets);
        let open = guard.memory.violations().into_iter();
        open.map(|it| it.rule.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(watch(9, 13), names(&["user alice: idle"]));
    assert_eq!(watch(2, 13), Vec::<String>::new());
    assert_eq!(watch(2, 25), names(&["default: idle"]));
    assert_eq!(watch(9, 25), names(&["default: idle", "user alice: idle"]));
}

#[test]
fn a_label_keeps_off_devices_and_makes_nobody_important() {
    let mut rules = limiting(None, None, None);
    rules.users[0].allowed_gpus = gpus("1");
    let kept_off = (names(&["user alice: gpu"]), Vec::new());
    assert_eq!(judged(&rules, "alice"), kept_off);
    let mut rules = limiting(None, None, None);
    rules.users[0].allowed_gpus = gpus("0");
    rules.groups[0].allowed_gpus = gpus("1");
    let kept_off = (names(&["group ml: gpu"]), Vec::new());
    assert_eq!(judged(&rules, "alice"), kept_off);

    let priority = |own: Option<u8>, of_group: Option<u8>| {
        let mut rules = limiting(Some(10), None, None);
        rules.users[0].priority = own;
        rules.groups[0].priority = of_group;
        let mut world = World::new(1);
        world.start(1, "bob").uses(0, 20, 90).about = labelled("alice");
        let records = Guard::new(rules).watches(&mut world, 2);
        let ended = records.iter().find_map(|it| {
            let victim = it.step.victim()?;
            Some(victim.priority)
        });
        ended.unwrap()
    };
    assert_eq!(priority(Some(9), Some(8)), 5);
    assert_eq!(priority(Some(2), Some(8)), 2);
    assert_eq!(priority(Some(9), Some(3)), 3);
}
