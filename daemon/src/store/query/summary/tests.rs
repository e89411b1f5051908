//! The summary of a time span equals what was written in it.

mod clocks;
mod properties;

use super::super::sample_store::{
    HOUR, MINUTE, MONDAY, SampleStore, all_times, between, device, generous_deadline, id, owner,
    process,
};
use super::super::{Deadline, QueryError};
use super::summarize;
use chrono::{FixedOffset, TimeZone};
use gpukill_proto::audit::{
    AuditFilter, AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime, UsageTimes, UsageTotals,
    WeekTime,
};
use gpukill_proto::model::GpuProcess;
use gpukill_proto::reading::Reading::{Failed, Unsupported, Value};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::{Bytes, Timestamp};
use std::time::{Duration, Instant};

impl SampleStore {
    /// The summary for an admin, in UTC.
    pub(super) fn summary(&self, filter: &AuditFilter) -> AuditSummary {
        self.summary_in(filter, &FixedOffset::east_opt(0).unwrap())
    }

    pub(super) fn summary_in(&self, filter: &AuditFilter, zone: &impl TimeZone) -> AuditSummary {
        self.try_summary(filter, &|_, _| true, zone, generous_deadline())
            .ok()
            .unwrap()
    }

    pub(super) fn try_summary(
        &self,
        filter: &AuditFilter,
        may_read: &dyn Fn(Option<u32>, Option<u32>) -> bool,
        zone: &impl TimeZone,
        deadline: Deadline,
    ) -> Result<AuditSummary, Refusal> {
        let connection = &self.opened.connection;
        // No stop of the recording lasts until then.
        let now = Timestamp(0);
        let result = summarize(connection, filter, may_read, zone, now, deadline);
        result.map_err(|failure| match failure {
            QueryError::Refused(refusal) => refusal,
            QueryError::Store(error) => Refusal::Unavailable(error.to_string()),
        })
    }
}

const HOUR_MS: u64 = 3_600_000;
const TEN_SECONDS: i64 = 10_000;

fn times(busy_ms: u64, held_ms: u64, free_ms: u64) -> UsageTimes {
    UsageTimes {
        busy_ms,
        held_ms,
        free_ms,
        unknown_ms: 0,
    }
}

fn used(busy_ms: u64, idle_ms: u64, memory_mib_s: u64, most: u64, runs: u64) -> UsageTotals {
    UsageTotals {
        busy_ms,
        idle_ms,
        unknown_ms: 0,
        memory_mib_s,
        memory_max: Some(Bytes::mib(most)),
        runs,
    }
}

/// Two hours and ten minutes from Monday, 1:00 on: alice works on GPU 0 with two processes; bob
/// holds GPU 1 with one process, until 2:00.
fn two_hours() -> SampleStore {
    let mut store = SampleStore::new();
    let alices = [process(0, 1, "alice", 90), process(0, 2, "alice", 10)];
    let bobs = process(1, 3, "bob", 0);
    let one = MONDAY + HOUR;
    let devices = [device(0, 90, 100), device(1, 0, 7)];
    let all = [alices[0].clone(), alices[1].clone(), bobs];
    store.samples(one, one + HOUR, TEN_SECONDS, &devices, &all);
    let end = one + 2 * HOUR + 10 * MINUTE;
    let devices = [device(0, 90, 300), device(1, 0, 0)];
    store.samples(one + HOUR, end, TEN_SECONDS, &devices, &alices);
    store
}

#[test]
fn sums_devices_owners_programs_and_hours() {
    let store = two_hours();
    let until = MONDAY + 3 * HOUR + 10 * MINUTE;
    let all_ms = 2 * HOUR_MS + 600_000;
    let mut hours = vec![UsageTimes::default(); 24];
    hours[1] = times(HOUR_MS, HOUR_MS, 0);
    hours[2] = times(HOUR_MS, 0, HOUR_MS);
    hours[3] = times(600_000, 0, 600_000);
    let mut days = vec![UsageTimes::default(); 7];
    let all = times(all_ms, HOUR_MS, HOUR_MS + 600_000);
    days[0] = all;
    let device_time = |gpu, times, most, most_at, joules| DeviceTime {
        device: id(gpu),
        index: gpu,
        name: None,
        times,
        memory_max: Some(Bytes::mib(most)),
        memory_max_at: Some(Timestamp(MONDAY + most_at * HOUR)),
        hottest: Some(40),
        energy_j: Some(joules),
    };
    let alices = used(all_ms, 0, 7_800 * 100, 90, 2);
    let bobs = used(0, HOUR_MS, 0, 0, 1);
    let mut programs = alices;
    programs.idle_ms = HOUR_MS;
    programs.runs = 3;
    let expected = AuditSummary {
        since: Timestamp(MONDAY + HOUR),
        until: Timestamp(until),
        devices: vec![
            device_time(0, times(all_ms, 0, 0), 300, 2, 7_800 * 90),
            device_time(1, times(0, HOUR_MS, HOUR_MS + 600_000), 7, 1, 0),
        ],
        owners: [("alice", alices), ("bob", bobs)]
            .map(|(name, used)| OwnerTime {
                owner: Some(owner(name)),
                used,
            })
            .to_vec(),
        more_owners: 0,
        processes: vec![ProcessTime {
            label: "python train.py".into(),
            used: programs,
        }],
        more_processes: 0,
        hours,
        days,
        weeks: vec![WeekTime {
            monday: "2026-11-16".into(),
            times: all,
            top_owner: Some(("alice".into(), all_ms)),
        }],
        gaps: Vec::new(),
    };
    assert_eq!(store.summary(&all_times()), expected);
}

/// The device time of each owner and of each device, in seconds.
fn seconds(summary: &AuditSummary) -> (Vec<(Option<String>, u64)>, Vec<u64>) {
    let owners = summary.owners.iter().map(|it| {
        let name = it.owner.as_ref().map(|owner| owner.name.clone());
        let used = it.used;
        (name, (used.busy_ms + used.idle_ms + used.unknown_ms) / 1000)
    });
    let devices = summary.devices.iter().map(|it| {
        let it = it.times;
        (it.busy_ms + it.held_ms + it.free_ms + it.unknown_ms) / 1000
    });
    (owners.collect(), devices.collect())
}

#[test]
fn filters_owners_and_devices() {
    let mut store = two_hours();
    let contained = GpuProcess {
        job: Value(gpukill_proto::model::Job::Tree(
            gpukill_proto::model::ProcessKey {
                pid: 7,
                start_ticks: 9,
            },
        )),
        name: Value("ollama".into()),
        ..process(0, 7, "carol", 50)
    };
    let end = MONDAY + 3 * HOUR + 10 * MINUTE;
    store.sample(
        end,
        TEN_SECONDS,
        vec![device(0, 90, 1)],
        vec![contained.clone()],
    );
    let job = contained.job.known().unwrap().to_string();
    let owner_times = |of: &[(&str, u64)]| -> Vec<(Option<String>, u64)> {
        of.iter()
            .map(|(name, s)| (Some((*name).into()), *s))
            .collect()
    };
    let (alice, bob, carol) = (("alice", 7_800), ("bob", 3_600), ("carol", 10));
    let cases = [
        (
            all_times(),
            owner_times(&[alice, bob, carol]),
            vec![7_810, 7_800],
        ),
        (
            AuditFilter {
                user: Some("bob".into()),
                ..all_times()
            },
            owner_times(&[bob]),
            vec![7_810, 7_800],
        ),
        (
            AuditFilter {
                gpu: Some("1".into()),
                ..all_times()
            },
            owner_times(&[bob]),
            vec![7_800],
        ),
        (
            AuditFilter {
                process: Some("^olla".into()),
                ..all_times()
            },
            owner_times(&[carol]),
            vec![7_810, 7_800],
        ),
        (
            AuditFilter {
                job: Some(job),
                gpu: Some("0".into()),
                ..all_times()
            },
            owner_times(&[carol]),
            vec![7_810],
        ),
        (
            AuditFilter {
                container: Some("web".into()),
                ..all_times()
            },
            owner_times(&[]),
            vec![7_810, 7_800],
        ),
        // From the 59th minute of the first hour to the 11th second of the last.
        (
            between(MONDAY + 2 * HOUR - MINUTE, MONDAY + 3 * HOUR + 11_000),
            owner_times(&[("alice", 3_680), ("bob", 60)]),
            vec![3_680, 3_680],
        ),
        (between(0, MONDAY), owner_times(&[]), vec![]),
    ];
    for (filter, owners, devices) in cases {
        let summary = store.summary(&filter);
        assert_eq!(seconds(&summary), (owners, devices), "{filter:?}");
    }
    let wrong = AuditFilter {
        gpu: Some("9".into()),
        ..all_times()
    };
    let utc = FixedOffset::east_opt(0).unwrap();
    let summary = store.try_summary(&wrong, &|_, _| true, &utc, generous_deadline());
    assert!(matches!(summary, Err(Refusal::Invalid(_))), "{summary:?}");
}

#[test]
fn hides_unreadable_command_lines() {
    let store = two_hours();
    let utc = FixedOffset::east_opt(0).unwrap();
    let bobs_only = |uid, _| uid == owner("bob").uid;
    let summary = store
        .try_summary(&all_times(), &bobs_only, &utc, generous_deadline())
        .unwrap();
    let labels: Vec<&str> = summary
        .processes
        .iter()
        .map(|it| it.label.as_str())
        .collect();
    assert_eq!(labels, ["python", "python train.py"]);
}

#[test]
fn includes_unknown_owners_and_names() {
    let mut store = SampleStore::new();
    let ghost = GpuProcess {
        owner: Failed("x".into()),
        user: Failed("x".into()),
        name: Failed("x".into()),
        command: Unsupported,
        ..process(0, 1, "alice", 90)
    };
    store.sample(MONDAY, TEN_SECONDS, vec![device(0, 90, 1)], vec![ghost]);
    let summary = store.summary(&all_times());
    assert_eq!(seconds(&summary).0, [(None, 10)]);
    assert_eq!(summary.processes[0].label, "?");
    assert_eq!(summary.weeks[0].top_owner, None);
}

#[test]
fn reports_fifty_and_counts_the_rest() {
    let mut store = SampleStore::new();
    for pid in 1..=60 {
        let name = format!("user{pid:02}");
        let length = i64::from(pid) * 1000;
        let process = GpuProcess {
            command: Value(format!("/opt/program{pid:02}")),
            ..process(0, pid, &name, 90)
        };
        store.sample(
            MONDAY + length * 100,
            length,
            vec![device(0, 90, 1)],
            vec![process],
        );
    }
    let summary = store.summary(&all_times());
    let expected: Vec<(Option<String>, u64)> = (11..=60)
        .rev()
        .map(|pid| (Some(format!("user{pid:02}")), pid))
        .collect();
    assert_eq!(seconds(&summary).0, expected);
    let labels: Vec<String> = summary.processes.into_iter().map(|it| it.label).collect();
    let expected: Vec<String> = (11..=60)
        .rev()
        .map(|pid| format!("program{pid:02}"))
        .collect();
    assert_eq!(labels, expected);
    assert_eq!((summary.more_owners, summary.more_processes), (10, 10));
}

#[test]
fn slow_answer_is_refused() {
    let store = two_hours();
    let utc = FixedOffset::east_opt(0).unwrap();
    let before = Deadline(Instant::now() - Duration::from_secs(1));
    let summary = store.try_summary(&all_times(), &|_, _| true, &utc, before);
    assert_eq!(summary, Err(Refusal::TooSlow("reading the history".into())));
}

#[test]
fn reports_gaps() {
    let mut store = SampleStore::new();
    let free = [device(0, 0, 0)];
    let mut run = |from: i64, until: i64| {
        store.samples(
            MONDAY + from * 1000,
            MONDAY + until * 1000,
            TEN_SECONDS,
            &free,
            &[],
        );
    };
    // Thirty seconds are no gap; then gaps within a minute, within an hour, and of some hours.
    run(0, 60);
    run(90, 120);
    run(151, 600);
    run(1_200, 3_600);
    run(10_000, 15_000);
    let gap = |from: i64, until: i64| Gap {
        from: Timestamp(MONDAY + from * 1000),
        until: Timestamp(MONDAY + until * 1000),
    };
    let expected = [gap(120, 151), gap(601, 1_200), gap(3_600, 10_000)];
    assert_eq!(store.summary(&all_times()).gaps, expected);
    // Only gaps in the requested time.
    let part = between(MONDAY, MONDAY + HOUR);
    assert_eq!(store.summary(&part).gaps, expected[..2]);
    // A gap at an edge of the requested time, or around it, is reported whole.
    let gaps = |from: i64, until: i64| {
        let part = between(MONDAY + from * 1000, MONDAY + until * 1000);
        store.summary(&part).gaps
    };
    assert_eq!(gaps(1_300, 9_000), expected[2..]);
    assert_eq!(gaps(4_000, 9_000), expected[2..]);
    assert_eq!(gaps(4_000, 11_000), expected[2..]);
    // A time that begins within a sample, a minute and an hour.
    for from in [1_235, 10_015, 10_095] {
        assert_eq!(gaps(from, from + 80), [], "{from}");
    }
    // With only hours left, the position of a gap in an hour is unknown.
    store.execute("DELETE FROM minute; DELETE FROM sample");
    assert_eq!(store.summary(&all_times()).gaps, expected[2..]);
}

#[test]
fn stop_of_the_recording_that_lasts_is_a_gap() {
    let mut store = SampleStore::new();
    let (nine, noon) = (MONDAY + 9 * HOUR, MONDAY + 12 * HOUR);
    let free = [device(0, 0, 0)];
    store.samples(nine - HOUR, nine, TEN_SECONDS, &free, &[]);
    let utc = FixedOffset::east_opt(0).unwrap();
    let gaps = |until: i64, now: i64| {
        let period = between(nine - 3 * HOUR, until);
        let (connection, now) = (&store.opened.connection, Timestamp(now));
        let deadline = generous_deadline();
        let summary = summarize(connection, &period, &|_, _| true, &utc, now, deadline);
        summary.ok().unwrap().gaps
    };
    let gap = Gap {
        from: Timestamp(nine),
        until: Timestamp(noon),
    };
    assert_eq!(gaps(noon, noon), [gap]);
    assert_eq!(gaps(noon + HOUR, noon), [gap]);
    assert_eq!(gaps(noon, noon + HOUR), [gap]);
    // The newest sample is not written yet.
    assert_eq!(gaps(noon, nine + 30_000), []);
    assert_eq!(gaps(nine + 30_000, noon), []);
}
