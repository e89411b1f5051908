//! Tests that intervals add up.

use super::*;
use gpukill_proto::model::{Owner, OwnerKind, ProcessKey, Vendor};
use gpukill_proto::reading::Reading::{Stale, Unsupported, Value};
use gpukill_proto::units::Bytes;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn device(utilization: Reading<Percent>) -> Device {
    let mut device = Device::unknown(DeviceId("GPU-0".into()), 0, Vendor::Nvidia, &Unsupported);
    device.vitals.utilization = utilization;
    device.memory_used = Value(Bytes::mib(100));
    device.memory_unattributed = Value(Bytes(0));
    device
}

fn process(pid: u32, owner: &str, utilization: Reading<Percent>) -> GpuProcess {
    let key = ProcessKey {
        pid,
        start_ticks: 7,
    };
    let mut process =
        GpuProcess::unknown(DeviceId("GPU-0".into()), pid, Timestamp(0), &Unsupported);
    process.start_ticks = Value(key.start_ticks);
    process.utilization = utilization;
    process.memory = Value(Bytes::mib(10));
    process.owner = Value(Owner {
        name: owner.into(),
        uid: Some(1),
        kind: OwnerKind::User,
    });
    process
}

fn snapshot(at: i64, device: Device, processes: Vec<GpuProcess>) -> Snapshot {
    Snapshot {
        host: String::new(),
        taken_at: Timestamp(at),
        polls: 1,
        devices: vec![device],
        processes,
        backends: Vec::new(),
        faults: Vec::new(),
    }
}

type TestUsage = Usage<DeviceId, DeviceRun>;

fn usage_of(device: Device, processes: Vec<GpuProcess>) -> TestUsage {
    let mut usage = TestUsage::starting_at(Timestamp(0));
    usage.add(&snapshot(1_000, device, processes), SECOND);
    usage
}

/// Busy, idle and unknown milliseconds of each pid.
fn shares(usage: &TestUsage) -> Vec<(u32, [u64; 3])> {
    let runs = usage.runs.iter();
    runs.map(|(run, it)| (run.pid, [it.busy_ms, it.idle_ms, it.unknown_ms]))
        .collect()
}

/// Busy, held, free and unknown milliseconds of the device.
fn times(usage: &TestUsage) -> [u64; 4] {
    let it = usage.devices.values().next().unwrap();
    [it.busy_ms, it.held_ms, it.free_ms, it.unknown_ms]
}

const BUSY: Reading<Percent> = Value(Percent(5));
const IDLE: Reading<Percent> = Value(Percent(4));

#[test]
fn owner_time_goes_to_busy_processes() {
    let usage = usage_of(
        device(Value(Percent(90))),
        vec![
            process(1, "alice", BUSY),
            process(2, "alice", IDLE),
            process(3, "alice", BUSY),
            process(4, "bob", IDLE),
            process(5, "bob", Unsupported),
            process(6, "carol", IDLE),
            process(7, "carol", IDLE),
            process(8, "carol", IDLE),
        ],
    );
    let expected = [
        (1, [500, 0, 0]),
        (2, [0, 0, 0]),
        (3, [500, 0, 0]),
        (4, [0, 0, 0]),
        (5, [0, 0, 1000]),
        (6, [0, 333, 0]),
        (7, [0, 333, 0]),
        (8, [0, 334, 0]),
    ];
    assert_eq!(shares(&usage), expected);
    assert!(usage.runs.values().all(|run| run.held_ms == 1000));
}

#[test]
fn unknown_processes_are_not_free() {
    let mut it = device(IDLE);
    assert_eq!(times(&usage_of(it.clone(), vec![])), [0, 0, 1000, 0]);
    it.memory_unattributed = Reading::Failed("999".into());
    it.process_count = Reading::Failed("999".into());
    assert_eq!(times(&usage_of(it.clone(), vec![])), [0, 0, 0, 1000]);
    it.process_count = Value(0);
    assert_eq!(times(&usage_of(it.clone(), vec![])), [0, 0, 1000, 0]);
    it.vitals.utilization = BUSY;
    it.process_count = Reading::Failed("999".into());
    assert_eq!(times(&usage_of(it, vec![])), [1000, 0, 0, 0]);
}

#[test]
fn device_decides_for_unknown_process() {
    let alone = |device| shares(&usage_of(device, vec![process(1, "alice", Unsupported)]));
    assert_eq!(alone(device(IDLE)), [(1, [0, 1000, 0])]);
    assert_eq!(alone(device(BUSY)), [(1, [1000, 0, 0])]);
    assert_eq!(alone(device(Unsupported)), [(1, [0, 0, 1000])]);
    // An unseen process may be busy.
    let mut ghost = device(BUSY);
    ghost.memory_unattributed = Value(Bytes(1));
    assert_eq!(alone(ghost), [(1, [0, 0, 1000])]);
    let two = vec![
        process(1, "alice", Unsupported),
        process(2, "bob", Unsupported),
    ];
    let expected = [(1, [0, 0, 1000]), (2, [0, 0, 1000])];
    assert_eq!(shares(&usage_of(device(BUSY), two)), expected);
}

#[test]
fn device_is_busy_held_free_or_unknown() {
    let held = || vec![process(1, "alice", Unsupported)];
    let ghost = |utilization| Device {
        memory_unattributed: Value(Bytes(1)),
        ..device(utilization)
    };
    let cases = [
        (device(BUSY), held(), [1000, 0, 0, 0]),
        (device(BUSY), vec![], [1000, 0, 0, 0]),
        (device(IDLE), held(), [0, 1000, 0, 0]),
        (ghost(IDLE), vec![], [0, 1000, 0, 0]),
        (device(IDLE), vec![], [0, 0, 1000, 0]),
        (device(Unsupported), vec![], [0, 0, 1000, 0]),
        (device(Unsupported), held(), [0, 0, 0, 1000]),
    ];
    for (device, processes, expected) in cases {
        assert_eq!(times(&usage_of(device, processes)), expected);
    }
}

#[test]
fn stale_readings_add_nothing() {
    let mut old = device(Stale(Percent(90), 12));
    old.memory_used = Stale(Bytes(1), 12);
    let mut holder = process(1, "alice", Stale(Percent(90), 12));
    holder.memory = Stale(Bytes(1), 12);
    let usage = usage_of(old, vec![holder]);
    assert_eq!(times(&usage), [0; 4]);
    let run = usage.runs.values().next().unwrap();
    assert_eq!((run.held_ms, run.owner_share_ms()), (0, 0));
    let failed = run.memory.reading(|it| it.max);
    assert_eq!(failed.known(), None);
    assert!(failed.failure().is_some());
}

#[test]
fn gap_is_not_counted() {
    let interval = 2 * SECOND;
    assert_eq!(covered_time(None, interval), Duration::ZERO);
    assert_eq!(covered_time(Some(3 * interval), interval), 3 * interval);
    assert_eq!(
        covered_time(Some(3 * interval + SECOND), interval),
        Duration::ZERO
    );
    assert_eq!(covered_time(Some(SECOND), Duration::MAX), SECOND);
}

#[test]
fn mean_covers_known_time() {
    let mut gauge = Gauge::default();
    gauge.add(&Value(30_u64), 0, |it| *it);
    assert_eq!(gauge.mean(), Some(30));
    gauge.add(&Value(10), 1_000, |it| *it);
    gauge.add(&Unsupported, 9_000, |it: &u64| *it);
    gauge.add(&Value(11), 1_000, |it| *it);
    assert_eq!((gauge.mean(), gauge.max), (Some(11), Some(30)));
}

fn reading() -> impl Strategy<Value = Reading<Percent>> {
    prop_oneof![
        (0..=100_u32).prop_map(|it| Value(Percent(it))),
        Just(Unsupported),
        (0..=100_u32).prop_map(|it| Stale(Percent(it), 3)),
    ]
}

/// A poll: the time it covers, the device, and its processes.
fn poll() -> impl Strategy<Value = (u64, Device, Vec<GpuProcess>)> {
    let there = (0..6_u32, 0..3_usize, reading());
    let there = there.prop_map(|(pid, owner, it)| process(pid, ["a", "b", "c"][owner], it));
    let all = prop::collection::btree_map(0..6_u32, there, 0..6).prop_map(|all| {
        let renamed = all.into_iter().map(|(pid, it)| GpuProcess { pid, ..it });
        renamed.collect()
    });
    (0..9_999_u64, reading().prop_map(device), all)
}

proptest! {
    #[test]
    fn sum_is_independent_of_steps(
        polls in prop::collection::vec(poll(), 1..12),
        cut in 0..12_usize,
    ) {
        let mut all = TestUsage::starting_at(Timestamp(0));
        let mut parts = [TestUsage::starting_at(Timestamp(0)), TestUsage::starting_at(Timestamp(0))];
        for (number, (ms, device, processes)) in (0..).zip(&polls) {
            let at = i64::try_from(number).unwrap();
            let snapshot = snapshot(at, device.clone(), processes.clone());
            let observed = Duration::from_millis(*ms);
            all.add(&snapshot, observed);
            parts[usize::from(number >= cut)].add(&snapshot, observed);
        }
        let [mut sum, later] = parts;
        sum.merge(&later);
        prop_assert_eq!(sum, all);
    }

    #[test]
    fn no_share_exceeds_the_time((ms, device, processes) in poll()) {
        let mut usage = TestUsage::starting_at(Timestamp(0));
        usage.add(&snapshot(1, device, processes.clone()), Duration::from_millis(ms));
        prop_assert_eq!(times(&usage).iter().sum::<u64>(), ms);
        for owner in ["a", "b", "c"] {
            let own_pids: Vec<u32> = processes
                .iter()
                .filter(|it| it.owner.known().is_some_and(|it| it.name == owner))
                .map(|it| it.pid)
                .collect();
            let runs = usage.runs.iter().filter(|(run, _)| own_pids.contains(&run.pid));
            let sum: u64 = runs.map(|(_, it)| it.owner_share_ms()).sum();
            prop_assert_eq!(sum, if own_pids.is_empty() { 0 } else { ms });
        }
    }
}

#[test]
fn idle_process_beside_a_busy_one_is_idle_itself() {
    let busy_device = || device(Value(Percent(80)));
    let times = |processes: Vec<GpuProcess>| -> Vec<(u64, u64)> {
        let usage = usage_of(busy_device(), processes);
        usage.runs.values().map(RunUsage::process_times).collect()
    };
    let of_alice = |pid, utilization| process(pid, "alice", utilization);
    let beside = times(vec![
        of_alice(1, Value(Percent(80))),
        of_alice(2, Value(Percent(0))),
        of_alice(3, Unsupported),
        process(4, "bob", Value(Percent(0))),
    ]);
    assert_eq!(beside, [(1_000, 0), (0, 1_000), (0, 0), (0, 1_000)]);
    // Two busy processes share the time of their owner, and both are busy all the time.
    let both = times(vec![
        of_alice(1, Value(Percent(40))),
        of_alice(2, Value(Percent(40))),
    ]);
    assert_eq!(both, [(1_000, 0), (1_000, 0)]);
}
