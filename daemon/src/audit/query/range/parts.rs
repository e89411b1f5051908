//! Which rows are added up: as coarse ones as tell of just the time asked for.

use super::super::{Deadline, Failure};
use super::{Level, MOST_SKIPPED, Rows, began_in, row_before};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

/// Some rows of one table that are added up: those of these ids that began within
/// this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Part {
    pub(in super::super) rows: Rows,
    pub(in super::super) since: i64,
    pub(in super::super) until: i64,
}

/// The rows that together tell of everything that began in the time asked for,
/// once: hours where they lie within it, minutes and samples at its edges and
/// where there is nothing coarser yet, or any more. An hour or minute of which
/// the finer rows are gone counts if it began within that time. In the order in
/// which they were written.
pub(in super::super) fn parts(
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
            let within = began_in(self.connection, level, (since, until), (first, last))?;
            // Where there is none, the first is after the last.
            (first, last) = within.unwrap_or((i64::MAX, 0));
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
