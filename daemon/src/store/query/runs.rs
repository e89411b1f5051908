//! One page of runs: jobs or processes with the devices that they used, and how each ended.

mod ends;
#[cfg(test)]
mod tests;

pub(in super::super) use ends::resolve_ends;
pub(super) use ends::was_rebooted;

use super::super::blob::decode_in_order;
use super::super::rollup::mib_seconds;
use super::super::sql_values::saturating_i64;
use super::filter::{
    MayReadCommand, QueryScope, RunColumns, RunRow, for_each_run_in, for_each_selected_run,
};
use super::gaps::{first_start_from, read_gaps};
use super::range::{RollupLevel, covering_rows};
use super::summary::for_each_row;
use super::{Deadline, QueryError, page_room, run_query};
use gpukill_policy::usage::job_runs::{
    MAX_PAUSE, ProcessEnding, ProcessPeriod, group_runs, run_ending,
};
use gpukill_policy::usage::{Gauge, RunUsage};
use gpukill_proto::audit::{
    AuditFilter, MAX_RUN_PIDS, RunCursor, RunExtent, RunGpu, RunPage, RunQuery, RunRecord, RunUnit,
    UsageTotals,
};
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::model::{DeviceId, Owner};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::transport::codec::PageRoom;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, params};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// The most encoded bytes of one page: well below a frame.
const MAX_PAGE_BYTES: u64 = 512 << 10;

/// The most processes on devices that one query groups, at some 300 bytes each, or 550 if each is a
/// job of its own.
const MAX_PARTS: usize = 1 << 17;

/// The most samples since the last minute that are added: more than a minute has.
const MAX_RECENT_SAMPLES: u32 = 240;

/// A page without the facts that only the record of actions has.
#[derive(Debug)]
pub(in super::super) struct UnresolvedRuns {
    pub(in super::super) page: RunPage,
    /// How each run of the page ended.
    endings: Vec<StoredEnding>,
}

/// How a run ended, as the samples have it.
#[derive(Debug)]
struct StoredEnding {
    ending: ProcessEnding,
    /// The boot of the host in which it ran.
    boot: String,
    may_read: bool,
}

/// Returns one page of the runs that `query` selects, the newest start first. `may_read` decides,
/// by user and namespace owner, whether the caller sees the command line of a process.
pub(in super::super) fn unresolved_runs(
    connection: &mut Connection,
    query: &RunQuery,
    may_read: MayReadCommand<'_>,
    now: Timestamp,
) -> Result<UnresolvedRuns, Refusal> {
    run_query(connection, |connection, deadline| {
        let room = page_room(query.limit, MAX_PAGE_BYTES)?;
        // One transaction: rows that are written meanwhile would otherwise be counted twice.
        let connection = &*connection.unchecked_transaction()?;
        let scope = QueryScope::from_filter(connection, &query.filter, may_read)?;
        let mut parts = read_parts(connection, &scope, query, now, deadline)?;
        let runs = group_parts(&mut parts, query.unit);
        let mut found = read_page(connection, &scope, query, &runs, room, deadline)?;
        if query.before.is_none() {
            let period = (query.filter.since, query.filter.until);
            found.page.gaps = read_gaps(connection, period, deadline)?.finish(period.1, now)?;
            found.page.recorded_since = first_start_from(connection, Timestamp(i64::MIN))?;
        }
        Ok(found)
    })
}

/// One process on one device.
struct RunPart {
    run: i64,
    pid: u32,
    process: i64,
    device: i64,
    period: ProcessPeriod<RunKey>,
    usage: PartUsage,
    ending: ProcessEnding,
    /// Whether its process had ended and its driver still listed it: its memory counts, but the run
    /// ended with the process.
    is_after_end: bool,
}

/// The usage of one process on one device.
#[derive(Debug, Clone, Default)]
struct PartUsage {
    used: UsageTotals,
    /// In percent.
    utilization: Gauge,
}

/// Which times of a process count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountedTimes {
    /// Its shares of its owner's time, which add up.
    OwnerShares,
    /// Its own times.
    OfProcess,
}

impl CountedTimes {
    const fn for_query(query: &RunQuery) -> Self {
        match (query.unit, query.extent) {
            (RunUnit::Process, RunExtent::Whole) => Self::OfProcess,
            (RunUnit::Job, _) | (_, RunExtent::WithinPeriod) => Self::OwnerShares,
        }
    }
}

impl PartUsage {
    fn from_row(usage: &RunUsage, times: CountedTimes) -> Self {
        let (busy_ms, idle_ms, unknown_ms) = match times {
            CountedTimes::OwnerShares => (usage.busy_ms, usage.idle_ms, usage.unknown_ms),
            CountedTimes::OfProcess => {
                let (busy, idle) = usage.process_times();
                let known = busy.saturating_add(idle);
                (busy, idle, usage.held_ms.saturating_sub(known))
            }
        };
        Self {
            used: UsageTotals {
                busy_ms,
                idle_ms,
                unknown_ms,
                memory_mib_s: mib_seconds(usage),
                memory_max: usage.memory.max.map(Bytes),
                runs: 0,
            },
            utilization: usage.utilization.clone(),
        }
    }

    /// The usage up to the last minute.
    fn from_run(run: &RunRow<'_>, times: CountedTimes) -> rusqlite::Result<Self> {
        Ok(Self {
            used: match times {
                CountedTimes::OwnerShares => run.totals()?,
                CountedTimes::OfProcess => run.process_totals()?,
            },
            utilization: run.utilization()?,
        })
    }

    fn add(&mut self, more: &Self) {
        let (sum, used) = (&mut self.used, &more.used);
        sum.busy_ms = sum.busy_ms.saturating_add(used.busy_ms);
        sum.idle_ms = sum.idle_ms.saturating_add(used.idle_ms);
        sum.unknown_ms = sum.unknown_ms.saturating_add(used.unknown_ms);
        sum.memory_mib_s = sum.memory_mib_s.saturating_add(used.memory_mib_s);
        sum.memory_max = sum.memory_max.max(used.memory_max);
        sum.runs = sum.runs.saturating_add(used.runs);
        self.utilization.merge(&more.utilization);
    }

    /// The mean utilization; `None` if unknown.
    fn mean_utilization(&self) -> Option<Percent> {
        let mean = self.utilization.mean()?;
        u32::try_from(mean).ok().map(Percent)
    }
}

/// What makes parts one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunKey {
    Process(i64),
    /// The position of a [`StoredJob`].
    Job(usize),
}

/// A job: its boot, its name and its owner.
type StoredJob = (String, String, Option<Owner>);

/// The parts that overlap the period of the query, or those with samples that began in it.
fn read_parts(
    connection: &Connection,
    scope: &QueryScope<'_>,
    query: &RunQuery,
    now: Timestamp,
    deadline: Deadline,
) -> Result<Vec<RunPart>, QueryError> {
    let (since, end) = (query.filter.since, query.filter.until);
    let times = CountedTimes::for_query(query);
    let (usage, newest) = match query.extent {
        RunExtent::Whole => {
            let usage = usage_since_last_minute(connection, times)?;
            (usage, Timestamp::default())
        }
        RunExtent::WithinPeriod => usage_within(connection, &query.filter, deadline)?,
    };
    let mut jobs: HashMap<StoredJob, usize> = HashMap::new();
    let mut parts = Vec::new();
    let mut add_part = |row: &RunRow<'_>| -> Result<(), QueryError> {
        deadline.check()?;
        let (mut from, mut until) = row.period(now)?;
        let run = row.id()?;
        let listed_after_end = row.start_ticks_if_ended()?;
        let process = match listed_after_end {
            Some(start_ticks) => process_before_its_end(connection, row, start_ticks)?,
            None => row.process()?,
        };
        let (mut part, mut ending) = (PartUsage::default(), row.ending()?);
        match query.extent {
            RunExtent::Whole if from >= end || until < since => return Ok(()),
            RunExtent::Whole => part = PartUsage::from_run(row, times)?,
            RunExtent::WithinPeriod => {
                part.used.runs = 1;
                // It was observed after the samples of the period.
                if row.last_observed(now)? > newest {
                    ending = ProcessEnding::Running;
                }
                // The last sample may have begun in the period and have observed it first later.
                from = from.max(since).min(Timestamp(end.0.saturating_sub(1)));
                until = until.min(end).max(from);
            }
        }
        if parts.len() >= MAX_PARTS {
            return Err(too_many_runs());
        }
        if let Some(more) = usage.get(&run) {
            part.add(more);
        }
        let key = match row.job().filter(|_| query.unit == RunUnit::Job) {
            Some(job) => {
                let count = jobs.len();
                let job = (row.boot().to_owned(), job.to_owned(), row.owner()?);
                RunKey::Job(*jobs.entry(job).or_insert(count))
            }
            None => RunKey::Process(process),
        };
        parts.push(RunPart {
            run,
            pid: row.pid()?,
            process,
            device: row.device()?,
            period: ProcessPeriod { key, from, until },
            usage: part,
            ending,
            is_after_end: listed_after_end.is_some(),
        });
        Ok(())
    };
    match query.extent {
        RunExtent::Whole => {
            for_each_selected_run(connection, scope, RunColumns::All, &mut add_part)?;
        }
        // By the samples, not by the times of the runs: after the clock was set, both may differ.
        RunExtent::WithinPeriod => {
            let runs: Vec<i64> = usage.keys().copied().collect();
            for_each_run_in(connection, scope, &runs, &mut add_part)?;
        }
    }
    Ok(parts)
}

/// The row of a process from before its end, if it was observed then; else the row of this run.
fn process_before_its_end(
    connection: &Connection,
    row: &RunRow<'_>,
    start_ticks: u64,
) -> Result<i64, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM process WHERE boot = ?1 AND pid = ?2 AND start_ticks = ?3",
    )?;
    let key = params![row.boot(), row.pid()?, saturating_i64(start_ticks)];
    let before = statement.query_row(key, |found| found.get(0)).optional()?;
    Ok(before.map_or_else(|| row.process(), Ok)?)
}

/// The refusal of a query that needs more runs at once than fit in memory.
pub(super) fn too_many_runs() -> QueryError {
    QueryError::Refused(Refusal::TooSlow("reading this many runs".into()))
}

/// The usage of each run in the rows that began in the period of a filter, as the summary counts
/// it; and the end of the newest of these rows.
fn usage_within(
    connection: &Connection,
    filter: &AuditFilter,
    deadline: Deadline,
) -> Result<(BTreeMap<i64, PartUsage>, Timestamp), QueryError> {
    let (since, until) = (filter.since, filter.until);
    let rows = covering_rows(connection, RollupLevel::Hours, since, until, deadline)?;
    let mut usage: BTreeMap<i64, PartUsage> = BTreeMap::new();
    let mut newest = since;
    for_each_row(connection, &rows, deadline, |_, _, row| {
        newest = newest.max(row.until);
        for (run, used) in &row.runs {
            let part = PartUsage::from_row(used, CountedTimes::OwnerShares);
            usage.entry(*run).or_default().add(&part);
        }
        match usage.len() > MAX_PARTS {
            true => Err(too_many_runs()),
            false => Ok(()),
        }
    })?;
    Ok((usage, newest))
}

/// The usage of each run in the samples that are in no minute yet.
fn usage_since_last_minute(
    connection: &Connection,
    times: CountedTimes,
) -> Result<BTreeMap<i64, PartUsage>, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT at, usage FROM sample
         WHERE id > (SELECT sample FROM rolled WHERE one = 1) ORDER BY id LIMIT ?1",
    )?;
    let mut rows = statement.query([MAX_RECENT_SAMPLES])?;
    let mut usage: BTreeMap<i64, PartUsage> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let blob = row.get_ref(1)?.as_blob().unwrap_or_default();
        // A corrupt row is logged where the rollup reads it, and skipped here.
        let Ok(sample) = decode_in_order(blob, Timestamp(row.get(0)?)) else {
            continue;
        };
        for (run, used) in &sample.runs {
            let part = PartUsage::from_row(used, times);
            usage.entry(*run).or_default().add(&part);
        }
    }
    Ok(usage)
}

/// The parts of one run, the earliest first, and its place in the order.
struct PartGroup<'a> {
    cursor: RunCursor,
    parts: &'a [RunPart],
}

/// The runs, the newest start first.
fn group_parts(parts: &mut [RunPart], unit: RunUnit) -> Vec<PartGroup<'_>> {
    let pause = match unit {
        RunUnit::Job => MAX_PAUSE,
        RunUnit::Process => Duration::MAX,
    };
    let runs = group_runs(parts, |part| &part.period, pause).map(|parts| {
        let from = parts.iter().map(|it| it.period.from).min();
        let id = parts.iter().map(|it| it.run).min();
        let cursor = RunCursor {
            from: from.unwrap_or_default(),
            id: id.and_then(|id| u64::try_from(id).ok()).unwrap_or(0),
        };
        PartGroup { cursor, parts }
    });
    let mut runs: Vec<PartGroup<'_>> = runs.collect();
    runs.sort_indirect_by_key(|run| Reverse(run.cursor));
    runs
}

fn read_page(
    connection: &Connection,
    scope: &QueryScope<'_>,
    query: &RunQuery,
    runs: &[PartGroup<'_>],
    mut room: PageRoom,
    deadline: Deadline,
) -> Result<UnresolvedRuns, QueryError> {
    let mut found = UnresolvedRuns {
        page: RunPage {
            runs: Vec::new(),
            next: None,
            gaps: Vec::new(),
            recorded_since: None,
        },
        endings: Vec::new(),
    };
    let columns = RunColumns::All.columns(scope);
    let mut select = connection.prepare_cached(&format!(
        "SELECT {columns} FROM run r CROSS JOIN process p ON p.id = r.process WHERE r.id = ?1"
    ))?;
    let is_wanted = |run: &&PartGroup<'_>| query.before.is_none_or(|before| run.cursor < before);
    for run in runs.iter().filter(is_wanted) {
        deadline.check()?;
        let Some((record, ending)) = run_record(&mut select, scope, run)? else {
            continue;
        };
        if !room.take(&record) {
            found.page.next = found.page.runs.last().map(|last| RunCursor {
                from: last.from,
                id: last.id,
            });
            break;
        }
        found.page.runs.push(record);
        found.endings.push(ending);
    }
    Ok(found)
}

/// The record of a run, without its end. `select` selects a run by its id.
fn run_record(
    select: &mut CachedStatement<'_>,
    scope: &QueryScope<'_>,
    run: &PartGroup<'_>,
) -> Result<Option<(RunRecord, StoredEnding)>, QueryError> {
    let parts = || run.parts.iter();
    // Of equal ones the first.
    let main = parts().min_by_key(|it| (Reverse(it.usage.used.memory_mib_s), it.run));
    let is_after_end = parts().all(|it| it.is_after_end);
    // What a driver lists after the end of a process does not prolong its run.
    let until_end = || parts().filter(|it| it.is_after_end == is_after_end);
    let endings = until_end().map(|it| (it.period.until, it.ending));
    let (Some(main), Some(ending)) = (main, run_ending(endings)) else {
        return Ok(None);
    };
    let mut usage = PartUsage::default();
    for part in parts() {
        usage.add(&part.usage);
    }
    let devices: BTreeSet<i64> = parts().map(|it| it.device).into_set();
    let gpus = devices.iter().filter_map(|id| {
        let device = scope.all_devices.get(id)?;
        Some(RunGpu {
            index: device.gpu_index,
            device: DeviceId(device.uuid.clone()),
        })
    });
    let gpus: BTreeSet<RunGpu> = gpus.into_set();
    let processes: BTreeSet<i64> = parts().map(|it| it.process).into_set();
    let pids: BTreeSet<u32> = parts().map(|it| it.pid).into_set();
    let until = until_end().map(|it| it.period.until).max();
    let mut record = RunRecord {
        id: run.cursor.id,
        from: run.cursor.from,
        until: until.unwrap_or(run.cursor.from),
        gpus: gpus.into_iter().collect(),
        pids: pids.into_iter().take(MAX_RUN_PIDS).collect(),
        processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
        label: String::new(),
        command: Reading::Withheld,
        name: None,
        uid: None,
        user: None,
        owner: None,
        container: None,
        job: None,
        utilization: usage.mean_utilization(),
        used: usage.used,
        end: ends::end_without_record(ending),
    };
    let mut rows = select.query([main.run])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let row = RunRow(row);
    let may_read = describe_process(&mut record, &row, scope)?;
    let stored = StoredEnding {
        ending,
        boot: row.boot().to_owned(),
        may_read,
    };
    Ok(Some((record, stored)))
}

/// Adds the facts of a process to a record; returns whether the caller may see its command line.
fn describe_process(
    record: &mut RunRecord,
    row: &RunRow<'_>,
    scope: &QueryScope<'_>,
) -> Result<bool, QueryError> {
    let process = row.to_stored()?.process;
    let may_read = (scope.may_read)(process.uid, process.namespace_owner);
    record.label = row.label(may_read)?;
    if may_read {
        record.command = process.command.map_or(Reading::Unsupported, Reading::Value);
    }
    record.container = row.container_name().map(ToOwned::to_owned);
    record.name = process.name;
    record.uid = process.uid;
    record.user = process.user;
    record.owner = process.owner;
    record.job = process.job;
    Ok(may_read)
}
