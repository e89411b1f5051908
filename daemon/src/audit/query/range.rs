//! Which rows tell of a stretch of time: samples where they are kept, before
//! that minutes, and before that hours.

use super::{Deadline, Failure};
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
/// of twice. A clock that went back can put rows of another time among them.
pub(super) fn rows(
    connection: &Connection,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<Rows>, Failure> {
    let mut found = Vec::new();
    // What a finer table tells of begins here.
    let mut told_from = i64::MAX;
    for level in Level::ALL {
        let table = level.table();
        let within: (Option<i64>, Option<i64>) = connection
            .prepare_cached(&format!(
                "SELECT min(id), max(id) FROM {table} WHERE at >= ?1 AND at < ?2"
            ))?
            .query_row([since.0, until.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let (Some(first), Some(last)) = within {
            let end = last.saturating_add(1).min(told_from);
            if first < end {
                found.push(Rows { level, first, end });
            }
        }
        let oldest: Option<i64> = connection
            .prepare_cached(&format!("SELECT id FROM {table} ORDER BY id LIMIT 1"))?
            .query_row([], |row| row.get(0))
            .optional()?;
        told_from = told_from.min(oldest.unwrap_or(i64::MAX));
    }
    Ok(found)
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

    /// All that a row tells of began within so many milliseconds of the wall
    /// clock, counted from a multiple of it.
    pub(super) const fn length_ms(self) -> i64 {
        match self {
            Self::Samples => 1,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
        }
    }

    /// When the stretch of the wall clock began that this moment is in.
    const fn floor(self, at: i64) -> i64 {
        at.saturating_sub(at.rem_euclid(self.length_ms()))
    }
}

/// Some rows of one table that are added up: those of these ids that began within
/// this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) rows: Rows,
    pub(super) since: i64,
    pub(super) until: i64,
}

/// The rows that together tell of everything that began in the time asked for,
/// once: hours where they lie within it, minutes and samples at its edges and
/// where there is nothing coarser yet, or any more. An hour or minute of which
/// the finer rows are gone counts if it began within that time. In the order in
/// which they were written.
pub(super) fn parts(
    connection: &Connection,
    since: Timestamp,
    until: Timestamp,
    deadline: Deadline,
) -> Result<Vec<Part>, Failure> {
    let mut covering = Covering {
        connection,
        since: since.0,
        until: until.0,
        deadline,
        parts: Vec::new(),
    };
    covering.cover(Level::Hours, 0, i64::MAX)?;
    Ok(covering.parts)
}

/// The last row before this one, the one that it begins after; 0 where there is
/// none.
pub(super) fn row_before(connection: &Connection, level: Level, id: i64) -> Result<i64, Failure> {
    let table = level.table();
    let select = format!("SELECT coalesce(max(id), 0) FROM {table} WHERE id < ?1");
    let mut statement = connection.prepare_cached(&select)?;
    Ok(statement.query_row([id], |row| row.get(0))?)
}

/// So many samples may be read by whose ids it is clear only then that they are of
/// another time: those of two hours, at one a second.
const MOST_SKIPPED: i64 = 7_200;

struct Covering<'a> {
    connection: &'a Connection,
    since: i64,
    until: i64,
    deadline: Deadline,
    parts: Vec<Part>,
}

impl Covering<'_> {
    /// Covers the samples after one and up to another, with rows of this level
    /// and finer ones.
    fn cover(&mut self, level: Level, after: i64, last: i64) -> Result<(), Failure> {
        self.deadline.check()?;
        let Some(finer) = level.finer() else {
            return self.take(level, after, last);
        };
        let Some((first_row, last_row)) = self.ends(level, after, last)? else {
            return self.cover(finer, after, last);
        };
        // What the rows of this level told of before was deleted earlier than what
        // it was the sum of.
        let begins_after = self.begins_after(level, after, first_row)?;
        if begins_after > after {
            self.cover(finer, after, begins_after)?;
        }
        let mut from = begins_after;
        for edge in self.edges(level, begins_after, last_row)? {
            let before = row_before(self.connection, level, edge.id)?.max(begins_after);
            self.take(level, from, before)?;
            if self.is_finer_better(finer, &edge, before)? {
                self.cover(finer, before, edge.id)?;
            } else {
                self.take(level, before, edge.id)?;
            }
            from = edge.id;
        }
        self.take(level, from, last_row)?;
        if last_row < last {
            self.cover(finer, last_row, last)?;
        }
        Ok(())
    }

    fn take(&mut self, level: Level, after: i64, last: i64) -> Result<(), Failure> {
        let (since, until) = (self.since, self.until);
        let Some((mut first, mut last)) = self.ends(level, after, last)? else {
            return Ok(());
        };
        if since < until && last - first > MOST_SKIPPED {
            let within: (Option<i64>, Option<i64>) = self
                .connection
                .prepare_cached(&format!(
                    "SELECT min(+id), max(+id) FROM {} WHERE at >= ?1 AND at < ?2
                     AND +id >= ?3 AND +id <= ?4",
                    level.table()
                ))?
                .query_row([since, until, first, last], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            // Where there is none, the first is after the last.
            first = within.0.unwrap_or(i64::MAX);
            last = within.1.unwrap_or(0);
        }
        if first <= last && since < until {
            let end = last.saturating_add(1);
            let rows = Rows { level, first, end };
            self.parts.push(Part { rows, since, until });
        }
        Ok(())
    }

    /// The first and the last row among these.
    fn ends(&self, level: Level, after: i64, last: i64) -> Result<Option<(i64, i64)>, Failure> {
        let table = level.table();
        let end = |order: &str| {
            let select = format!(
                "SELECT id FROM {table} WHERE id > ?1 AND id <= ?2 ORDER BY id {order} LIMIT 1"
            );
            let mut statement = self.connection.prepare_cached(&select)?;
            statement
                .query_row([after, last], |row| row.get::<_, i64>(0))
                .optional()
        };
        Ok(end("ASC")?.zip(end("DESC")?))
    }

    /// The last of the finer rows that are no part of the first row of a level.
    fn begins_after(&self, level: Level, after: i64, first_row: i64) -> Result<i64, Failure> {
        let at: i64 = self
            .connection
            .prepare_cached(&format!("SELECT at FROM {} WHERE id = ?1", level.table()))?
            .query_row([first_row], |row| row.get(0))?;
        let begin = level.floor(at);
        let end = begin.saturating_add(level.length_ms());
        let mut begins_after = after;
        let mut finer = level.finer();
        while let Some(table) = finer {
            let before: Option<i64> = self
                .connection
                .prepare_cached(&format!(
                    "SELECT id FROM {} WHERE id > ?1 AND id < ?2 AND (+at < ?3 OR +at >= ?4)
                     ORDER BY id DESC LIMIT 1",
                    table.table()
                ))?
                .query_row([begins_after, first_row, begin, end], |row| row.get(0))
                .optional()?;
            begins_after = before.unwrap_or(begins_after);
            finer = table.finer();
        }
        Ok(begins_after)
    }

    /// The rows of which a part only may be in the time asked for.
    fn edges(&self, level: Level, after: i64, last: i64) -> Result<Vec<Edge>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT id, at FROM {} WHERE +id > ?1 AND +id <= ?2
             AND (at >= ?3 AND at < ?4 OR at >= ?5 AND at < ?6) ORDER BY +id",
            level.table()
        ))?;
        let (since, until) = (self.since, self.until);
        let rows = statement.query_map(
            [
                after,
                last,
                level.floor(since),
                since,
                level.floor(until).max(since),
                until,
            ],
            |row| {
                Ok(Edge {
                    id: row.get(0)?,
                    at: row.get(1)?,
                })
            },
        )?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether the finer rows of an edge tell more of the time asked for.
    fn is_finer_better(&self, finer: Level, edge: &Edge, before: i64) -> Result<bool, Failure> {
        if edge.at < self.since {
            return Ok(true);
        }
        let oldest: Option<i64> = self
            .connection
            .prepare_cached(&format!(
                "SELECT min(+at) FROM {} WHERE id > ?1 AND id <= ?2",
                finer.table()
            ))?
            .query_row([before, edge.id], |row| row.get(0))?;
        // The oldest are deleted first.
        Ok(oldest == Some(edge.at))
    }
}

/// A row at an edge of the time asked for.
struct Edge {
    id: i64,
    at: i64,
}
