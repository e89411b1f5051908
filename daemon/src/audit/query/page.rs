//! One page of records, newest first.

use super::super::packed::{Stored, unpack};
use super::super::row::{self, MOST_ROWS, id};
use super::filter::{StoredDevice, StoredRun, Wanted};
use super::range::{Rows, rows};
use super::{Deadline, Failure, within_time};
use gpukill_policy::usage::{DeviceUsage, Gauge, RunUsage};
use gpukill_proto::audit::{AuditPage, AuditQuery, AuditRecord, AuditSubject};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{DeviceId, InstanceId};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use rusqlite::{Connection, params};

/// The most records of one page.
const MOST_RECORDS: u32 = 1_000;

/// The most bytes of one page, as they travel: well below a frame.
const MOST_BYTES: u64 = 256 << 10;

/// One page of the records that `query` asks for, newest first.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(in super::super) fn page(
    connection: &mut Connection,
    query: &AuditQuery,
) -> Result<AuditPage, Refusal> {
    within_time(connection, |connection, deadline| {
        read(connection, query, deadline)
    })
}

fn read(
    connection: &Connection,
    query: &AuditQuery,
    deadline: Deadline,
) -> Result<AuditPage, Failure> {
    if query.limit == 0 {
        // An empty page could not say where the next one begins.
        let what = "a limit of 0 asks for nothing".into();
        return Err(Failure::Asked(Refusal::Invalid(what)));
    }
    let filter = &query.filter;
    let mut wanted = Wanted::of(connection, filter)?;
    let mut page = Filling {
        page: AuditPage {
            records: Vec::new(),
            next: None,
        },
        bytes: 0,
        limit: query.limit.min(MOST_RECORDS) as usize,
        before: query.before.map_or(i64::MAX, row::count),
    };
    let stretches = wanted.stretches.clone();
    for rows in rows(connection, filter.since, filter.until)? {
        for &(first, last) in &stretches {
            let first = first.max(rows.first);
            let end = last.saturating_add(1).min(rows.end);
            // What is before the page asked for begins in this row at the latest.
            let end = end.min((page.before >> row::ROW_BITS).saturating_add(1));
            let part = Rows { first, end, ..rows };
            let goes_on = fill(connection, part, query, &mut wanted, deadline, &mut page)?;
            if !goes_on {
                return Ok(page.page);
            }
        }
    }
    Ok(page.page)
}

/// A page, and what it may still take.
struct Filling {
    page: AuditPage,
    bytes: u64,
    limit: usize,
    /// Records of this id and later ones are on an earlier page.
    before: i64,
}

impl Filling {
    /// Takes a record; false when the page was full without it.
    fn take(&mut self, record: AuditRecord) -> bool {
        self.bytes += bincode::serialized_size(&record).unwrap_or(MOST_BYTES);
        let is_full = self.page.records.len() >= self.limit || self.bytes > MOST_BYTES;
        if is_full && !self.page.records.is_empty() {
            self.page.next = self.page.records.last().map(|last| last.id);
            return false;
        }
        self.page.records.push(record);
        true
    }
}

/// Fills a page with what these rows tell; false when it is full.
fn fill(
    connection: &Connection,
    rows: Rows,
    query: &AuditQuery,
    wanted: &mut Wanted<'_>,
    deadline: Deadline,
    page: &mut Filling,
) -> Result<bool, Failure> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, at, usage FROM {} WHERE id >= ?1 AND id < ?2 AND at >= ?3 AND at < ?4
         ORDER BY id DESC",
        rows.level.table()
    ))?;
    let (since, until) = (query.filter.since.0, query.filter.until.0);
    let mut found = statement.query(params![rows.first, rows.end, since, until])?;
    while let Some(row) = found.next()? {
        deadline.check()?;
        let (number, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
        // One that is broken is told of where it was found, and left out here.
        let Ok(sample) = unpack(blob, Timestamp(at)) else {
            continue;
        };
        wanted.look_up(connection, sample.runs.keys().copied())?;
        for record in records(number, &sample, wanted) {
            if row::count(record.id) < page.before && !page.take(record) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// What one row tells of what is wanted, the highest id first.
fn records<'a>(
    number: i64,
    sample: &'a Stored,
    wanted: &'a Wanted<'_>,
) -> impl Iterator<Item = AuditRecord> + 'a {
    let record = move |position: i64, device: i64| {
        let stored = wanted.scope.all_devices.get(&device);
        AuditRecord {
            id: u64::try_from(id(number, position.min(MOST_ROWS - 1))).unwrap_or(0),
            at: sample.until,
            covers_ms: sample.seen_ms,
            device: DeviceId(stored.map_or_else(String::new, |it| it.uuid.clone())),
            gpu_index: index(sample, device, stored),
            gpu_name: stored.and_then(|it| it.name.clone()),
            memory: Reading::Unsupported,
            utilization: Reading::Unsupported,
            subject: AuditSubject::Device {
                temperature: Reading::Unsupported,
                power: Reading::Unsupported,
            },
        }
    };
    let count = row::count(sample.devices.len() as u64);
    let runs = (count..).zip(&sample.runs).rev_by_collecting();
    let runs = runs.filter_map(move |(position, (run, usage))| {
        let stored = wanted.run(*run)?;
        let record = record(position, stored.device);
        Some(of_run(record, stored, usage))
    });
    let devices = (0..).zip(&sample.devices).rev_by_collecting();
    let devices = devices.filter_map(move |(position, (device, usage))| {
        let scope = &wanted.scope;
        let is_wanted = !scope.is_of_processes && scope.devices.contains(device);
        is_wanted.then(|| of_device(record(position, *device), usage))
    });
    runs.chain(devices)
}

/// Turns what cannot be walked from its end.
trait RevByCollecting: Iterator + Sized {
    fn rev_by_collecting(self) -> std::iter::Rev<std::vec::IntoIter<Self::Item>> {
        self.collect::<Vec<_>>().into_iter().rev()
    }
}

impl<I: Iterator> RevByCollecting for I {}

fn index(sample: &Stored, device: i64, stored: Option<&StoredDevice>) -> u32 {
    let then = sample.devices.get(&device).map(|usage| usage.index);
    then.or_else(|| stored.map(|it| it.gpu_index)).unwrap_or(0)
}

fn of_run(record: AuditRecord, run: &StoredRun, usage: &RunUsage) -> AuditRecord {
    let process = &run.process;
    AuditRecord {
        memory: most(&usage.memory, Bytes),
        utilization: percent(&usage.utilization),
        subject: AuditSubject::Process {
            pid: process.pid,
            instance: instance(&run.instance),
            uid: process.uid,
            user: process.user.clone(),
            owner: process.owner.clone(),
            namespace_owner: process.namespace_owner,
            name: process.name.clone(),
            command: process
                .command
                .clone()
                .map_or(Reading::Unsupported, Reading::Value),
            container: process.container.clone(),
            job: process.job.clone(),
            held_ms: usage.held_ms,
            connections: usage
                .connections
                .reading(|it| it.most.and_then(|number| u32::try_from(number).ok())),
        },
        ..record
    }
}

fn of_device(record: AuditRecord, usage: &DeviceUsage) -> AuditRecord {
    AuditRecord {
        memory: most(&usage.memory, Bytes),
        utilization: percent(&usage.utilization),
        subject: AuditSubject::Device {
            temperature: usage
                .hottest
                .map_or(Reading::Unsupported, |it| Reading::Value(Celsius(it))),
            power: usage.power.reading(|it| it.mean().map(Milliwatts)),
        },
        ..record
    }
}

fn most<T>(gauge: &Gauge, value: impl Fn(u64) -> T) -> Reading<T> {
    gauge.reading(|it| it.most.map(&value))
}

fn percent(gauge: &Gauge) -> Reading<Percent> {
    gauge.reading(|it| Some(Percent(u32::try_from(it.mean()?).ok()?)))
}

fn instance(stored: &str) -> Option<InstanceId> {
    let (gpu, compute) = stored.split_once('/')?;
    Some(InstanceId {
        gpu: gpu.parse().ok()?,
        compute: compute.parse().ok()?,
    })
}
