//! Which limit holds for whom.

use super::super::limits::{Limit, of};
use super::super::schedule::{Civil, Day, Hours};
use super::*;

/// Says of a person at an hour of a Monday what holds, one limit a line.
fn said(rules: &Rules, change: impl FnOnce(&mut super::super::bucket::About)) -> Vec<String> {
    let mut about = about("bob");
    change(&mut about);
    let civil = Civil {
        day: Day::Monday,
        minute: 12 * 60,
    };
    let limits = of(&Rulebook::of(rules.clone()), &about, civil);
    let line = |Limit { rule, limit }: Limit| match limit {
        Some(limit) => format!("{rule} {limit}"),
        None => format!("{rule} ?"),
    };
    limits.into_iter().map(line).collect()
}

fn memory(gib: u64) -> Limits {
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
        limits: memory(gib),
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
fn the_first_that_says_anything_replaces_the_others() {
    let mut rules = Rules {
        defaults: Limits {
            processes: Some(9),
            ..memory(1)
        },
        ..rules()
    };
    let in_groups = |it: &mut super::super::bucket::About| {
        it.groups = Some(names(&["staff", "students"]));
    };
    let processes = "default: processes 9";
    assert_eq!(said(&rules, in_groups), ["default: memory 1", processes]);
    rules.groups = vec![group("students", 7), group("staff", 5), group("guests", 3)];
    assert_eq!(
        said(&rules, in_groups),
        ["group staff: memory 5", processes]
    );
    assert_eq!(said(&rules, |_| ()), ["default: memory 1", processes]);
    // Whether a group's limit is theirs is not known.
    assert_eq!(
        said(&rules, |it| it.groups = None),
        ["group students: memory ?", processes]
    );
    rules.users = vec![UserPolicy {
        name: "1001".into(),
        limits: memory(20),
        ..UserPolicy::default()
    }];
    assert_eq!(said(&rules, in_groups), ["user 1001: memory 20", processes]);
    assert_eq!(
        said(&rules, |it| it.groups = None),
        ["user 1001: memory 20", processes]
    );
    let over = |from, to, gib| Override {
        hours: hours(from, to),
        limits: memory(gib),
    };
    rules.users[0].overrides = vec![over(0, 9, 1), over(9, 17, 50), over(11, 13, 40)];
    assert_eq!(said(&rules, in_groups), ["user 1001: memory 40", processes]);
}

#[test]
fn totals_and_times_hold_besides() {
    let mut rules = Rules {
        defaults: memory(1),
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
                    ..memory(2)
                },
                ..TimePolicy::default()
            },
            TimePolicy {
                name: "night".into(),
                hours: hours(22, 6),
                limits: memory(3),
                ..TimePolicy::default()
            },
        ],
        ..rules()
    };
    rules.groups[0].limits = Limits::default();
    assert_eq!(
        said(&rules, |it| it.groups = Some(names(&["staff"]))),
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
fn a_label_is_a_name_and_no_number() {
    let rules = Rules {
        users: vec![
            UserPolicy {
                name: "1001".into(),
                limits: memory(1),
                ..UserPolicy::default()
            },
            UserPolicy {
                name: "bob".into(),
                limits: memory(2),
                ..UserPolicy::default()
            },
        ],
        ..rules()
    };
    assert_eq!(said(&rules, |_| ()), ["user 1001: memory 1"]);
    let labelled = |it: &mut super::super::bucket::About| {
        it.owner = Some(gpukill_proto::guard::Person {
            name: "bob".into(),
            uid: None,
        });
    };
    assert_eq!(said(&rules, labelled), ["user bob: memory 2"]);
}

#[test]
fn what_a_process_must_not_do_holds_besides() {
    let idle = Conduct::Idle {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    };
    let notebooks = Behaviour {
        processes: globs(&["jupyter*"]),
        ..behaviour("notebooks", idle)
    };
    let waste = Conduct::Waste {
        below: Percent(7),
        min_memory: Bytes(0),
        hours: minutes(60),
    };
    let growth = Conduct::Growth {
        by: Bytes(9),
        within: minutes(60),
    };
    let rules = Rules {
        defaults: memory(1),
        behaviours: vec![
            notebooks,
            behaviour("waste", waste),
            behaviour("growth", growth),
        ],
        ..rules()
    };
    let others = ["rule waste: waste 7", "rule growth: growth 9"];
    let expected = |notebooks: &[&'static str]| {
        let all = [&["default: memory 1"], notebooks, &others].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(said(&rules, |_| ()), expected(&[]));
    let jupyter = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        said(&rules, |it| it.name = name)
    };
    assert_eq!(
        jupyter(Some("jupyter-lab")),
        expected(&["rule notebooks: idle 60000"])
    );
    // Not known, it comes after those that are.
    let mut unknown = expected(&[]);
    unknown.push("rule notebooks: idle ?".into());
    assert_eq!(jupyter(None), unknown);
}

#[test]
fn no_rule_is_about_what_is_protected_and_it_is_said_why() {
    let mut rules = rules();
    rules.protect.users = names(&["bob"]);
    rules.protect.units = globs(&["ollama.service"]);
    let book = Rulebook::of(rules);
    let why = |about: &super::super::bucket::About| crate::guard::limits::protected(&book, about);
    let mut alice = about("alice");
    assert_eq!(why(&alice), None);
    assert_eq!(
        why(&about("bob")),
        Some("protect.users names its owner".into())
    );
    alice.unit = Some(Some("ollama.service".into()));
    assert_eq!(why(&alice), Some("protect.units names its unit".into()));
    alice.unit = None;
    let unknown = "whether protect.units names its unit is not known";
    assert_eq!(why(&alice), Some(unknown.into()));
}
