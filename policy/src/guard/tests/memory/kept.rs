//! What rules on behaviour measured stays known while only what comes of them changes.

use super::*;
use gpukill_proto::guard::RuleKind;

/// Long windows: each needs five minutes.
fn rules_of(kind: RuleKind) -> Rules {
    let conduct = match kind {
        RuleKind::Growth => Conduct::Growth {
            by: Bytes(GIB),
            within: minutes(5),
        },
        RuleKind::Runaway => Conduct::Runaway {
            above: Percent(50),
            limit: minutes(5),
            orphaned: false,
        },
        _ => Conduct::Waste {
            below: Percent(95),
            min_memory: Bytes(0),
            hours: minutes(5),
        },
    };
    Rules {
        behaviours: vec![behaviour("it", conduct)],
        ..rules()
    }
}

/// Works at 90 %, and holds more with each look.
fn leaks() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 2, 90).job("tree 100");
    world
}

/// After how many looks a violation is open, where it is within a few windows.
fn opened_after(guard: &mut Guard, world: &mut World, looks: usize) -> Option<usize> {
    (1..=looks).find(|_| {
        let bytes = (world.now.0 / 100).unsigned_abs() << 20;
        world.process(100).memory(0, Told::Known(bytes));
        guard.watches(world, 1);
        !guard.memory.violations().is_empty()
    })
}

#[test]
fn a_window_outlives_whatever_does_not_change_what_is_measured() {
    type Change = (&'static str, bool, fn(&mut Rules));
    let changes: [Change; 9] = [
        ("soft", true, |it| it.mode = GuardMode::Soft),
        ("enforce", true, |it| {
            it.mode = GuardMode::Enforce;
            it.rehearsed = Rehearsed::Enforce;
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
                limits: memory(40),
                ..UserPolicy::default()
            });
        }),
        ("whose", false, |it| {
            it.behaviours[0].except_users = names(&["dana"]);
        }),
        ("window", false, |it| match &mut it.behaviours[0].conduct {
            Conduct::Growth { within, .. } => *within = minutes(6),
            Conduct::Waste { hours, .. } => *hours = minutes(6),
            Conduct::Runaway { above, .. } => *above = Percent(51),
            _ => {}
        }),
    ];
    for kind in [RuleKind::Waste, RuleKind::Growth, RuleKind::Runaway] {
        for (what, is_kept, change) in changes {
            let (mut guard, mut world) = (Guard::new(rules_of(kind)), leaks());
            assert!(
                opened_after(&mut guard, &mut world, 40).is_some(),
                "{kind:?}"
            );
            let mut rules = rules_of(kind);
            change(&mut rules);
            guard.book = Rulebook::of(rules);
            let opened = opened_after(&mut guard, &mut world, 20);
            let expected = is_kept.then_some(1);
            assert_eq!(opened, expected, "{kind:?} {what}");
        }
    }
}

#[test]
fn a_guard_that_stops_and_goes_on_keeps_its_windows() {
    for kind in [RuleKind::Waste, RuleKind::Growth] {
        let (mut guard, mut world) = (Guard::new(rules_of(kind)), leaks());
        assert!(opened_after(&mut guard, &mut world, 40).is_some());
        for mode in [GuardMode::Soft, GuardMode::DryRun, GuardMode::Enforce] {
            guard.book = Rulebook::of(Rules {
                mode,
                ..rules_of(kind)
            });
            let opened = opened_after(&mut guard, &mut world, 20);
            assert_eq!(opened, Some(1), "{kind:?} {mode:?}");
        }
    }
}
