//! Rolls samples up into minutes and minutes into hours, read from the file when the minute or hour
//! is over. Nothing is kept in memory until then, because a minute or hour contains all runs that
//! came and went in it. Nothing is lost or counted twice, however the daemon ends.

mod sum;

use super::sql_values::saturating_i64;
use gpukill_policy::usage::RunUsage;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use sum::{EncodedRow, RunSum, SummedRow, row_runs, sum_rows};

/// The current minute and hour.
pub(super) struct Rollup {
    samples: RollupWindow,
    minutes: RollupWindow,
}

/// The rows of one minute or hour that are not rolled up yet.
struct RollupWindow {
    table: &'static str,
    length_ms: i64,
    /// The last row that is rolled up.
    after: i64,
    /// The newest row.
    last_row: i64,
    /// When the first row began, if there is one.
    from: Option<Timestamp>,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

impl RollupWindow {
    const fn new(table: &'static str, length_ms: i64, after: i64) -> Self {
        Self {
            table,
            length_ms,
            after,
            last_row: after,
            from: None,
        }
    }

    /// Whether a row that begins at `at` starts another minute or hour.
    fn is_new_window(&self, at: Timestamp) -> bool {
        let part = |at: Timestamp| at.0.div_euclid(self.length_ms);
        self.from.is_some_and(|from| part(from) != part(at))
    }

    fn add(&mut self, row: i64, at: Timestamp) {
        self.from.get_or_insert(at);
        self.last_row = row;
    }

    /// Reads the rows of this minute or hour; the next one starts after them.
    fn take_rows(&mut self, connection: &Connection) -> rusqlite::Result<Vec<EncodedRow>> {
        let rows = read_rows(connection, self.table, self.after, self.last_row)?;
        self.after = self.last_row;
        self.from = None;
        Ok(rows)
    }
}

impl Rollup {
    /// Continues with the rows that are in no minute, or in no hour, yet.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let (sample, minute): (i64, i64) = connection.query_row(
            "SELECT sample, minute FROM rolled WHERE one = 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut rolling = Self {
            samples: RollupWindow::new("sample", MINUTE_MS, sample),
            minutes: RollupWindow::new("minute", HOUR_MS, minute),
        };
        for (row, at) in row_ids(connection, "minute", minute)? {
            rolling.add_minute(connection, row, at)?;
        }
        for (row, at) in row_ids(connection, "sample", sample)? {
            mark_runs_observed(connection, row)?;
            rolling.add_sample(connection, row, at)?;
        }
        Ok(rolling)
    }

    /// The highest sample id that was ever issued.
    pub(super) fn last_sample_id(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let given: Option<i64> = connection
            .prepare_cached("SELECT max(seq) FROM sqlite_sequence WHERE name = 'sample'")?
            .query_row([], |row| row.get(0))?;
        Ok(given.unwrap_or(0).max(self.samples.last_row))
    }

    /// Adds a sample that began at `at`. If it starts a new minute, the previous minute is written.
    pub(super) fn add_sample(
        &mut self,
        connection: &Connection,
        row: i64,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        if self.samples.is_new_window(at) {
            let rows = self.samples.take_rows(connection)?;
            let id = self.samples.after;
            if let Some(minute) = sum_rows(&rows, &mut |run| add_to_run(connection, run, id))? {
                insert_row(connection, "minute", id, &minute)?;
                self.add_minute(connection, id, minute.from)?;
            }
            connection
                .prepare_cached("UPDATE rolled SET sample = ?1")?
                .execute([id])?;
        }
        self.samples.add(row, at);
        Ok(())
    }

    fn add_minute(
        &mut self,
        connection: &Connection,
        row: i64,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        if self.minutes.is_new_window(at) {
            let rows = self.minutes.take_rows(connection)?;
            let id = self.minutes.after;
            if let Some(hour) = sum_rows(&rows, &mut |_| Ok(()))? {
                insert_row(connection, "hour", id, &hour)?;
            }
            connection
                .prepare_cached("UPDATE rolled SET minute = ?1")?
                .execute([id])?;
        }
        self.minutes.add(row, at);
        Ok(())
    }
}

/// The ids of the rows after this one, and when each began.
fn row_ids(
    connection: &Connection,
    table: &str,
    after: i64,
) -> rusqlite::Result<Vec<(i64, Timestamp)>> {
    let select = format!("SELECT id, at FROM {table} WHERE id > ?1 ORDER BY id");
    let mut statement = connection.prepare_cached(&select)?;
    let rows = statement.query_map([after], |row| Ok((row.get(0)?, Timestamp(row.get(1)?))))?;
    rows.collect()
}

/// Reads the rows of a table after one id up to another. Corrupt blobs are skipped.
fn read_rows(
    connection: &Connection,
    table: &str,
    after: i64,
    last: i64,
) -> rusqlite::Result<Vec<EncodedRow>> {
    let select =
        format!("SELECT id, at, usage FROM {table} WHERE id > ?1 AND id <= ?2 ORDER BY id");
    let mut statement = connection.prepare_cached(&select)?;
    let mut rows = statement.query([after, last])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
        match EncodedRow::read(blob, Timestamp(at)) {
            Ok(row) => found.push(row),
            Err(_) => tracing::error!(table, id, "skipped a corrupt row of the store"),
        }
    }
    Ok(found)
}

fn insert_row(
    connection: &Connection,
    table: &str,
    id: i64,
    row: &SummedRow,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "INSERT INTO {table} (id, at, usage) VALUES (?1, ?2, ?3)"
        ))?
        .execute(params![id, row.from.0, row.blob])?;
    Ok(())
}

/// When runs last used their device, in samples that are in no minute yet.
pub(super) fn active_since_last_minute(
    connection: &Connection,
) -> rusqlite::Result<BTreeMap<i64, Timestamp>> {
    let rolled: i64 = connection
        .prepare_cached("SELECT sample FROM rolled WHERE one = 1")?
        .query_row([], |row| row.get(0))?;
    let mut active = BTreeMap::new();
    for sample in read_rows(connection, "sample", rolled, i64::MAX)? {
        if let Ok((until, runs)) = row_runs(&sample) {
            let used = runs.into_iter().filter(|(_, is_active)| *is_active);
            active.extend(used.map(|(run, _)| (run, until)));
        }
    }
    Ok(active)
}

/// Records that the runs of a sample were observed in it. For runs that do not continue, no minute
/// would record this in time.
fn mark_runs_observed(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE run SET last_at = max(last_at, ?2), last_sample = max(last_sample, ?3)
         WHERE id = ?1 AND ended_at IS NULL",
    )?;
    for sample in read_rows(connection, "sample", row - 1, row)? {
        let Ok((until, runs)) = row_runs(&sample) else {
            continue;
        };
        for (run, _) in runs {
            statement.execute(params![run, until.0, row])?;
        }
    }
    Ok(())
}

/// Adds a minute to the sums of a run in it. `sample` is the last sample of the minute.
fn add_to_run(connection: &Connection, sum: &RunSum<'_>, sample: i64) -> rusqlite::Result<()> {
    let usage = sum.usage;
    connection
        .prepare_cached(
            "UPDATE run SET held_ms = held_ms + ?2, busy_ms = busy_ms + ?3, idle_ms = idle_ms + ?4,
             unknown_ms = unknown_ms + ?5, memory_mib_s = memory_mib_s + ?6,
             memory_max = CASE WHEN ?7 IS NULL OR memory_max > ?7 THEN memory_max ELSE ?7 END,
             last_at = CASE WHEN ended_at IS NULL THEN ?8 ELSE last_at END,
             last_sample = CASE WHEN ended_at IS NULL THEN ?9 ELSE last_sample END,
             active_at = coalesce(?10, active_at),
             process_busy_ms = process_busy_ms + ?11, process_idle_ms = process_idle_ms + ?12,
             utilization_total = utilization_total + ?13,
             utilization_known_ms = utilization_known_ms + ?14
             WHERE id = ?1",
        )?
        .execute(params![
            sum.id,
            saturating_i64(usage.held_ms),
            saturating_i64(usage.busy_ms),
            saturating_i64(usage.idle_ms),
            saturating_i64(usage.unknown_ms),
            saturating_i64(mib_seconds(usage)),
            usage.memory.max.map(saturating_i64),
            sum.until.0,
            sample,
            sum.last_active.map(|at| at.0),
            saturating_i64(sum.process_times.0),
            saturating_i64(sum.process_times.1),
            u64::try_from(usage.utilization.total).map_or(i64::MAX, saturating_i64),
            saturating_i64(usage.utilization.known_ms),
        ])?;
    Ok(())
}

/// Memory over time, in MiB × seconds, rounded.
pub(super) fn mib_seconds(usage: &RunUsage) -> u64 {
    const UNIT: u128 = (1 << 20) * 1000;
    let rounded = usage.memory.total.saturating_add(UNIT / 2) / UNIT;
    u64::try_from(rounded).unwrap_or(u64::MAX)
}
