//! The state is bounded, and is dropped together with its subject.

use super::super::evaluate::evaluate;
use super::super::sample::GuardSample;
use super::super::state::SavedPart;
use super::super::state::device_reporting::DeviceReporting;
use super::super::state::streak::{MAX_UNKNOWN_MS, Streak, StreakStatus};
use super::super::state::window::{MAX_SLOTS, MemorySum, Merge, UtilizationSum, WasteSum, Window};
use super::*;
use proptest::prelude::*;

const HOUR: u64 = 3_600_000;

proptest! {
    #[test]
    fn window_is_bounded_and_complete(
        lengths in proptest::collection::vec(1..200_000_u64, 1..200),
        window_ms in 1..HOUR,
        start in 0..10 * HOUR,
    ) {
        let mut now = i64::try_from(start).unwrap();
        let mut window = Window::starting_at(Timestamp(now));
        let mut all = Vec::new();
        for length in lengths {
            let from = now;
            now += i64::try_from(length).unwrap();
            let load = UtilizationSum { seen_ms: length, held_ms: length, known_ms: length, total: length };
            window.add(window_ms, Timestamp(from), Timestamp(now), load);
            all.push((now, length));
            prop_assert!(window.slots().count() <= MAX_SLOTS);
        }
        let begin = now - i64::try_from(window_ms).unwrap();
        let within: u64 = all.iter().filter(|(until, _)| *until > begin).map(|(_, ms)| ms).sum();
        let kept: u64 = window.slots().map(|slot| slot.part.seen_ms).sum();
        // A part that is half outside of the window is kept whole.
        let each = window_ms.div_ceil(MAX_SLOTS as u64 - 1);
        let longest = all.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
        prop_assert!(within <= kept && kept <= within + each + longest, "{within} {kept}");
    }
}

#[test]
fn gone_processes_are_dropped() {
    let waste = ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(60),
    });
    let grows = ForbiddenBehaviour::Growth(GrowthParams {
        by: Bytes(GIB),
        within: minutes(60),
    });
    let runs = ForbiddenBehaviour::Runaway(RunawayParams {
        above: Percent(0),
        limit: minutes(60),
        orphaned: false,
    });
    let rules = RuleSet {
        armed_mode: EnforcementMode::Enforce,
        defaults: Limits {
            memory: gib(1),
            utilization: Some(Percent(1)),
            ..Limits::default()
        },
        behaviours: vec![
            behaviour_rule("waste", waste),
            behaviour_rule("growth", grows),
            behaviour_rule("runaway", runs),
        ],
        ..dry_run_rules()
    };
    let written = |guard: &TestGuard| {
        let mut memory = guard.state.clone();
        // People are counted for a day.
        memory.doubt_tracker = Default::default();
        serde_json::to_string(&memory).unwrap()
    };
    let mut guard = TestGuard::new(rules);
    let mut world = TestHost::new(2);
    for pid in 100..120 {
        world.start(pid, "bob").uses(0, 2, 50);
    }
    guard.evaluate_samples(&mut world, 10);
    assert!(written(&guard).len() > 2_000);
    world.processes.clear();
    // Ended jobs count for ten minutes.
    guard.evaluate_samples(&mut world, 61);
    let mut expected = GuardState {
        until: Some(world.now),
        by: (5, 300_000),
        ..GuardState::default()
    };
    expected
        .device_reporting
        .update(&world.next_sample(0), true);
    expected
        .device_reporting
        .update(&world.next_sample(SAMPLE_MS), true);
    assert_eq!(written(&guard), serde_json::to_string(&expected).unwrap());
}

#[test]
fn windows_and_streaks_are_saved_without_names() {
    let mut window = Window::starting_at(Timestamp(5));
    let load = UtilizationSum {
        seen_ms: 5,
        held_ms: 4,
        known_ms: 3,
        total: 2,
    };
    window.add(HOUR, Timestamp(5), Timestamp(10), load);
    let text = serde_json::to_string(&window).unwrap();
    assert_eq!(text, "{\"since\":5,\"slots\":[[0,5,10,[5,4,3,2]]]}");
    let named = "{\"since\":5,\"slots\":[{\"index\":0,\"from\":5,\"until\":10,\"part\":\
                 {\"seen_ms\":5,\"held_ms\":4,\"known_ms\":3,\"total\":2}}]}";
    for text in [text.as_str(), named] {
        let read: Window<UtilizationSum> = serde_json::from_str(text).unwrap();
        assert_eq!(read, window, "{text}");
    }
    let mut streak = Streak::starting_at(Timestamp(1));
    streak.record_broken(Timestamp(2));
    streak.record_unknown(MAX_UNKNOWN_MS, Timestamp(3));
    streak.record_unknown(1, Timestamp(4));
    let text = serde_json::to_string(&streak).unwrap();
    assert_eq!(text, "[1,2,4,0,30001]");
    assert_eq!(serde_json::from_str::<Streak>(&text).unwrap(), streak);
    let waste = WasteSum {
        held_ms: 1,
        total: 2,
        known_ms: 3,
        min: 4,
        is_memory_unknown: true,
        has_served: false,
        may_have_served: true,
    };
    let text = serde_json::to_string(&waste).unwrap();
    assert_eq!(text, "[1,2,3,4,true,false,true]");
    assert_eq!(serde_json::from_str::<WasteSum>(&text).unwrap(), waste);
    let memory = MemorySum {
        total: 1,
        known_ms: 2,
        is_unknown: true,
    };
    let text = serde_json::to_string(&memory).unwrap();
    assert_eq!(text, "[1,2,true]");
    assert_eq!(serde_json::from_str::<MemorySum>(&text).unwrap(), memory);
}

#[test]
fn saved_part_is_shared_among_people() {
    let waste = ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(60),
    });
    let mut guard = TestGuard::new(RuleSet {
        defaults: Limits {
            utilization: Some(Percent(99)),
            ..Limits::default()
        },
        behaviours: vec![
            behaviour_rule("at once", ForbiddenBehaviour::Duration(Duration::ZERO)),
            behaviour_rule("waste", waste),
        ],
        ..dry_run_rules()
    });
    let mut world = TestHost::new(1);
    for pid in 1..=303 {
        let owner = if pid > 300 { "alice" } else { "eve" };
        world.start(pid, owner).uses(0, 4, 0);
    }
    guard.evaluate_samples(&mut world, 3);
    let written = |state: &GuardState| serde_json::to_string(state).unwrap();
    let whole = guard.state.to_part(SavedPart::WHOLE);
    assert_eq!(written(&whole), written(&guard.state));
    // Of alice and of all: windows of jobs, windows of processes, jobs, violations.
    let counts = |state: &GuardState| {
        let is_alice = |uid: Option<u32>| usize::from(uid == Some(1_000));
        let waste = state.conduct.values().flat_map(|it| it.waste.keys());
        let waste: Vec<usize> = waste.map(|job| is_alice(job.uid)).collect();
        let loads = state.loads.keys().map(|run| usize::from(run.pid > 300));
        let loads: Vec<usize> = loads.collect();
        let jobs: Vec<usize> = state.jobs.keys().map(|job| is_alice(job.uid)).collect();
        let open = state.violations().into_iter();
        let owners = open.map(|mut it| it.evidence.runs.swap_remove(0).owner);
        let open: Vec<usize> = owners.map(|owner| is_alice(owner.unwrap().uid)).collect();
        [waste, loads, jobs, open].map(|all| (all.iter().sum::<usize>(), all.len()))
    };
    let parts = std::iter::successors(Some(SavedPart::WHOLE), |part| part.reduced());
    let mut parts: Vec<_> = parts
        .map(|part| counts(&guard.state.to_part(part)))
        .collect();
    parts.dedup();
    let (all, some, few, none) = ((3, 303), (3, 256), (3, 64), (0, 0));
    let expected = [
        [all, all, all, all],
        [some, some, all, all],
        [few, few, all, all],
        [none, none, all, all],
        [none, none, some, all],
        [none, none, few, all],
        [none, none, none, all],
        [none, none, none, some],
        [none, none, none, few],
        [none, none, none, none],
    ];
    assert_eq!(parts, expected);
}

#[test]
fn saved_part_always_has_what_the_guard_did() {
    let mut rules = enforce_rules();
    rules.defaults = memory_limit(1);
    rules.enforcement.max_ended = 1;
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(1));
    for (pid, owner) in [(1, "alice"), (2, "bob")] {
        world.start(pid, owner).uses(0, 2, 50);
    }
    guard.evaluate_samples(&mut world, 3);
    let parts = std::iter::successors(Some(SavedPart::WHOLE), |part| part.reduced());
    let least = guard.state.to_part(parts.last().unwrap());
    assert_eq!(least.violations(), []);
    assert!(least.tripped_at().is_some());
    assert_eq!(least.breaker, guard.state.breaker);
    assert_eq!(least.ended.len(), 1);
    assert_eq!(least.ended, guard.state.ended);
}

/// Rules with a window of five minutes.
fn rules_with_window(kind: usize) -> RuleSet {
    let mut rules = dry_run_rules();
    match kind {
        0 => rules.defaults.utilization = Some(Percent(60)),
        1 => {
            rules.gpus = vec![GpuPolicy {
                name: "0".into(),
                gpus: gpus("0"),
                max_utilization: Some(Percent(60)),
                ..GpuPolicy::default()
            }];
        }
        2 => {
            let waste = ForbiddenBehaviour::Waste(WasteParams {
                below: Percent(95),
                min_memory: Bytes(0),
                hours: minutes(5),
            });
            rules.behaviours = vec![behaviour_rule("waste", waste)];
        }
        _ => {
            let idle = ForbiddenBehaviour::Idle(IdleParams {
                limit: minutes(5),
                min_memory: Bytes(0),
                with_connections: kind == 3,
                cpu_below: None,
            });
            rules.enforcement.idle_below = Percent(91);
            rules.behaviours = vec![behaviour_rule("idle", idle)];
        }
    }
    rules
}

fn busy_host() -> TestHost {
    let mut world = TestHost::new(1);
    world.devices[0].utilization = Some(90);
    world.start(100, "bob").uses(0, 2, 90).job("tree 100");
    world
}

/// The number of samples until something is recorded, if that is soon.
fn samples_until_record(guard: &mut TestGuard, world: &mut TestHost) -> Option<usize> {
    (1..200).find(|_| !guard.evaluate_samples(world, 1).is_empty())
}

#[test]
fn windows_restart_after_a_gap() {
    // At more than 60 %, this many samples of five minutes are enough, whatever the others
    // were. Idleness through a gap is not known until after the first sample.
    for (kind, expected, again) in [
        (0, 21, 21),
        (1, 21, 21),
        (2, 30, 30),
        (3, 30, 31),
        (4, 30, 31),
    ] {
        let (mut guard, mut world) = (TestGuard::new(rules_with_window(kind)), busy_host());
        assert_eq!(
            samples_until_record(&mut guard, &mut world),
            Some(expected),
            "{kind}"
        );
        let (mut guard, mut world) = (TestGuard::new(rules_with_window(kind)), busy_host());
        assert_eq!(guard.evaluate_samples(&mut world, 20), [], "{kind}");
        world.now = world.now.plus_seconds(40);
        assert_eq!(
            samples_until_record(&mut guard, &mut world),
            Some(again),
            "{kind}"
        );
    }
}

#[test]
fn windows_restart_with_other_settings() {
    for (kind, expected) in [(0, 9), (1, 9), (3, 30)] {
        let (mut guard, mut world) = (TestGuard::new(rules_with_window(kind)), busy_host());
        assert_eq!(guard.evaluate_samples(&mut world, 20), [], "{kind}");
        let mut rules = rules_with_window(kind);
        rules.enforcement.utilization_window = minutes(2);
        rules.enforcement.idle_below.0 += 1;
        guard.compiled_rules = CompiledRules::new(rules);
        assert_eq!(
            samples_until_record(&mut guard, &mut world),
            Some(expected),
            "{kind}"
        );
    }
}

#[test]
fn late_poll_is_no_gap() {
    let (mut guard, mut world) = (TestGuard::new(rules_with_window(0)), busy_host());
    guard.evaluate_samples(&mut world, 20);
    world.now = world.now.plus_seconds(2);
    assert_eq!(samples_until_record(&mut guard, &mut world), Some(1));
}

#[test]
fn partly_observed_sample_is_a_gap() {
    for (kind, length, seen_ms) in [(2, 0, 0), (3, 40_000, 10_000)] {
        let (mut guard, mut world) = (TestGuard::new(rules_with_window(kind)), busy_host());
        guard.evaluate_samples(&mut world, 20);
        let mut sample = world.next_sample(length);
        sample.observed_ms = seen_ms;
        assert_eq!(
            evaluate(&guard.compiled_rules, &mut guard.state, &sample).records,
            []
        );
        assert_eq!(
            samples_until_record(&mut guard, &mut world),
            Some(30),
            "{kind}"
        );
    }
}

mod kept_windows;

#[test]
fn policy_applies_to_later_devices() {
    let rules = RuleSet {
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(2));
    world.devices[1].is_present = false;
    world.start(100, "bob").uses(1, 2, 50);
    assert_eq!(guard.evaluate_samples(&mut world, 3), []);
    world.devices[1].is_present = true;
    assert_eq!(samples_until_record(&mut guard, &mut world), Some(1));
}

#[test]
fn streak_starts_after_the_last_break() {
    let at = |seconds: i64| Timestamp(seconds * 1_000);
    for (broken, unknown, expected) in [(10, 20, 20), (30, 20, 30)] {
        let mut streak = Streak::starting_at(at(0));
        streak.record_broken(at(broken));
        streak.record_unknown(MAX_UNKNOWN_MS + 1, at(unknown));
        // Until the value is read again, the present is unknown.
        let through = streak.status(50_000, at(200), at(0));
        assert_eq!(through, StreakStatus::Unknown);
        streak.record_unbroken();
        let through = streak.status(50_000, at(200), at(0));
        let known = 1_000 * u64::try_from(200 - expected).unwrap();
        assert_eq!(through, StreakStatus::Since(at(expected), known));
    }
    // Observed for forty of fifty seconds.
    for (start, expected) in [
        (80, StreakStatus::Unknown),
        (95, StreakStatus::Broken),
        (100, StreakStatus::Broken),
    ] {
        let through = Streak::starting_at(at(100)).status(50_000, at(140), at(start));
        assert_eq!(through, expected, "{start}");
    }
}

#[test]
fn part_includes_its_end() {
    let load = |ms| UtilizationSum {
        seen_ms: ms,
        held_ms: ms,
        known_ms: ms,
        total: ms,
    };
    let mut window = Window::starting_at(Timestamp(0));
    for (from, until) in [(0, 500), (500, 1_000), (1_000, 1_500)] {
        // Parts of a second.
        window.add(63_000, Timestamp(from), Timestamp(until), load(500));
    }
    let slots = window
        .slots()
        .map(|it| (it.from.0, it.until.0, it.part.seen_ms));
    assert_eq!(
        slots.collect::<Vec<_>>(),
        [(0, 1_000, 1_000), (1_000, 1_500, 500)]
    );
}

#[test]
fn device_reported_with_or_without_holders() {
    let id = gpukill_proto::model::DeviceId("GPU-0".into());
    let is_reported = |world: &mut TestHost, ms: u64, change: fn(&mut GuardSample)| {
        let mut sample = world.next_sample(ms);
        change(&mut sample);
        let mut reporting = DeviceReporting::default();
        reporting.update(&sample, true);
        reporting.covers_all([&id])
    };
    let works = |sample: &mut GuardSample| {
        for device in sample.devices.values_mut() {
            (device.usage.held_ms, device.usage.busy_ms) = (0, 10_000);
        }
    };
    assert!(is_reported(&mut busy_host(), 0, |_| ()));
    assert!(is_reported(&mut busy_host(), SAMPLE_MS, works));
    let mut unlisted = busy_host();
    unlisted.devices[0].reports_processes = false;
    assert!(!is_reported(&mut unlisted, SAMPLE_MS, |_| ()));
    assert!(!is_reported(&mut busy_host(), SAMPLE_MS, |it| it
        .devices
        .clear()));
    let free = |sample: &mut GuardSample| {
        for device in sample.devices.values_mut() {
            (device.usage.held_ms, device.usage.free_ms) = (0, 10_000);
        }
    };
    assert!(is_reported(&mut TestHost::new(1), SAMPLE_MS, free));
    assert!(!is_reported(&mut TestHost::new(1), SAMPLE_MS, works));
}

#[test]
fn utilization_restarts_after_an_end() {
    let mut rules = rules_with_window(0);
    (rules.mode, rules.armed_mode) = (GuardMode::Enforce, EnforcementMode::Enforce);
    rules.users = vec![UserPolicy {
        name: "alice".into(),
        limits: memory_limit(1),
        ..UserPolicy::default()
    }];
    let (mut guard, mut world) = (TestGuard::new(rules), busy_host());
    assert_eq!(guard.evaluate_samples(&mut world, 15), []);
    world.start(200, "alice").uses(0, 2, 0).job("tree 200");
    let steps: Vec<_> = guard.evaluate_samples(&mut world, 2);
    let steps: Vec<_> = steps.iter().map(|it| it.step.name()).collect();
    assert_eq!(steps, ["violated", "ended"]);
    // Except for the end of alice's violation.
    world.processes.remove(&200);
    assert_eq!(guard.evaluate_samples(&mut world, 1).len(), 1);
    assert_eq!(samples_until_record(&mut guard, &mut world), Some(20));
}

#[test]
fn window_parts_add_up() {
    fn sum<P: Merge + Clone>(parts: &[P]) -> P {
        let (first, rest) = parts.split_first().expect("there are some");
        rest.iter().fold(first.clone(), |mut sum, part| {
            sum.merge(part.clone());
            sum
        })
    }
    let known = |unknown: Option<usize>| 7 - unknown.map_or(0, |at| 1_u64 << at);
    for unknown in [None, Some(0), Some(1), Some(2)] {
        let load = |at| UtilizationSum {
            seen_ms: 1_u64 << at,
            held_ms: 1_u64 << at,
            known_ms: u64::from(unknown != Some(at)) << at,
            total: 10_u64 << at,
        };
        let expected = UtilizationSum {
            seen_ms: 7,
            held_ms: 7,
            known_ms: known(unknown),
            total: 70,
        };
        assert_eq!(sum(&[load(0), load(1), load(2)]), expected);
        for of_load in [true, false] {
            let waste = |at| WasteSum {
                held_ms: 1_u64 << at,
                total: 10_u64 << at,
                known_ms: u64::from(!of_load || unknown != Some(at)) << at,
                min: [5, 3, 4][at],
                is_memory_unknown: !of_load && unknown == Some(at),
                has_served: false,
                may_have_served: false,
            };
            let expected = WasteSum {
                held_ms: 7,
                total: 70,
                known_ms: known(unknown.filter(|_| of_load)),
                min: 3,
                is_memory_unknown: !of_load && unknown.is_some(),
                has_served: false,
                may_have_served: false,
            };
            assert_eq!(sum(&[waste(0), waste(1), waste(2)]), expected);
        }
        let held = |at| MemorySum {
            total: 10_u64 << at,
            known_ms: 1_u64 << at,
            is_unknown: unknown == Some(at),
        };
        let expected = MemorySum {
            total: 70,
            known_ms: 7,
            is_unknown: unknown.is_some(),
        };
        assert_eq!(sum(&[held(0), held(1), held(2)]), expected);
    }
}

#[test]
fn window_covers_observed_or_absent_time() {
    let at = |seconds: i64| Timestamp(seconds * 1_000);
    let window = Window::<UtilizationSum>::starting_at(at(100));
    for (until, start, expected) in [
        (150, 0, Some(true)),
        (140, 80, None),
        (140, 90, None),
        (140, 95, Some(false)),
        (140, 100, Some(false)),
    ] {
        let covers = window.covers(50_000, at(until), at(start));
        assert_eq!(covers, expected, "{until} {start}");
    }
}
