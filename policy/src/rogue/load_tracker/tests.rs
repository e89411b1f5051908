//! Tests of loads over made-up samples, and that no sum exceeds its whole.

use super::*;
use crate::usage::Gauge;
use proptest::prelude::*;

const SAMPLE: u64 = 10_000;
const GIB: u64 = 1 << 30;

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: 7,
    }
}

fn usage(percent: Option<u64>, memory: Option<u64>) -> RunUsage {
    let gauge = |value: Option<u64>| Gauge {
        max: value,
        known_ms: value.map_or(0, |_| SAMPLE),
        total: value.map_or(0, |value| u128::from(value) * u128::from(SAMPLE)),
        is_failed: value.is_none(),
    };
    RunUsage {
        utilization: gauge(percent),
        memory: gauge(memory),
        ..RunUsage::default()
    }
}

/// Adds samples of ten seconds; each lists what one process did with each of its
/// devices.
fn add(loads: &mut LoadTracker, from: usize, samples: &[Vec<(Option<u64>, Option<u64>)>]) {
    for (at, devices) in samples.iter().enumerate() {
        let usages: Vec<RunUsage> = devices.iter().map(|(p, m)| usage(*p, *m)).collect();
        let until = Timestamp::default().plus_seconds(10 * i64::try_from(from + at + 1).unwrap());
        let stretches = usages.iter().map(|usage| ProcessSample {
            process: key(1),
            owner: None,
            held_since: Timestamp::default(),
            usage,
            host_cpu: Some(40),
        });
        loads.add(until, SAMPLE, stretches);
    }
}

fn hour() -> LoadTracker {
    LoadTracker::with_window(Duration::from_secs(3_600))
}

#[test]
fn load_covers_the_observed_time() {
    let mut loads = hour();
    assert_eq!(loads.load_of(key(1)), None);
    let full = vec![(Some(97), Some(5 * GIB))];
    let idle = vec![(Some(0), Some(5 * GIB))];
    let samples = [vec![full; 90], vec![idle; 10]].concat();
    add(&mut loads, 0, &samples);
    let expected = DeviceLoad {
        held: Duration::from_secs(1_000),
        seen: Duration::from_secs(1_000),
        utilization: Some(UtilizationShares {
            saturated: 900,
            idle: 100,
        }),
        mean: Some(87),
        memory: Some(HeldMemory {
            min: 5 * GIB,
            max: 5 * GIB,
            steady: 1_000,
        }),
        host_cpu: Some(40),
        bus_bytes: None,
    };
    assert_eq!(loads.load_of(key(1)), Some(expected));
    loads.drop_departed(Timestamp::default().plus_seconds(1_000 + 3_599));
    assert!(loads.load_of(key(1)).is_some());
    loads.drop_departed(Timestamp::default().plus_seconds(1_000 + 3_600));
    assert_eq!(loads.load_of(key(1)), None);
}

#[test]
fn busiest_device_and_total_memory_count() {
    let mut loads = hour();
    let both = vec![(Some(3), Some(GIB)), (Some(95), Some(2 * GIB))];
    add(&mut loads, 0, &vec![both; 10]);
    let load = loads.load_of(key(1)).unwrap();
    assert_eq!(load.mean, Some(95));
    assert_eq!(load.memory.map(|it| it.max), Some(3 * GIB));
    // Where the memory on one device is unknown, so is the sum.
    let mut loads = hour();
    add(&mut loads, 0, &[vec![(None, Some(GIB)), (Some(95), None)]]);
    let load = loads.load_of(key(1)).unwrap();
    assert_eq!((load.mean, load.memory), (Some(95), None));
}

#[test]
fn mostly_unknown_utilization_is_none() {
    for (known, expected) in [(89, None), (90, Some(1_000))] {
        let mut loads = hour();
        let samples = (0..100).map(|at| vec![((at < known).then_some(99), Some(GIB))]);
        add(&mut loads, 0, &samples.collect::<Vec<_>>());
        let shares = loads.load_of(key(1)).unwrap().utilization;
        assert_eq!(shares.map(|it| it.saturated), expected, "{known}");
    }
}

#[test]
fn window_forgets_but_hold_time_stays() {
    let mut loads = hour();
    add(&mut loads, 0, &vec![vec![(Some(0), Some(GIB))]; 1_000]);
    add(
        &mut loads,
        1_000,
        &vec![vec![(Some(99), Some(9 * GIB))]; 360],
    );
    let load = loads.load_of(key(1)).unwrap();
    assert!(load.seen <= Duration::from_secs(3_600), "{:?}", load.seen);
    assert!(load.seen >= Duration::from_secs(3_000), "{:?}", load.seen);
    assert_eq!(load.utilization.unwrap().saturated, 1_000);
    assert_eq!(load.memory.unwrap().min, 9 * GIB);
    assert_eq!(load.held, Duration::from_secs(13_600));
    // An unlimited window forgets nothing.
    let mut all = LoadTracker::unlimited();
    add(&mut all, 0, &vec![vec![(Some(0), Some(GIB))]; 1_000]);
    add(&mut all, 1_000, &vec![vec![(Some(99), Some(9 * GIB))]; 360]);
    let load = all.load_of(key(1)).unwrap();
    assert_eq!(load.seen, Duration::from_secs(13_600));
    assert_eq!(load.memory.unwrap().min, GIB);
}

#[test]
fn steady_memory_is_recognized() {
    let steady = |bytes: &dyn Fn(u64) -> u64| {
        let mut loads = hour();
        let samples = (0..200).map(|at| vec![(Some(50), Some(bytes(at)))]);
        add(&mut loads, 0, &samples.collect::<Vec<_>>());
        loads.load_of(key(1)).unwrap().memory.unwrap().steady
    };
    assert_eq!(steady(&|at| 4 * GIB + at % 2 * (50 << 20)), 1_000);
    assert_eq!(steady(&|at| if at < 20 { GIB } else { 5 * GIB }), 900);
    // The memory grows all the time and stays nowhere for long.
    assert!(steady(&|at| GIB + at * (200 << 20)) < 100);
    // Up and down.
    assert_eq!(steady(&|at| GIB + at % 4 * GIB), 250);
}

#[test]
fn processes_above_the_limit_are_untracked() {
    let mut loads = hour();
    let usage = usage(Some(1), Some(1));
    let pids = 0..u32::try_from(MAX_PROCESSES).unwrap() + 1;
    let stretches = pids.clone().map(|pid| ProcessSample {
        process: key(pid),
        owner: None,
        held_since: Timestamp::default(),
        usage: &usage,
        host_cpu: None,
    });
    loads.add(Timestamp(10_000), SAMPLE, stretches);
    assert_eq!(loads.processes().count(), MAX_PROCESSES);
    assert_eq!(loads.load_of(key(pids.end - 1)), None);
}

proptest! {
    #[test]
    fn shares_stay_within_bounds(
        samples in proptest::collection::vec(
            (any::<Option<u64>>(), any::<Option<u64>>(), any::<u64>(), any::<Option<u32>>()),
            0..50,
        )
    ) {
        let mut loads = LoadTracker::with_window(Duration::from_secs(60));
        for (percent, memory, seen_ms, host_cpu) in samples {
            let usage = usage(percent, memory);
            let stretch = ProcessSample {
                process: key(1),
                owner: None,
                held_since: Timestamp(i64::MIN),
                usage: &usage,
                host_cpu,
            };
            loads.add(Timestamp(i64::MAX), seen_ms, [stretch]);
        }
        if let Some(load) = loads.load_of(key(1)) {
            let shares = load.utilization.unwrap_or_default();
            prop_assert!(shares.saturated <= 1_000 && shares.idle <= 1_000);
            if let Some(held) = load.memory {
                prop_assert!(held.min <= held.max && held.steady <= 1_000);
            }
        }
    }
}

#[test]
fn few_short_lived_processes_are_kept() {
    let mut loads = hour();
    let usage = RunUsage::default();
    let at = |second: u32| Timestamp::default().plus_seconds(i64::from(second));
    for second in 1..=12_000 {
        let stretch = |pid| ProcessSample {
            process: key(pid),
            owner: None,
            held_since: at(second),
            usage: &usage,
            host_cpu: None,
        };
        // One process stays, and another is there for a second.
        loads.add(at(second), 1_000, [stretch(1), stretch(second + 1)]);
        loads.drop_departed(at(second));
    }
    assert_eq!(loads.processes().count(), 2 + MAX_DEPARTED);
    assert!(loads.load_of(key(1)).is_some());
    assert!(loads.load_of(key(12_000)).is_some());
    assert!(loads.load_of(key(9_000)).is_none());
}

#[test]
fn one_person_displaces_no_other() {
    let usage = usage(Some(1), Some(1));
    let stretch = |pid: u32, uid| ProcessSample {
        process: key(pid),
        owner: Some((Some(uid), "")),
        held_since: Timestamp::default(),
        usage: &usage,
        host_cpu: None,
    };
    let most = u32::try_from(MAX_PROCESSES).unwrap();
    let mut loads = hour();
    let many = || (1..=most).map(|pid| stretch(pid, 1_000));
    loads.add(Timestamp(10_000), SAMPLE, many());
    // A process of another user appears and stays, while more of the first user's
    // appear.
    let other = most + 1;
    for round in 2_u32..6 {
        let newer = (0..100).map(|nth| stretch(most + 2 + round * 100 + nth, 1_000));
        let all = many().chain([stretch(other, 1_001)]).chain(newer);
        loads.add(Timestamp(i64::from(round) * 10_000), SAMPLE, all);
        assert_eq!(loads.processes().count(), MAX_PROCESSES);
        let observed = loads.load_of(key(other)).unwrap().seen;
        assert_eq!(observed, Duration::from_millis(SAMPLE) * (round - 1));
    }
    // Processes that were tracked before are still tracked.
    assert!(loads.load_of(key(1)).is_some() && loads.load_of(key(most - 1)).is_some());

    // The same holds for processes that are gone.
    let mut loads = hour();
    loads.add(Timestamp(10_000), SAMPLE, [stretch(other, 1_001)]);
    loads.add(Timestamp(20_000), SAMPLE, many());
    loads.drop_departed(Timestamp(30_000));
    assert_eq!(loads.processes().count(), MAX_DEPARTED);
    assert!(loads.load_of(key(other)).is_some());
}
