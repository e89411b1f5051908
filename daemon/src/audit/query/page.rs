//! One page of records, newest first.

#[cfg(test)]
mod tests;

use super::super::packed::{Broken, Packed};
use super::super::row::{self, MOST_ROWS, id, instance_of};
use super::filter::{StoredDevice, StoredRun};
use super::range::{Rows, rows};
use super::wanted::Wanted;
use super::{Deadline, Failure, within_time};
use gpukill_policy::usage::{DeviceUsage, Gauge, RunUsage};
use gpukill_proto::audit::{AuditFilter, AuditPage, AuditQuery, AuditRecord, AuditSubject};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::transport::codec::encoded_size;
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use rusqlite::{Connection, params};

/// The most records of one page.
const MOST_RECORDS: u32 = 1_000;

/// The most bytes of one page, as they travel: well below a frame.
const MOST_BYTES: u64 = 512 << 10;

/// After so many rows in vain it is looked up where something wanted was: most of
/// what people ask for is in the newest rows, or in few of all.
const MOST_IN_VAIN: u32 = 200;

/// One page of the records that `query` asks for, newest first.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(in super::super) fn page(
    connection: &mut Connection,
    query: &AuditQuery,
) -> Result<AuditPage, Refusal> {
    within_time(connection, |connection, deadline| {
        read(connection, query, MOST_IN_VAIN, deadline)
    })
}

fn read(
    connection: &Connection,
    query: &AuditQuery,
    most_in_vain: u32,
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
        in_vain: 0,
        most_in_vain,
    };
    let mut fill =
        |rows, wanted: &mut _| fill(connection, rows, filter, wanted, deadline, &mut page);
    'filled: for mut rows in rows(connection, filter.since, filter.until)? {
        // What is before the page asked for begins in this row at the latest.
        let before = query.before.map_or(i64::MAX, row::count) >> row::ROW_BITS;
        rows.end = rows.end.min(before.saturating_add(1));
        if !wanted.is_found() {
            match fill(rows, &mut wanted)? {
                Filled::Page => break,
                Filled::AllThereIs => continue,
                Filled::NothingFor(row) => rows.end = row,
            }
            wanted.find(connection)?;
        }
        while let Some(part) = wanted.newest(connection, rows)? {
            match fill(part, &mut wanted)? {
                Filled::Page => break 'filled,
                Filled::AllThereIs | Filled::NothingFor(_) => rows.end = part.first,
            }
        }
    }
    Ok(page.page)
}

/// How far a page was filled.
enum Filled {
    /// It is full.
    Page,
    /// With all that the rows tell.
    AllThereIs,
    /// Too many rows had nothing wanted; this is the last of them that was read.
    NothingFor(i64),
}

/// A page, and what it may still take.
struct Filling {
    page: AuditPage,
    bytes: u64,
    limit: usize,
    /// Records of this id and later ones are on an earlier page.
    before: i64,
    /// So many rows since the last that had something wanted.
    in_vain: u32,
    most_in_vain: u32,
}

impl Filling {
    /// Takes a record; false when the page was full without it.
    fn take(&mut self, record: AuditRecord) -> bool {
        self.bytes += encoded_size(&record).unwrap_or(MOST_BYTES);
        let is_full = self.page.records.len() >= self.limit || self.bytes > MOST_BYTES;
        if is_full && !self.page.records.is_empty() {
            self.page.next = self.page.records.last().map(|last| last.id);
            return false;
        }
        self.page.records.push(record);
        true
    }
}

/// Fills a page with what these rows tell, the newest first.
fn fill(
    connection: &Connection,
    rows: Rows,
    filter: &AuditFilter,
    wanted: &mut Wanted<'_>,
    deadline: Deadline,
    page: &mut Filling,
) -> Result<Filled, Failure> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, at, usage FROM {} WHERE id >= ?1 AND id < ?2 AND +at >= ?3 AND +at < ?4
         ORDER BY id DESC",
        rows.level.table()
    ))?;
    let (since, until) = (rows.level.reach(filter.since), filter.until.0);
    let mut found = statement.query(params![rows.first, rows.end, since, until])?;
    while let Some(row) = found.next()? {
        deadline.check()?;
        let (number, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
        wanted.forget_many();
        let told = match Told::of(connection, (number, Timestamp(at), blob), wanted) {
            Ok(told) => told,
            Err(Unread::Failed(failure)) => return Err(failure),
            // It is told of where it was found, and left out here.
            Err(Unread::Broken) => continue,
        };
        // The time of a record is the end of what it tells of.
        if told.until < filter.since || told.until >= filter.until {
            continue;
        }
        page.in_vain = if told.is_nothing() {
            page.in_vain + 1
        } else {
            0
        };
        for record in told.records(wanted) {
            if row::count(record.id) < page.before && !page.take(record) {
                return Ok(Filled::Page);
            }
        }
        if !wanted.is_found() && page.in_vain >= page.most_in_vain {
            return Ok(Filled::NothingFor(number));
        }
    }
    Ok(Filled::AllThereIs)
}

/// What one row tells of what is wanted.
struct Told {
    number: i64,
    until: Timestamp,
    seen_ms: u64,
    /// Where they are asked for.
    devices: Vec<(i64, DeviceUsage)>,
    /// Of all devices, what each was counted as then.
    indices: Vec<(i64, u32)>,
    /// With their places among all.
    runs: Vec<(i64, i64, RunUsage)>,
    is_of_devices: bool,
}

/// Why a row was not read.
enum Unread {
    Broken,
    Failed(Failure),
}

impl From<Broken> for Unread {
    fn from(Broken: Broken) -> Self {
        Self::Broken
    }
}

impl Told {
    fn of(
        connection: &Connection,
        (number, from, blob): (i64, Timestamp, &[u8]),
        wanted: &mut Wanted<'_>,
    ) -> Result<Self, Unread> {
        let packed = Packed::open(blob, from)?;
        let (until, seen_ms) = (packed.until, packed.seen_ms);
        let (devices, indices, mut all_runs) = if wanted.scope.is_of_processes {
            let (indices, runs) = packed.indices()?;
            (Vec::new(), indices, runs)
        } else {
            let (devices, runs) = packed.devices()?;
            let indices = devices.iter().map(|(id, usage)| (*id, usage.index));
            let indices = indices.collect();
            (devices, indices, runs)
        };
        let mut runs = Vec::new();
        let mut place = row::count(indices.len() as u64);
        while let Some(id) = all_runs.id()? {
            if wanted.is_past(id) {
                break;
            }
            if wanted.has(connection, id).map_err(Unread::Failed)? {
                runs.push((place, id, all_runs.usage()?));
            } else {
                all_runs.skip_usage()?;
            }
            place += 1;
        }
        let scope = &wanted.scope;
        let has_device = devices.iter().any(|(id, _)| scope.devices.contains(id));
        Ok(Self {
            number,
            until,
            seen_ms,
            devices,
            indices,
            runs,
            is_of_devices: !scope.is_of_processes && has_device,
        })
    }

    fn is_nothing(&self) -> bool {
        self.runs.is_empty() && !self.is_of_devices
    }

    /// The highest id first.
    fn records<'a>(&'a self, wanted: &'a Wanted<'_>) -> impl Iterator<Item = AuditRecord> + 'a {
        let record = move |place: i64, device: i64| {
            let stored = wanted.scope.all_devices.get(&device);
            AuditRecord {
                id: u64::try_from(id(self.number, place.min(MOST_ROWS - 1))).unwrap_or(0),
                at: self.until,
                covers_ms: self.seen_ms,
                device: DeviceId(stored.map_or_else(String::new, |it| it.uuid.clone())),
                gpu_index: self.index(device, stored),
                gpu_name: stored.and_then(|it| it.name.clone()),
                memory: Reading::Unsupported,
                utilization: Reading::Unsupported,
                subject: AuditSubject::Device {
                    temperature: Reading::Unsupported,
                    power: Reading::Unsupported,
                },
            }
        };
        let runs = self.runs.iter().rev();
        let runs = runs.filter_map(move |(place, run, usage)| {
            let stored = wanted.run(*run)?;
            Some(of_run(record(*place, stored.device), stored, usage))
        });
        let is_wanted =
            move |device: &i64| self.is_of_devices && wanted.scope.devices.contains(device);
        let devices = self.devices.iter().enumerate().rev();
        let devices = devices.filter(move |(_, (device, _))| is_wanted(device));
        let devices = devices.map(move |(place, (device, usage))| {
            of_device(record(row::count(place as u64), *device), usage)
        });
        runs.chain(devices)
    }

    fn index(&self, device: i64, stored: Option<&StoredDevice>) -> u32 {
        let then = self.indices.iter().find(|(id, _)| *id == device);
        let then = then.map(|(_, index)| *index);
        then.or_else(|| stored.map(|it| it.gpu_index)).unwrap_or(0)
    }
}

fn of_run(record: AuditRecord, run: &StoredRun, usage: &RunUsage) -> AuditRecord {
    let process = &run.process;
    AuditRecord {
        memory: most(&usage.memory, Bytes),
        utilization: percent(&usage.utilization),
        subject: AuditSubject::Process {
            pid: process.pid,
            instance: instance_of(&run.instance),
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
