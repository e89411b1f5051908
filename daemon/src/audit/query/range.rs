//! Which rows tell of a stretch of time: samples where they are kept, before
//! that minutes, and before that hours.

mod parts;

pub(super) use parts::{Part, parts};

use super::Failure;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

/// A table of samples, minutes or hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Samples,
    Minutes,
    Hours,
}

impl Level {
    /// The newest first.
    pub(super) const ALL: [Self; 3] = [Self::Samples, Self::Minutes, Self::Hours];

    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Samples => "sample",
            Self::Minutes => "minute",
            Self::Hours => "hour",
        }
    }
}

/// The ids of one table's rows: from the first to before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) level: Level,
    pub(super) first: i64,
    pub(super) end: i64,
}

/// The rows that tell of the time asked for, the newest first; no sample is told
/// of twice. Rows that began shortly before `since` are among them: some end after it.
/// A clock that went back can put rows of another time among them.
pub(super) fn rows(
    connection: &Connection,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<Rows>, Failure> {
    let mut found = Vec::new();
    // What a finer table tells of begins here.
    let mut told_from = i64::MAX;
    for level in Level::ALL {
        let begins = begins(connection, level, since)?;
        if let Some((first, last)) = within(connection, level, (level.reach(since), until.0))? {
            let first = first.max(begins);
            let end = last.saturating_add(1).min(told_from);
            if first < end {
                found.push(Rows { level, first, end });
            }
        }
        told_from = told_from.min(begins);
    }
    Ok(found)
}

/// The id from which on a table tells of everything. Where it has the end only of
/// what its first rows are the sum of, the sum tells of that, unless it began before
/// the time asked for.
fn begins(connection: &Connection, level: Level, since: Timestamp) -> Result<i64, Failure> {
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

/// The row of a level that this sample is added up in, or would be.
pub(super) fn row_of(connection: &Connection, level: Level, sample: i64) -> Result<i64, Failure> {
    let table = level.table();
    let select = format!("SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 1");
    let mut statement = connection.prepare_cached(&select)?;
    let row = statement.query_row([sample], |row| row.get(0)).optional()?;
    Ok(row.unwrap_or(i64::MAX))
}

/// The first and the last row of a table that began in this time, or ones further
/// out. Which they can be, the hours tell, which are few.
fn within(
    connection: &Connection,
    level: Level,
    (since, until): (i64, i64),
) -> Result<Option<(i64, i64)>, Failure> {
    let (Some(all), hours) = (
        ends_of(connection, level)?,
        ends_of(connection, Level::Hours)?,
    ) else {
        return Ok(None);
    };
    let (oldest, newest) = hours.unwrap_or((0, 0));
    let since_hour = Level::Hours.floor(since);
    let in_hours = began_in(connection, Level::Hours, (since_hour, until), (0, newest))?;
    let mut found = in_hours.filter(|_| level != Level::Hours);
    if let Some((first, _)) = &mut found
        && *first > oldest
    {
        *first = row_before(connection, Level::Hours, *first)?.saturating_add(1);
    }
    // Those that are in no hour yet; and those up to the first hour there is, of
    // which it is not known where it began.
    let others = match level {
        Level::Hours => [all, (1, 0)],
        Level::Samples | Level::Minutes => [
            (all.0, all.1.min(oldest)),
            (all.0.max(newest.saturating_add(1)), all.1),
        ],
    };
    for ids in others {
        if ids.0 <= ids.1
            && let Some((first, last)) = began_in(connection, level, (since, until), ids)?
        {
            let before = found.unwrap_or((first, last));
            found = Some((before.0.min(first), before.1.max(last)));
        }
    }
    Ok(found)
}

/// The first and the last row of a table.
fn ends_of(connection: &Connection, level: Level) -> Result<Option<(i64, i64)>, Failure> {
    let table = level.table();
    let select = format!("SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table})");
    let mut statement = connection.prepare_cached(&select)?;
    let ends = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (first, last): (Option<i64>, Option<i64>) = ends;
    Ok(first.zip(last))
}

/// The first and the last row that began in this time, among those of these ids.
fn began_in(
    connection: &Connection,
    level: Level,
    (since, until): (i64, i64),
    (first, last): (i64, i64),
) -> Result<Option<(i64, i64)>, Failure> {
    // By their ids where there are few of those, else by their time.
    let is_few = level != Level::Hours && last - first <= MOST_SKIPPED;
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

impl Level {
    /// Its rows are sums of those of the finer one.
    pub(super) const fn finer(self) -> Option<Self> {
        match self {
            Self::Samples => None,
            Self::Minutes => Some(Self::Samples),
            Self::Hours => Some(Self::Minutes),
        }
    }

    /// Its rows are what those of the coarser one are sums of.
    const fn coarser(self) -> Option<Self> {
        match self {
            Self::Samples => Some(Self::Minutes),
            Self::Minutes => Some(Self::Hours),
            Self::Hours => None,
        }
    }

    /// All that a row tells of began within so many milliseconds of the wall
    /// clock, counted from a multiple of it.
    pub(super) const fn length_ms(self) -> i64 {
        match self {
            Self::Samples => 1,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
        }
    }

    /// A row that ends at `since` or later began after this moment.
    pub(super) const fn reach(self, since: Timestamp) -> i64 {
        since.0.saturating_sub(self.length_ms() + LONGEST_SAMPLE_MS)
    }

    /// When the stretch of the wall clock began that this moment is in.
    pub(super) const fn floor(self, at: i64) -> i64 {
        at.saturating_sub(at.rem_euclid(self.length_ms()))
    }
}

/// The last row before this one, the one that it begins after; 0 where there is
/// none.
pub(super) fn row_before(connection: &Connection, level: Level, id: i64) -> Result<i64, Failure> {
    let table = level.table();
    let select = format!("SELECT coalesce(max(id), 0) FROM {table} WHERE id < ?1");
    let mut statement = connection.prepare_cached(&select)?;
    Ok(statement.query_row([id], |row| row.get(0))?)
}

/// The longest `audit.sample_interval`, and the polls that may pass until one ends.
const LONGEST_SAMPLE_MS: i64 = 3_600_000 + 300_000;

/// So many samples may be read by whose ids it is clear only then that they are of
/// another time: those of two hours, at one a second.
const MOST_SKIPPED: i64 = 7_200;
