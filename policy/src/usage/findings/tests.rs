//! The findings of invented periods.

use super::*;
use gpukill_proto::audit::{DeviceTime, UsageTimes, UsageTotals};
use gpukill_proto::model::{Owner, OwnerKind};
use gpukill_proto::reading::Reading;

const AN_HOUR: u64 = 3_600_000;

/// From the first hour on, for a week.
const PERIOD: (Timestamp, Timestamp) = (Timestamp(0), Timestamp(168 * 3_600_000));

fn record(kind: &str, what: &str) -> ActionRecord {
    ActionRecord {
        id: 1,
        at: Timestamp(1_000),
        kind: kind.into(),
        uid: None,
        user: None,
        device: None,
        what: Some(what.into()),
        times: 1,
        result: None,
        finished_at: None,
        why: None,
        plan: Reading::Unsupported,
        outcome: Reading::Unsupported,
    }
}

fn kill(what: &str, user: Option<&str>, result: Option<&str>) -> ActionRecord {
    ActionRecord {
        uid: Some(1001),
        user: user.map(Into::into),
        result: result.map(Into::into),
        ..record("kill", what)
    }
}

fn device_event(kind: &str, device: &str, what: &str, times: u64) -> ActionRecord {
    ActionRecord {
        device: Some(DeviceId(device.into())),
        times,
        ..record(kind, what)
    }
}

fn totals(records: &[ActionRecord]) -> ActionTotals {
    let mut totals = ActionTotals::default();
    records.iter().for_each(|record| totals.add(record));
    totals
}

/// Hours held busy, held idle, free and unknown.
fn device(index: u32, [busy, idle, free, unknown]: [u64; 4]) -> DeviceTime {
    DeviceTime {
        device: DeviceId(format!("GPU-{index}")),
        index,
        name: None,
        times: UsageTimes {
            busy_ms: busy * AN_HOUR,
            held_ms: idle * AN_HOUR,
            free_ms: free * AN_HOUR,
            unknown_ms: unknown * AN_HOUR,
        },
        memory_max: None,
        memory_max_at: None,
        hottest: None,
        energy_j: None,
    }
}

fn owner(name: &str, busy: u64, idle: u64) -> OwnerTime {
    OwnerTime {
        owner: Some(Owner {
            name: name.into(),
            uid: Some(1000),
            kind: OwnerKind::User,
        }),
        used: UsageTotals {
            busy_ms: busy * AN_HOUR,
            idle_ms: idle * AN_HOUR,
            ..UsageTotals::default()
        },
    }
}

fn gap(from_hour: i64, until_hour: i64) -> Gap {
    let at = |hour: i64| Timestamp(hour * 3_600_000);
    Gap {
        from: at(from_hour),
        until: at(until_hour),
    }
}

#[test]
fn kills_count_by_rule_or_user_and_refusals_apart() {
    let totals = totals(&[
        kill("guard: default: idle", Some("gpukill"), Some("done")),
        kill("guard: default: idle", None, Some("partly")),
        kill("--user \"guard: x\"", Some("alice"), Some("done")),
        kill("7", None, None),
        ActionRecord {
            times: 12,
            ..kill("7", Some("bob"), Some("refused"))
        },
        kill("8", Some("bob"), Some("interrupted")),
        kill("9", Some("bob"), Some("failed")),
        ActionRecord {
            what: None,
            ..kill("", Some("gpukill"), Some("unrecorded"))
        },
    ]);
    let of = |all, failed, unknown| KillTotals {
        all,
        failed,
        unknown,
    };
    assert_eq!(
        totals.by_rule,
        BTreeMap::from([("default: idle".into(), of(2, 1, 0))])
    );
    assert_eq!(
        totals.by_user,
        BTreeMap::from([
            ("1001".into(), of(1, 0, 0)),
            ("alice".into(), of(1, 0, 0)),
            ("bob".into(), of(2, 1, 1)),
        ])
    );
    assert_eq!(
        totals.hidden,
        BTreeMap::from([("gpukill".into(), of(1, 0, 1))])
    );
    assert_eq!((totals.refused, totals.failed_kills()), (12, 2));
}

#[test]
fn events_of_a_device_add_up() {
    let later = ActionRecord {
        at: Timestamp(9_000),
        ..device_event("xid", "GPU-5", "XID 79", 2)
    };
    let totals = totals(&[
        later,
        device_event("xid", "GPU-5", "XID 79", 1),
        record("alert", "GPU 5: temperature"),
        record("fault", "GPU 5: fan"),
        record("fault_over", "GPU 5: fan"),
        record("started", "0.1.0"),
        record("booted", ""),
        record("booted", ""),
    ]);
    let key = (Some(DeviceId("GPU-5".into())), "XID 79".to_owned());
    let of = |times, last| EventTotals {
        times,
        last: Timestamp(last),
    };
    assert_eq!(totals.device_events, BTreeMap::from([(key, of(3, 9_000))]));
    assert_eq!(totals.alerts.len(), 1);
    assert_eq!(totals.faults.values().next(), Some(&of(1, 1_000)));
    assert_eq!((totals.starts, totals.boots), (1, 2));
}

#[test]
fn counts_never_overflow() {
    let mut totals = ActionTotals::default();
    for kind in ["kill", "reset", "xid", "started", "booted"] {
        for result in [None, Some("refused"), Some("failed")] {
            let most = ActionRecord {
                times: u64::MAX,
                result: result.map(Into::into),
                ..record(kind, "x")
            };
            totals.add(&most);
            totals.add(&most);
        }
    }
    assert_eq!(totals.failed_kills(), u64::MAX);
    let summary = AuditSummary {
        owners: vec![owner("bob", 1, 1 << 40)],
        devices: vec![device(0, [1 << 40, 0, 0, 1 << 40])],
        ..AuditSummary::default()
    };
    assert!(!usage_findings(&summary, &totals, PERIOD).is_empty());
}

#[test]
fn broken_devices_come_first_and_five_stay() {
    let summary = AuditSummary {
        devices: vec![
            device(0, [60, 40, 0, 0]),
            device(1, [0, 0, 100, 0]),
            device(2, [50, 0, 0, 50]),
        ],
        owners: vec![
            owner("alice", 100, 2),
            owner("bob", 10, 30),
            owner("carol", 0, 8),
        ],
        gaps: vec![gap(0, 13), gap(20, 21)],
        ..AuditSummary::default()
    };
    let all = totals(&[
        device_event("xid", "GPU-2", "XID 13", 1),
        device_event("device", "GPU-1", "GPU is back", 9),
        device_event("device", "GPU-1", "MIG instances changed", 1),
        kill("7", Some("bob"), Some("failed")),
        record("alert", "GPU 0: temperature"),
    ]);
    let device_id = DeviceId("GPU-2".into());
    assert_eq!(
        usage_findings(&summary, &all, PERIOD),
        [
            UsageFinding::DeviceEvents(&device_id, vec![("XID 13", 1)]),
            UsageFinding::FailedKills(1),
            UsageFinding::Unrecorded(Duration::from_secs(14 * 3_600), gap(0, 13)),
            UsageFinding::IdleOwner(&summary.owners[1]),
            UsageFinding::IdleOwner(&summary.owners[2]),
        ]
    );
    let nothing = ActionTotals::default();
    let recorded = AuditSummary {
        gaps: Vec::new(),
        owners: Vec::new(),
        ..summary
    };
    assert_eq!(
        usage_findings(&recorded, &nothing, PERIOD),
        [
            UsageFinding::UnusedDevices(vec![1]),
            UsageFinding::UnknownUse(50 * AN_HOUR, 200 * AN_HOUR),
        ]
    );
}

#[test]
fn only_the_part_of_a_gap_within_the_period_counts() {
    let summary = AuditSummary {
        gaps: vec![gap(-30, 0), gap(167, 300)],
        ..AuditSummary::default()
    };
    let totals = ActionTotals::default();
    let found = usage_findings(&summary, &totals, PERIOD);
    let an_hour = Duration::from_secs(3_600);
    assert_eq!(found, [UsageFinding::Unrecorded(an_hour, gap(167, 300))]);
}

#[test]
fn quiet_period_has_no_findings() {
    let summary = AuditSummary {
        devices: vec![device(0, [90, 1, 9, 0])],
        owners: vec![owner("alice", 90, 1)],
        gaps: vec![gap(0, 0)],
        ..AuditSummary::default()
    };
    assert_eq!(
        usage_findings(&summary, &ActionTotals::default(), PERIOD),
        []
    );
    let empty = AuditSummary::default();
    assert_eq!(usage_findings(&empty, &ActionTotals::default(), PERIOD), []);
}
