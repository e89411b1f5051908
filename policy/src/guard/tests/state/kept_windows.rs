//! Measurements of rules on behaviour are kept while only the consequences change.

use super::*;
use gpukill_proto::guard::RuleKind;

/// Long windows: each needs five minutes.
fn rules_of(kind: RuleKind) -> RuleSet {
    let behaviour = match kind {
        RuleKind::Growth => ForbiddenBehaviour::Growth(GrowthParams {
            by: Bytes(GIB),
            within: minutes(5),
        }),
        RuleKind::Runaway => ForbiddenBehaviour::Runaway(RunawayParams {
            above: Percent(50),
            limit: minutes(5),
            orphaned: false,
        }),
        _ => ForbiddenBehaviour::Waste(WasteParams {
            below: Percent(95),
            min_memory: Bytes(0),
            hours: minutes(5),
        }),
    };
    RuleSet {
        behaviours: vec![behaviour_rule("it", behaviour)],
        ..dry_run_rules()
    }
}

/// A process at 90 % that holds more with each sample.
fn leaking_host() -> TestHost {
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 2, 90).job("tree 100");
    world
}

/// The number of samples until a violation is open, if there is one within this many.
fn samples_until_open(
    guard: &mut TestGuard,
    world: &mut TestHost,
    samples: usize,
) -> Option<usize> {
    (1..=samples).find(|_| {
        let bytes = (world.now.0 / 100).unsigned_abs() << 20;
        world.process(100).memory(0, TestReading::Known(bytes));
        guard.evaluate_samples(world, 1);
        !guard.state.violations().is_empty()
    })
}

#[test]
fn windows_survive_unrelated_changes() {
    type WindowChange = (&'static str, bool, fn(&mut RuleSet));
    let changes: [WindowChange; 9] = [
        ("soft", true, |it| it.mode = GuardMode::Soft),
        ("enforce", true, |it| {
            it.mode = GuardMode::Enforce;
            it.armed_mode = EnforcementMode::Enforce;
        }),
        ("grace", true, |it| it.enforcement.grace = minutes(90)),
        ("message", true, |it| {
            it.behaviours[0].measures.message = Some("use it".into());
        }),
        ("action", true, |it| {
            it.behaviours[0].measures.action = Some(GuardAction::Warn);
        }),
        ("services", true, |it| it.behaviours[0].ends_services = true),
        ("a limit of somebody else", true, |it| {
            it.users.push(UserPolicy {
                name: "carol".into(),
                limits: memory_limit(40),
                ..UserPolicy::default()
            });
        }),
        ("users", false, |it| {
            it.behaviours[0].except_users = names(&["dana"]);
        }),
        ("window", false, |it| {
            match &mut it.behaviours[0].behaviour {
                ForbiddenBehaviour::Growth(GrowthParams { within, .. }) => *within = minutes(6),
                ForbiddenBehaviour::Waste(WasteParams { hours, .. }) => *hours = minutes(6),
                ForbiddenBehaviour::Runaway(RunawayParams { above, .. }) => *above = Percent(51),
                _ => {}
            }
        }),
    ];
    for kind in [RuleKind::Waste, RuleKind::Growth, RuleKind::Runaway] {
        for (what, is_kept, change) in changes {
            let (mut guard, mut world) = (TestGuard::new(rules_of(kind)), leaking_host());
            assert!(
                samples_until_open(&mut guard, &mut world, 40).is_some(),
                "{kind:?}"
            );
            let mut rules = rules_of(kind);
            change(&mut rules);
            guard.compiled_rules = CompiledRules::new(rules);
            let opened = samples_until_open(&mut guard, &mut world, 20);
            let expected = is_kept.then_some(1);
            assert_eq!(opened, expected, "{kind:?} {what}");
        }
    }
}

#[test]
fn windows_survive_a_pause() {
    for kind in [RuleKind::Waste, RuleKind::Growth] {
        let (mut guard, mut world) = (TestGuard::new(rules_of(kind)), leaking_host());
        assert!(samples_until_open(&mut guard, &mut world, 40).is_some());
        for mode in [GuardMode::Soft, GuardMode::DryRun, GuardMode::Enforce] {
            guard.compiled_rules = CompiledRules::new(RuleSet {
                mode,
                ..rules_of(kind)
            });
            let opened = samples_until_open(&mut guard, &mut world, 20);
            assert_eq!(opened, Some(1), "{kind:?} {mode:?}");
        }
    }
}
