//! Tests of stale readings, and of the sum of listed memory.

use super::*;
use gpukill_proto::reading::Reading::Stale;

#[test]
fn stale_readings_report_age_only() {
    let used = |mut device: DeviceHolders| {
        device.memory_used = Stale(gib(356), 9);
        device
    };
    let unattributed = |mut device: DeviceHolders| {
        device.memory_unattributed = Stale(gib(356), 9);
        device
    };
    let of_a_holder = |mut device: DeviceHolders| {
        device.holders.push(listed(70_000, Stale(gib(1), 9)));
        device
    };
    let all = |device| {
        let mut device = of_a_holder(unattributed(device));
        device.memory_used = Stale(gib(356), 8);
        device
    };
    let ways: [&dyn Fn(DeviceHolders) -> DeviceHolders; 4] =
        [&used, &unattributed, &of_a_holder, &all];
    for way in ways {
        let mut old = way(device(vec![
            worker(7),
            zombie(8, 60, "torchrun"),
            holder(9),
        ]));
        old.ended = vec![ended(60_190, 356, 3)];
        let text = "the readings are 9 s old";
        let expected = finding(Cause::Unknown, &[], &[text], None);
        assert_eq!(find_causes(&old, NOW), [expected]);
        old.memory_unattributed = Stale(Bytes(0), 9);
        assert_eq!(find_causes(&old, NOW), []);
    }
}

#[test]
fn stale_state_makes_no_cause() {
    let cause = |state| {
        let holder = Holder {
            state,
            ..zombie(7, 60, "torchrun")
        };
        find_causes(&device(vec![holder]), NOW)[0].cause
    };
    assert_eq!(cause(Value(ProcessState::Zombie)), Cause::Zombie);
    assert_eq!(cause(Stale(ProcessState::Zombie, 9)), Cause::Unknown);
    let stuck = ProcessState::Uninterruptible(None);
    assert_eq!(cause(Value(stuck.clone())), Cause::Uninterruptible);
    assert_eq!(cause(Stale(stuck, 9)), Cause::Unknown);
    let mut busy = device(vec![]);
    busy.memory_unattributed = Value(Bytes(0));
    busy.busy_without_holder_since = Some(NOW.plus_seconds(-300));
    busy.utilization = Stale(Percent(100), 9);
    assert_eq!(find_causes(&busy, NOW), []);
}

#[test]
fn teardown_needs_known_earlier_memory() {
    let mut torn = device(vec![]);
    torn.ended = vec![ended(60_190, 356, 3)];
    assert_eq!(find_causes(&torn, NOW)[0].cause, Cause::TearingDown);
    for unknown in [Failed("x".into()), Unsupported, Stale(Bytes(0), 9)] {
        torn.ended[0].unattributed_before = unknown;
        assert_eq!(find_causes(&torn, NOW)[0].cause, Cause::Unknown);
    }
}

#[test]
fn missing_pids_add_up_within_used_memory() {
    let gone = |pid, tenths| Holder {
        start_ticks: Failed("no such process".into()),
        ..listed(pid, Value(gib(tenths)))
    };
    let zombie_listed = |pid, tenths| Holder {
        listed: true,
        memory: Value(gib(tenths)),
        ..zombie(pid, 60, "torchrun")
    };
    let remainder = |used, unattributed, holders| {
        let mut summed = device(holders);
        summed.memory_used = used;
        summed.memory_unattributed = unattributed;
        unattributed_bytes(&summed, Reading::known)
    };
    let cases = [
        // Used memory, unattributed memory, listed memory, and the expected sum.
        (Value(gib(356)), Value(gib(10)), vec![], Some(gib(10))),
        (Value(gib(356)), Unsupported, vec![], None),
        (
            Value(gib(300)),
            Value(gib(10)),
            vec![gone(7, 100), gone(8, 50), zombie_listed(9, 20)],
            Some(Bytes(gib(10).0 + gib(100).0 + gib(50).0 + gib(20).0)),
        ),
        (
            Value(gib(300)),
            Unsupported,
            vec![gone(7, 100), gone(8, 50)],
            Some(Bytes(gib(100).0 + gib(50).0)),
        ),
        // The other processes leave no more than this of the used memory.
        (
            Value(gib(200)),
            Value(Bytes(0)),
            vec![
                gone(7, 150),
                listed(10, Value(gib(100))),
                listed(11, Value(gib(60))),
            ],
            Some(Bytes(gib(200).0 - gib(100).0 - gib(60).0)),
        ),
        (
            Unsupported,
            Value(Bytes(0)),
            vec![gone(7, 150)],
            Some(gib(150)),
        ),
    ];
    for (used, unattributed, holders, expected) in cases {
        assert_eq!(remainder(used, unattributed, holders), expected);
    }
    let most = listed(7, Value(Bytes(u64::MAX)));
    let most = Holder {
        start_ticks: Failed("x".into()),
        ..most
    };
    let all = vec![most.clone(), Holder { pid: 8, ..most }];
    let summed = remainder(Unsupported, Value(Bytes(1)), all);
    assert_eq!(summed, Some(Bytes(u64::MAX)));
}
