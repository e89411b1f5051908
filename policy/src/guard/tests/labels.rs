//! Container labels that name an owner. The person who starts a container writes its label,
//! so a label may make rules stricter but never looser.

use super::super::limits::{EffectiveLimit, effective_limits, replaced_limits};
use super::super::schedule::LocalTime;
use super::*;
use gpukill_proto::guard::{GuardStep, Person};

/// A container that belongs to this name by its label. The name is no user of the host.
fn labelled_container(name: &str) -> super::super::sample::ProcessFacts {
    let mut facts = process_facts("bob");
    facts.owner = Some(Person {
        name: name.into(),
        uid: None,
    });
    facts.user = Some((Some("root".into()), 0));
    facts
}

/// The rules that end a container with this label, which holds 20 GiB and works, and the
/// rules that are not evaluated.
fn evaluate_labelled(rules: &RuleSet, label: &str) -> (Vec<String>, Vec<String>) {
    let mut world = TestHost::new(1);
    let process = world.start(1, "bob").uses(0, 20, 90);
    process.facts = labelled_container(label);
    process.job("docker 1");
    let mut guard = TestGuard::new(rules.clone());
    let first = guard.evaluate_next(&mut world);
    let second = guard.evaluate_next(&mut world);
    let broken = first.records.iter().chain(&second.records);
    let broken = broken.filter(|it| it.step == GuardStep::Violated);
    let undetermined = second.undetermined.iter();
    (
        broken.map(|it| it.rule.to_string()).collect(),
        undetermined.map(|it| it.rule.to_string()).collect(),
    )
}

fn gpu_rules(allowed: &[&str], blocked: &[&str]) -> RuleSet {
    RuleSet {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(allowed),
            blocked_users: names(blocked),
            ..GpuPolicy::default()
        }],
        ..enforce_rules()
    }
}

fn time_rules(allowed: &[&str], blocked: &[&str]) -> RuleSet {
    RuleSet {
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
        ..enforce_rules()
    }
}

fn duration_rules(members: &[&str], excepted: &[&str]) -> RuleSet {
    let behaviour = ForbiddenBehaviour::Duration(Duration::from_secs(5));
    RuleSet {
        behaviours: vec![BehaviourRule {
            members: Members {
                users: names(members),
                ..Members::default()
            },
            except_users: names(excepted),
            ..behaviour_rule("long", behaviour)
        }],
        ..enforce_rules()
    }
}

/// The defaults, alice's own policy, and that of a group that names her.
fn memory_rules(default: Option<u64>, own: Option<u64>, of_group: Option<u64>) -> RuleSet {
    let limits = |gib: Option<u64>| gib.map_or_else(Limits::default, memory_limit);
    RuleSet {
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
        ..enforce_rules()
    }
}

#[test]
fn label_restricts_and_allows_nothing() {
    let protecting = |rules: RuleSet| RuleSet {
        protect: ProtectRules {
            users: names(&["alice"]),
            ..ProtectRules::default()
        },
        ..rules
    };
    for (rules, broken) in [
        (gpu_rules(&["alice"], &[]), &["gpu 0: user"][..]),
        (gpu_rules(&[], &["alice"]), &["gpu 0: user"]),
        (gpu_rules(&[], &["bob"]), &[]),
        (time_rules(&["alice"], &[]), &["time day: hours"]),
        (time_rules(&[], &["alice"]), &["time day: hours"]),
        (duration_rules(&[], &["alice"]), &["rule long: duration"]),
        (duration_rules(&["alice"], &[]), &["rule long: duration"]),
        (duration_rules(&["bob"], &[]), &[]),
        (
            protecting(memory_rules(Some(10), None, None)),
            &["default: memory"],
        ),
        // The container holds 20 GiB. The policies of alice apply in addition and replace
        // nothing.
        (
            memory_rules(Some(10), Some(40), Some(40)),
            &["default: memory"],
        ),
        (
            memory_rules(Some(40), Some(10), None),
            &["user alice: memory"],
        ),
        (
            memory_rules(Some(40), None, Some(10)),
            &["group ml: memory"],
        ),
        (
            memory_rules(None, Some(10), Some(40)),
            &["user alice: memory"],
        ),
        (
            memory_rules(None, Some(40), Some(10)),
            &["group ml: memory"],
        ),
        (memory_rules(Some(40), Some(40), Some(40)), &[]),
    ] {
        let expected = (names(broken), Vec::new());
        assert_eq!(evaluate_labelled(&rules, "alice"), expected, "{rules:?}");
    }
    // A number in a label is not a uid.
    let actual = evaluate_labelled(&gpu_rules(&["1000"], &[]), "1000");
    assert_eq!(actual, (names(&["gpu 0: user"]), Vec::new()));
}

#[test]
fn reports_limits_from_a_label() {
    let compiled_rules = CompiledRules::new(memory_rules(Some(10), Some(40), Some(30)));
    let limit_texts = |limits: Vec<EffectiveLimit>| -> Vec<String> {
        let line = |it: EffectiveLimit| format!("{} {:?}", it.rule, it.limit.map(|it| it / GIB));
        limits.into_iter().map(line).collect()
    };
    let (label, civil) = (labelled_container("alice"), LocalTime::default());
    assert_eq!(
        limit_texts(effective_limits(&compiled_rules, &label, civil)),
        [
            "default: memory Some(10)",
            "user alice: memory Some(40)",
            "group ml: memory Some(30)"
        ]
    );
    assert_eq!(
        limit_texts(replaced_limits(&compiled_rules, &label, civil)),
        Vec::<String>::new()
    );
    let alice = process_facts("alice");
    assert_eq!(
        limit_texts(effective_limits(&compiled_rules, &alice, civil)),
        ["user alice: memory Some(40)"]
    );
}

#[test]
fn each_idle_rule_has_its_own_memory() {
    let idle = |minutes, gib: u64| Limits {
        idle: Some(super::minutes(minutes)),
        idle_min_memory: Some(Bytes(gib * GIB)),
        ..Limits::default()
    };
    let mut rules = memory_rules(None, None, None);
    rules.mode = GuardMode::DryRun;
    rules.defaults = idle(4, 1);
    rules.users[0].limits = idle(2, 8);
    let watch = |gib, samples| {
        let mut world = TestHost::new(1);
        world.start(1, "bob").uses(0, gib, 0).facts = labelled_container("alice");
        let mut guard = TestGuard::new(rules.clone());
        guard.evaluate_samples(&mut world, samples);
        let open = guard.state.violations().into_iter();
        open.map(|it| it.rule.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(watch(9, 13), names(&["user alice: idle"]));
    assert_eq!(watch(2, 13), Vec::<String>::new());
    assert_eq!(watch(2, 25), names(&["default: idle"]));
    assert_eq!(watch(9, 25), names(&["default: idle", "user alice: idle"]));
}

#[test]
fn label_blocks_devices_and_sets_no_priority() {
    let mut rules = memory_rules(None, None, None);
    rules.users[0].allowed_gpus = gpus("1");
    let kept_off = (names(&["user alice: gpu"]), Vec::new());
    assert_eq!(evaluate_labelled(&rules, "alice"), kept_off);
    let mut rules = memory_rules(None, None, None);
    rules.users[0].allowed_gpus = gpus("0");
    rules.groups[0].allowed_gpus = gpus("1");
    let kept_off = (names(&["group ml: gpu"]), Vec::new());
    assert_eq!(evaluate_labelled(&rules, "alice"), kept_off);

    let priority = |own: Option<u8>, of_group: Option<u8>| {
        let mut rules = memory_rules(Some(10), None, None);
        rules.users[0].priority = own;
        rules.groups[0].priority = of_group;
        let mut world = TestHost::new(1);
        world.start(1, "bob").uses(0, 20, 90).facts = labelled_container("alice");
        let records = TestGuard::new(rules).evaluate_samples(&mut world, 2);
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
