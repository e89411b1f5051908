//! What the box remembers.

use super::{NOW, gib, id};
use gpukill_proto::audit::{
    ActionRecord, AuditRecord, AuditSubject, AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime,
    Times, UsedBy, WeekTime,
};
use gpukill_proto::reading::Reading::{Failed, Unsupported, Value, Withheld};
use gpukill_proto::snapshot::{Owner, OwnerKind};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};

/// Newest first.
pub(crate) fn records() -> Vec<AuditRecord> {
    let record = |id, index, memory, utilization, subject| AuditRecord {
        id,
        at: NOW.plus_seconds(-10 * (9 - i64::try_from(id).unwrap_or(0))),
        covers_ms: 10_000,
        device: self::id(index),
        gpu_index: index,
        gpu_name: Some("NVIDIA H100 80GB HBM3".into()),
        memory,
        utilization,
        subject,
    };
    let process =
        |pid, user: Option<&str>, name: &str, container: Option<&str>| AuditSubject::Process {
            pid,
            instance: None,
            uid: Some(1000),
            user: user.map(Into::into),
            owner: None,
            namespace_owner: None,
            name: Some(name.into()),
            command: Value("python train.py".into()),
            container: container.map(Into::into),
            job: None,
            held_ms: 10_000,
            connections: Unsupported,
        };
    let whole = AuditSubject::Device {
        temperature: Value(Celsius(71)),
        power: Value(Milliwatts(688_000)),
    };
    vec![
        record(9, 0, Value(gib(631)), Value(Percent(98)), whole),
        record(
            8,
            0,
            Value(gib(158)),
            Value(Percent(97)),
            process(48_213, Some("alice"), "python", None),
        ),
        record(
            7,
            1,
            Value(gib(33)),
            Unsupported,
            process(60_001, None, "vllm", Some("docker/0123456789ab")),
        ),
        record(
            6,
            11,
            Failed("timeout".into()),
            Value(Percent(0)),
            process(7, Some("模型"), "tensorboard-long", None),
        ),
    ]
}

/// The same, of which some are older than samples, and then than minutes, are kept.
pub(crate) fn older_records() -> Vec<AuditRecord> {
    let mut records = records();
    let lengths = [0, 10_000, 59_800, 3_600_400];
    for (record, covers_ms) in records.iter_mut().zip(lengths) {
        record.covers_ms = covers_ms;
    }
    records
}

const AN_HOUR: u64 = 3_600_000;

/// Tenths of hours.
fn times(busy: u64, held: u64, free: u64, unknown: u64) -> Times {
    let [busy_ms, held_ms, free_ms, unknown_ms] =
        [busy, held, free, unknown].map(|tenths| tenths * AN_HOUR / 10);
    Times {
        busy_ms,
        held_ms,
        free_ms,
        unknown_ms,
    }
}

/// Tenths of hours, and GiB × hours.
fn used(busy: u64, idle: u64, unknown: u64, gib_hours: u64) -> UsedBy {
    UsedBy {
        busy_ms: busy * AN_HOUR / 10,
        idle_ms: idle * AN_HOUR / 10,
        unknown_ms: unknown * AN_HOUR / 10,
        memory_mib_s: gib_hours * 3600 * 1024,
        memory_most: Some(gib(700)),
        runs: 12,
    }
}

fn owner(name: &str, uid: Option<u32>, used: UsedBy) -> OwnerTime {
    let kind = match uid {
        Some(_) => OwnerKind::User,
        None => OwnerKind::Container,
    };
    OwnerTime {
        owner: Some(Owner {
            name: name.into(),
            uid,
            kind,
        }),
        used,
    }
}

fn devices() -> Vec<DeviceTime> {
    let device = |index: u32, times| DeviceTime {
        device: id(index),
        index,
        name: Some("NVIDIA H100 80GB HBM3".into()),
        times,
        memory_most: Some(gib(791)),
        memory_most_at: Some(NOW.plus_seconds(-86_400 * i64::from(index + 1) - 7)),
        hottest: Some(83),
        energy_j: Some(400_000_000),
    };
    let mut devices: Vec<DeviceTime> = (0..7)
        .map(|index| device(index, times(1170, 420, 90, 0)))
        .collect();
    devices[3].times = times(0, 0, 1680, 0);
    devices[3].memory_most = Some(Bytes(0));
    devices[3].energy_j = Some(70_000);
    devices.push(DeviceTime {
        name: None,
        memory_most: None,
        memory_most_at: None,
        hottest: None,
        energy_j: None,
        ..device(7, times(0, 1, 879, 800))
    });
    devices
}

/// A week of eight GPUs, of which one was free, and one is of a kind that tells
/// little.
pub(crate) fn summary() -> AuditSummary {
    let mut owners = vec![
        owner("alice", Some(1000), used(3860, 161, 0, 28_100)),
        owner("bob", Some(1001), used(611, 1495, 10, 11_900)),
        owner(
            "container worker-with-a-long-name",
            None,
            used(400, 1, 0, 2_000),
        ),
        owner("模型", Some(1002), used(0, 0, 321, 5)),
        OwnerTime {
            owner: None,
            used: used(12, 90, 0, 1),
        },
    ];
    owners.extend((0..8).map(|n| owner(&format!("user{n}"), Some(2000 + n), used(1, 0, 0, 0))));
    let process = |label: &str, used| ProcessTime {
        label: label.into(),
        used,
    };
    let of_day = |tenths: u64| times(tenths, 40, 100_u64.saturating_sub(tenths), 0);
    let hours = (0..24).map(|hour: u64| of_day(hour.abs_diff(2) * 4));
    let mut hours: Vec<Times> = hours.collect();
    hours[3] = times(0, 0, 0, 90);
    let gap = |from: i64, until: i64| Gap {
        from: NOW.plus_seconds(from),
        until: NOW.plus_seconds(until),
    };
    AuditSummary {
        since: NOW.plus_seconds(-7 * 86_400 + 8),
        until: NOW.plus_seconds(-4),
        devices: devices(),
        owners,
        more_owners: 4,
        processes: vec![
            process("python train.py", used(5120, 0, 0, 31_000)),
            process("vllm serve", used(2034, 0, 0, 11_000)),
            process("python finetune_with_a_very_long_name.py", used(3, 0, 0, 0)),
        ],
        more_processes: 0,
        hours,
        days: [70, 72, 84, 71, 60, 12, 0].map(of_day).into(),
        weeks: vec![
            WeekTime {
                monday: "2026-11-09".into(),
                times: times(0, 0, 480, 0),
                most: None,
            },
            WeekTime {
                monday: "2026-11-16".into(),
                times: times(8_201, 2_954, 2_000, 285),
                most: Some(("alice".into(), 402 * AN_HOUR)),
            },
        ],
        gaps: vec![
            gap(-777_600, -777_000),
            gap(-298_800, -291_600),
            gap(-86_400, -40_000),
        ],
    }
}

/// Newest first: what was asked for and was done, refused, failed; what is under
/// way; and what happened to devices.
pub(crate) fn actions() -> Vec<ActionRecord> {
    let entry = |id: u64, kind: &str, what: Option<&str>| ActionRecord {
        id,
        at: NOW.plus_seconds(-60 * (20 - i64::try_from(id).unwrap_or(0))),
        kind: kind.into(),
        uid: None,
        user: None,
        device: None,
        what: what.map(Into::into),
        times: 1,
        word: None,
        finished_at: None,
        why: None,
        plan: Unsupported,
        outcome: Unsupported,
    };
    let asked = |id, kind: &str, what: &str, uid, user: Option<&str>, word: Option<&str>| {
        let entry = entry(id, kind, Some(what));
        ActionRecord {
            uid: Some(uid),
            user: user.map(Into::into),
            word: word.map(Into::into),
            finished_at: word.map(|_| Timestamp(entry.at.0 + 1_234)),
            plan: Value("{\"schema\":1,\"targets\":[{\"pid\":48213}]}".into()),
            ..entry
        }
    };
    let because = |entry: ActionRecord, why: &str| ActionRecord {
        why: Some(why.into()),
        ..entry
    };
    let (alice, bob) = (Some("alice"), Some("bob"));
    let mut done = asked(8, "kill", "--user alice", 1000, alice, Some("done"));
    done.plan = Value(
        "{\"schema\":1,\"targets\":[{\"pid\":48213,\"name\":\"python\",\"owner\":\"alice\",\
         \"fate\":\"end\",\"holds\":[{\"gpu_index\":0},{\"gpu_index\":1}]}]}"
            .into(),
    );
    done.outcome = Value(
        "{\"stage\":\"done\",\"outcomes\":[{\"pid\":48213,\"after_ms\":800}],\
         \"memory\":[{\"gpu_index\":0,\"after_ms\":9400}]}"
            .into(),
    );
    let refused = asked(7, "kill", "--user alice", 1001, bob, Some("refused"));
    let mut interrupted = asked(6, "reset", "--gpu 3", 4242, None, Some("interrupted"));
    interrupted.device = Some(id(3));
    interrupted.plan = Value("{\"schema\":1,\"gpus\":[{\"gpu_index\":3}]}".into());
    let mut copied = asked(11, "backup", "", 0, Some("root"), Some("done"));
    copied.outcome = Value("{\"bytes\":64512000}".into());
    let mut full = asked(10, "prune", "--before 90d", 0, Some("root"), Some("failed"));
    full.outcome = Value("{\"why\":\"the disk is full\"}".into());
    let mut by_guard = asked(
        12,
        "kill",
        "guard: default: idle",
        998,
        Some("gpukill"),
        Some("done"),
    );
    by_guard.plan = Value(
        "{\"schema\":1,\"targets\":[{\"pid\":51002,\"name\":\"python\",\"owner\":\"bob\",\"fate\":\"end\"},\
         {\"pid\":51003,\"owner\":\"bob\",\"fate\":\"end\"}]}"
            .into(),
    );
    vec![
        by_guard,
        copied,
        full,
        asked(9, "reset", "--gpu 3 --force", 1000, alice, None),
        done,
        ActionRecord {
            times: 1_204,
            ..because(refused, "it belongs to alice")
        },
        because(
            interrupted,
            "gpukilld was stopped before it was done; what came of it is in the log",
        ),
        asked(5, "kill", "7", 1000, alice, Some("partly")),
        ActionRecord {
            device: Some(id(9)),
            ..entry(4, "xid", Some("XID 13"))
        },
        ActionRecord {
            device: Some(id(7)),
            times: 3,
            ..entry(4, "xid", Some("XID 79"))
        },
        ActionRecord {
            plan: Withheld,
            ..asked(3, "kill", "51002", 1001, bob, Some("failed"))
        },
        entry(3, "rules", Some("89651ac3f4cb7cc7")),
        entry(2, "started", Some("0.1.0")),
        entry(1, "stopped", None),
    ]
}
