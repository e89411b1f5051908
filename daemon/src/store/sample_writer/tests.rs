//! A written sample is read back unchanged.

use super::super::database::{OpenDatabase, SAMPLES, open};
use super::super::query::sample_page;
use super::super::sample::Departure;
use super::*;
use gpukill_proto::audit::{AuditFilter, AuditQuery, AuditRecord, AuditSubject};
use gpukill_proto::model::{OwnerKind, Snapshot, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use std::sync::Arc;
use std::time::Duration;

fn owner(name: &str, uid: Option<u32>, kind: OwnerKind) -> Reading<Owner> {
    let name = name.to_owned();
    Reading::Value(Owner { name, uid, kind })
}

fn device() -> Device {
    let why = Reading::Unsupported;
    Device::unknown(DeviceId("GPU-0".into()), 0, Vendor::Nvidia, &why)
}

/// A sample that ended `at` seconds after 1970 and covers this many seconds.
fn polled(at: i64, seconds: u64, processes: &[GpuProcess]) -> Sample {
    polled_on(vec![device()], at, seconds, processes)
}

fn polled_on(devices: Vec<Device>, at: i64, seconds: u64, processes: &[GpuProcess]) -> Sample {
    let snapshot = Snapshot {
        host: String::new(),
        taken_at: Timestamp(at * 1000),
        polls: 1,
        devices,
        processes: processes.to_vec(),
        backends: Vec::new(),
        faults: Vec::new(),
    };
    let length = Duration::from_secs(seconds);
    let from = i64::try_from(seconds).unwrap();
    let mut usage = Usage::starting_at(Timestamp((at - from) * 1000));
    usage.add(&snapshot, length);
    Sample {
        usage,
        snapshot: Arc::new(snapshot),
        departed: Vec::new(),
        groups: Arc::default(),
        accounts: Arc::default(),
        suspected: Arc::default(),
    }
}

fn opened() -> (tempfile::TempDir, OpenDatabase) {
    let directory = tempfile::tempdir().unwrap();
    let opened = open(directory.path(), &SAMPLES).unwrap();
    (directory, opened)
}

fn write(opened: &mut OpenDatabase, written: &mut SampleWriter, sample: &Sample) {
    written
        .write(&mut opened.connection, "boot", sample)
        .unwrap();
}

fn asked(process: Option<&str>) -> AuditQuery {
    AuditQuery {
        filter: AuditFilter {
            process: process.map(Into::into),
            ..AuditFilter::for_period(Timestamp(0), Timestamp(i64::MAX))
        },
        before: None,
        limit: u32::MAX,
    }
}

fn records(opened: &mut OpenDatabase, process: Option<&str>) -> Vec<AuditRecord> {
    let page = sample_page(&mut opened.connection, &asked(process), &|_, _| true).unwrap();
    assert_eq!(page.next, None);
    page.records
}

/// The record of process 7 after these samples of it.
fn stored_subject(samples: &[GpuProcess]) -> AuditSubject {
    let (_directory, mut opened) = opened();
    for (second, process) in (1..).zip(samples) {
        // Each as the first sample of a restarted daemon.
        let sample = polled(second, 0, std::slice::from_ref(process));
        write(&mut opened, &mut SampleWriter::default(), &sample);
    }
    let records = records(&mut opened, Some(""));
    records.into_iter().next().unwrap().subject
}

#[test]
fn owner_is_kept_while_the_user_is_the_same() {
    let unknown = Reading::<()>::Failed("x".into());
    let nothing = GpuProcess {
        start_ticks: Reading::Value(9),
        name: Reading::Value("python".into()),
        connections: Reading::Unsupported,
        ..GpuProcess::unknown(DeviceId("GPU-0".into()), 7, Timestamp(0), &unknown)
    };
    let known = GpuProcess {
        uid: Reading::Value(100_999),
        user: Reading::Value("sub".into()),
        owner: owner("alice", Some(1000), OwnerKind::Namespace),
        namespace_owner: Reading::Value(Some(1000)),
        ..nothing.clone()
    };
    let labelled = GpuProcess {
        owner: owner("bob", None, OwnerKind::Label),
        ..known.clone()
    };
    let other_user = GpuProcess {
        uid: Reading::Value(5),
        ..nothing.clone()
    };
    let expected_subject =
        |uid, user: Option<&str>, owner: &GpuProcess, namespace_owner| AuditSubject::Process {
            pid: 7,
            instance: None,
            uid,
            user: user.map(Into::into),
            owner: owner.owner.known().cloned(),
            namespace_owner,
            name: Some("python".into()),
            command: Reading::Unsupported,
            container: None,
            job: None,
            held_ms: 0,
            connections: Reading::Unsupported,
        };
    let (alices, sub) = (Some(1000), Some("sub"));
    let cases = [
        (vec![&nothing], expected_subject(None, None, &nothing, None)),
        (
            vec![&known],
            expected_subject(Some(100_999), sub, &known, alices),
        ),
        (
            vec![&known, &nothing],
            expected_subject(Some(100_999), sub, &known, alices),
        ),
        (
            vec![&known, &labelled],
            expected_subject(Some(100_999), sub, &labelled, alices),
        ),
        (
            vec![&known, &other_user],
            expected_subject(Some(5), None, &nothing, alices),
        ),
    ];
    for (samples, expected) in cases {
        let samples: Vec<GpuProcess> = samples.into_iter().cloned().collect();
        assert_eq!(stored_subject(&samples), expected);
    }
}

fn trainer(percent: u32) -> GpuProcess {
    let why = Reading::Unsupported;
    GpuProcess {
        start_ticks: Reading::Value(9),
        name: Reading::Value("python".into()),
        utilization: Reading::Value(Percent(percent)),
        memory: Reading::Value(Bytes::mib(512)),
        owner: owner("alice", Some(1000), OwnerKind::User),
        ..GpuProcess::unknown(DeviceId("GPU-0".into()), 7, Timestamp(0), &why)
    }
}

/// Held, busy, idle, unknown, MiB seconds and ending of the only run.
fn run(opened: &OpenDatabase) -> (i64, i64, i64, i64, i64, Option<String>) {
    let select = "SELECT held_ms, busy_ms, idle_ms, unknown_ms, memory_mib_s, ending FROM run";
    let row = opened.connection.query_row(select, [], |row| {
        Ok((
            row.get(0)?,
            row.get(1)?,
            row.get(2)?,
            row.get(3)?,
            row.get(4)?,
            row.get(5)?,
        ))
    });
    row.unwrap()
}

/// The number of rows of a table, and their sum of held time.
fn held_in(opened: &OpenDatabase, table: &str) -> (usize, u64) {
    let mut statement = opened
        .connection
        .prepare(&format!("SELECT at, usage FROM {table}"))
        .unwrap();
    let rows = statement.query_map([], |row| {
        let (at, blob): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        Ok(super::super::blob::decode(&blob, Timestamp(at)).unwrap())
    });
    let rows: Vec<StoredUsage> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    let held = rows.iter().flat_map(|it| it.runs.values());
    (rows.len(), held.map(|run| run.held_ms).sum())
}

#[test]
fn run_begins_when_the_process_was_first_seen() {
    let seen_at = |first_seen| GpuProcess {
        first_seen,
        ..trainer(5)
    };
    let (unknown, known) = (
        seen_at(Reading::Failed("not read yet".into())),
        seen_at(Reading::Value(Timestamp(7_000))),
    );
    // Also if that is known only after the first sample; but an earlier use counts.
    let cases: [(&[&GpuProcess], i64); 4] = [
        (&[&known, &unknown], 7_000),
        (&[&unknown, &unknown], 0),
        (&[&unknown, &known, &unknown], 7_000),
        (&[&unknown, &unknown, &known], 7_000),
    ];
    for (samples, expected) in cases {
        let (_directory, mut opened) = opened();
        let mut written = SampleWriter::default();
        for (at, process) in (1..).zip(samples) {
            let sample = polled(at * 10, 10, &[GpuProcess::clone(process)]);
            write(&mut opened, &mut written, &sample);
        }
        let select = "SELECT first_at FROM run";
        let first: i64 = opened
            .connection
            .query_row(select, [], |row| row.get(0))
            .unwrap();
        assert_eq!(first, expected);
        // The process leaves the device and comes back.
        opened
            .connection
            .execute_batch("UPDATE run SET first_at = 3000, ended_at = 4000")
            .unwrap();
        written.forget();
        for (at, process) in [(90, &unknown), (100, &known)] {
            write(
                &mut opened,
                &mut written,
                &polled(at, 10, std::slice::from_ref(process)),
            );
        }
        let first: i64 = opened
            .connection
            .query_row(select, [], |row| row.get(0))
            .unwrap();
        assert_eq!(first, 3_000);
    }
}

/// The store of a daemon that ended while the trainer used its device.
fn store_with_run() -> (tempfile::TempDir, OpenDatabase) {
    let (directory, mut opened) = opened();
    let sample = polled(10, 10, &[trainer(90)]);
    write(&mut opened, &mut SampleWriter::default(), &sample);
    (directory, opened)
}

/// When and how the run ended.
fn run_end(opened: &OpenDatabase) -> (Option<i64>, Option<String>) {
    let select = "SELECT ended_at, ending FROM run";
    let row = opened
        .connection
        .query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)));
    row.unwrap()
}

/// The end of a run that was last observed in the first sample.
fn unobserved_end() -> (Option<i64>, Option<String>) {
    (Some(10_000), Some("unobserved".into()))
}

#[test]
fn earlier_run_goes_on_until_its_device_is_read_without_it() {
    let unread = Device {
        process_count: Reading::Failed("not all processes have been scanned yet".into()),
        ..device()
    };
    for devices in [vec![], vec![unread]] {
        for is_present in [true, false] {
            let (_directory, mut opened) = store_with_run();
            let mut written = SampleWriter::default();
            // Into the next minute, which sums up the one with the run.
            for at in (20..=80).step_by(10) {
                let sample = polled_on(devices.clone(), at, 10, &[]);
                write(&mut opened, &mut written, &sample);
                assert_eq!(run_end(&opened), (None, None), "{at}");
            }
            let (processes, expected) = match is_present {
                true => (vec![trainer(90)], (None, None)),
                false => (vec![], unobserved_end()),
            };
            write(&mut opened, &mut written, &polled(90, 10, &processes));
            assert_eq!(run_end(&opened), expected);
        }
    }
}

#[test]
fn earlier_run_ends_if_its_device_stays_away() {
    let (_directory, mut opened) = store_with_run();
    let mut written = SampleWriter::default();
    for at in (20..=130).step_by(10) {
        assert_eq!(run_end(&opened), (None, None), "{at}");
        write(&mut opened, &mut written, &polled_on(vec![], at, 10, &[]));
    }
    assert_eq!(run_end(&opened), unobserved_end());
}

#[test]
fn reboot_ends_earlier_runs_at_once() {
    let (_directory, mut opened) = store_with_run();
    SampleWriter::default()
        .write(
            &mut opened.connection,
            "next boot",
            &polled_on(vec![], 20, 0, &[]),
        )
        .unwrap();
    assert_eq!(run_end(&opened), unobserved_end());
}

#[test]
fn rollups_match_samples_across_restarts() {
    for restart_every in [1, 7, usize::MAX] {
        let (_directory, mut opened) = opened();
        let mut written = SampleWriter::default();
        // Ten seconds each, for two and a half hours, half of it busy.
        for number in 0..900_usize {
            let percent = if number.is_multiple_of(2) { 90 } else { 0 };
            let at = 10 * (i64::try_from(number).unwrap() + 1);
            write(
                &mut opened,
                &mut written,
                &polled(at, 10, &[trainer(percent)]),
            );
            if number % restart_every == restart_every - 1 {
                written = SampleWriter::default();
            }
        }
        let last = polled(9_060, 10, &[]);
        let departed = DepartedProcess {
            process: trainer(0),
            departure: Departure::Ended,
            last_seen: Timestamp(9_050_000),
        };
        let last = Sample {
            departed: vec![departed],
            ..last
        };
        write(&mut opened, &mut written, &last);
        assert_eq!(held_in(&opened, "sample"), (901, 9_000_000));
        assert_eq!(held_in(&opened, "minute"), (150, 9_000_000));
        // The last half hour is not over.
        assert_eq!(held_in(&opened, "hour"), (2, 7_200_000));
        let expected = (
            9_000_000,
            4_500_000,
            4_500_000,
            0,
            512 * 9_000,
            Some("ended".into()),
        );
        assert_eq!(run(&opened), expected);
    }
}

#[test]
fn older_history_is_shown_in_rollups() {
    let (_directory, mut opened) = opened();
    let mut written = SampleWriter::default();
    for number in 1..=1_000 {
        write(
            &mut opened,
            &mut written,
            &polled(10 * number, 10, &[trainer(90)]),
        );
    }
    let all = records(&mut opened, Some("python"));
    assert_eq!(all.len(), 1_000);
    let at = |seconds: i64| Timestamp(seconds * 1000);
    let oldest = [
        ("sample", at(9_600)),
        ("minute", at(7_200)),
        ("hour", at(0)),
    ];
    while super::super::retention::delete_before(&mut opened.connection, oldest).unwrap() {}
    let rows = records(&mut opened, Some("python"));
    // Two hours, forty minutes, and the rest as samples.
    let covers: Vec<u64> = rows.iter().map(|it| it.covers_ms / 1000).collect();
    let expected = [vec![10; 40], vec![60; 40], vec![3_600; 2]].concat();
    assert_eq!(covers, expected);
    let ids: Vec<u64> = rows.iter().map(|it| it.id).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older));
    assert!(
        rows.iter()
            .all(|it| it.utilization == Reading::Value(Percent(90)))
    );
}
