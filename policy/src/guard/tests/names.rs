//! Names of people: the name service may answer late, and a container may be renamed while
//! it runs.

use super::record_text::record_line;
use super::*;

/// alice holds 20 GiB.
fn world() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(1, "alice").uses(0, 20, 90).job("j");
    world
}

/// The name service does not answer, or answers that the uid has no name.
fn hide_name(process: &mut TestProcess, nameless: &[u32]) {
    let facts = &mut process.facts;
    if let Some(owner) = &mut facts.owner
        && let Some(uid) = owner.uid
    {
        owner.name = uid.to_string();
        facts.user = Some((None, uid));
    }
    facts.nameless_uids = nameless.to_vec();
}

fn show_name(process: &mut TestProcess, name: &str) {
    let of_name = process_facts(name);
    let facts = &mut process.facts;
    (facts.owner, facts.user, facts.nameless_uids) = (of_name.owner, of_name.user, Vec::new());
}

/// What is recorded and what is not evaluated in two samples of alice's job, while her name
/// is unknown or does not exist.
fn evaluate_unnamed(rules: &RuleSet, nameless: &[u32]) -> (Vec<String>, Vec<String>) {
    let mut world = world();
    hide_name(world.process(1), nameless);
    let mut guard = TestGuard::new(rules.clone());
    let first = guard.evaluate_next(&mut world);
    let second = guard.evaluate_next(&mut world);
    let actual = first.records.iter().chain(&second.records);
    let undetermined = second.undetermined.iter();
    (
        actual
            .map(|it| format!("{}: {}", it.rule, it.step.name()))
            .collect(),
        undetermined
            .map(|it| format!("{}: {}", it.rule, it.why))
            .collect(),
    )
}

fn rules_allowing(user: &str) -> RuleSet {
    RuleSet {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(&[user]),
            ..GpuPolicy::default()
        }],
        ..enforce_rules()
    }
}

fn rules_limiting(user: &str, gib: u64) -> RuleSet {
    RuleSet {
        defaults: memory_limit(10),
        users: vec![UserPolicy {
            name: user.into(),
            limits: memory_limit(gib),
            ..UserPolicy::default()
        }],
        ..enforce_rules()
    }
}

fn rules_protecting(user: &str) -> RuleSet {
    RuleSet {
        defaults: memory_limit(10),
        protect: ProtectRules {
            users: names(&[user]),
            ..ProtectRules::default()
        },
        ..enforce_rules()
    }
}

fn rules_excepting(user: &str) -> RuleSet {
    let behaviour = ForbiddenBehaviour::Duration(Duration::from_secs(5));
    RuleSet {
        behaviours: vec![BehaviourRule {
            except_users: names(&[user]),
            ..behaviour_rule("long", behaviour)
        }],
        ..enforce_rules()
    }
}

#[test]
fn number_and_name_of_a_user_are_one_person_in_a_replay() {
    let mut world = world();
    let rules = RuleSet {
        defaults: memory_limit(10),
        ..dry_run_rules()
    };
    let mut replay = crate::guard::replay::Replay::new(rules, world.now);
    hide_name(world.process(1), &[]);
    for _ in 0..3 {
        replay.add(&world.next_sample(SAMPLE_MS)).unwrap();
    }
    show_name(world.process(1), "alice");
    for _ in 0..3 {
        replay.add(&world.next_sample(SAMPLE_MS)).unwrap();
    }
    let result = replay.finish();
    assert_eq!(result.people, 1);
    let mut subjects = result.records.iter().map(|it| it.subject.to_string());
    assert_eq!(subjects.next().as_deref(), Some("alice"));
    assert!(subjects.all(|subject| subject == "alice"));
    let owners = result.records.iter().flat_map(|it| &it.evidence.runs);
    let mut owners = owners.filter_map(|it| it.owner.as_ref());
    assert!(owners.all(|owner| owner.name == "alice"));
}

#[test]
fn named_rules_need_known_names() {
    let unnamed = |rules: &[&str]| -> Vec<String> {
        let why = "the name of its owner is not known";
        rules.iter().map(|rule| format!("{rule}: {why}")).collect()
    };
    let ended = |rule: &str| names(&[&format!("{rule}: violated"), &format!("{rule}: ended")]);
    for (rules, not_evaluated, without_name) in [
        (
            rules_allowing("alice"),
            unnamed(&["gpu 0: user"]),
            ended("gpu 0: user"),
        ),
        (
            rules_limiting("alice", 40),
            unnamed(&["default: memory", "user alice: memory"]),
            ended("default: memory"),
        ),
        (
            rules_protecting("alice"),
            Vec::new(),
            ended("default: memory"),
        ),
        (
            rules_excepting("alice"),
            unnamed(&["rule long: duration"]),
            ended("rule long: duration"),
        ),
    ] {
        assert_eq!(
            evaluate_unnamed(&rules, &[]),
            (Vec::new(), not_evaluated),
            "{rules:?}"
        );
        // That a uid has no name is as certain as a name.
        assert_eq!(
            evaluate_unnamed(&rules, &[1000]),
            (without_name, Vec::new()),
            "{rules:?}"
        );
        assert_eq!(
            evaluate_unnamed(&rules, &[1]).0,
            Vec::<String>::new(),
            "{rules:?}"
        );
    }
    // A number needs no name.
    for (rules, reported) in [
        (rules_allowing("1000"), Vec::new()),
        (rules_allowing("1001"), ended("gpu 0: user")),
        (rules_limiting("1000", 40), Vec::new()),
        (rules_limiting("1001", 40), ended("default: memory")),
        (rules_limiting("1000", 15), ended("user 1000: memory")),
        (rules_protecting("1000"), Vec::new()),
        (rules_protecting("1001"), ended("default: memory")),
        (rules_excepting("1000"), Vec::new()),
        (rules_excepting("1001"), ended("rule long: duration")),
    ] {
        assert_eq!(
            evaluate_unnamed(&rules, &[]),
            (reported, Vec::new()),
            "{rules:?}"
        );
    }
}

#[test]
fn unknown_name_keeps_possible_rights() {
    // Devices: nobody is blocked from a device that alice may use.
    let mut rules = rules_limiting("alice", 40);
    rules.defaults = Limits::default();
    rules.users[0].limits = Limits::default();
    rules.users[0].allowed_gpus = gpus("1");
    let why = "user alice: gpu: the name of its owner is not known";
    assert_eq!(evaluate_unnamed(&rules, &[]), (Vec::new(), names(&[why])));
    // Idle limits: alice is idle only if she holds more.
    let mut rules = rules_limiting("alice", 40);
    rules.defaults = Limits {
        idle: Some(Duration::from_secs(5)),
        ..Limits::default()
    };
    rules.users[0].limits = Limits {
        idle_min_memory: gib(40),
        ..Limits::default()
    };
    let why = "default: idle: the name of its owner is not known";
    assert_eq!(evaluate_unnamed(&rules, &[]), (Vec::new(), names(&[why])));
}

#[test]
fn violation_survives_a_name_outage() {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        ..rules_limiting("bob", 40)
    };
    let mut guard = TestGuard::new(rules);
    let mut world = world();
    let mut actual = guard.evaluate_samples(&mut world, 3);
    // Longer than the time to settle, and longer than the grace period.
    hide_name(world.process(1), &[]);
    assert_eq!(guard.evaluate_samples(&mut world, 360), []);
    assert_eq!(guard.state.violations().len(), 1);
    show_name(world.process(1), "alice");
    actual.extend(guard.evaluate_samples(&mut world, 2));
    let actual: Vec<String> = actual.iter().map(record_line).collect();
    assert_eq!(
        actual,
        [
            "00:00:20 alice: default: memory: violated, 20.0 GiB of 10.0 GiB since 00:00:00 [soft]",
            "00:00:20 alice: default: memory: warned, ends 00:05:20 [soft]",
            "01:00:50 alice: default: memory: ends j of alice (priority 5, 1 on GPUs, which \
            works) [soft]",
        ]
    );
}

#[test]
fn renamed_user_is_the_same_person() {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        defaults: Limits {
            idle: Some(minutes(30)),
            ..memory_limit(10)
        },
        ..dry_run_rules()
    };
    let watch = |name: Option<&str>| {
        let mut guard = TestGuard::new(rules.clone());
        let mut world = world();
        world.process(1).uses(0, 20, 0);
        let mut actual = guard.evaluate_samples(&mut world, 20);
        // The name does not matter for these rules.
        match name {
            Some(name) => world.process(1).facts.owner.as_mut().unwrap().name = name.into(),
            None => hide_name(world.process(1), &[]),
        }
        actual.extend(guard.evaluate_samples(&mut world, 5));
        show_name(world.process(1), "alice");
        actual.extend(guard.evaluate_samples(&mut world, 180));
        actual.iter().map(record_line).collect::<Vec<_>>()
    };
    let expected = watch(Some("alice"));
    assert_eq!(expected.len(), 10, "{expected:?}");
    assert_eq!(watch(Some("alicia")), expected);
    assert_eq!(watch(None), expected);
}

#[test]
fn renamed_container_stays_idle() {
    let rules = RuleSet {
        defaults: Limits {
            idle: Some(minutes(30)),
            ..Limits::default()
        },
        ..enforce_rules()
    };
    let mut world = TestHost::new(1);
    world
        .start(100, "container a")
        .uses(0, 21, 0)
        .job("docker 123");
    let mut guard = TestGuard::new(rules);
    let mut actual = Vec::new();
    for (name, samples) in [("container b", 6 * 25), ("container c", 6 * 5)] {
        actual.extend(guard.evaluate_samples(&mut world, samples));
        world.process(100).facts.owner = Some(person(name));
    }
    let actual: Vec<String> = actual.iter().map(record_line).collect();
    assert_eq!(
        actual,
        [
            "00:30:00 container b (docker 123): default: idle: violated, 30:00 min of 30:00 min \
            since 00:00:00 [enforce]",
            "00:30:00 container b (docker 123): default: idle: nobody is ended: no warning is \
            possible: its owner is not a person of this host [enforce]",
        ]
    );
}
