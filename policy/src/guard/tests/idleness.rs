//! How long a job is idle: what counts, what does not, and what begins it anew.

use super::super::memory::streak::{SHARE, SHORT, Streak, Through};
use super::super::replay::Replay;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use proptest::prelude::*;

/// Idle for so many minutes, ended after a grace of two.
fn idle_for(limit: u64) -> Rules {
    let mut rules = Rules {
        mode: GuardMode::Soft,
        ..rules()
    };
    rules.defaults.idle = Some(minutes(limit));
    rules.enforcement.grace = minutes(2);
    rules.enforcement.max_warnings = 1;
    rules
}

fn idle_job() -> World {
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 10, 0).job("notebook");
    world
}

/// The step and the minute and second of each record.
fn steps(records: &[GuardRecord]) -> Vec<String> {
    let told = |record: &GuardRecord| {
        let seconds = record.at.0 / 1_000;
        let name = record.step.name();
        format!("{name} {:02}:{:02}", seconds / 60, seconds % 60)
    };
    records.iter().map(told).collect()
}

#[test]
fn idleness_that_ends_ends_its_warning() {
    let (mut guard, mut world) = (Guard::new(idle_for(1)), idle_job());
    let warned = ["violated 01:00", "warned 01:00"];
    assert_eq!(steps(&guard.watches(&mut world, 9)), warned);
    world.process(100).connections(Told::Known(1));
    assert_eq!(steps(&guard.watches(&mut world, 3)), ["over 01:40"]);
    // The grace of the first warning is over long before that of the second.
    world.process(100).connections(Told::Known(0));
    let anew = ["violated 03:00", "warned 03:00", "ended 05:00"];
    assert_eq!(steps(&guard.watches(&mut world, 18)), anew);
}

#[test]
fn whoever_is_idle_again_after_a_long_time_without_readings_is_warned_anew() {
    let (mut guard, mut world) = (Guard::new(idle_for(1)), idle_job());
    guard.watches(&mut world, 6);
    world.process(100).utilization(0, Told::Failed);
    assert_eq!(guard.watches(&mut world, 6), []);
    world.process(100).utilization(0, Told::Known(0));
    let anew = ["warned 03:00", "ended 05:00"];
    assert_eq!(steps(&guard.watches(&mut world, 18)), anew);
}

/// What is decided of a job that is idle for five minutes, without a reading in these
/// samples.
fn decided(missing: &[usize], daemon: impl Fn(usize, &mut Guard)) -> Vec<String> {
    let (mut guard, mut world) = (Guard::new(idle_for(5)), idle_job());
    let mut records = Vec::new();
    for nth in 0..80 {
        let told = match missing.contains(&nth) {
            true => Told::Failed,
            false => Told::Known(0),
        };
        world.process(100).utilization(0, told);
        daemon(nth, &mut guard);
        records.extend(guard.watches(&mut world, 1));
    }
    let mut steps = steps(&records);
    steps.truncate(2);
    steps
}

#[test]
fn a_sample_without_readings_neither_counts_as_idle_nor_begins_idleness_anew() {
    let at = |time: &str| ["violated", "warned"].map(|step| format!("{step} {time}"));
    let none = |_: usize, _: &mut Guard| ();
    assert_eq!(decided(&[], none), at("05:00"));
    assert_eq!(decided(&[20], none), at("05:10"));
    assert_eq!(decided(&[10, 20, 21], none), at("05:30"));
    // Four in a row, and four in five minutes, are too many: at 03:50 it begins anew.
    assert_eq!(decided(&[19, 20, 21, 22], none), at("08:50"));
    assert_eq!(decided(&[1, 8, 15, 22], none), at("08:50"));
}

#[test]
fn idleness_is_told_since_it_began_and_for_as_long_as_is_known() {
    let (mut guard, mut world) = (Guard::new(idle_for(5)), idle_job());
    guard.watches(&mut world, 20);
    world.process(100).utilization(0, Told::Failed);
    guard.watches(&mut world, 1);
    world.process(100).utilization(0, Told::Known(0));
    let records = guard.watches(&mut world, 12);
    let evidence = records.first().map(|record| &record.evidence);
    let told = evidence.map(|it| (it.since, it.measured.map(|it| it.value)));
    assert_eq!(told, Some((Timestamp(0), Some(300_000))));
}

#[test]
fn a_daemon_that_is_back_soon_begins_no_idleness_anew() {
    let decided = |away_ms: u64| {
        let (mut guard, mut world) = (Guard::new(idle_for(5)), idle_job());
        let mut records = guard.watches(&mut world, 20);
        world.bucket(away_ms);
        // The first poll tells of a moment.
        let mut first = world.bucket(0);
        first.from = first.until;
        let judgement = super::super::judge(&guard.book, &mut guard.memory, &first);
        records.extend(judgement.records);
        records.extend(guard.watches(&mut world, 40));
        steps(&records).first().cloned()
    };
    assert_eq!(decided(20_000), Some("violated 05:20".to_owned()));
    assert_eq!(decided(40_000), Some("violated 09:00".to_owned()));
}

#[test]
fn a_replay_counts_idleness_as_it_was_counted_live() {
    let (mut guard, mut world) = (Guard::new(idle_for(5)), idle_job());
    let mut replay = Replay::new(idle_for(5), Timestamp(0));
    let mut live = Vec::new();
    for nth in 0..60 {
        let told = match nth % 25 {
            7 | 8 => Told::Failed,
            _known => Told::Known(0),
        };
        world.process(100).utilization(0, told);
        let bucket = world.bucket(TEN_SECONDS);
        let judgement = super::super::judge(&guard.book, &mut guard.memory, &bucket);
        live.extend(
            judgement
                .records
                .into_iter()
                .filter(|it| matches!(it.step, GuardStep::Violated)),
        );
        replay.add(&bucket).unwrap();
    }
    let replayed = replay.finish();
    let first = replayed.outcomes.iter().map(|it| it.violated).sum::<u64>();
    assert_eq!((live.len(), first), (1, 1));
    assert_eq!(live[0].at, Timestamp(320_000));
    assert_eq!(
        replayed.open.first().map(|it| it.violated_at),
        Some(live[0].at)
    );
}

/// What a sample says: idle, at work, or nothing.
fn samples() -> impl Strategy<Value = Vec<(Option<bool>, u64)>> {
    let said = prop_oneof![
        12 => Just(Some(false)),
        1 => Just(Some(true)),
        3 => Just(None),
    ];
    proptest::collection::vec((said, 1_000_u64..15_000), 1..300)
}

proptest! {
    #[test]
    fn a_job_is_idle_where_it_was_for_the_whole_time_but_for_what_is_short(
        samples in samples(),
        length in 1_000_u64..900_000,
    ) {
        let mut streak = Streak::from(Timestamp(0));
        let mut past: Vec<(Option<bool>, Timestamp, u64)> = Vec::new();
        let mut now = 0;
        for (said, ms) in samples {
            now += i64::try_from(ms).unwrap();
            let until = Timestamp(now);
            match said {
                Some(true) => streak.breaks(until),
                Some(false) => streak.goes_on(),
                None => streak.is_unknown(ms, until),
            }
            past.push((said, until, ms));
            let sum = |past: &[(Option<bool>, Timestamp, u64)], what: Option<bool>| -> u64 {
                past.iter().filter(|it| it.0 == what).map(|it| it.2).sum()
            };
            match streak.through(length, until, Timestamp(0)) {
                Through::Since(since, known) => {
                    let after: Vec<_> = past.iter().copied().filter(|it| it.1 > since).collect();
                    prop_assert_eq!(sum(&after, Some(true)), 0);
                    prop_assert_eq!(sum(&after, Some(false)), known);
                    prop_assert!(known >= length);
                    let elapsed = u64::try_from(now - since.0).unwrap();
                    prop_assert!(sum(&after, None) <= SHORT.max(elapsed / SHARE));
                    let in_a_row = after.split(|it| it.0.is_some()).map(|it| sum(it, None));
                    prop_assert!(in_a_row.max().unwrap_or(0) <= SHORT);
                }
                // Where nothing is missing, it is known.
                Through::Not | Through::Unknown => {
                    let idle = past.rsplit(|it| it.0 != Some(false)).next().unwrap_or_default();
                    prop_assert!(sum(idle, Some(false)) < length);
                }
            }
        }
    }
}

/// As docs/guard.md has it: what is known of jobs whatever the rules ask counts for a rule
/// that is new; what is measured for a rule is measured from when that is there.
#[test]
fn a_rule_that_is_new_measures_with_what_is_known_already() {
    let with = |conduct: Option<Conduct>, mode: GuardMode| Rules {
        mode,
        behaviours: conduct.map(|it| behaviour("new", it)).into_iter().collect(),
        ..rules()
    };
    let ten = minutes(10);
    let idle = Conduct::Idle {
        limit: ten,
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    };
    let waste = Conduct::Waste {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: ten,
    };
    let kinds = [
        (Conduct::Duration(ten), 1, 1),
        (idle, 1, 59),
        (waste, 59, 59),
    ];
    for (conduct, of_new, of_disabled) in kinds {
        for (before, expected) in [
            (GuardMode::DryRun, of_new),
            (GuardMode::Disabled, of_disabled),
        ] {
            let (mut guard, mut world) = (Guard::new(with(None, before)), idle_job());
            guard.watches(&mut world, 90);
            guard.book = Rulebook::of(with(Some(conduct.clone()), GuardMode::DryRun));
            let is_broken = |guard: &Guard| !guard.memory.violations().is_empty();
            let mut looks = 0;
            while !is_broken(&guard) && looks < 100 {
                guard.watches(&mut world, 1);
                looks += 1;
            }
            // Limits of duration hold after two looks.
            assert!(
                (expected..expected + 3).contains(&looks),
                "{conduct:?} after {before:?}: {looks}"
            );
        }
    }
}
