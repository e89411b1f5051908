//! Minutes and hours: what samples come to, added up from the file when the minute or
//! the hour is over. Nothing of them is kept in memory until then, for each has all runs
//! that came and went in it; and nothing is lost or counted twice however a daemon ends.

mod sum;

use super::row::count;
use gpukill_policy::usage::RunUsage;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use sum::{Row, RunSum, Summed, runs, sum};

/// The minute and the hour that are under way.
pub(super) struct Rolling {
    samples: Stretch,
    minutes: Stretch,
}

/// Rows that are not added up yet: those of one minute, or of one hour.
struct Stretch {
    table: &'static str,
    length_ms: i64,
    /// The last row that is added up.
    after: i64,
    /// The last row of all.
    last: i64,
    /// When the first began, where there is one.
    from: Option<Timestamp>,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

impl Stretch {
    const fn new(table: &'static str, length_ms: i64, after: i64) -> Self {
        Self {
            table,
            length_ms,
            after,
            last: after,
            from: None,
        }
    }

    /// Whether a row that begins then is the first of another stretch.
    fn ends_before(&self, at: Timestamp) -> bool {
        let part = |at: Timestamp| at.0.div_euclid(self.length_ms);
        self.from.is_some_and(|from| part(from) != part(at))
    }

    fn add(&mut self, row: i64, at: Timestamp) {
        self.from.get_or_insert(at);
        self.last = row;
    }

    /// The rows of it; the next stretch begins after them.
    fn end(&mut self, connection: &Connection) -> rusqlite::Result<Vec<Row>> {
        let rows = rows(connection, self.table, self.after, self.last)?;
        self.after = self.last;
        self.from = None;
        Ok(rows)
    }
}

impl Rolling {
    /// Goes on with what is in no minute yet, and in no hour.
    pub(super) fn restore(connection: &Connection) -> rusqlite::Result<Self> {
        let (sample, minute): (i64, i64) = connection.query_row(
            "SELECT sample, minute FROM rolled WHERE one = 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut rolling = Self {
            samples: Stretch::new("sample", MINUTE_MS, sample),
            minutes: Stretch::new("minute", HOUR_MS, minute),
        };
        for (row, at) in ids(connection, "minute", minute)? {
            rolling.add_minute(connection, row, at)?;
        }
        for (row, at) in ids(connection, "sample", sample)? {
            see_runs(connection, row)?;
            rolling.add(connection, row, at)?;
        }
        Ok(rolling)
    }

    /// The highest id of a sample that was ever given.
    pub(super) fn last_sample(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let given: Option<i64> = connection
            .prepare_cached("SELECT max(seq) FROM sqlite_sequence WHERE name = 'sample'")?
            .query_row([], |row| row.get(0))?;
        Ok(given.unwrap_or(0).max(self.samples.last))
    }

    /// Adds a sample that began then. Where it begins a minute, the one before is written.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        row: i64,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        if self.samples.ends_before(at) {
            let rows = self.samples.end(connection)?;
            let id = self.samples.after;
            if let Some(minute) = sum(&rows, &mut |run| add_to_run(connection, run, id))? {
                insert(connection, "minute", id, &minute)?;
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
        if self.minutes.ends_before(at) {
            let rows = self.minutes.end(connection)?;
            let id = self.minutes.after;
            if let Some(hour) = sum(&rows, &mut |_| Ok(()))? {
                insert(connection, "hour", id, &hour)?;
            }
            connection
                .prepare_cached("UPDATE rolled SET minute = ?1")?
                .execute([id])?;
        }
        self.minutes.add(row, at);
        Ok(())
    }
}

/// The rows of a table after this one, and when they began.
fn ids(
    connection: &Connection,
    table: &str,
    after: i64,
) -> rusqlite::Result<Vec<(i64, Timestamp)>> {
    let select = format!("SELECT id, at FROM {table} WHERE id > ?1 ORDER BY id");
    let mut statement = connection.prepare_cached(&select)?;
    let rows = statement.query_map([after], |row| Ok((row.get(0)?, Timestamp(row.get(1)?))))?;
    rows.collect()
}

/// What a table has after this row, up to that one. A blob that is broken is left out.
fn rows(connection: &Connection, table: &str, after: i64, last: i64) -> rusqlite::Result<Vec<Row>> {
    let select =
        format!("SELECT id, at, usage FROM {table} WHERE id > ?1 AND id <= ?2 ORDER BY id");
    let mut statement = connection.prepare_cached(&select)?;
    let mut rows = statement.query([after, last])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
        match Row::read(blob, Timestamp(at)) {
            Ok(row) => found.push(row),
            Err(_) => tracing::error!(table, id, "a row of the store is broken: left out"),
        }
    }
    Ok(found)
}

fn insert(connection: &Connection, table: &str, id: i64, it: &Summed) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "INSERT INTO {table} (id, at, usage) VALUES (?1, ?2, ?3)"
        ))?
        .execute(params![id, it.from.0, it.blob])?;
    Ok(())
}

/// When runs were last seen to use their device, in samples that are in no minute yet.
pub(super) fn active_since_the_last_minute(
    connection: &Connection,
) -> rusqlite::Result<BTreeMap<i64, Timestamp>> {
    let rolled: i64 = connection
        .prepare_cached("SELECT sample FROM rolled WHERE one = 1")?
        .query_row([], |row| row.get(0))?;
    let mut active = BTreeMap::new();
    for sample in rows(connection, "sample", rolled, i64::MAX)? {
        if let Ok((until, runs)) = runs(&sample) {
            let used = runs.into_iter().filter(|(_, is_active)| *is_active);
            active.extend(used.map(|(run, _)| (run, until)));
        }
    }
    Ok(active)
}

/// Keeps that the runs of a sample were seen in it: of those that do not go on, no
/// minute will say so in time.
fn see_runs(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE run SET last_at = max(last_at, ?2), last_sample = max(last_sample, ?3)
         WHERE id = ?1 AND ended_at IS NULL",
    )?;
    for sample in rows(connection, "sample", row - 1, row)? {
        let Ok((until, runs)) = runs(&sample) else {
            continue;
        };
        for (run, _) in runs {
            statement.execute(params![run, until.0, row])?;
        }
    }
    Ok(())
}

/// Adds a minute to the sums of a run in it. `sample` is its last.
fn add_to_run(connection: &Connection, sum: &RunSum<'_>, sample: i64) -> rusqlite::Result<()> {
    let usage = sum.usage;
    connection
        .prepare_cached(
            "UPDATE run SET held_ms = held_ms + ?2, busy_ms = busy_ms + ?3, idle_ms = idle_ms + ?4,
             unknown_ms = unknown_ms + ?5, memory_mib_s = memory_mib_s + ?6,
             memory_most = CASE WHEN ?7 IS NULL OR memory_most > ?7 THEN memory_most ELSE ?7 END,
             last_at = CASE WHEN ended_at IS NULL THEN ?8 ELSE last_at END,
             last_sample = CASE WHEN ended_at IS NULL THEN ?9 ELSE last_sample END,
             active_at = coalesce(?10, active_at)
             WHERE id = ?1",
        )?
        .execute(params![
            sum.id,
            count(usage.held_ms),
            count(usage.busy_ms),
            count(usage.idle_ms),
            count(usage.unknown_ms),
            count(mib_seconds(usage)),
            usage.memory.most.map(count),
            sum.until.0,
            sample,
            sum.active.map(|at| at.0),
        ])?;
    Ok(())
}

/// Memory over time, in MiB × seconds, rounded.
pub(super) fn mib_seconds(usage: &RunUsage) -> u64 {
    const UNIT: u128 = (1 << 20) * 1000;
    let rounded = usage.memory.total.saturating_add(UNIT / 2) / UNIT;
    u64::try_from(rounded).unwrap_or(u64::MAX)
}
