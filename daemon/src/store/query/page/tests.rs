//! A page has the selected records and no others, however they were found.

use super::super::super::database::{OpenDatabase, SAMPLES, open};
use super::super::super::retention::delete_before;
use super::super::super::sample::Sample;
use super::super::super::sample_writer::SampleWriter;
use super::*;
use gpukill_policy::usage::Usage;
use gpukill_proto::model::{Device, GpuProcess, Owner, OwnerKind, Snapshot, Vendor};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Several samples with the same processes, after a gap without samples; and whether the second GPU
/// is missing.
#[derive(Debug, Clone)]
struct Step {
    samples: i64,
    gap: i64,
    pids: Vec<u32>,
    is_second_gone: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        1..60_i64,
        prop_oneof![6 => Just(0_i64), 1 => -20..120_i64],
        prop::collection::btree_set(0..12_u32, 0..3),
        prop::bool::weighted(0.5),
    )
        .prop_map(|(samples, gap, pids, is_second_gone)| Step {
            samples,
            gap: gap * MINUTE,
            pids: pids.into_iter().collect(),
            is_second_gone,
        })
}

fn gpu(number: u32) -> DeviceId {
    DeviceId(format!("GPU-{number}"))
}

/// A process of one of three users, on one of two GPUs, with one of two names.
fn process(pid: u32) -> GpuProcess {
    let user = pid % 3;
    GpuProcess {
        start_ticks: Reading::Value(9),
        uid: Reading::Value(1_000 + user),
        user: Reading::Value(format!("user{user}")),
        owner: Reading::Value(Owner {
            name: format!("owner{user}"),
            uid: Some(2_000 + user),
            kind: OwnerKind::Namespace,
        }),
        name: Reading::Value(["python", "julia"][pid as usize % 2].into()),
        memory: Reading::Value(Bytes::mib(u64::from(pid))),
        ..GpuProcess::unknown(gpu(pid / 6), pid, Timestamp(0), &Reading::Unsupported)
    }
}

/// Some processes have a container or a job.
const PLACES: &str = "UPDATE process SET container = 'docker/0123456789ab' WHERE pid IN (1, 7);
    UPDATE process SET container = '0123fedcba98', container_name = 'web' WHERE pid = 8;
    UPDATE process SET job = 'slurm 77' WHERE pid IN (2, 3);";

fn written(steps: &[Step]) -> (tempfile::TempDir, OpenDatabase, i64) {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = open(directory.path(), &SAMPLES).unwrap();
    let mut written = SampleWriter::default();
    let mut at = 1_000 * HOUR;
    for step in steps {
        at += step.gap;
        let gpus = if step.is_second_gone { 0..1 } else { 0..2 };
        let why = Reading::Unsupported;
        let devices = gpus.map(|number| Device::unknown(gpu(number), number, Vendor::Nvidia, &why));
        let devices: Vec<Device> = devices.collect();
        let is_there = |process: &GpuProcess| devices.iter().any(|it| it.id == process.device);
        let processes = step.pids.iter().map(|pid| process(*pid)).filter(is_there);
        let processes: Vec<GpuProcess> = processes.collect();
        for _ in 0..step.samples {
            let snapshot = Snapshot {
                host: String::new(),
                taken_at: Timestamp(at + 20_000),
                polls: 1,
                devices: devices.clone(),
                processes: processes.clone(),
                backends: Vec::new(),
                faults: Vec::new(),
            };
            let mut usage = Usage::starting_at(Timestamp(at));
            usage.add(&snapshot, Duration::from_secs(20));
            let sample = Sample {
                usage,
                snapshot: Arc::new(snapshot),
                departed: Vec::new(),
                groups: Arc::default(),
                accounts: Arc::default(),
                suspected: Arc::default(),
            };
            written
                .write(&mut opened.connection, "boot", &sample)
                .unwrap();
            at += 20_000;
        }
    }
    // As the writer marks departed runs.
    opened
        .connection
        .execute_batch(
            "UPDATE run SET ended_at = last_at, ending = 'ended' WHERE last_sample <
             (SELECT max(id) - 3 FROM sample)",
        )
        .unwrap();
    opened.connection.execute_batch(PLACES).unwrap();
    (directory, opened, at)
}

fn everything() -> AuditFilter {
    AuditFilter::for_period(Timestamp(i64::MIN), Timestamp(i64::MAX))
}

/// All pages of `limit` records each, with the index lookup after `most_in_vain` rows.
fn walk(
    connection: &Connection,
    filter: &AuditFilter,
    limit: u32,
    most_in_vain: u32,
) -> Vec<AuditRecord> {
    let mut query = AuditQuery {
        filter: filter.clone(),
        before: None,
        limit,
    };
    let deadline = Deadline(Instant::now() + Duration::from_secs(600));
    let mut records = Vec::new();
    loop {
        let page = read_page(connection, &query, &|_, _| true, most_in_vain, deadline);
        let page = page.unwrap_or_else(|_| unreachable!("the question makes sense"));
        records.extend(page.records);
        match page.next {
            Some(next) => query.before = Some(next),
            None => return records,
        }
    }
}

fn pid(record: &AuditRecord) -> Option<u32> {
    match &record.subject {
        AuditSubject::Device { .. } => None,
        AuditSubject::Process { pid, .. } => Some(*pid),
    }
}

type IsMeant = fn(&AuditRecord) -> bool;

/// Queries, and the records of the whole history that each selects.
fn questions() -> Vec<(AuditFilter, IsMeant)> {
    let of = |change: fn(&mut AuditFilter), is_meant: IsMeant| {
        let mut filter = everything();
        change(&mut filter);
        (filter, is_meant)
    };
    vec![
        of(
            |it| it.user = Some("user1".into()),
            |it| pid(it).is_some_and(|it| it % 3 == 1),
        ),
        of(
            |it| it.user = Some("1002".into()),
            |it| pid(it).is_some_and(|it| it % 3 == 2),
        ),
        of(
            |it| it.user = Some("owner0".into()),
            |it| pid(it).is_some_and(|it| it % 3 == 0),
        ),
        of(
            |it| it.user = Some("2001".into()),
            |it| pid(it).is_some_and(|it| it % 3 == 1),
        ),
        of(|it| it.user = Some("nobody".into()), |_| false),
        of(
            |it| it.process = Some("^jul".into()),
            |it| pid(it).is_some_and(|it| it % 2 == 1),
        ),
        of(
            |it| {
                it.process = Some("py".into());
                it.user = Some("user0".into());
            },
            |it| pid(it).is_some_and(|it| it % 6 == 0),
        ),
        of(
            |it| it.container = Some("0123".into()),
            |it| matches!(pid(it), Some(1 | 7 | 8)),
        ),
        of(
            |it| it.container = Some("docker/0123456789ab".into()),
            |it| matches!(pid(it), Some(1 | 7)),
        ),
        of(
            |it| it.container = Some("web".into()),
            |it| pid(it) == Some(8),
        ),
        of(
            |it| it.job = Some("slurm 77".into()),
            |it| matches!(pid(it), Some(2 | 3)),
        ),
        of(|it| it.gpu = Some("1".into()), |it| it.device == gpu(1)),
        of(
            |it| {
                it.gpu = Some("1".into());
                it.job = Some("slurm 77".into());
            },
            |_| false,
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn filters_select_exactly_their_records(
        steps in prop::collection::vec(step(), 1..14),
        deleted in [0..9_i64, 0..9_i64],
        (since, length) in (prop_oneof![Just(-10_000_i64), 0..400_i64], 1..10_000_i64),
        limit in prop_oneof![1..20_u32, Just(1_000)],
        most_in_vain in 1..9_u32,
    ) {
        let (_directory, mut opened, end) = written(&steps);
        let before = |hours: i64| Timestamp(end - hours * HOUR - 7 * MINUTE);
        let [samples, minutes] = deleted;
        let oldest = [("sample", before(samples)), ("minute", before(samples + minutes))];
        let oldest = [oldest[0], oldest[1], ("hour", Timestamp(0))];
        while delete_before(&mut opened.connection, oldest).unwrap() {}
        let since = end - 400 * MINUTE + since * MINUTE;
        let connection = &opened.connection;
        for (mut filter, is_meant) in questions() {
            filter.since = Timestamp(since);
            filter.until = Timestamp(since.saturating_add(length * MINUTE));
            let all = AuditFilter { since: filter.since, until: filter.until, ..everything() };
            let mut expected = walk(connection, &all, 1_000, u32::MAX);
            prop_assert!(expected.is_sorted_by(|newer, older| newer.id > older.id));
            expected.retain(is_meant);
            let exists = filter.gpu.is_none() || steps.iter().any(|it| !it.is_second_gone);
            if exists {
                prop_assert_eq!(walk(connection, &filter, limit, most_in_vain), expected);
            }
        }
    }
}

#[test]
fn partly_deleted_minute_is_shown_whole() {
    let step = Step {
        samples: 12,
        gap: 0,
        pids: vec![5],
        is_second_gone: true,
    };
    let (_directory, mut opened, end) = written(&[step]);
    let start = end - 4 * MINUTE;
    let covered_since = |opened: &OpenDatabase, since: i64| -> Vec<(i64, u64)> {
        let filter = AuditFilter {
            since: Timestamp(since),
            user: Some("user2".into()),
            ..everything()
        };
        let records = walk(&opened.connection, &filter, 3, 1);
        let seconds = |it: &AuditRecord| ((it.at.0 - start) / 1000, it.covers_ms / 1000);
        records.iter().map(seconds).collect()
    };
    let samples = |after: i64| (after / 20 + 1..=12).rev().map(|it| (20 * it, 20));
    assert_eq!(
        covered_since(&opened, start),
        samples(0).collect::<Vec<_>>()
    );

    // The first sample of the second minute is deleted, and all samples of the first minute.
    let before = Timestamp(start + MINUTE + 1);
    let oldest = [
        ("sample", before),
        ("minute", Timestamp(0)),
        ("hour", Timestamp(0)),
    ];
    while delete_before(&mut opened.connection, oldest).unwrap() {}
    let minutes = [(120, 60), (60, 60)];
    let expected: Vec<_> = samples(120).chain(minutes).collect();
    assert_eq!(covered_since(&opened, start), expected);
    // The minute began before the requested time: its remaining samples are shown.
    let within = start + MINUTE + 10_000;
    assert_eq!(
        covered_since(&opened, within),
        samples(80).collect::<Vec<_>>()
    );
}

#[test]
fn first_rows_change_when_rows_of_the_period_are_deleted() {
    let step = Step {
        samples: 360,
        gap: 0,
        pids: vec![5],
        is_second_gone: true,
    };
    let (_directory, mut opened, end) = written(&[step]);
    let start = end - 2 * HOUR;
    let mut first_rows = |deleted_before: i64| {
        let oldest = ["sample", "minute", "hour"].map(|table| match table {
            "sample" => (table, Timestamp(start + deleted_before)),
            _ => (table, Timestamp(0)),
        });
        while delete_before(&mut opened.connection, oldest).unwrap() {}
        let query = AuditQuery {
            filter: AuditFilter {
                since: Timestamp(start + 100 * MINUTE + 10_000),
                ..everything()
            },
            before: None,
            limit: 3,
        };
        let deadline = Deadline(Instant::now() + Duration::from_secs(600));
        let page = read_page(&opened.connection, &query, &|_, _| true, 1, deadline);
        page.unwrap_or_else(|_| unreachable!("the question makes sense"))
            .first_rows
    };
    let all = first_rows(0);
    assert_eq!(first_rows(10 * MINUTE + 1), all);
    let fewer = first_rows(101 * MINUTE + 1);
    assert_ne!(fewer, all);
    assert_ne!(first_rows(105 * MINUTE + 1), fewer);
}

#[test]
fn since_is_inclusive_and_until_is_exclusive() {
    let step = Step {
        samples: 12,
        gap: 0,
        pids: vec![5],
        is_second_gone: true,
    };
    let (_directory, opened, end) = written(&[step]);
    let start = end - 4 * MINUTE;
    let times = |since: i64, until: i64| -> Vec<i64> {
        let filter = AuditFilter {
            since: Timestamp(start + since * 1000),
            until: Timestamp(start + until * 1000),
            user: Some("user2".into()),
            ..everything()
        };
        let records = walk(&opened.connection, &filter, 3, 1);
        records.iter().map(|it| (it.at.0 - start) / 1000).collect()
    };
    assert_eq!(times(0, 50), [40, 20]);
    assert_eq!(times(0, 40), [20]);
    assert_eq!(times(40, 81), [80, 60, 40]);
    assert_eq!(times(41, 80), [60]);
    // Adjacent time spans contain each record once.
    for middle in 0..=240 {
        let parts = [times(middle, 241), times(0, middle)].concat();
        assert_eq!(parts, times(0, 241), "{middle}");
    }
}

#[test]
fn hour_includes_processes_that_ended_before() {
    let step = |samples: i64, pids: &[u32]| Step {
        samples,
        gap: 0,
        pids: pids.to_vec(),
        is_second_gone: true,
    };
    let (_directory, mut opened, end) = written(&[step(1, &[3]), step(360, &[])]);
    // Two hours: the process was present for the first 20 seconds.
    let start = end - 361 * 20_000;
    let oldest = [
        ("sample", Timestamp(end)),
        ("minute", Timestamp(end)),
        ("hour", Timestamp(0)),
    ];
    while delete_before(&mut opened.connection, oldest).unwrap() {}
    let pids = |user: Option<&str>| -> Vec<u32> {
        let filter = AuditFilter {
            since: Timestamp(start + 2 * MINUTE),
            user: user.map(str::to_owned),
            ..everything()
        };
        let records = walk(&opened.connection, &filter, 1_000, 1);
        records.iter().filter_map(pid).collect()
    };
    assert_eq!(pids(None), [3]);
    assert_eq!(pids(Some("user0")), [3]);
}
