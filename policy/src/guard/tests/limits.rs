//! The limits that apply to a person.

use super::super::limits::{EffectiveLimit, effective_limits};
use super::super::schedule::{Hours, LocalTime, Weekday};
use super::*;

/// The limits of a person at noon on a Monday, one a line.
fn applicable_limits(
    rules: &RuleSet,
    change: impl FnOnce(&mut super::super::sample::ProcessFacts),
) -> Vec<String> {
    let mut facts = process_facts("bob");
    change(&mut facts);
    let civil = LocalTime {
        day: Weekday::Monday,
        minute: 12 * 60,
    };
    let limits = effective_limits(&CompiledRules::new(rules.clone()), &facts, civil);
    let line = |EffectiveLimit { rule, limit }: EffectiveLimit| match limit {
        Some(limit) => format!("{rule} {limit}"),
        None => format!("{rule} ?"),
    };
    limits.into_iter().map(line).collect()
}

fn memory_limit(gib: u64) -> Limits {
    Limits {
        memory: Some(Bytes(gib)),
        ..Limits::default()
    }
}

fn group(name: &str, gib: u64) -> GroupPolicy {
    GroupPolicy {
        name: name.into(),
        members: Members {
            unix_groups: names(&[name]),
            ..Members::default()
        },
        limits: memory_limit(gib),
        ..GroupPolicy::default()
    }
}

fn hours(from: u16, to: u16) -> Hours {
    Hours {
        from: from * 60,
        to: to * 60,
        days: Vec::new(),
    }
}

#[test]
fn user_replaces_group_replaces_default() {
    let mut rules = RuleSet {
        defaults: Limits {
            processes: Some(9),
            ..memory_limit(1)
        },
        ..dry_run_rules()
    };
    let in_groups = |it: &mut super::super::sample::ProcessFacts| {
        it.groups = Some(names(&["staff", "students"]));
    };
    let processes = "default: processes 9";
    assert_eq!(
        applicable_limits(&rules, in_groups),
        ["default: memory 1", processes]
    );
    rules.groups = vec![group("students", 7), group("staff", 5), group("guests", 3)];
    assert_eq!(
        applicable_limits(&rules, in_groups),
        ["group staff: memory 5", processes]
    );
    assert_eq!(
        applicable_limits(&rules, |_| ()),
        ["default: memory 1", processes]
    );
    // It is not known whether the limit of the group applies.
    assert_eq!(
        applicable_limits(&rules, |it| it.groups = None),
        ["group students: memory ?", processes]
    );
    rules.users = vec![UserPolicy {
        name: "1001".into(),
        limits: memory_limit(20),
        ..UserPolicy::default()
    }];
    assert_eq!(
        applicable_limits(&rules, in_groups),
        ["user 1001: memory 20", processes]
    );
    assert_eq!(
        applicable_limits(&rules, |it| it.groups = None),
        ["user 1001: memory 20", processes]
    );
    let over = |from, to, gib| TimeOverride {
        hours: hours(from, to),
        limits: memory_limit(gib),
    };
    rules.users[0].overrides = vec![over(0, 9, 1), over(9, 17, 50), over(11, 13, 40)];
    assert_eq!(
        applicable_limits(&rules, in_groups),
        ["user 1001: memory 40", processes]
    );
}

#[test]
fn totals_and_times_apply_in_addition() {
    let mut rules = RuleSet {
        defaults: memory_limit(1),
        groups: vec![GroupPolicy {
            total_memory: Some(Bytes(70)),
            total_processes: Some(8),
            total_utilization: Some(Percent(90)),
            limits: Limits::default(),
            ..group("staff", 0)
        }],
        times: vec![
            TimePolicy {
                name: "day".into(),
                hours: hours(9, 17),
                limits: Limits {
                    idle: Some(minutes(1)),
                    ..memory_limit(2)
                },
                ..TimePolicy::default()
            },
            TimePolicy {
                name: "night".into(),
                hours: hours(22, 6),
                limits: memory_limit(3),
                ..TimePolicy::default()
            },
        ],
        ..dry_run_rules()
    };
    rules.groups[0].limits = Limits::default();
    assert_eq!(
        applicable_limits(&rules, |it| it.groups = Some(names(&["staff"]))),
        [
            "default: memory 1",
            "group staff: total memory 70",
            "group staff: total utilization 90",
            "group staff: total processes 8",
            "time day: memory 2",
            "time day: idle 60000",
        ]
    );
}

#[test]
fn label_is_a_name_not_a_uid() {
    let rules = RuleSet {
        users: vec![
            UserPolicy {
                name: "1001".into(),
                limits: memory_limit(1),
                ..UserPolicy::default()
            },
            UserPolicy {
                name: "bob".into(),
                limits: memory_limit(2),
                ..UserPolicy::default()
            },
        ],
        ..dry_run_rules()
    };
    assert_eq!(applicable_limits(&rules, |_| ()), ["user 1001: memory 1"]);
    let labelled = |it: &mut super::super::sample::ProcessFacts| {
        it.owner = Some(gpukill_proto::guard::Person {
            name: "bob".into(),
            uid: None,
        });
    };
    assert_eq!(applicable_limits(&rules, labelled), ["user bob: memory 2"]);
}

#[test]
fn behaviour_rules_apply_in_addition() {
    let idle = ForbiddenBehaviour::Idle(IdleParams {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    });
    let notebooks = BehaviourRule {
        processes: globs(&["jupyter*"]),
        ..behaviour_rule("notebooks", idle)
    };
    let waste = ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(7),
        min_memory: Bytes(0),
        hours: minutes(60),
    });
    let growth = ForbiddenBehaviour::Growth(GrowthParams {
        by: Bytes(9),
        within: minutes(60),
    });
    let rules = RuleSet {
        defaults: memory_limit(1),
        behaviours: vec![
            notebooks,
            behaviour_rule("waste", waste),
            behaviour_rule("growth", growth),
        ],
        ..dry_run_rules()
    };
    let others = ["rule waste: waste 7", "rule growth: growth 9"];
    let expected = |notebooks: &[&'static str]| {
        let all = [&["default: memory 1"], notebooks, &others].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(applicable_limits(&rules, |_| ()), expected(&[]));
    let jupyter = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        applicable_limits(&rules, |it| it.name = name)
    };
    assert_eq!(
        jupyter(Some("jupyter-lab")),
        expected(&["rule notebooks: idle 60000"])
    );
    // A rule that may apply comes after those that certainly do.
    let mut unknown = expected(&[]);
    unknown.push("rule notebooks: idle ?".into());
    assert_eq!(jupyter(None), unknown);
}

#[test]
fn protected_process_has_no_limits() {
    let mut rules = dry_run_rules();
    rules.protect.users = names(&["bob"]);
    rules.protect.units = globs(&["ollama.service"]);
    let compiled_rules = CompiledRules::new(rules);
    let why = |facts: &super::super::sample::ProcessFacts| {
        crate::guard::limits::protection_reason(&compiled_rules, facts)
    };
    let mut alice = process_facts("alice");
    assert_eq!(why(&alice), None);
    assert_eq!(
        why(&process_facts("bob")),
        Some("protect.users names its owner".into())
    );
    alice.unit = Some(Some("ollama.service".into()));
    assert_eq!(why(&alice), Some("protect.units names its unit".into()));
    alice.unit = None;
    let unknown = "whether protect.units names its unit is not known";
    assert_eq!(why(&alice), Some(unknown.into()));
}
