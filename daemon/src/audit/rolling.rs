//! Minutes and hours: what samples come to, added up as they come. What is under
//! way is added up again from the file when a daemon starts, so that nothing is
//! lost or counted twice however the one before ended.

use super::packed::{Stored, pack, unpack};
use super::row::count;
use gpukill_policy::usage::RunUsage;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};

/// The minute and the hour that are under way.
#[derive(Default)]
pub(super) struct Rolling {
    minute: Option<Stored>,
    hour: Option<Stored>,
    /// The last sample in the minute, and the last minute in the hour.
    sample: i64,
    minute_row: i64,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

impl Rolling {
    /// Adds up what is in no minute yet, and in no hour.
    pub(super) fn restore(connection: &Connection) -> rusqlite::Result<Self> {
        let (sample, minute): (i64, i64) = connection.query_row(
            "SELECT sample, minute FROM rolled WHERE one = 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut rolling = Self {
            sample,
            minute_row: minute,
            ..Self::default()
        };
        for (row, minute) in after(connection, "minute", minute)? {
            rolling.add_minute(connection, row, &minute)?;
        }
        for (row, sample) in after(connection, "sample", sample)? {
            see_runs(connection, row, &sample)?;
            rolling.add(connection, row, &sample)?;
        }
        Ok(rolling)
    }

    /// The highest id of a sample that was ever given.
    pub(super) fn last_sample(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let given: Option<i64> = connection
            .prepare_cached("SELECT max(seq) FROM sqlite_sequence WHERE name = 'sample'")?
            .query_row([], |row| row.get(0))?;
        Ok(given.unwrap_or(0).max(self.sample))
    }

    /// Adds a sample. Where it begins a minute, the one before is written.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        row: i64,
        sample: &Stored,
    ) -> rusqlite::Result<()> {
        if let Some(minute) = &self.minute
            && !is_same(minute.from, sample.from, MINUTE_MS)
        {
            let minute = minute.clone();
            self.minute = None;
            insert(connection, "minute", self.sample, &minute)?;
            add_to_runs(connection, &minute, self.sample)?;
            connection
                .prepare_cached("UPDATE rolled SET sample = ?1")?
                .execute([self.sample])?;
            self.add_minute(connection, self.sample, &minute)?;
        }
        merge(&mut self.minute, sample);
        self.sample = row;
        Ok(())
    }

    fn add_minute(
        &mut self,
        connection: &Connection,
        row: i64,
        minute: &Stored,
    ) -> rusqlite::Result<()> {
        if let Some(hour) = &self.hour
            && !is_same(hour.from, minute.from, HOUR_MS)
        {
            insert(connection, "hour", self.minute_row, hour)?;
            connection
                .prepare_cached("UPDATE rolled SET minute = ?1")?
                .execute([self.minute_row])?;
            self.hour = None;
        }
        merge(&mut self.hour, minute);
        self.minute_row = row;
        Ok(())
    }
}

/// Whether two moments are in the same stretch of the wall clock.
fn is_same(one: Timestamp, other: Timestamp, length_ms: i64) -> bool {
    one.0.div_euclid(length_ms) == other.0.div_euclid(length_ms)
}

fn merge(sum: &mut Option<Stored>, more: &Stored) {
    match sum {
        Some(sum) => sum.merge(more),
        None => *sum = Some(more.clone()),
    }
}

/// What a table has after this row. A blob that is broken is left out.
fn after(connection: &Connection, table: &str, row: i64) -> rusqlite::Result<Vec<(i64, Stored)>> {
    let select = format!("SELECT id, at, usage FROM {table} WHERE id > ?1 ORDER BY id");
    let mut statement = connection.prepare_cached(&select)?;
    let mut rows = statement.query([row])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        match unpack(row.get_ref(2)?.as_blob().unwrap_or_default(), Timestamp(at)) {
            Ok(stored) => found.push((id, stored)),
            Err(_) => tracing::error!(table, id, "a row of the store is broken: left out"),
        }
    }
    Ok(found)
}

fn insert(connection: &Connection, table: &str, row: i64, it: &Stored) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "INSERT INTO {table} (id, at, usage) VALUES (?1, ?2, ?3)"
        ))?
        .execute(params![row, it.from.0, pack(it)])?;
    Ok(())
}

/// Keeps that the runs of a sample were seen in it: of those that do not go on, no
/// minute will say so in time.
fn see_runs(connection: &Connection, row: i64, sample: &Stored) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE run SET last_at = max(last_at, ?2), last_sample = max(last_sample, ?3)
         WHERE id = ?1 AND ended_at IS NULL",
    )?;
    for run in sample.runs.keys() {
        statement.execute(params![run, sample.until.0, row])?;
    }
    Ok(())
}

/// Adds a minute to the sums of the runs in it.
fn add_to_runs(connection: &Connection, minute: &Stored, sample: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE run SET held_ms = held_ms + ?2, busy_ms = busy_ms + ?3, idle_ms = idle_ms + ?4,
         unknown_ms = unknown_ms + ?5, memory_mib_s = memory_mib_s + ?6,
         memory_most = CASE WHEN ?7 IS NULL OR memory_most > ?7 THEN memory_most ELSE ?7 END,
         last_at = CASE WHEN ended_at IS NULL THEN ?8 ELSE last_at END,
         last_sample = CASE WHEN ended_at IS NULL THEN ?9 ELSE last_sample END
         WHERE id = ?1",
    )?;
    for (run, usage) in &minute.runs {
        statement.execute(params![
            run,
            count(usage.held_ms),
            count(usage.busy_ms),
            count(usage.idle_ms),
            count(usage.unknown_ms),
            count(mib_seconds(usage)),
            usage.memory.most.map(count),
            minute.until.0,
            sample,
        ])?;
    }
    Ok(())
}

/// Memory over time, in MiB × seconds, rounded.
pub(super) fn mib_seconds(usage: &RunUsage) -> u64 {
    const UNIT: u128 = (1 << 20) * 1000;
    let rounded = usage.memory.total.saturating_add(UNIT / 2) / UNIT;
    u64::try_from(rounded).unwrap_or(u64::MAX)
}
