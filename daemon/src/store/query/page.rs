//! One page of samples, newest first.

#[cfg(test)]
mod tests;

use super::super::blob::{BlobError, BlobReader};
use super::super::sql_values::{self, MAX_RECORDS_PER_SAMPLE, parse_instance, record_id};
use super::filter::{MayReadCommand, StoredDevice, StoredRun};
use super::page_search::PageSearch;
use super::range::{IdRange, find_ranges};
use super::{Deadline, QueryError, page_room, run_query};
use gpukill_policy::usage::{DeviceUsage, Gauge, RunUsage};
use gpukill_proto::audit::{AuditFilter, AuditPage, AuditQuery, AuditRecord, AuditSubject};
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::transport::codec::PageRoom;
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use rusqlite::{Connection, params};

/// The most encoded bytes of one page: well below a frame.
const MAX_PAGE_BYTES: u64 = 512 << 10;

/// After this many rows without a match, the matching rows are looked up by the index. Most queries
/// match the newest rows, or few rows at all.
const MAX_ROWS_WITHOUT_MATCH: u32 = 200;

/// Returns one page of the records that `query` selects, newest first. `may_read` decides, by user
/// and namespace owner, whether patterns see the command line of a process.
pub(in super::super) fn sample_page(
    connection: &mut Connection,
    query: &AuditQuery,
    may_read: MayReadCommand<'_>,
) -> Result<AuditPage, Refusal> {
    run_query(connection, |connection, deadline| {
        read_page(
            connection,
            query,
            may_read,
            MAX_ROWS_WITHOUT_MATCH,
            deadline,
        )
    })
}

fn read_page(
    connection: &Connection,
    query: &AuditQuery,
    may_read: MayReadCommand<'_>,
    most_in_vain: u32,
    deadline: Deadline,
) -> Result<AuditPage, QueryError> {
    let room = page_room(query.limit, MAX_PAGE_BYTES)?;
    // One transaction: rows that are deleted meanwhile would otherwise be missing.
    let connection = &*connection.unchecked_transaction()?;
    let filter = &query.filter;
    let mut wanted = PageSearch::from_filter(connection, filter, may_read)?;
    let ranges = find_ranges(connection, filter.since, filter.until)?;
    let first_row = |rows: &IdRange| rows.first.unsigned_abs();
    let before = query.before.map_or(i64::MAX, sql_values::saturating_i64);
    let mut page = SamplePageBuilder {
        page: AuditPage {
            records: Vec::new(),
            next: None,
            first_rows: ranges.iter().map(first_row).collect(),
        },
        room,
        before,
        rows_without_match: 0,
        max_rows_without_match: most_in_vain,
    };
    let mut fill =
        |rows, wanted: &mut _| fill(connection, rows, filter, wanted, deadline, &mut page);
    'filled: for mut rows in ranges {
        // The row of `before` is the newest that this page needs.
        let newest = before >> sql_values::RECORD_BITS;
        rows.end = rows.end.min(newest.saturating_add(1));
        if !wanted.is_located() {
            match fill(rows, &mut wanted)? {
                FillResult::PageFull => break,
                FillResult::RowsRead => continue,
                FillResult::NoMatch(row) => rows.end = row,
            }
            wanted.locate(connection)?;
        }
        while let Some(part) = wanted.next_rows(connection, rows)? {
            match fill(part, &mut wanted)? {
                FillResult::PageFull => break 'filled,
                FillResult::RowsRead | FillResult::NoMatch(_) => rows.end = part.first,
            }
        }
    }
    Ok(page.page)
}

/// The result of filling a page from a range of rows.
enum FillResult {
    /// The page is full.
    PageFull,
    /// All rows of the range were read.
    RowsRead,
    /// Too many rows had no match; holds the id of the last row read.
    NoMatch(i64),
}

/// A page, and how much more it may hold.
struct SamplePageBuilder {
    page: AuditPage,
    room: PageRoom,
    /// Records with this id or a higher one are on an earlier page.
    before: i64,
    /// The number of rows since the last match.
    rows_without_match: u32,
    max_rows_without_match: u32,
}

impl SamplePageBuilder {
    /// Adds a record; returns false when the page was already full.
    fn push(&mut self, record: AuditRecord) -> bool {
        if !self.room.take(&record) {
            self.page.next = self.page.records.last().map(|last| last.id);
            return false;
        }
        self.page.records.push(record);
        true
    }
}

/// Fills a page from these rows, newest first.
fn fill(
    connection: &Connection,
    rows: IdRange,
    filter: &AuditFilter,
    wanted: &mut PageSearch<'_>,
    deadline: Deadline,
    page: &mut SamplePageBuilder,
) -> Result<FillResult, QueryError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, at, usage FROM {} WHERE id >= ?1 AND id < ?2 AND +at >= ?3 AND +at < ?4
         ORDER BY id DESC",
        rows.level.table()
    ))?;
    let (since, until) = (rows.level.earliest_start(filter.since), filter.until.0);
    let mut rows_found = statement.query(params![rows.first, rows.end, since, until])?;
    while let Some(row) = rows_found.next()? {
        deadline.check()?;
        let (number, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
        wanted.trim_cache();
        let matches = match RowMatches::read(connection, (number, Timestamp(at), blob), wanted) {
            Ok(matches) => matches,
            Err(RowError::Failed(failure)) => return Err(failure),
            // A corrupt row is logged where the rollup reads it, and skipped here.
            Err(RowError::Broken) => continue,
        };
        // The time of a record is the end of the time it covers.
        if matches.until < filter.since || matches.until >= filter.until {
            continue;
        }
        page.rows_without_match = if matches.is_empty() {
            page.rows_without_match + 1
        } else {
            0
        };
        for record in matches.records(wanted) {
            if sql_values::saturating_i64(record.id) < page.before && !page.push(record) {
                return Ok(FillResult::PageFull);
            }
        }
        if !wanted.is_located() && page.rows_without_match >= page.max_rows_without_match {
            return Ok(FillResult::NoMatch(number));
        }
    }
    Ok(FillResult::RowsRead)
}

/// The matching part of one row.
struct RowMatches {
    row_id: i64,
    until: Timestamp,
    seen_ms: u64,
    /// Decoded only if devices are selected.
    devices: Vec<(i64, DeviceUsage)>,
    /// The index of every device at that time.
    indices: Vec<(i64, u32)>,
    /// Position in the row, run id and usage.
    runs: Vec<(i64, i64, RunUsage)>,
    has_device_records: bool,
}

/// Why a row could not be read.
enum RowError {
    Broken,
    Failed(QueryError),
}

impl From<BlobError> for RowError {
    fn from(BlobError: BlobError) -> Self {
        Self::Broken
    }
}

impl RowMatches {
    fn read(
        connection: &Connection,
        (number, from, blob): (i64, Timestamp, &[u8]),
        wanted: &mut PageSearch<'_>,
    ) -> Result<Self, RowError> {
        let packed = BlobReader::open(blob, from)?;
        let (until, seen_ms) = (packed.until, packed.seen_ms);
        let (devices, indices, mut all_runs) = if wanted.scope.selects_processes {
            let (indices, runs) = packed.indices()?;
            (Vec::new(), indices, runs)
        } else {
            let (devices, runs) = packed.devices()?;
            let indices = devices.iter().map(|(id, usage)| (*id, usage.index));
            let indices = indices.collect();
            (devices, indices, runs)
        };
        let mut runs = Vec::new();
        let mut position = sql_values::saturating_i64(indices.len() as u64);
        while let Some(id) = all_runs.next_id()? {
            if wanted.is_past(id) {
                break;
            }
            if wanted.matches(connection, id).map_err(RowError::Failed)? {
                runs.push((position, id, all_runs.usage()?));
            } else {
                all_runs.skip_usage()?;
            }
            position += 1;
        }
        let scope = &wanted.scope;
        let has_device = devices.iter().any(|(id, _)| scope.devices.contains(id));
        Ok(Self {
            row_id: number,
            until,
            seen_ms,
            devices,
            indices,
            runs,
            has_device_records: !scope.selects_processes && has_device,
        })
    }

    fn is_empty(&self) -> bool {
        self.runs.is_empty() && !self.has_device_records
    }

    /// The records, highest id first.
    fn records<'a>(&'a self, wanted: &'a PageSearch<'_>) -> impl Iterator<Item = AuditRecord> + 'a {
        let record = move |position: i64, device: i64| {
            let stored = wanted.scope.all_devices.get(&device);
            AuditRecord {
                id: u64::try_from(record_id(
                    self.row_id,
                    position.min(MAX_RECORDS_PER_SAMPLE - 1),
                ))
                .unwrap_or(0),
                at: self.until,
                covers_ms: self.seen_ms,
                device: DeviceId(stored.map_or_else(String::new, |it| it.uuid.clone())),
                gpu_index: self.device_index(device, stored),
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
        let runs = runs.filter_map(move |(position, run, usage)| {
            let stored = wanted.cached_run(*run)?;
            Some(run_record(record(*position, stored.device), stored, usage))
        });
        let is_wanted =
            move |device: &i64| self.has_device_records && wanted.scope.devices.contains(device);
        let devices = self.devices.iter().enumerate().rev();
        let devices = devices.filter(move |(_, (device, _))| is_wanted(device));
        let devices = devices.map(move |(position, (device, usage))| {
            device_record(
                record(sql_values::saturating_i64(position as u64), *device),
                usage,
            )
        });
        runs.chain(devices)
    }

    fn device_index(&self, device: i64, stored: Option<&StoredDevice>) -> u32 {
        let then = self.indices.iter().find(|(id, _)| *id == device);
        let then = then.map(|(_, index)| *index);
        then.or_else(|| stored.map(|it| it.gpu_index)).unwrap_or(0)
    }
}

fn run_record(record: AuditRecord, run: &StoredRun, usage: &RunUsage) -> AuditRecord {
    let process = &run.process;
    AuditRecord {
        memory: peak_reading(&usage.memory, Bytes),
        utilization: percent_reading(&usage.utilization),
        subject: AuditSubject::Process {
            pid: process.pid,
            instance: parse_instance(&run.instance),
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
                .reading(|it| it.max.and_then(|number| u32::try_from(number).ok())),
        },
        ..record
    }
}

fn device_record(record: AuditRecord, usage: &DeviceUsage) -> AuditRecord {
    AuditRecord {
        memory: peak_reading(&usage.memory, Bytes),
        utilization: percent_reading(&usage.utilization),
        subject: AuditSubject::Device {
            temperature: usage
                .hottest
                .map_or(Reading::Unsupported, |it| Reading::Value(Celsius(it))),
            power: usage.power.reading(|it| it.mean().map(Milliwatts)),
        },
        ..record
    }
}

fn peak_reading<T>(gauge: &Gauge, value: impl Fn(u64) -> T) -> Reading<T> {
    gauge.reading(|it| it.max.map(&value))
}

fn percent_reading(gauge: &Gauge) -> Reading<Percent> {
    gauge.reading(|it| Some(Percent(u32::try_from(it.mean()?).ok()?)))
}
