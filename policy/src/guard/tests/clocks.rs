//! What becomes of a violation: when it is told, when somebody is ended, and when it is
//! over.

use super::super::schedule::Hours;
use super::words::line;
use super::*;
use gpukill_proto::guard::GuardStep;

fn too_much(change: impl FnOnce(&mut Rules)) -> Rules {
    let mut rules = Rules {
        mode: GuardMode::Soft,
        defaults: Limits {
            memory: gib(20),
            ..Limits::default()
        },
        ..rules()
    };
    change(&mut rules);
    rules
}

fn world() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 21, 50).job("tree 100");
    world
}

fn lines(records: &[gpukill_proto::guard::GuardRecord]) -> Vec<String> {
    records.iter().map(line).collect()
}

#[test]
fn whoever_is_warned_is_warned_again_and_ended_when_the_grace_is_over() {
    let mut guard = Guard::new(too_much(|_| ()));
    let told = lines(&guard.watches(&mut world(), 40));
    let expected = [
        "00:00:20 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:00 [soft]",
        "00:00:20 bob: default: memory: warned, ends 00:05:20 [soft]",
        "00:02:00 bob: default: memory: warned again (2), ends 00:05:20 [soft]",
        "00:03:40 bob: default: memory: warned again (3), ends 00:05:20 [soft]",
        "00:05:20 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [soft]",
        "00:06:20 bob: default: memory: nobody is ended: tree 100 was ended, and is there still [soft]",
    ];
    assert_eq!(told, expected);
    let open = &guard.memory.violations()[0];
    assert_eq!(
        (open.warnings, open.ended_at),
        (3, Some(Timestamp(320_000)))
    );
    assert_eq!(open.warned_at, Some(Timestamp(20_000)));
    assert_eq!(open.deadline, Some(Timestamp(320_000)));
}

#[test]
fn a_dry_run_tells_what_would_happen_once() {
    let mut guard = Guard::new(too_much(|it| it.mode = GuardMode::DryRun));
    let told = lines(&guard.watches(&mut world(), 60));
    let expected = [
        "00:00:20 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:00 [dry-run]",
        "00:00:20 bob: default: memory: warned, ends 00:05:20 [dry-run]",
        "00:02:00 bob: default: memory: warned again (2), ends 00:05:20 [dry-run]",
        "00:03:40 bob: default: memory: warned again (3), ends 00:05:20 [dry-run]",
        "00:05:20 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [dry-run]",
    ];
    assert_eq!(told, expected);
}

#[test]
fn enforcing_ends_at_once_after_a_second_look() {
    let mut guard = Guard::new(too_much(|it| it.mode = GuardMode::Enforce));
    let told = lines(&guard.watches(&mut world(), 3));
    let expected = [
        "00:00:20 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:00:00 [enforce]",
        "00:00:20 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [enforce]",
    ];
    assert_eq!(told, expected);
}

#[test]
fn enforcing_ends_what_is_not_allowed_at_first_sight() {
    let rules = Rules {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let mut guard = Guard::new(rules);
    let told = lines(&guard.watches(&mut world(), 1));
    let expected = [
        "00:00:10 100 on GPU-0: gpu 0: user: violated [enforce]",
        "00:00:10 100 on GPU-0: gpu 0: user: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [enforce]",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_rule_can_be_milder_than_the_whole_and_never_harder() {
    let of = |whole: GuardMode, own: GuardMode| {
        let rules = too_much(|it| {
            it.mode = whole;
            it.rehearsed = Rehearsed::Enforce;
            let limits = std::mem::take(&mut it.defaults);
            it.users = vec![UserPolicy {
                name: "bob".into(),
                limits,
                measures: Measures {
                    mode: Some(own),
                    ..Measures::default()
                },
                ..UserPolicy::default()
            }];
        });
        let records = Guard::new(rules).watches(&mut world(), 2);
        let steps: Vec<_> = records.iter().map(|it| it.step.name()).collect();
        (records.first().map(|it| it.mode), steps)
    };
    use GuardMode::*;
    for (whole, own, mode, step) in [
        (Enforce, Enforce, Enforce, "ended"),
        (Enforce, Soft, Soft, "warned"),
        (Soft, Enforce, Soft, "warned"),
        (Enforce, DryRun, DryRun, "ended"),
        (DryRun, Enforce, DryRun, "ended"),
        (DryRun, Soft, DryRun, "warned"),
    ] {
        assert_eq!(
            of(whole, own),
            (Some(mode), vec!["violated", step]),
            "{whole:?} {own:?}"
        );
    }
    assert_eq!(of(Enforce, Disabled), (None, vec![]));
    assert_eq!(of(Disabled, Enforce), (None, vec![]));
}

#[test]
fn what_only_warns_ends_nobody() {
    let rules = too_much(|it| {
        it.mode = GuardMode::Enforce;
        it.defaults = Limits::default();
        it.groups = vec![GroupPolicy {
            name: "all".into(),
            members: Members {
                users: names(&["bob"]),
                ..Members::default()
            },
            total_memory: gib(1),
            measures: Measures {
                action: Some(GuardAction::Warn),
                message: Some("ask before you take so much".into()),
                ..Measures::default()
            },
            ..GroupPolicy::default()
        }];
    });
    let records = Guard::new(rules).watches(&mut world(), 60);
    let warned = |times| GuardStep::Warned {
        times,
        deadline: None,
    };
    let steps: Vec<_> = records.iter().map(|it| it.step.clone()).collect();
    assert_eq!(
        steps,
        [GuardStep::Violated, warned(1), warned(2), warned(3)]
    );
    let message = Some("ask before you take so much".to_owned());
    assert!(records.iter().all(|it| it.message == message));
}

#[test]
fn who_stops_in_time_is_not_ended_and_who_begins_again_has_the_same_clock() {
    let mut guard = Guard::new(too_much(|_| ()));
    let mut world = world();
    guard.watches(&mut world, 20);
    world.process(100).uses(0, 20, 50);
    // A little less than five minutes.
    assert_eq!(lines(&guard.watches(&mut world, 29)), [""; 0]);
    world.process(100).uses(0, 21, 50);
    let expected = [
        "00:08:30 bob: default: memory: ends tree 100 of bob (priority 5, 1 on GPUs, which works) [soft]",
    ];
    assert_eq!(lines(&guard.watches(&mut world, 2)), expected);
}

#[test]
fn what_was_not_so_for_long_enough_is_over_and_its_clock_forgotten() {
    let mut guard = Guard::new(too_much(|_| ()));
    let mut world = world();
    guard.watches(&mut world, 20);
    world.process(100).uses(0, 20, 50);
    let expected = ["00:08:20 bob: default: memory: over [soft]"];
    assert_eq!(lines(&guard.watches(&mut world, 31)), expected);
    world.process(100).uses(0, 21, 50);
    let expected = [
        "00:08:50 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:08:30 [soft]",
        "00:08:50 bob: default: memory: warned, ends 00:13:50 [soft]",
    ];
    assert_eq!(lines(&guard.watches(&mut world, 2)), expected);
}

#[test]
fn what_is_not_known_neither_ends_nor_confirms_anything() {
    let mut guard = Guard::new(too_much(|_| ()));
    let mut world = world();
    guard.watches(&mut world, 1);
    world.process(100).memory(0, Told::Failed);
    guard.watches(&mut world, 1);
    world.process(100).uses(0, 21, 50);
    assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    guard.watches(&mut world, 1);
    assert_eq!(guard.memory.violations().len(), 1);
    world.process(100).memory(0, Told::Failed);
    assert_eq!(lines(&guard.watches(&mut world, 100)), [""; 0]);
    assert_eq!(guard.memory.violations().len(), 1);
    // The deadline has long passed: a look, and the confirming one.
    world.process(100).uses(0, 21, 50);
    assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    assert_eq!(guard.watches(&mut world, 1)[0].step.name(), "ended");
}

#[test]
fn a_gap_confirms_nothing() {
    let mut guard = Guard::new(too_much(|_| ()));
    let mut world = world();
    guard.watches(&mut world, 1);
    world.now = Timestamp(600_000);
    let mut after = world.bucket(10_000);
    after.from = after.until;
    after.seen_ms = 0;
    let judged = super::super::judge(&guard.book, &mut guard.memory, &after);
    assert_eq!(judged, super::super::Judgement::default());
    assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    // One of which no bucket tells, but the time that is missing.
    world.now = world.now.plus_seconds(600);
    assert_eq!(lines(&guard.watches(&mut world, 1)), [""; 0]);
    assert_eq!(guard.watches(&mut world, 1).len(), 2);
}

#[test]
fn who_has_nothing_there_any_more_is_over_after_a_while() {
    let mut guard = Guard::new(too_much(|_| ()));
    let mut world = world();
    guard.watches(&mut world, 3);
    world.processes.clear();
    let settled = guard.book.rules().enforcement.settled_after;
    let buckets = usize::try_from(settled.as_secs() / 10).unwrap();
    assert_eq!(lines(&guard.watches(&mut world, buckets - 1)), [""; 0]);
    let over = lines(&guard.watches(&mut world, 1));
    assert_eq!(over, ["00:05:30 bob: default: memory: over [soft]"]);
    assert_eq!(guard.memory.violations(), []);
}

#[test]
fn a_job_that_is_gone_is_over_at_once() {
    let rules = Rules {
        defaults: Limits {
            idle: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    world.start(100, "bob").uses(0, 1, 0).job("tree 100");
    assert_eq!(guard.watches(&mut world, 6).len(), 2);
    world.processes.clear();
    let over = guard.watches(&mut world, 1);
    assert_eq!(
        over.iter().map(|it| it.step.name()).collect::<Vec<_>>(),
        ["over"]
    );
}

#[test]
fn a_rule_that_is_changed_begins_anew_and_others_go_on() {
    let rules = |limit: u64, of_gpu: u64| {
        too_much(|it| {
            it.defaults.memory = gib(limit);
            it.gpus = vec![GpuPolicy {
                name: "0".into(),
                gpus: gpus("0"),
                max_memory: gib(of_gpu),
                ..GpuPolicy::default()
            }];
        })
    };
    let mut guard = Guard::new(rules(20, 20));
    let mut world = world();
    guard.watches(&mut world, 10);
    guard.book = Rulebook::of(rules(19, 20));
    let expected = [
        "00:01:50 bob: default: memory: outdated [soft]",
        "00:02:00 bob: default: memory: violated, 21.0 GiB of 19.0 GiB since 00:01:40 [soft]",
        "00:02:00 bob: default: memory: warned, ends 00:07:00 [soft]",
        "00:02:00 100 on GPU-0: gpu 0: process memory: warned again (2), ends 00:05:20 [soft]",
    ];
    assert_eq!(lines(&guard.watches(&mut world, 2)), expected);
}

#[test]
fn arming_a_dry_run_begins_anew() {
    let mut guard = Guard::new(too_much(|it| it.mode = GuardMode::DryRun));
    let mut world = world();
    guard.watches(&mut world, 40);
    guard.book = Rulebook::of(too_much(|_| ()));
    let expected = [
        "00:06:50 bob: default: memory: outdated [dry-run]",
        "00:07:00 bob: default: memory: violated, 21.0 GiB of 20.0 GiB since 00:06:40 [soft]",
        "00:07:00 bob: default: memory: warned, ends 00:12:00 [soft]",
    ];
    assert_eq!(lines(&guard.watches(&mut world, 2)), expected);
}

#[test]
fn a_limit_of_some_hours_replaces_the_one_of_all() {
    let rules = too_much(|it| {
        it.users = vec![UserPolicy {
            name: "bob".into(),
            limits: Limits {
                memory: gib(40),
                ..Limits::default()
            },
            overrides: vec![Override {
                hours: Hours {
                    from: 1,
                    to: 2,
                    days: Vec::new(),
                },
                limits: Limits {
                    memory: gib(10),
                    ..Limits::default()
                },
            }],
            ..UserPolicy::default()
        }];
    });
    let mut guard = Guard::new(rules);
    let told = lines(&guard.watches(&mut world(), 12));
    let expected = [
        "00:01:20 bob: user bob: memory: violated, 21.0 GiB of 10.0 GiB since 00:01:00 [soft]",
        "00:01:20 bob: user bob: memory: warned, ends 00:06:20 [soft]",
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_is_judged_by_a_window_that_moves_on_is_broken_since_its_beginning() {
    let mut rules = Rules {
        mode: GuardMode::Soft,
        behaviours: vec![behaviour(
            "waste",
            Conduct::Waste {
                below: Percent(10),
                min_memory: Bytes(GIB),
                hours: minutes(10),
            },
        )],
        ..rules()
    };
    rules.enforcement.grace = minutes(60);
    let (mut guard, mut world) = (Guard::new(rules), World::new(1));
    world.start(100, "bob").uses(0, 21, 1).job("tree 100");
    guard.watches(&mut world, 62);
    let first = guard.memory.violations().remove(0);
    let (since, warned) = (first.evidence.since, first.warned_at.unwrap());
    assert!(since < warned, "{since:?} {warned:?}");
    // As long again as the window is, and more.
    guard.watches(&mut world, 90);
    let open = guard.memory.violations().remove(0);
    assert_eq!((open.evidence.since, open.warned_at), (since, Some(warned)));
}
