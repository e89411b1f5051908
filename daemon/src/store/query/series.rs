//! Usage over time: the rows of a period in buckets of equal length, by GPU, owner or job.

#[cfg(test)]
mod tests;

use super::super::blob::DecodedUsage;
use super::filter::{MayReadCommand, QueryScope, RunColumns, RunRow, for_each_selected_run};
use super::gaps::median_sample_ms;
use super::range::{RollupLevel, covering_rows, oldest_start};
use super::runs::too_many_runs;
use super::summary::for_each_row;
use super::{Deadline, QueryError, run_query};
use gpukill_policy::usage::{Gauge, RunUsage};
use gpukill_proto::audit::{
    AuditSeries, MAX_SERIES_BUCKETS, MAX_SERIES_CELLS, RunGpu, SeriesBucket, SeriesBy, SeriesLine,
    SeriesQuery, SeriesValue,
};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{DeviceId, Owner};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;

/// The lengths of buckets in seconds: divisors of an hour or a day, then whole days.
const STEPS: [i64; 20] = [
    1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 43_200,
    86_400, 172_800, 604_800, 2_592_000,
];

/// The most buckets of all lines while they are added up, at some 110 bytes each; 250 in the lines
/// of whole devices, which are few.
const MAX_CELLS: usize = 1 << 17;

/// What a line is of, which is kept twice, takes as much memory as so many buckets.
const KEY_CELLS: usize = 3;

/// The most runs for which an owner or a job is kept, at some 30 bytes each.
const MAX_RUNS: usize = 1 << 18;

/// Returns the usage over time that `query` selects. `may_read` as in [`QueryScope::from_filter`].
pub(in super::super) fn series(
    connection: &mut Connection,
    query: &SeriesQuery,
    may_read: MayReadCommand<'_>,
) -> Result<AuditSeries, Refusal> {
    run_query(connection, |connection, deadline| {
        let connection = &*connection.unchecked_transaction()?;
        add_up(connection, query, may_read, deadline)
    })
}

fn add_up(
    connection: &Connection,
    query: &SeriesQuery,
    may_read: MayReadCommand<'_>,
    deadline: Deadline,
) -> Result<AuditSeries, QueryError> {
    let invalid = |what: &str| Err(QueryError::Refused(Refusal::Invalid(what.into())));
    let filter = &query.filter;
    if query.buckets == 0 {
        return invalid("the number of buckets must be greater than 0");
    }
    if filter.since >= filter.until {
        return invalid("the time range is empty");
    }
    let scope = QueryScope::from_filter(connection, filter, may_read)?;
    let (level, grid) = choose_grid(connection, query)?;
    let mut lines = SeriesLines {
        by: query.by,
        grid,
        keys: HashMap::new(),
        lines: Vec::new(),
        runs: BTreeMap::new(),
        summed: 0,
    };
    let has_devices = query.by == SeriesBy::Gpu && !scope.selects_processes;
    if !has_devices {
        lines.read_runs(connection, &scope)?;
    }
    // The buckets at both ends may reach beyond the period; only its runs are known.
    let since = grid.since.max(filter.since);
    let until = Timestamp(grid.end()).min(filter.until);
    let parts = covering_rows(connection, level, since, until, deadline)?;
    for_each_row(connection, &parts, deadline, |_, _, row| {
        if has_devices {
            lines.add_devices(row, &scope)
        } else {
            lines.add_runs(row)
        }
    })?;
    Ok(lines.finish(&scope))
}

/// Buckets of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    since: Timestamp,
    step_ms: i64,
    count: usize,
}

impl Grid {
    /// The fewest buckets of at least this length that cover a period, aligned to UTC.
    fn covering((since, until): (Timestamp, Timestamp), step_seconds: i64) -> Self {
        let step_ms = step_seconds.saturating_mul(1000);
        let start = since.0.saturating_sub(since.0.rem_euclid(step_ms));
        let length = until.0.saturating_sub(start).max(1);
        let count = (length - 1) / step_ms + 1;
        Self {
            since: Timestamp(start),
            step_ms,
            count: usize::try_from(count).unwrap_or(usize::MAX),
        }
    }

    const fn end(self) -> i64 {
        let length = self.step_ms.saturating_mul(self.count.cast_signed() as i64);
        self.since.0.saturating_add(length)
    }

    /// The bucket that holds the middle of a row.
    fn bucket(self, row: &DecodedUsage) -> Option<usize> {
        let middle = row.from.0 / 2 + row.until.0 / 2;
        let at = usize::try_from((middle - self.since.0) / self.step_ms).ok()?;
        (middle >= self.since.0 && at < self.count).then_some(at)
    }
}

/// The buckets of a query, and the coarsest rows that lie within one bucket each.
fn choose_grid(
    connection: &Connection,
    query: &SeriesQuery,
) -> Result<(RollupLevel, Grid), QueryError> {
    let filter = &query.filter;
    let most = query.buckets.min(MAX_SERIES_BUCKETS) as usize;
    // Nothing was recorded earlier, or later.
    let recorded = |level| oldest_start(connection, level);
    let oldest = [
        recorded(RollupLevel::Hours)?,
        recorded(RollupLevel::Minutes)?,
        recorded(RollupLevel::Samples)?,
    ];
    let first = oldest
        .iter()
        .flatten()
        .min()
        .copied()
        .unwrap_or(filter.since);
    let since = filter.since.max(first).min(Timestamp(filter.until.0 - 1));
    let reaches_back = |oldest: Option<Timestamp>| oldest.is_some_and(|oldest| oldest <= since);
    // No bucket is shorter than the rows that are left of its time: it would seem to be a gap.
    let shortest = match oldest {
        [_, _, samples] if reaches_back(samples) => {
            let rounded = median_sample_ms(connection)?.saturating_add(500) / 1000;
            i64::try_from(rounded).unwrap_or(i64::MAX)
        }
        [_, minutes, _] if reaches_back(minutes) => 60,
        [Some(_), _, _] => 3_600,
        [None, _, _] => 60,
    };
    let grids = STEPS.iter().filter(|step| **step >= shortest);
    let mut grids = grids.map(|step| Grid::covering((since, filter.until), *step));
    let Some(grid) = grids.find(|grid| grid.count <= most) else {
        let what = "the period is too long for this number of buckets".into();
        return Err(QueryError::Refused(Refusal::Invalid(what)));
    };
    let level = match grid.step_ms {
        3_600_000.. => RollupLevel::Hours,
        60_000.. => RollupLevel::Minutes,
        _ => RollupLevel::Samples,
    };
    Ok((level, grid))
}

/// Calls `visit` for each selected run. A trait object, because each closure would compile the loop
/// again.
fn visit_runs(
    connection: &Connection,
    scope: &QueryScope<'_>,
    columns: RunColumns,
    visit: &mut dyn FnMut(&RunRow<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    for_each_selected_run(connection, scope, columns, visit)
}

/// What has a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LineKey {
    Device(i64),
    Owner(Option<Owner>),
    /// The job with its boot, and its owner: after a reboot another job may have the same name.
    Job(Option<(String, String)>, Option<Owner>),
    /// The owners or jobs with the shortest times, together.
    Others,
}

/// The line of a run.
fn line_key(by: SeriesBy, run: &RunRow<'_>) -> Result<LineKey, QueryError> {
    Ok(match by {
        SeriesBy::Gpu => LineKey::Device(run.device()?),
        SeriesBy::Owner => LineKey::Owner(run.owner()?),
        SeriesBy::Job => {
            let of_boot = |job: &str| (run.boot().to_owned(), job.to_owned());
            LineKey::Job(run.job().map(of_boot), run.owner()?)
        }
    })
}

struct Line {
    key: LineKey,
    buckets: Vec<BucketSum>,
}

#[derive(Clone, Default)]
struct BucketSum {
    covered_ms: u64,
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    memory: ValueSum,
    /// Only in the line of a whole device, as the rest. Here it fills a gap.
    hottest: Option<i32>,
    of_device: Option<Box<DeviceValues>>,
}

#[derive(Clone, Default)]
struct DeviceValues {
    utilization: ValueSum,
    power: ValueSum,
}

struct SeriesLines {
    by: SeriesBy,
    grid: Grid,
    keys: HashMap<LineKey, usize>,
    lines: Vec<Line>,
    runs: BTreeMap<i64, usize>,
    /// The number of owners or jobs in the line [`LineKey::Others`].
    summed: usize,
}

/// The hashes of lines with the times of their runs, in milliseconds.
type LineTimes = Vec<(u64, u64)>;

impl SeriesLines {
    /// The most lines of an answer.
    fn max_lines(&self) -> usize {
        (MAX_SERIES_CELLS / self.grid.count.max(1)).max(1)
    }

    fn line(&mut self, key: LineKey) -> Result<usize, QueryError> {
        if let Some(at) = self.keys.get(&key) {
            return Ok(*at);
        }
        let at = self.lines.len();
        if (at + 1).saturating_mul(self.grid.count.saturating_add(KEY_CELLS)) > MAX_CELLS {
            let what = "adding up this many lines".into();
            return Err(QueryError::Refused(Refusal::TooSlow(what)));
        }
        self.keys.insert(key.clone(), at);
        self.lines.push(Line {
            key,
            buckets: vec![BucketSum::default(); self.grid.count],
        });
        Ok(at)
    }

    /// Finds the line of each selected run. If there are more owners or jobs than an answer has lines,
    /// those with the longest times have a line each, and the others have one line.
    fn read_runs(
        &mut self,
        connection: &Connection,
        scope: &QueryScope<'_>,
    ) -> Result<(), QueryError> {
        if !self.assign_runs(connection, scope, None)? {
            let longest = self.longest_lines(connection, scope)?;
            self.assign_runs(connection, scope, Some(&longest))?;
        }
        Ok(())
    }

    /// Finds the line of each selected run; that of the others, if its own is not among `longest`,
    /// which is sorted by hash. Returns whether all lines fit in an answer; else there are none.
    fn assign_runs(
        &mut self,
        connection: &Connection,
        scope: &QueryScope<'_>,
        longest: Option<&[(u64, u64)]>,
    ) -> Result<bool, QueryError> {
        let columns = match self.by {
            SeriesBy::Gpu | SeriesBy::Owner => RunColumns::User,
            SeriesBy::Job => RunColumns::All,
        };
        // There are few devices.
        let max_lines = match self.by {
            SeriesBy::Gpu => usize::MAX,
            SeriesBy::Owner | SeriesBy::Job => self.max_lines(),
        };
        let mut runs = BTreeMap::new();
        visit_runs(connection, scope, columns, &mut |run| {
            if runs.len() >= MAX_RUNS {
                return Err(too_many_runs());
            }
            if self.lines.len() > max_lines {
                return Ok(());
            }
            let key = line_key(self.by, run)?;
            let is_kept = longest.is_none_or(|longest| {
                let hash = self.keys.hasher().hash_one(&key);
                longest.binary_search_by_key(&hash, |(it, _)| *it).is_ok()
            });
            let line = self.line(if is_kept { key } else { LineKey::Others })?;
            runs.insert(run.id()?, line);
            Ok(())
        })?;
        let fits = self.lines.len() <= max_lines;
        if fits {
            self.runs = runs;
        } else {
            self.keys.clear();
            self.lines.clear();
        }
        Ok(fits)
    }

    /// The lines with the longest times, sorted by hash: one fewer than an answer has. Counts the
    /// others.
    fn longest_lines(
        &mut self,
        connection: &Connection,
        scope: &QueryScope<'_>,
    ) -> Result<LineTimes, QueryError> {
        let (since, until) = (scope.filter.since, scope.filter.until);
        let mut times = LineTimes::new();
        visit_runs(connection, scope, RunColumns::All, &mut |run| {
            if times.len() >= MAX_RUNS {
                return Err(too_many_runs());
            }
            let (from, to) = run.period(until)?;
            let within = to.min(until).since(from.max(since)).as_millis();
            // A run that began before the period had some of its time before it, too.
            let total = u128::from(run.totals()?.total_ms());
            let time = u64::try_from(within.min(total)).unwrap_or(u64::MAX);
            let key = line_key(self.by, run)?;
            times.push((self.keys.hasher().hash_one(&key), time));
            Ok(())
        })?;
        times.sort_indirect_by_key(|(hash, _)| *hash);
        times.dedup_by(|next, sum| {
            let is_same = next.0 == sum.0;
            if is_same {
                sum.1 = sum.1.saturating_add(next.1);
            }
            is_same
        });
        times.sort_indirect_by_key(|(_, time)| Reverse(*time));
        let kept = self.max_lines().saturating_sub(1);
        self.summed = times.len().saturating_sub(kept);
        times.truncate(kept);
        times.sort_indirect_by_key(|(hash, _)| *hash);
        Ok(times)
    }

    fn add_devices(
        &mut self,
        row: &DecodedUsage,
        scope: &QueryScope<'_>,
    ) -> Result<(), QueryError> {
        let Some(at) = self.grid.bucket(row) else {
            return Ok(());
        };
        for (id, usage) in &row.devices {
            if !scope.devices.contains(id) {
                continue;
            }
            let line = self.line(LineKey::Device(*id))?;
            let bucket = self.lines.get_mut(line);
            let Some(sum) = bucket.and_then(|line| line.buckets.get_mut(at)) else {
                continue;
            };
            sum.add_times(
                row.seen_ms,
                (usage.busy_ms, usage.held_ms, usage.unknown_ms),
            );
            sum.memory.add_gauge(&usage.memory);
            let values = sum.of_device.get_or_insert_with(Box::default);
            values.utilization.add_gauge(&usage.utilization);
            values.power.add_gauge(&usage.power);
            sum.hottest = sum.hottest.max(usage.hottest);
        }
        Ok(())
    }

    fn add_runs(&mut self, row: &DecodedUsage) -> Result<(), QueryError> {
        let Some(at) = self.grid.bucket(row) else {
            return Ok(());
        };
        let mut of_row: BTreeMap<usize, Vec<&RunUsage>> = BTreeMap::new();
        for (run, usage) in &row.runs {
            if let Some(line) = self.runs.get(run) {
                of_row.entry(*line).or_default().push(usage);
            }
        }
        for (number, line) in self.lines.iter_mut().enumerate() {
            let Some(sum) = line.buckets.get_mut(at) else {
                continue;
            };
            let runs = of_row.get(&number).map_or(&[][..], Vec::as_slice);
            let time = |part: fn(&RunUsage) -> u64| runs.iter().map(|run| part(run)).sum();
            let busy = time(|run| run.busy_ms);
            sum.add_times(
                row.seen_ms,
                (busy, time(|run| run.idle_ms), time(|run| run.unknown_ms)),
            );
            sum.memory.add_runs(runs, row.seen_ms);
        }
        Ok(())
    }

    fn finish(mut self, scope: &QueryScope<'_>) -> AuditSeries {
        let index = |line: &Line| match line.key {
            LineKey::Device(id) => scope.all_devices.get(&id).map(|device| device.gpu_index),
            LineKey::Owner(_) | LineKey::Job(..) | LineKey::Others => None,
        };
        self.lines.sort_indirect_by_key(|line| {
            let is_others = line.key == LineKey::Others;
            (index(line), is_others, Reverse(line.device_ms()))
        });
        let max_lines = self.max_lines();
        // Of devices the last ones are omitted.
        let more = self.lines.len().saturating_sub(max_lines) + self.summed;
        let lines = self.lines.into_iter().take(max_lines);
        AuditSeries {
            since: self.grid.since,
            step_ms: self.grid.step_ms.unsigned_abs(),
            lines: lines.map(|line| line.finish(scope)).collect(),
            more_lines: u32::try_from(more).unwrap_or(u32::MAX),
        }
    }
}

impl Line {
    fn device_ms(&self) -> u64 {
        let times = self.buckets.iter();
        let times = times.flat_map(|sum| [sum.busy_ms, sum.idle_ms, sum.unknown_ms]);
        times.fold(0, u64::saturating_add)
    }

    fn finish(self, scope: &QueryScope<'_>) -> SeriesLine {
        let (gpu, owner, job) = match self.key {
            LineKey::Device(id) => {
                let device = scope.all_devices.get(&id);
                let gpu = device.map(|device| RunGpu {
                    index: device.gpu_index,
                    device: DeviceId(device.uuid.clone()),
                });
                (gpu, None, None)
            }
            LineKey::Owner(owner) => (None, owner, None),
            LineKey::Job(job, owner) => (None, owner, job.map(|(_, name)| name)),
            LineKey::Others => (None, None, None),
        };
        let buckets = self.buckets.into_iter();
        SeriesLine {
            gpu,
            owner,
            job,
            buckets: buckets.map(BucketSum::finish).collect(),
        }
    }
}

impl BucketSum {
    fn add_times(&mut self, covered_ms: u64, (busy, idle, unknown): (u64, u64, u64)) {
        self.covered_ms = self.covered_ms.saturating_add(covered_ms);
        self.busy_ms = self.busy_ms.saturating_add(busy);
        self.idle_ms = self.idle_ms.saturating_add(idle);
        self.unknown_ms = self.unknown_ms.saturating_add(unknown);
    }

    fn finish(self) -> SeriesBucket {
        let of_device = self.of_device.as_deref();
        SeriesBucket {
            covered_ms: self.covered_ms,
            busy_ms: self.busy_ms,
            idle_ms: self.idle_ms,
            unknown_ms: self.unknown_ms,
            utilization: of_device.and_then(|values| values.utilization.value()),
            memory: self.memory.value(),
            power: of_device.and_then(|values| values.power.value()),
            hottest: self.hottest,
        }
    }
}

/// The sum of a value over the rows of a bucket.
#[derive(Clone, Default)]
struct ValueSum {
    sum: Gauge,
    min: Option<u64>,
}

impl ValueSum {
    fn add_gauge(&mut self, gauge: &Gauge) {
        if let Some(mean) = gauge.mean() {
            self.min = Some(self.min.map_or(mean, |min| min.min(mean)));
            self.sum.merge(gauge);
        }
    }

    /// Adds the memory of all runs of a row, which count as 0 while they do not hold the device.
    fn add_runs(&mut self, runs: &[&RunUsage], seen_ms: u64) {
        let is_known = |run: &&RunUsage| run.memory.known_ms >= run.held_ms;
        if !runs.iter().all(is_known) {
            return;
        }
        let total: u128 = runs.iter().map(|run| run.memory.total).sum();
        let mean = total.checked_div(u128::from(seen_ms));
        let mean = mean.and_then(|mean| u64::try_from(mean).ok());
        // The highest readings of several runs were read at different times, so that their sum may
        // never have been held.
        let highest = runs.iter().filter_map(|run| run.memory.max).max();
        self.add_gauge(&Gauge {
            max: mean.map(|mean| mean.max(highest.unwrap_or(0))),
            known_ms: seen_ms,
            total,
            is_failed: false,
        });
    }

    fn value(&self) -> Option<SeriesValue> {
        Some(SeriesValue {
            min: self.min?,
            mean: self.sum.mean()?,
            max: self.sum.max?,
        })
    }
}
