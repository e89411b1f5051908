//! Selects the rows that cover a time span: samples where they are kept, before them minutes,
//! before those hours.

mod coverage;

pub(super) use coverage::{CoveredRows, covering_rows};

use super::{Deadline, QueryError};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

/// A table of samples, minutes or hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RollupLevel {
    Samples,
    Minutes,
    Hours,
}

impl RollupLevel {
    /// The finest first.
    pub(super) const ALL: [Self; 3] = [Self::Samples, Self::Minutes, Self::Hours];

    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Samples => "sample",
            Self::Minutes => "minute",
            Self::Hours => "hour",
        }
    }
}

/// A range of row ids in one table: from `first` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdRange {
    pub(super) level: RollupLevel,
    pub(super) first: i64,
    pub(super) end: i64,
}

/// Calls `visit` with the id, the start and the blob of each row of a range that began within a
/// time, in milliseconds, in the order of the ids.
pub(super) fn for_each_blob(
    connection: &Connection,
    rows: IdRange,
    (since, until): (i64, i64),
    deadline: Deadline,
    mut visit: impl FnMut(i64, Timestamp, &[u8]) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    // By id, not by `at`: after a clock change both orders differ.
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, at, usage FROM {}
         WHERE id >= ?1 AND id < ?2 AND +at >= ?3 AND +at < ?4 ORDER BY id",
        rows.level.table()
    ))?;
    let mut found = statement.query(params![rows.first, rows.end, since, until])?;
    while let Some(row) = found.next()? {
        deadline.check()?;
        let (id, at) = (row.get(0)?, Timestamp(row.get(1)?));
        visit(id, at, row.get_ref(2)?.as_blob().unwrap_or_default())?;
    }
    Ok(())
}

/// The rows that cover the requested time, newest first; no sample is covered twice. Includes rows
/// that began shortly before `since`, because some of them end after it. If the clock went back,
/// rows of another time may be included.
pub(super) fn find_ranges(
    connection: &Connection,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<IdRange>, QueryError> {
    find_ranges_from(connection, &RollupLevel::ALL, since, until)
}

/// Like [`find_ranges`], in the tables of these levels, finest first.
fn find_ranges_from(
    connection: &Connection,
    levels: &[RollupLevel],
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<IdRange>, QueryError> {
    let mut found = Vec::new();
    // A finer table covers everything from this id on.
    let mut covered_from = i64::MAX;
    for level in levels.iter().copied() {
        let begins = first_complete_id(connection, level, since)?;
        if let Some((first, last)) =
            rows_within(connection, level, (level.earliest_start(since), until.0))?
        {
            let first = first.max(begins);
            let end = last.saturating_add(1).min(covered_from);
            if first < end {
                found.push(IdRange { level, first, end });
            }
        }
        covered_from = covered_from.min(begins);
    }
    Ok(found)
}

/// The minutes or hours that cover the requested time, oldest first, hours where minutes are no
/// longer kept; then the finer rows that are in none yet. As [`find_ranges`], it may include rows
/// of another time.
pub(super) fn find_rollup_ranges(
    connection: &Connection,
    finest: RollupLevel,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<IdRange>, QueryError> {
    let at = RollupLevel::ALL.iter().position(|level| *level == finest);
    let (finer, levels) = RollupLevel::ALL.split_at(at.unwrap_or(0));
    let mut found = find_ranges_from(connection, levels, since, until)?;
    found.reverse();
    let mut level = finest;
    for rest in finer.iter().rev().copied() {
        let after_last = |level| {
            let ids = first_and_last_id(connection, level)?;
            Ok::<_, QueryError>(ids.map_or(0, |(_, last)| last.saturating_add(1)))
        };
        found.push(IdRange {
            level: rest,
            first: after_last(level)?,
            end: after_last(rest)?,
        });
        level = rest;
    }
    Ok(found)
}

/// The id from which a table is complete. If a table has lost the first part of a coarser row, the
/// coarser row is used instead, unless it began before the requested time.
fn first_complete_id(
    connection: &Connection,
    level: RollupLevel,
    since: Timestamp,
) -> Result<i64, QueryError> {
    let table = level.table();
    let oldest: Option<i64> = connection
        .prepare_cached(&format!("SELECT id FROM {table} ORDER BY id LIMIT 1"))?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(oldest) = oldest else {
        return Ok(i64::MAX);
    };
    let Some(sums) = level.coarser() else {
        return Ok(oldest);
    };
    let sum: Option<(i64, i64)> = connection
        .prepare_cached(&format!(
            "SELECT id, at FROM {} WHERE id >= ?1 ORDER BY id LIMIT 1",
            sums.table()
        ))?
        .query_row([oldest], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((sum, at)) = sum.filter(|(_, at)| *at >= since.0) else {
        return Ok(oldest);
    };
    let first_at: i64 = connection
        .prepare_cached(&format!("SELECT min(+at) FROM {table} WHERE id <= ?1"))?
        .query_row([sum], |row| row.get(0))?;
    let is_whole = first_at == at;
    Ok(if is_whole {
        oldest
    } else {
        sum.saturating_add(1)
    })
}

/// The start of the oldest row of a level.
pub(super) fn oldest_start(
    connection: &Connection,
    level: RollupLevel,
) -> Result<Option<Timestamp>, QueryError> {
    // By time: the clock may have been set back after the first row.
    let select = format!("SELECT min(at) FROM {}", level.table());
    let mut statement = connection.prepare_cached(&select)?;
    let oldest: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(oldest.map(Timestamp))
}

/// The row of a level that contains this sample, or will contain it.
pub(super) fn row_containing(
    connection: &Connection,
    level: RollupLevel,
    sample: i64,
) -> Result<i64, QueryError> {
    let table = level.table();
    let select = format!("SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 1");
    let mut statement = connection.prepare_cached(&select)?;
    let row = statement.query_row([sample], |row| row.get(0)).optional()?;
    Ok(row.unwrap_or(i64::MAX))
}

/// The first and the last row of a table that began in this time, or rows further out. The hours,
/// which are few, narrow the search.
fn rows_within(
    connection: &Connection,
    level: RollupLevel,
    (since, until): (i64, i64),
) -> Result<Option<(i64, i64)>, QueryError> {
    let (Some(all), hours) = (
        first_and_last_id(connection, level)?,
        first_and_last_id(connection, RollupLevel::Hours)?,
    ) else {
        return Ok(None);
    };
    let (oldest, newest) = hours.unwrap_or((0, 0));
    let since_hour = RollupLevel::Hours.interval_start(since);
    let in_hours = rows_started_in(
        connection,
        RollupLevel::Hours,
        (since_hour, until),
        (0, newest),
    )?;
    let mut found = in_hours.filter(|_| level != RollupLevel::Hours);
    if let Some((first, _)) = &mut found
        && *first > oldest
    {
        *first = previous_row(connection, RollupLevel::Hours, *first)?.saturating_add(1);
    }
    // Rows that are in no hour yet, and rows up to the first hour; its beginning is unknown.
    let others = match level {
        RollupLevel::Hours => [all, (1, 0)],
        RollupLevel::Samples | RollupLevel::Minutes => [
            (all.0, all.1.min(oldest)),
            (all.0.max(newest.saturating_add(1)), all.1),
        ],
    };
    for ids in others {
        if ids.0 <= ids.1
            && let Some((first, last)) = rows_started_in(connection, level, (since, until), ids)?
        {
            let before = found.unwrap_or((first, last));
            found = Some((before.0.min(first), before.1.max(last)));
        }
    }
    Ok(found)
}

/// The first and the last row of a table.
fn first_and_last_id(
    connection: &Connection,
    level: RollupLevel,
) -> Result<Option<(i64, i64)>, QueryError> {
    let table = level.table();
    let select = format!("SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table})");
    let mut statement = connection.prepare_cached(&select)?;
    let ends = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (first, last): (Option<i64>, Option<i64>) = ends;
    Ok(first.zip(last))
}

/// The first and the last row in this range of ids that began in this time.
fn rows_started_in(
    connection: &Connection,
    level: RollupLevel,
    (since, until): (i64, i64),
    (first, last): (i64, i64),
) -> Result<Option<(i64, i64)>, QueryError> {
    // By id if there are few ids, otherwise by time.
    let is_few = level != RollupLevel::Hours && last - first <= MAX_SKIPPED_SAMPLES;
    let (by_id, by_time) = if is_few { ("", "+") } else { ("+", "") };
    let select = format!(
        "SELECT min(+id), max(+id) FROM {} WHERE {by_time}at >= ?1 AND {by_time}at < ?2
         AND {by_id}id >= ?3 AND {by_id}id <= ?4",
        level.table()
    );
    let mut statement = connection.prepare_cached(&select)?;
    let ends = statement.query_row([since, until, first, last], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let (first, last): (Option<i64>, Option<i64>) = ends;
    Ok(first.zip(last))
}

impl RollupLevel {
    /// The level that its rows are sums of.
    pub(super) const fn finer(self) -> Option<Self> {
        match self {
            Self::Samples => None,
            Self::Minutes => Some(Self::Samples),
            Self::Hours => Some(Self::Minutes),
        }
    }

    /// The level with sums of the rows of this level.
    const fn coarser(self) -> Option<Self> {
        match self {
            Self::Samples => Some(Self::Minutes),
            Self::Minutes => Some(Self::Hours),
            Self::Hours => None,
        }
    }

    /// All samples of a row began within one interval of this length of the wall clock, aligned to
    /// a multiple of it.
    pub(super) const fn length_ms(self) -> i64 {
        match self {
            Self::Samples => 1,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
        }
    }

    /// A row that ends at `since` or later began after this moment.
    pub(super) const fn earliest_start(self, since: Timestamp) -> i64 {
        since.0.saturating_sub(self.length_ms() + MAX_SAMPLE_MS)
    }

    /// The start of the aligned interval that contains this moment.
    pub(super) const fn interval_start(self, at: i64) -> i64 {
        at.saturating_sub(at.rem_euclid(self.length_ms()))
    }
}

/// The last row before this one, after which this one begins; 0 if there is none.
pub(super) fn previous_row(
    connection: &Connection,
    level: RollupLevel,
    id: i64,
) -> Result<i64, QueryError> {
    let table = level.table();
    let select = format!("SELECT coalesce(max(id), 0) FROM {table} WHERE id < ?1");
    let mut statement = connection.prepare_cached(&select)?;
    Ok(statement.query_row([id], |row| row.get(0))?)
}

/// The longest `audit.sample_interval`, plus the polls that may pass until a sample ends.
const MAX_SAMPLE_MS: i64 = 3_600_000 + 300_000;

/// The most samples that may be read although they turn out to be of another time: two hours with a
/// sample every second.
const MAX_SKIPPED_SAMPLES: i64 = 7_200;
