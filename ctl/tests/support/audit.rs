//! The recorded history of the host.

use super::{NOW, gib, id};
use gpukill_proto::audit::{
    ActionRecord, AuditRecord, AuditSeries, AuditSubject, AuditSummary, DeviceTime, Gap, OwnerTime,
    ProcessTime, RunEnd, RunGpu, RunRecord, SeriesBucket, SeriesLine, SeriesValue, UsageTimes,
    UsageTotals, WeekTime,
};
use gpukill_proto::model::{Owner, OwnerKind};
use gpukill_proto::reading::Reading::{Failed, Unsupported, Value, Withheld};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};

/// Records, newest first.
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

/// Records of which some are older than samples and minutes are kept.
pub(crate) fn older_records() -> Vec<AuditRecord> {
    let mut records = records();
    let lengths = [0, 10_000, 59_800, 3_600_400];
    for (record, covers_ms) in records.iter_mut().zip(lengths) {
        record.covers_ms = covers_ms;
    }
    records
}

const AN_HOUR: u64 = 3_600_000;

/// The arguments are tenths of hours.
fn times(busy: u64, held: u64, free: u64, unknown: u64) -> UsageTimes {
    let [busy_ms, held_ms, free_ms, unknown_ms] =
        [busy, held, free, unknown].map(|tenths| tenths * AN_HOUR / 10);
    UsageTimes {
        busy_ms,
        held_ms,
        free_ms,
        unknown_ms,
    }
}

/// The arguments are tenths of hours, and GiB × hours.
fn used(busy: u64, idle: u64, unknown: u64, gib_hours: u64) -> UsageTotals {
    UsageTotals {
        busy_ms: busy * AN_HOUR / 10,
        idle_ms: idle * AN_HOUR / 10,
        unknown_ms: unknown * AN_HOUR / 10,
        memory_mib_s: gib_hours * 3600 * 1024,
        memory_max: Some(gib(700)),
        runs: 12,
    }
}

fn owner(name: &str, uid: Option<u32>, used: UsageTotals) -> OwnerTime {
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
        memory_max: Some(gib(791)),
        memory_max_at: Some(NOW.plus_seconds(-86_400 * i64::from(index + 1) - 7)),
        hottest: Some(83),
        energy_j: Some(400_000_000),
    };
    let mut devices: Vec<DeviceTime> = (0..7)
        .map(|index| device(index, times(1170, 420, 90, 0)))
        .collect();
    devices[3].times = times(0, 0, 1680, 0);
    devices[3].memory_max = Some(Bytes(0));
    devices[3].energy_j = Some(70_000);
    devices.push(DeviceTime {
        name: None,
        memory_max: None,
        memory_max_at: None,
        hottest: None,
        energy_j: None,
        ..device(7, times(0, 1, 879, 800))
    });
    devices
}

/// A week of eight GPUs, of which one was free and one reports little.
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
    let mut hours: Vec<UsageTimes> = hours.collect();
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
                top_owner: None,
            },
            WeekTime {
                monday: "2026-11-16".into(),
                times: times(8_201, 2_954, 2_000, 285),
                top_owner: Some(("alice".into(), 402 * AN_HOUR)),
            },
        ],
        gaps: vec![
            gap(-777_600, -777_000),
            gap(-298_800, -291_600),
            gap(-86_400, -40_000),
        ],
    }
}

/// Actions, newest first: done, refused, failed and under way; and device events.
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
        result: None,
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
            result: word.map(Into::into),
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
         \"planned_action\":\"end\",\"holds\":[{\"gpu_index\":0},{\"gpu_index\":1}]}]}"
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
        "{\"schema\":1,\"targets\":[{\"pid\":51002,\"name\":\"python\",\"owner\":\"bob\",\"planned_action\":\"end\"},\
         {\"pid\":51003,\"owner\":\"bob\",\"planned_action\":\"end\"}]}"
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

/// Runs with every kind of end, newest first.
pub(crate) fn runs() -> Vec<RunRecord> {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3_600;
    let user = |name: &str| Owner {
        name: name.into(),
        uid: Some(1000),
        kind: OwnerKind::User,
    };
    let run = |id, (begun, ended): (i64, i64), gpus: &[u32], owner: &str, label: &str, end| {
        let length = u64::try_from(begun - ended).unwrap_or(0) * 1000;
        let count = gpus.len() as u64;
        RunRecord {
            id,
            from: NOW.plus_seconds(-begun),
            until: NOW.plus_seconds(-ended),
            gpus: gpus
                .iter()
                .map(|index| RunGpu {
                    index: *index,
                    device: self::id(*index),
                })
                .collect(),
            pids: vec![48_213],
            processes: 1,
            label: label.into(),
            command: Value(format!("{label} --model llama-70b")),
            name: Some("python".into()),
            uid: Some(1000),
            user: Some(owner.into()),
            owner: Some(user(owner)),
            container: None,
            job: None,
            used: UsageTotals {
                busy_ms: count * length / 50 * id,
                idle_ms: count * length / 50 * (50 - id),
                unknown_ms: 0,
                memory_mib_s: 0,
                memory_max: Some(gib(100 * id)),
                runs: 1,
            },
            utilization: u32::try_from(id).ok().map(Percent),
            end,
        }
    };
    let killed = RunEnd::Killed {
        action: 811,
        by: Some(1003),
        by_name: Some("carol".into()),
    };
    let by_guard = RunEnd::EndedByGuard {
        action: 813,
        rule: Some("default: idle over 120 min".into()),
    };
    let train = |id, end| {
        let run = run(
            id,
            (15 * HOUR + 52 * MINUTE, 4 * HOUR),
            &[0, 1, 2, 3],
            "alice",
            "python train.py",
            end,
        );
        RunRecord {
            processes: 9,
            job: Some("slurm 1234.0".into()),
            ..run
        }
    };
    vec![
        run(9, (20, 0), &[6], "dana", "python", RunEnd::Running),
        run(
            8,
            (7 * MINUTE, 40),
            &[1],
            "dana",
            "python eval.py",
            RunEnd::Exited,
        ),
        RunRecord {
            used: UsageTotals::default(),
            utilization: None,
            owner: None,
            user: None,
            ..run(7, (HOUR, 0), &[7], "", "vllm serve", RunEnd::Released)
        },
        run(6, (5 * HOUR, HOUR), &[2], "erin", "python sweep.py", killed),
        run(
            5,
            (9 * HOUR, HOUR),
            &[5],
            "bob",
            "python -m ipykernel_launcher",
            by_guard,
        ),
        train(48, RunEnd::Running),
        run(
            4,
            (30 * HOUR, 29 * HOUR),
            &[0, 2],
            "a-person-with-a-long-name",
            "a-program-with-a-very-long-name",
            RunEnd::Reset { action: 801 },
        ),
        run(
            3,
            (90 * HOUR, 80 * HOUR),
            &[3],
            "frank",
            "ollama serve",
            RunEnd::Rebooted,
        ),
        run(
            2,
            (240 * HOUR, 200 * HOUR),
            &[4],
            "frank",
            "ollama serve",
            RunEnd::Unobserved,
        ),
    ]
}

/// A day of two GPUs or of two owners in buckets of half an hour, with a gap.
pub(crate) fn series(is_of_gpus: bool) -> AuditSeries {
    const STEP_MS: u64 = 1_800_000;
    let bucket = |at: u64, factor: u64| {
        if (20..23).contains(&at) {
            return SeriesBucket::default();
        }
        let percent = (at * factor) % 101;
        let value = |number: u64| SeriesValue {
            min: number / 2,
            mean: number,
            max: number + number / 10,
        };
        let covered_ms = if at == 19 { STEP_MS / 3 } else { STEP_MS };
        let gpus = if is_of_gpus { 1 } else { at % (4 * factor) };
        let busy_ms = covered_ms * gpus * percent / 100;
        SeriesBucket {
            covered_ms,
            busy_ms,
            idle_ms: covered_ms * gpus - busy_ms,
            unknown_ms: 0,
            utilization: is_of_gpus.then(|| value(percent)),
            memory: Some(value(percent << 29)),
            power: is_of_gpus.then(|| value(percent * 7_000)),
            hottest: is_of_gpus.then_some(71),
        }
    };
    let line = |index: u32, name: &str, factor: u64| SeriesLine {
        gpu: is_of_gpus.then(|| RunGpu {
            index,
            device: id(index),
        }),
        owner: (!is_of_gpus).then(|| Owner {
            name: name.into(),
            uid: Some(1000),
            kind: OwnerKind::User,
        }),
        job: None,
        buckets: (0..48).map(|at| bucket(at, factor)).collect(),
    };
    AuditSeries {
        since: NOW.plus_seconds(-86_400),
        step_ms: STEP_MS,
        lines: vec![line(0, "alice", 3), line(5, "a-person-with-a-long-name", 1)],
        more_lines: 2,
    }
}
