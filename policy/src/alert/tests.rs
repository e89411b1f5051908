//! When alerts begin, how long they last, and what changes nothing.

use super::*;
use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};
use gpukill_proto::snapshot::{Fault, FaultCode, Vendor};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

const HOT: Thresholds = Thresholds {
    temperature: Some(Celsius(85)),
    memory: None,
};

const FULL: Thresholds = Thresholds {
    temperature: None,
    memory: Some(Percent(90)),
};

/// A poll in which only these devices are there.
fn poll(second: i64, devices: Vec<Device>) -> Snapshot {
    Snapshot {
        host: String::new(),
        taken_at: Timestamp(second * 1_000),
        tick: 1,
        devices,
        processes: Vec::new(),
        backends: Vec::new(),
        faults: Vec::new(),
    }
}

fn gpu(index: u32) -> Device {
    let id = DeviceId(format!("GPU-{index}"));
    Device::unknown(id, index, Vendor::Nvidia, &Unsupported)
}

fn at(temperature: Reading<Celsius>) -> Device {
    let mut device = gpu(0);
    device.vitals.temperature = temperature;
    device
}

fn degrees(degrees: i32) -> Device {
    at(Value(Celsius(degrees)))
}

/// 100 GiB, of which these bytes are used.
fn using(bytes: u64) -> Device {
    Device {
        memory_total: Value(Bytes(100 * GIB)),
        memory_used: Value(Bytes(bytes)),
        ..gpu(0)
    }
}

/// What each poll changes, and which alerts last then: a poll each second.
fn judged(thresholds: &Thresholds, polls: Vec<Device>) -> Vec<(Vec<Step>, usize)> {
    let mut memory = Memory::default();
    let seconds = polls.into_iter().zip(0..);
    let judged = seconds.map(|(device, second)| {
        let changes = judge(thresholds, &mut memory, &poll(second, vec![device]));
        let steps = changes.into_iter().map(|change| change.step).collect();
        (steps, memory.lasting().count())
    });
    judged.collect()
}

#[test]
fn two_polls_at_the_threshold_begin_an_alert_and_two_well_below_it_end_it() {
    let temperatures = [
        84, 85, 84, 86, 85, 99, 83, 82, 83, 82, 81, 84, 84, 85, 84, 85, 87,
    ];
    let polls = temperatures.map(degrees).to_vec();
    let (none, begins) = (Vec::new, |value| vec![Step::Begins(value)]);
    let expected = vec![
        (none(), 0),
        (none(), 0),
        // One was a slip.
        (none(), 0),
        (none(), 0),
        (begins(85), 1),
        (none(), 1),
        (none(), 1),
        (none(), 1),
        (none(), 1),
        (none(), 1),
        (vec![Step::Over(81)], 0),
        (none(), 0),
        (none(), 0),
        (none(), 0),
        (none(), 0),
        (none(), 0),
        (begins(87), 1),
    ];
    assert_eq!(judged(&HOT, polls), expected);
}

#[test]
fn what_is_not_known_or_old_changes_nothing() {
    let unknown = || {
        [
            Unsupported,
            Failed("999".into()),
            Stale(Celsius(85), 3),
            Stale(Celsius(20), 3),
            Withheld,
        ]
        .map(at)
    };
    let mut polls = vec![degrees(85)];
    polls.extend(unknown());
    polls.push(degrees(85));
    polls.extend(unknown());
    polls.push(degrees(20));
    polls.extend(unknown());
    polls.push(degrees(20));
    let seen = judged(&HOT, polls);
    let changes: Vec<(usize, Vec<Step>)> = seen
        .into_iter()
        .map(|(steps, _)| steps)
        .enumerate()
        .filter(|(_, steps)| !steps.is_empty())
        .collect();
    let expected = vec![(6, vec![Step::Begins(85)]), (18, vec![Step::Over(20)])];
    assert_eq!(changes, expected);
}

#[test]
fn memory_counts_to_the_byte() {
    let last = |polls: [u64; 4]| judged(&FULL, polls.map(using).to_vec()).pop();
    let (limit, well_below) = (90 * GIB, 87 * GIB);
    let none = |lasting| Some((Vec::new(), lasting));
    assert_eq!(last([limit - 1; 4]), none(0));
    assert_eq!(last([limit, limit, limit, limit]), none(1));
    let nearly = well_below + 1;
    assert_eq!(last([limit, limit, nearly, nearly]), none(1));
    let over = Some((vec![Step::Over(87)], 0));
    assert_eq!(last([limit, limit, well_below, well_below]), over);
}

#[test]
fn a_share_is_of_the_devices_own_memory_whose_size_is_known() {
    let never = judged(&FULL, Vec::new());
    assert_eq!(never, []);
    let full = || using(100 * GIB);
    let shared = Device {
        memory_unified: true,
        ..full()
    };
    let (of_nothing, unsized_, old) = (
        Device {
            memory_total: Value(Bytes(0)),
            ..full()
        },
        Device {
            memory_total: Unsupported,
            ..full()
        },
        Device {
            memory_total: Stale(Bytes(100 * GIB), 2),
            ..full()
        },
    );
    for device in [shared, of_nothing, unsized_, old] {
        let polls = vec![device.clone(), device.clone(), device];
        assert_eq!(judged(&FULL, polls), vec![(Vec::new(), 0); 3]);
    }
    // More than all of it is a driver's mistake, and high all the same.
    let polls = vec![using(u64::MAX), using(u64::MAX)];
    let begins = vec![Step::Begins(17_179_869_183)];
    assert_eq!(judged(&FULL, polls), [(Vec::new(), 0), (begins, 1)]);
}

#[test]
fn the_lowest_thresholds_can_be_passed_both_ways() {
    for limit in 1..=4 {
        let thresholds = Thresholds {
            temperature: Some(Celsius(limit)),
            memory: Some(Percent(limit.unsigned_abs())),
        };
        let device = |value: i32| Device {
            vitals: degrees(value).vitals,
            ..using(u64::from(value.unsigned_abs()) * GIB)
        };
        let polls = vec![device(limit), device(limit), device(0), device(0)];
        let lasting: Vec<usize> = judged(&thresholds, polls)
            .into_iter()
            .map(|(_, lasting)| lasting)
            .collect();
        assert_eq!(lasting, [0, 2, 2, 0], "{limit}");
    }
}

#[test]
fn no_threshold_is_no_alert() {
    let polls = vec![degrees(200), degrees(200), degrees(200)];
    let expected = vec![(Vec::new(), 0); 3];
    assert_eq!(judged(&Thresholds::default(), polls.clone()), expected);
    assert_eq!(judged(&FULL, polls), expected);
}

#[test]
fn each_device_has_alerts_of_its_own_that_say_which_and_since_when() {
    let both = Thresholds {
        memory: FULL.memory,
        ..HOT
    };
    let devices = || {
        let full = using(95 * GIB);
        let hot = Device {
            vitals: degrees(91).vitals,
            ..gpu(1)
        };
        vec![full, hot, gpu(2)]
    };
    let mut memory = Memory::default();
    assert_eq!(judge(&both, &mut memory, &poll(1, devices())), []);
    let begun = judge(&both, &mut memory, &poll(2, devices()));
    let alert = |index: u32, quantity, limit| Alert {
        device: gpu(index).id,
        index,
        quantity,
        limit,
        since: Timestamp(2_000),
    };
    let (full, hot) = (
        alert(0, Quantity::Memory, 90),
        alert(1, Quantity::Temperature, 85),
    );
    let change = |alert: &Alert, step| Change {
        alert: alert.clone(),
        step,
    };
    let expected = [
        change(&full, Step::Begins(95)),
        change(&hot, Step::Begins(91)),
    ];
    assert_eq!(begun, expected);
    assert_eq!(judge(&both, &mut memory, &poll(3, devices())), []);
    let lasting: Vec<Alert> = memory.lasting().collect();
    assert_eq!(lasting, [full.clone(), hot.clone()]);
    let what = lasting.iter().map(Alert::what);
    assert_eq!(
        what.collect::<Vec<_>>(),
        [
            "memory in use at or above 90 %",
            "temperature at or above 85 °C"
        ]
    );

    // One is gone; for the other's memory another threshold holds.
    let roomier = Thresholds {
        memory: Some(Percent(94)),
        ..both
    };
    let rest = || vec![devices().swap_remove(0)];
    let ended = judge(&roomier, &mut memory, &poll(4, rest()));
    let expected = [
        change(&full, Step::OtherThreshold),
        change(&hot, Step::Gone),
    ];
    assert_eq!(ended, expected);
    assert_eq!(memory.lasting().count(), 0);
    let begun = judge(&roomier, &mut memory, &poll(5, rest()));
    let anew = Alert {
        limit: 94,
        since: Timestamp(5_000),
        ..full
    };
    assert_eq!(begun, [change(&anew, Step::Begins(95))]);
    let off = Thresholds::default();
    let ended = judge(&off, &mut memory, &poll(6, rest()));
    assert_eq!(ended, [change(&anew, Step::OtherThreshold)]);
    assert_eq!(memory, Memory::default());
}

fn temperatures() -> impl Strategy<Value = Reading<Celsius>> {
    let known = (1..=20).prop_map(Celsius);
    prop_oneof![
        6 => known.clone().prop_map(Value),
        1 => known.prop_map(|known| Stale(known, 2)),
        1 => Just(Unsupported),
        1 => Just(Failed("999".into())),
    ]
}

fn shares() -> impl Strategy<Value = Reading<Bytes>> {
    // Halves of a percent: what is in between is rounded both ways.
    let known = (0..=40_u64).prop_map(|halves| Bytes(halves * GIB / 2));
    prop_oneof![
        6 => known.clone().prop_map(Value),
        1 => known.prop_map(|known| Stale(known, 2)),
        1 => Just(Unsupported),
    ]
}

proptest! {
    /// Whatever the devices tell, where there is an alert with higher thresholds,
    /// there is one with lower ones.
    #[test]
    fn raising_a_threshold_never_adds_an_alert(
        polls in proptest::collection::vec((temperatures(), shares()), 0..60),
        lower in 1..=20_u32,
        raise in 0..=20_u32,
    ) {
        let both = |limit: u32| Thresholds {
            temperature: Some(Celsius(limit.cast_signed())),
            memory: Some(Percent(limit)),
        };
        let (mut low, mut high) = (Memory::default(), Memory::default());
        for (second, (temperature, used)) in (0..).zip(polls) {
            let device = Device {
                memory_used: used,
                vitals: at(temperature).vitals,
                ..using(0)
            };
            let snapshot = poll(second, vec![device]);
            let _ = judge(&both(lower), &mut low, &snapshot);
            let _ = judge(&both(lower + raise), &mut high, &snapshot);
            let lasting = |memory: &Memory| -> BTreeSet<Quantity> {
                memory.lasting().map(|alert| alert.quantity).collect()
            };
            prop_assert!(lasting(&high).is_subset(&lasting(&low)));
        }
    }
}

#[test]
fn what_a_device_tells_now_is_told_beside_its_alert_and_no_other() {
    let both = Thresholds {
        memory: FULL.memory,
        ..HOT
    };
    let fault = |part: &str, what: &str| Fault {
        part: part.into(),
        code: FaultCode::TemperatureAlert,
        what: what.into(),
        since: Timestamp(1_000),
    };
    let alert = |index: u32, what: &str, limit, value, unit: &str| AlertValue {
        part: format!("GPU {index}"),
        what: what.into(),
        limit,
        value,
        unit: unit.into(),
    };
    let (hot, full) = (
        "temperature at or above 85 °C",
        "memory in use at or above 90 %",
    );
    let mut hot_and_full = using(95 * GIB + 1);
    hot_and_full.vitals.temperature = Value(Celsius(91));
    let mut hot_too = gpu(1);
    hot_too.vitals.temperature = Value(Celsius(99));
    let mut snapshot = poll(1, vec![hot_and_full, hot_too]);
    // One whose value is not known now, and one that has no alert (yet).
    snapshot.devices.push(gpu(2));
    snapshot.faults = vec![
        fault("GPU 0", hot),
        fault("GPU 0", full),
        fault("GPU 0", "lost (XID 79)"),
        fault("GPU 2", hot),
        // By a threshold that holds no more.
        fault("GPU 1", "temperature at or above 80 °C"),
    ];
    let expected = vec![
        alert(0, hot, 85, Some(91), "°C"),
        alert(0, full, 90, Some(95), "%"),
        alert(2, hot, 85, None, "°C"),
    ];
    assert_eq!(values(&both, &snapshot), expected);
    assert_eq!(values(&Thresholds::default(), &snapshot), Vec::new());
}
