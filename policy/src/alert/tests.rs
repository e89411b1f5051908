//! Tests of when alerts start, how long they stay active, and which readings change
//! nothing.

use super::*;
use gpukill_proto::model::{Fault, FaultCode, Vendor};
use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};
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

/// A poll that lists exactly these devices.
fn poll(second: i64, devices: Vec<Device>) -> Snapshot {
    Snapshot {
        host: String::new(),
        taken_at: Timestamp(second * 1_000),
        polls: 1,
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

fn device_at(temperature: Reading<Celsius>) -> Device {
    let mut device = gpu(0);
    device.vitals.temperature = temperature;
    device
}

fn device_at_degrees(degrees: i32) -> Device {
    device_at(Value(Celsius(degrees)))
}

/// A device with 100 GiB of memory, of which `bytes` are used.
fn device_using(bytes: u64) -> Device {
    Device {
        memory_total: Value(Bytes(100 * GIB)),
        memory_used: Value(Bytes(bytes)),
        ..gpu(0)
    }
}

/// Returns the transitions of each poll and the number of active alerts after it. One
/// poll takes place each second.
fn evaluate_polls(
    thresholds: &Thresholds,
    polls: Vec<Device>,
) -> Vec<(Vec<AlertTransition>, usize)> {
    let mut memory = AlertState::default();
    let seconds = polls.into_iter().zip(0..);
    let evaluations = seconds.map(|(device, second)| {
        let changes = evaluate(thresholds, &mut memory, &poll(second, vec![device]));
        let steps = changes
            .into_iter()
            .map(|change| change.transition)
            .collect();
        (steps, memory.active().count())
    });
    evaluations.collect()
}

#[test]
fn two_polls_start_and_end_an_alert() {
    let temperatures = [
        84, 85, 84, 86, 85, 99, 83, 82, 83, 82, 81, 84, 84, 85, 84, 85, 87,
    ];
    let polls = temperatures.map(device_at_degrees).to_vec();
    let (none, begins) = (Vec::new, |value| vec![AlertTransition::Started(value)]);
    let expected = vec![
        (none(), 0),
        (none(), 0),
        // A single value is a sensor error.
        (none(), 0),
        (none(), 0),
        (begins(85), 1),
        (none(), 1),
        (none(), 1),
        (none(), 1),
        (none(), 1),
        (none(), 1),
        (vec![AlertTransition::Ended(81)], 0),
        (none(), 0),
        (none(), 0),
        (none(), 0),
        (none(), 0),
        (none(), 0),
        (begins(87), 1),
    ];
    assert_eq!(evaluate_polls(&HOT, polls), expected);
}

#[test]
fn unknown_and_stale_change_nothing() {
    let unknown = || {
        [
            Unsupported,
            Failed("999".into()),
            Stale(Celsius(85), 3),
            Stale(Celsius(20), 3),
            Withheld,
        ]
        .map(device_at)
    };
    let mut polls = vec![device_at_degrees(85)];
    polls.extend(unknown());
    polls.push(device_at_degrees(85));
    polls.extend(unknown());
    polls.push(device_at_degrees(20));
    polls.extend(unknown());
    polls.push(device_at_degrees(20));
    let evaluations = evaluate_polls(&HOT, polls);
    let changes: Vec<(usize, Vec<AlertTransition>)> = evaluations
        .into_iter()
        .map(|(steps, _)| steps)
        .enumerate()
        .filter(|(_, steps)| !steps.is_empty())
        .collect();
    let expected = vec![
        (6, vec![AlertTransition::Started(85)]),
        (18, vec![AlertTransition::Ended(20)]),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn memory_counts_to_the_byte() {
    let last = |polls: [u64; 4]| evaluate_polls(&FULL, polls.map(device_using).to_vec()).pop();
    let (limit, well_below) = (90 * GIB, 87 * GIB);
    let none = |lasting| Some((Vec::new(), lasting));
    assert_eq!(last([limit - 1; 4]), none(0));
    assert_eq!(last([limit, limit, limit, limit]), none(1));
    let nearly = well_below + 1;
    assert_eq!(last([limit, limit, nearly, nearly]), none(1));
    let over = Some((vec![AlertTransition::Ended(87)], 0));
    assert_eq!(last([limit, limit, well_below, well_below]), over);
}

#[test]
fn memory_share_needs_a_known_total() {
    let never = evaluate_polls(&FULL, Vec::new());
    assert_eq!(never, []);
    let full = || device_using(100 * GIB);
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
        assert_eq!(evaluate_polls(&FULL, polls), vec![(Vec::new(), 0); 3]);
    }
    // Use above the total is a driver error, and still high.
    let polls = vec![device_using(u64::MAX), device_using(u64::MAX)];
    let begins = vec![AlertTransition::Started(17_179_869_183)];
    assert_eq!(evaluate_polls(&FULL, polls), [(Vec::new(), 0), (begins, 1)]);
}

#[test]
fn lowest_thresholds_start_and_end() {
    for limit in 1..=4 {
        let thresholds = Thresholds {
            temperature: Some(Celsius(limit)),
            memory: Some(Percent(limit.unsigned_abs())),
        };
        let device = |value: i32| Device {
            vitals: device_at_degrees(value).vitals,
            ..device_using(u64::from(value.unsigned_abs()) * GIB)
        };
        let polls = vec![device(limit), device(limit), device(0), device(0)];
        let lasting: Vec<usize> = evaluate_polls(&thresholds, polls)
            .into_iter()
            .map(|(_, lasting)| lasting)
            .collect();
        assert_eq!(lasting, [0, 2, 2, 0], "{limit}");
    }
}

#[test]
fn without_threshold_no_alert() {
    let polls = vec![
        device_at_degrees(200),
        device_at_degrees(200),
        device_at_degrees(200),
    ];
    let expected = vec![(Vec::new(), 0); 3];
    assert_eq!(
        evaluate_polls(&Thresholds::default(), polls.clone()),
        expected
    );
    assert_eq!(evaluate_polls(&FULL, polls), expected);
}

#[test]
fn alerts_are_kept_for_each_device() {
    let both = Thresholds {
        memory: FULL.memory,
        ..HOT
    };
    let devices = || {
        let full = device_using(95 * GIB);
        let hot = Device {
            vitals: device_at_degrees(91).vitals,
            ..gpu(1)
        };
        vec![full, hot, gpu(2)]
    };
    let mut memory = AlertState::default();
    assert_eq!(evaluate(&both, &mut memory, &poll(1, devices())), []);
    let started = evaluate(&both, &mut memory, &poll(2, devices()));
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
    let change = |alert: &Alert, step| AlertChange {
        alert: alert.clone(),
        transition: step,
    };
    let expected = [
        change(&full, AlertTransition::Started(95)),
        change(&hot, AlertTransition::Started(91)),
    ];
    assert_eq!(started, expected);
    assert_eq!(evaluate(&both, &mut memory, &poll(3, devices())), []);
    let lasting: Vec<Alert> = memory.active().collect();
    assert_eq!(lasting, [full.clone(), hot.clone()]);
    let what = lasting.iter().map(Alert::description);
    assert_eq!(
        what.collect::<Vec<_>>(),
        [
            "memory in use at or above 90 %",
            "temperature at or above 85 °C"
        ]
    );

    // One device is gone. A new threshold applies to the memory of the other device.
    let roomier = Thresholds {
        memory: Some(Percent(94)),
        ..both
    };
    let rest = || vec![devices().swap_remove(0)];
    let ended = evaluate(&roomier, &mut memory, &poll(4, rest()));
    let expected = [
        change(&full, AlertTransition::ThresholdChanged),
        change(&hot, AlertTransition::DeviceGone),
    ];
    assert_eq!(ended, expected);
    assert_eq!(memory.active().count(), 0);
    let started = evaluate(&roomier, &mut memory, &poll(5, rest()));
    let new_alert = Alert {
        limit: 94,
        since: Timestamp(5_000),
        ..full
    };
    assert_eq!(started, [change(&new_alert, AlertTransition::Started(95))]);
    let off = Thresholds::default();
    let ended = evaluate(&off, &mut memory, &poll(6, rest()));
    assert_eq!(
        ended,
        [change(&new_alert, AlertTransition::ThresholdChanged)]
    );
    assert_eq!(memory, AlertState::default());
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
    // Half percents are rounded both ways.
    let known = (0..=40_u64).prop_map(|halves| Bytes(halves * GIB / 2));
    prop_oneof![
        6 => known.clone().prop_map(Value),
        1 => known.prop_map(|known| Stale(known, 2)),
        1 => Just(Unsupported),
    ]
}

proptest! {
    /// An alert that is active with higher thresholds is active with lower thresholds
    /// too.
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
        let (mut low, mut high) = (AlertState::default(), AlertState::default());
        for (second, (temperature, used)) in (0..).zip(polls) {
            let device = Device {
                memory_used: used,
                vitals: device_at(temperature).vitals,
                ..device_using(0)
            };
            let snapshot = poll(second, vec![device]);
            let _ = evaluate(&both(lower), &mut low, &snapshot);
            let _ = evaluate(&both(lower + raise), &mut high, &snapshot);
            let lasting = |memory: &AlertState| -> BTreeSet<Quantity> {
                memory.active().map(|alert| alert.quantity).collect()
            };
            prop_assert!(lasting(&high).is_subset(&lasting(&low)));
        }
    }
}

#[test]
fn values_are_listed_for_active_alerts_only() {
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
        code: FaultCode::TemperatureAlert,
        what: what.into(),
        since: Timestamp(1_000),
        limit,
        value,
        unit: unit.into(),
    };
    let (hot, full) = (
        "temperature at or above 85 °C",
        "memory in use at or above 90 %",
    );
    let mut hot_and_full = device_using(95 * GIB + 1);
    hot_and_full.vitals.temperature = Value(Celsius(91));
    let mut hot_too = gpu(1);
    hot_too.vitals.temperature = Value(Celsius(99));
    let mut snapshot = poll(1, vec![hot_and_full, hot_too]);
    // GPU 2 has an unknown value. GPU 1 has no alert yet.
    snapshot.devices.push(gpu(2));
    snapshot.faults = vec![
        fault("GPU 0", hot),
        fault("GPU 0", full),
        fault("GPU 0", "lost (XID 79)"),
        fault("GPU 2", hot),
        // A fault of a threshold that no longer applies.
        fault("GPU 1", "temperature at or above 80 °C"),
    ];
    let expected = vec![
        alert(0, hot, 85, Some(91), "°C"),
        alert(0, full, 90, Some(95), "%"),
        alert(2, hot, 85, None, "°C"),
    ];
    assert_eq!(alert_values(&both, &snapshot), expected);
    assert_eq!(alert_values(&Thresholds::default(), &snapshot), Vec::new());
}
