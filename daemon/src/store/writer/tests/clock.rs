//! A wall clock that jumps while samples are written.

use super::super::super::blob::{StoredUsage, decode};
use super::super::super::database::SAMPLES;
use super::super::super::query::sample_page;
use super::*;
use gpukill_policy::usage::Usage;
use gpukill_proto::audit::{AuditFilter, AuditQuery, AuditRecord};
use gpukill_proto::model::{Device, DeviceId, GpuProcess, Snapshot, Vendor};
use gpukill_proto::reading::Reading;

const STEP: i64 = 10_000;

/// A sample of ten seconds that ended at `at`, with one process that held a device.
pub(super) fn sample(at: Timestamp) -> Sample {
    let (id, why) = (DeviceId("GPU-0".into()), Reading::<()>::Unsupported);
    let process = GpuProcess {
        start_ticks: Reading::Value(9),
        ..GpuProcess::unknown(id.clone(), 7, Timestamp(0), &why)
    };
    let snapshot = Snapshot {
        host: String::new(),
        taken_at: at,
        polls: 1,
        devices: vec![Device::unknown(id, 0, Vendor::Nvidia, &why)],
        processes: vec![process],
        backends: Vec::new(),
        faults: Vec::new(),
    };
    let mut usage = Usage::starting_at(Timestamp(at.0 - STEP));
    usage.add(&snapshot, Duration::from_millis(STEP.cast_unsigned()));
    Sample {
        usage,
        snapshot: Arc::new(snapshot),
        departed: Vec::new(),
        groups: Arc::default(),
        accounts: Arc::default(),
        suspected: Arc::default(),
    }
}

/// The rows of a table: id and usage.
fn table(connection: &Connection, table: &str) -> Vec<(i64, StoredUsage)> {
    let select = format!("SELECT id, at, usage FROM {table} ORDER BY id");
    let mut statement = connection.prepare(&select).unwrap();
    let rows = statement.query_map([], |row| {
        let blob: Vec<u8> = row.get(2)?;
        let stored = decode(&blob, Timestamp(row.get(1)?)).unwrap();
        Ok((row.get(0)?, stored))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

fn held(rows: &[(i64, StoredUsage)], until: i64) -> i64 {
    let rows = rows.iter().filter(|(id, _)| *id <= until);
    let runs = rows.flat_map(|(_, stored)| stored.runs.values());
    runs.map(|run| run.held_ms.cast_signed()).sum()
}

/// All pages of this length.
fn pages(connection: &mut Connection, limit: u32) -> Vec<AuditRecord> {
    let mut query = AuditQuery {
        filter: AuditFilter::for_period(Timestamp(i64::MIN), Timestamp(i64::MAX)),
        before: None,
        limit,
    };
    let mut records = Vec::new();
    loop {
        let page = sample_page(connection, &query, &|_, _| true).unwrap();
        records.extend(page.records);
        match page.next {
            Some(next) => query.before = Some(next),
            None => return records,
        }
    }
}

#[test]
fn jumping_clock_loses_and_repeats_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = writer(directory.path(), "boot");
    let now = 1_795_302_900_000;
    let (day, ten_years) = (24 * 3_600_000, 10 * 365 * 24 * 3_600_000);
    // A day back, ten years ahead, before 1970 and so on; every second jump is followed by the next
    // within one minute.
    let jumps = [0, -day, 0, ten_years, 0, -2 * now, ten_years, -day, 0, day];
    let (mut written, mut at) = (0_i64, now);
    for (turn, jump) in jumps.iter().enumerate() {
        let many = if turn % 2 == 0 { 200 } else { 3 };
        for _ in 0..many {
            at += STEP;
            written += 1;
            opened.write_sample(&sample(Timestamp(at + jump)));
        }
        // Often another daemon continues.
        if turn % 3 == 0 {
            drop(opened);
            opened = writer(directory.path(), "boot");
        }
    }
    assert_eq!(opened.samples_fault, None);
    assert_eq!(lock(&opened.status).samples_dropped, 0);
    drop(opened);

    let mut connection = open(directory.path(), &SAMPLES).unwrap().connection;
    let number =
        |select: &str| -> i64 { connection.query_row(select, [], |row| row.get(0)).unwrap() };
    let (in_minutes, in_hours) = (
        number("SELECT sample FROM rolled"),
        number("SELECT minute FROM rolled"),
    );
    let [samples, minutes, hours] = ["sample", "minute", "hour"].map(|it| table(&connection, it));
    let ids = samples.iter().map(|(id, _)| *id);
    assert!(ids.eq(1..=written));
    assert_eq!(held(&samples, written), written * STEP);
    // Minutes contain all samples except those of the last minute; hours contain all minutes
    // likewise.
    assert_eq!(held(&minutes, i64::MAX), held(&samples, in_minutes));
    assert_eq!(held(&hours, i64::MAX), held(&minutes, in_hours));
    assert_eq!(number("SELECT sum(held_ms) FROM run"), in_minutes * STEP);
    assert_eq!(number("SELECT count(*) FROM run"), 1);
    assert!(written - in_minutes <= 6 && in_minutes - in_hours <= 360);

    // One record of the device and one of the process.
    for limit in [7, 1_000] {
        let records = pages(&mut connection, limit);
        assert_eq!(i64::try_from(records.len()), Ok(2 * written));
        let is_newest_first = records.is_sorted_by(|newer, older| newer.id > older.id);
        assert!(is_newest_first, "{limit}");
    }
}
