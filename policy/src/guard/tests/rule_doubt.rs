//! Rules on behaviour that concern many people may not fit the host. A rule that only
//! guesses warns first in every mode.

use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep, Person};

/// A job that is idle for ten minutes is ended after a grace period of five minutes.
fn idle_rules(mode: GuardMode) -> RuleSet {
    RuleSet {
        mode,
        armed_mode: match mode {
            GuardMode::Enforce => EnforcementMode::Enforce,
            GuardMode::Disabled | GuardMode::DryRun | GuardMode::Soft => EnforcementMode::Soft,
        },
        defaults: Limits {
            idle: Some(minutes(10)),
            ..Limits::default()
        },
        ..dry_run_rules()
    }
}

/// `all` people with a busy job each. The first `idle` of them have idle jobs as well.
fn host_with_people(all: u32, idle: u32, jobs_each: u32) -> TestHost {
    let mut world = TestHost::new(1);
    for nth in 0..all {
        let mut start = |pid: u32, percent| {
            let process = world.start(pid, "somebody").uses(0, 1, percent);
            process.job(&format!("tree {pid}"));
            process.facts.owner = Some(Person {
                name: format!("user {nth}"),
                uid: Some(2_000 + nth),
            });
        };
        start(1_000 + nth, 80);
        if nth < idle {
            (0..jobs_each).for_each(|job| start(2_000 + 10 * nth + job, 0));
        }
    }
    world
}

fn count_ends(records: &[GuardRecord]) -> usize {
    records
        .iter()
        .filter(|it| it.step.victim().is_some())
        .count()
}

fn doubts(records: &[GuardRecord]) -> Vec<(u32, u32)> {
    let doubts = records.iter().filter_map(|it| match it.step {
        GuardStep::Doubted(it) => Some((it.people, it.of)),
        _ => None,
    });
    doubts.collect()
}

#[test]
fn containers_raise_no_doubt_about_jobs_of_users() {
    let mut rules = idle_rules(GuardMode::Enforce);
    rules.defaults.idle = None;
    rules.enforcement.max_ended = 100;
    rules.behaviours = vec![behaviour_rule(
        "runaway",
        ForbiddenBehaviour::Runaway(RunawayParams {
            above: Percent(70),
            limit: minutes(10),
            orphaned: false,
        }),
    )];
    let (mut guard, mut world) = (TestGuard::new(rules), host_with_people(20, 0, 0));
    for process in world.processes.values_mut() {
        process.uses(0, 1, 20);
    }
    // All of ten containers, and one of twenty users.
    for pid in 1..=10 {
        let process = world.start(pid, &format!("container {pid}")).uses(0, 1, 80);
        process.job(&format!("tree {pid}"));
    }
    world.process(1_000).uses(0, 1, 80);
    guard.evaluate_samples(&mut world, 70);
    let doubt = guard.state.doubt();
    assert_eq!(
        doubt.map(|it| (it.people, it.of, it.only_warn)),
        Some((11, 30, false))
    );
    world.processes.retain(|pid, _| *pid > 10);
    world.process(1_000).uses(0, 1, 20);
    for pid in 11..=20 {
        let process = world.start(pid, &format!("container {pid}")).uses(0, 1, 80);
        process.job(&format!("tree {pid}"));
    }
    guard.evaluate_samples(&mut world, 70);
    let doubt = guard.state.doubt();
    assert_eq!(
        doubt.map(|it| (it.people, it.of, it.only_warn)),
        Some((21, 40, true))
    );
    // Jobs of containers are only warned about, those of users are still ended.
    world.processes.retain(|pid, _| *pid > 20);
    for (pid, owner) in [(21, "container 21"), (22, "alice")] {
        let process = world.start(pid, owner).uses(0, 1, 80);
        process.job(&format!("tree {pid}"));
    }
    let records = guard.evaluate_samples(&mut world, 62);
    let victims = records.iter().filter_map(|record| record.step.victim());
    let pids: Vec<u32> = victims.map(|victim| victim.runs[0].run.pid).collect();
    assert_eq!(pids, [22]);
}

#[test]
fn idleness_and_waste_always_warn_first() {
    let mut wasteful = idle_rules(GuardMode::Enforce);
    wasteful.defaults.idle = None;
    wasteful.behaviours = vec![behaviour_rule(
        "waste",
        ForbiddenBehaviour::Waste(WasteParams {
            below: Percent(10),
            min_memory: Bytes(0),
            hours: minutes(10),
        }),
    )];
    for mut rules in [
        idle_rules(GuardMode::Enforce),
        idle_rules(GuardMode::Soft),
        wasteful,
    ] {
        for (grace, expected) in [(minutes(2), 120), (Duration::ZERO, 300)] {
            rules.enforcement.grace = grace;
            let mut world = host_with_people(4, 1, 1);
            let records = TestGuard::new(rules.clone()).evaluate_samples(&mut world, 120);
            let at = |name: &str| {
                let mut of = records.iter().filter(|it| it.step.name() == name);
                of.next().map(|it| it.at.0 / 1_000)
            };
            let (warned, ended) = (at("warned"), at("ended"));
            let waited = warned.zip(ended).map(|(warned, ended)| ended - warned);
            assert_eq!(waited, Some(expected), "{:?} {grace:?}", rules.mode);
        }
    }
}

#[test]
fn rules_about_a_quarter_still_end_jobs() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let mut guard = TestGuard::new(idle_rules(mode));
        let mut world = host_with_people(8, 3, 1);
        let records = guard.evaluate_samples(&mut world, 200);
        assert_eq!(
            (doubts(&records), count_ends(&records)),
            (vec![(3, 8)], 3),
            "{mode:?}"
        );
        let doubt = guard
            .state
            .doubt()
            .map(|it| (it.people, it.of, it.only_warn));
        assert_eq!(doubt, Some((3, 8, false)));
        // The report ends by itself.
        world.processes.retain(|pid, _| *pid < 2_000);
        guard.evaluate_samples(&mut world, 24 * 360 + 60);
        assert_eq!(guard.state.doubt(), None);
    }
}

#[test]
fn rules_about_many_only_warn_until_confirmed() {
    for mode in [GuardMode::Soft, GuardMode::Enforce] {
        let mut rules = idle_rules(mode);
        rules.enforcement.max_ended = 100;
        let mut guard = TestGuard::new(rules.clone());
        let mut world = host_with_people(18, 10, 1);
        let records = guard.evaluate_samples(&mut world, 200);
        assert_eq!(
            (doubts(&records), count_ends(&records)),
            (vec![(10, 18)], 0),
            "{mode:?}"
        );
        // The doubt survives a restart and a pause.
        let text = serde_json::to_string(&guard.state).unwrap();
        guard.state = serde_json::from_str::<GuardState>(&text)
            .unwrap()
            .into_paused();
        let records = guard.evaluate_samples(&mut world, 200);
        assert_eq!(
            (doubts(&records), count_ends(&records)),
            (vec![], 0),
            "{mode:?}"
        );
        // An admin who sets the mode confirms these rules: they end jobs, one warning
        // later.
        guard.state.resume();
        let records = guard.evaluate_samples(&mut world, 200);
        assert_eq!(
            (doubts(&records), count_ends(&records)),
            (vec![], 10),
            "{mode:?}"
        );
        // Changed rules on behaviour are doubted again.
        rules.defaults.idle = Some(minutes(5));
        guard.compiled_rules = CompiledRules::new(rules);
        let records = guard.evaluate_samples(&mut world, 60);
        assert_eq!(doubts(&records), [(10, 18)], "{mode:?}");
    }
}

#[test]
fn confirmation_survives_unrelated_changes() {
    let carol = |limits| UserPolicy {
        name: "carol".into(),
        limits,
        ..UserPolicy::default()
    };
    type BehaviourChange<'c> = (&'static str, bool, &'c dyn Fn(&mut RuleSet));
    let changes: [BehaviourChange<'_>; 6] = [
        ("a memory limit of one", true, &|it| {
            it.users.push(carol(memory_limit(40)));
        }),
        ("a group", true, &|it| {
            it.groups.push(GroupPolicy {
                name: "ml".into(),
                total_memory: gib(80),
                ..GroupPolicy::default()
            });
        }),
        ("a limit on time", true, &|it| {
            it.behaviours.push(behaviour_rule(
                "long",
                ForbiddenBehaviour::Duration(minutes(9_000)),
            ));
        }),
        ("the mode", true, &|it| it.mode = GuardMode::Enforce),
        ("an idle limit of one", false, &|it| {
            it.users.push(carol(Limits {
                idle: Some(minutes(7)),
                ..Limits::default()
            }));
        }),
        ("a rule on waste", false, &|it| {
            let waste = ForbiddenBehaviour::Waste(WasteParams {
                below: Percent(10),
                min_memory: Bytes(0),
                hours: minutes(10),
            });
            it.behaviours.push(behaviour_rule("waste", waste));
        }),
    ];
    for (what, is_kept, change) in changes {
        let mut rules = idle_rules(GuardMode::Soft);
        rules.enforcement.max_ended = 100;
        let mut guard = TestGuard::new(rules.clone());
        let mut world = host_with_people(18, 10, 1);
        guard.evaluate_samples(&mut world, 200);
        guard.state.resume();
        guard.evaluate_samples(&mut world, 2);
        assert_eq!(guard.state.doubt(), None);
        change(&mut rules);
        guard.compiled_rules = CompiledRules::new(rules);
        let records = guard.evaluate_samples(&mut world, 60);
        let expected = if is_kept { vec![] } else { vec![(10, 18)] };
        assert_eq!(doubts(&records), expected, "{what}");
    }
}

#[test]
fn few_people_raise_no_doubt() {
    for (all, idle_people, jobs) in [
        (1, 1, 9),
        (2, 2, 4),
        (4, 1, 9),
        (4, 2, 4),
        (12, 3, 2),
        (41, 10, 1),
    ] {
        let mut world = host_with_people(all, idle_people, jobs);
        let mut rules = idle_rules(GuardMode::Enforce);
        rules.enforcement.max_ended = 100;
        let mut guard = TestGuard::new(rules);
        let records = guard.evaluate_samples(&mut world, 200);
        assert_eq!(doubts(&records), [], "{all} {idle_people}");
        assert_eq!(guard.state.doubt(), None);
        assert!(count_ends(&records) > 0, "{all} {idle_people}");
    }
}

#[test]
fn people_are_counted_over_a_day() {
    let idle_in_turn = |hours: i64| {
        let mut guard = TestGuard::new(idle_rules(GuardMode::Soft));
        let mut world = host_with_people(8, 0, 0);
        let mut records = Vec::new();
        for nth in 0..3 {
            let process = world.process(1_000 + nth);
            process.uses(0, 1, 0);
            records.extend(guard.evaluate_samples(&mut world, 70));
            world.process(1_000 + nth).uses(0, 1, 80);
            let samples = usize::try_from(hours * 360).unwrap();
            records.extend(guard.evaluate_samples(&mut world, samples));
        }
        doubts(&records)
    };
    assert_eq!(idle_in_turn(2), [(3, 8)]);
    assert_eq!(idle_in_turn(13), []);
}

#[test]
fn dry_run_reports_doubt_and_continues() {
    let mut guard = TestGuard::new(idle_rules(GuardMode::DryRun));
    let records = guard.evaluate_samples(&mut host_with_people(4, 3, 1), 200);
    assert_eq!((doubts(&records), count_ends(&records)), (vec![(3, 4)], 3));
}

#[test]
fn limits_raise_no_doubt() {
    let mut rules = idle_rules(GuardMode::Enforce);
    rules.defaults = memory_limit(0);
    rules.enforcement.max_ended = 100;
    let mut guard = TestGuard::new(rules);
    let records = guard.evaluate_samples(&mut host_with_people(4, 4, 1), 30);
    assert_eq!(doubts(&records), []);
    assert!(count_ends(&records) > 3);
}

#[test]
fn earlier_rules_raise_no_doubt() {
    let blocked = || {
        let mut rules = dry_run_rules();
        rules.mode = GuardMode::Soft;
        rules.gpus = vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_processes: globs(&["xmrig"]),
            ..GpuPolicy::default()
        }];
        rules
    };
    let mut milder = idle_rules(GuardMode::Soft);
    milder.defaults.idle = Some(minutes(60));
    for (all, idle_people, changed) in [(8, 3, blocked()), (18, 10, blocked()), (8, 3, milder)] {
        let mut guard = TestGuard::new(idle_rules(GuardMode::Soft));
        let mut world = host_with_people(all, idle_people, 1);
        guard.evaluate_samples(&mut world, 200);
        assert!(guard.state.doubt().is_some());
        guard.compiled_rules = CompiledRules::new(changed);
        guard.evaluate_samples(&mut world, 2);
        assert_eq!(guard.state.doubt(), None, "{all} {idle_people}");
    }
    // Rules on behaviour that only warn stay so until an admin has confirmed the current
    // rules.
    let mut guard = TestGuard::new(idle_rules(GuardMode::Soft));
    let mut world = host_with_people(18, 10, 1);
    guard.evaluate_samples(&mut world, 200);
    let mut other = idle_rules(GuardMode::Soft);
    other.defaults.idle = Some(minutes(60));
    guard.compiled_rules = CompiledRules::new(other);
    guard.evaluate_samples(&mut world, 2);
    assert_eq!(guard.state.doubt().map(|it| it.only_warn), Some(true));
}
