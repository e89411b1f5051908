//! What a person is called: the name service may be slow to tell, and a container may
//! be called anew while it runs.

use super::words::line;
use super::*;

/// alice holds 20 GiB.
fn world() -> World {
    let mut world = World::new(1);
    world.start(1, "alice").uses(0, 20, 90).job("j");
    world
}

/// The name service is away, or tells that nobody is called so.
fn numbered(process: &mut Process, nameless: &[u32]) {
    let about = &mut process.about;
    if let Some(owner) = &mut about.owner
        && let Some(uid) = owner.uid
    {
        owner.name = uid.to_string();
        about.user = Some((None, uid));
    }
    about.nameless = nameless.to_vec();
}

fn named(process: &mut Process, name: &str) {
    let of_name = about(name);
    let about = &mut process.about;
    (about.owner, about.user, about.nameless) = (of_name.owner, of_name.user, Vec::new());
}

/// What is told and what is not judged in two looks at alice, of whose name nothing is
/// known, or that there is none.
fn judged(rules: &Rules, nameless: &[u32]) -> (Vec<String>, Vec<String>) {
    let mut world = world();
    numbered(world.process(1), nameless);
    let mut guard = Guard::new(rules.clone());
    let first = guard.looks(&mut world);
    let second = guard.looks(&mut world);
    let told = first.records.iter().chain(&second.records);
    let unjudged = second.unjudged.iter();
    (
        told.map(|it| format!("{}: {}", it.rule, it.step.name()))
            .collect(),
        unjudged
            .map(|it| format!("{}: {}", it.rule, it.why))
            .collect(),
    )
}

fn allowing(who: &str) -> Rules {
    Rules {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(&[who]),
            ..GpuPolicy::default()
        }],
        ..enforcing()
    }
}

fn limiting(who: &str, gib: u64) -> Rules {
    Rules {
        defaults: memory(10),
        users: vec![UserPolicy {
            name: who.into(),
            limits: memory(gib),
            ..UserPolicy::default()
        }],
        ..enforcing()
    }
}

fn protecting(who: &str) -> Rules {
    Rules {
        defaults: memory(10),
        protect: Protect {
            users: names(&[who]),
            ..Protect::default()
        },
        ..enforcing()
    }
}

fn excepting(who: &str) -> Rules {
    let conduct = Conduct::Duration(Duration::from_secs(5));
    Rules {
        behaviours: vec![Behaviour {
            except_users: names(&[who]),
            ..behaviour("long", conduct)
        }],
        ..enforcing()
    }
}

#[test]
fn a_rule_that_names_somebody_is_judged_only_where_names_are_known() {
    let unnamed = |rules: &[&str]| -> Vec<String> {
        let why = "what its owner is called is not known";
        rules.iter().map(|rule| format!("{rule}: {why}")).collect()
    };
    let ended = |rule: &str| names(&[&format!("{rule}: violated"), &format!("{rule}: ended")]);
    for (rules, not_judged, without_name) in [
        (
            allowing("alice"),
            unnamed(&["gpu 0: user"]),
            ended("gpu 0: user"),
        ),
        (
            limiting("alice", 40),
            unnamed(&["default: memory", "user alice: memory"]),
            ended("default: memory"),
        ),
        (protecting("alice"), Vec::new(), ended("default: memory")),
        (
            excepting("alice"),
            unnamed(&["rule long: duration"]),
            ended("rule long: duration"),
        ),
    ] {
        assert_eq!(judged(&rules, &[]), (Vec::new(), not_judged), "{rules:?}");
        // That nobody is called so is known as well as a name.
        assert_eq!(
            judged(&rules, &[1000]),
            (without_name, Vec::new()),
            "{rules:?}"
        );
        assert_eq!(judged(&rules, &[1]).0, Vec::<String>::new(), "{rules:?}");
    }
    // A number needs no name.
    for (rules, told) in [
        (allowing("1000"), Vec::new()),
        (allowing("1001"), ended("gpu 0: user")),
        (limiting("1000", 40), Vec::new()),
        (limiting("1001", 40), ended("default: memory")),
        (limiting("1000", 15), ended("user 1000: memory")),
        (protecting("1000"), Vec::new()),
        (protecting("1001"), ended("default: memory")),
        (excepting("1000"), Vec::new()),
        (excepting("1001"), ended("rule long: duration")),
    ] {
        assert_eq!(judged(&rules, &[]), (told, Vec::new()), "{rules:?}");
    }
}

#[test]
fn whose_name_is_not_known_keeps_what_may_be_theirs() {
    // Devices: nobody is kept off one that alice may use.
    let mut rules = limiting("alice", 40);
    rules.defaults = Limits::default();
    rules.users[0].limits = Limits::default();
    rules.users[0].allowed_gpus = gpus("1");
    let why = "user alice: gpu: what its owner is called is not known";
    assert_eq!(judged(&rules, &[]), (Vec::new(), names(&[why])));
    // What idle means: alice is only where she holds more.
    let mut rules = limiting("alice", 40);
    rules.defaults = Limits {
        idle: Some(Duration::from_secs(5)),
        ..Limits::default()
    };
    rules.users[0].limits = Limits {
        idle_min_memory: gib(40),
        ..Limits::default()
    };
    let why = "default: idle: what its owner is called is not known";
    assert_eq!(judged(&rules, &[]), (Vec::new(), names(&[why])));
}

#[test]
fn a_violation_goes_on_while_the_name_service_is_away() {
    let rules = Rules {
        mode: GuardMode::Soft,
        ..limiting("bob", 40)
    };
    let mut guard = Guard::new(rules);
    let mut world = world();
    let mut told = guard.watches(&mut world, 3);
    // Longer than what is known not to hold takes to be over, and than the grace.
    numbered(world.process(1), &[]);
    assert_eq!(guard.watches(&mut world, 360), []);
    assert_eq!(guard.memory.violations().len(), 1);
    named(world.process(1), "alice");
    told.extend(guard.watches(&mut world, 2));
    let told: Vec<String> = told.iter().map(line).collect();
    assert_eq!(
        told,
        [
            "00:00:20 alice: default: memory: violated, 20.0 GiB of 10.0 GiB since 00:00:00 [soft]",
            "00:00:20 alice: default: memory: warned, ends 00:05:20 [soft]",
            "01:00:50 alice: default: memory: ends j of alice (priority 5, 1 on GPUs, which works) [soft]",
        ]
    );
}

#[test]
fn a_user_is_the_same_person_by_whatever_name() {
    let rules = Rules {
        mode: GuardMode::Soft,
        defaults: Limits {
            idle: Some(minutes(30)),
            ..memory(10)
        },
        ..rules()
    };
    let watch = |name: Option<&str>| {
        let mut guard = Guard::new(rules.clone());
        let mut world = world();
        world.process(1).uses(0, 20, 0);
        let mut told = guard.watches(&mut world, 20);
        // What they are called comes to nothing for these rules.
        match name {
            Some(name) => world.process(1).about.owner.as_mut().unwrap().name = name.into(),
            None => numbered(world.process(1), &[]),
        }
        told.extend(guard.watches(&mut world, 5));
        named(world.process(1), "alice");
        told.extend(guard.watches(&mut world, 180));
        told.iter().map(line).collect::<Vec<_>>()
    };
    let expected = watch(Some("alice"));
    assert_eq!(expected.len(), 10, "{expected:?}");
    assert_eq!(watch(Some("alicia")), expected);
    assert_eq!(watch(None), expected);
}

#[test]
fn an_idle_container_is_idle_by_whatever_name() {
    let rules = Rules {
        defaults: Limits {
            idle: Some(minutes(30)),
            ..Limits::default()
        },
        ..enforcing()
    };
    let mut world = World::new(1);
    world
        .start(100, "container a")
        .uses(0, 21, 0)
        .job("docker 123");
    let mut guard = Guard::new(rules);
    let mut told = Vec::new();
    for (name, buckets) in [("container b", 6 * 25), ("container c", 6 * 5)] {
        told.extend(guard.watches(&mut world, buckets));
        world.process(100).about.owner = Some(person(name));
    }
    let told: Vec<String> = told.iter().map(line).collect();
    assert_eq!(
        told,
        [
            "00:30:00 container b (docker 123): default: idle: violated, 30:00 min of 30:00 min since 00:00:00 [enforce]",
            "00:30:00 container b (docker 123): default: idle: nobody is ended: nobody can be warned: whose it is, is no person of this box [enforce]",
        ]
    );
}
