//! Selects the rows to add up for a time span: the coarsest rows that cover just the requested
//! time.

use super::super::{Deadline, QueryError};
use super::{IdRange, MAX_SKIPPED_SAMPLES, RollupLevel, previous_row, rows_started_in};
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

/// Rows of one table to add up: those in this range of ids that began within this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct CoveredRows {
    pub(in super::super) rows: IdRange,
    pub(in super::super) since: i64,
    pub(in super::super) until: i64,
}

/// The rows that together cover everything that began in the requested time, once: hours that lie
/// within it; minutes and samples at its edges, and where coarser rows do not exist yet or any
/// more. An hour or minute without its finer rows counts if it began within the time. In the
/// order in which the rows were written. No row is of a coarser level than `coarsest`.
pub(in super::super) fn covering_rows(
    connection: &Connection,
    coarsest: RollupLevel,
    since: Timestamp,
    until: Timestamp,
    deadline: Deadline,
) -> Result<Vec<CoveredRows>, QueryError> {
    let mut covering = CoverageBuilder {
        connection,
        since: since.0,
        until: until.0,
        deadline,
        rows: Vec::new(),
    };
    covering.cover(coarsest, 0, i64::MAX)?;
    Ok(covering.rows)
}

struct CoverageBuilder<'a> {
    connection: &'a Connection,
    since: i64,
    until: i64,
    deadline: Deadline,
    rows: Vec<CoveredRows>,
}

impl CoverageBuilder<'_> {
    /// Covers the samples after one id up to another, with rows of this level and finer ones.
    fn cover(&mut self, level: RollupLevel, after: i64, last: i64) -> Result<(), QueryError> {
        self.deadline.check()?;
        let Some(finer) = level.finer() else {
            return self.add_rows(level, after, last);
        };
        let Some((first_row, last_row)) = self.first_and_last(level, after, last)? else {
            return self.cover(finer, after, last);
        };
        // Earlier rows of this level were deleted, but their finer rows may still exist.
        let begins_after = self.last_row_before(level, after, first_row)?;
        if begins_after > after {
            self.cover(finer, after, begins_after)?;
        }
        let mut from = begins_after;
        for edge in self.partial_rows(level, begins_after, last_row)? {
            let before = previous_row(self.connection, level, edge.id)?.max(begins_after);
            self.add_rows(level, from, before)?;
            if self.should_use_finer(finer, &edge, before)? {
                self.cover(finer, before, edge.id)?;
            } else {
                self.add_rows(level, before, edge.id)?;
            }
            from = edge.id;
        }
        self.add_rows(level, from, last_row)?;
        if last_row < last {
            self.cover(finer, last_row, last)?;
        }
        Ok(())
    }

    fn add_rows(&mut self, level: RollupLevel, after: i64, last: i64) -> Result<(), QueryError> {
        let (since, until) = (self.since, self.until);
        let Some((mut first, mut last)) = self.first_and_last(level, after, last)? else {
            return Ok(());
        };
        if since < until && last - first > MAX_SKIPPED_SAMPLES {
            let within = rows_started_in(self.connection, level, (since, until), (first, last))?;
            // Without a match, `first` is after `last`.
            (first, last) = within.unwrap_or((i64::MAX, 0));
        }
        if first <= last && since < until {
            let end = last.saturating_add(1);
            let rows = IdRange { level, first, end };
            self.rows.push(CoveredRows { rows, since, until });
        }
        Ok(())
    }

    /// The first and the last row among these ids.
    fn first_and_last(
        &self,
        level: RollupLevel,
        after: i64,
        last: i64,
    ) -> Result<Option<(i64, i64)>, QueryError> {
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

    /// The last finer row that is not part of the first row of a level.
    fn last_row_before(
        &self,
        level: RollupLevel,
        after: i64,
        first_row: i64,
    ) -> Result<i64, QueryError> {
        let at: i64 = self
            .connection
            .prepare_cached(&format!("SELECT at FROM {} WHERE id = ?1", level.table()))?
            .query_row([first_row], |row| row.get(0))?;
        let begin = level.interval_start(at);
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

    /// The rows that may lie only partly in the requested time.
    fn partial_rows(
        &self,
        level: RollupLevel,
        after: i64,
        last: i64,
    ) -> Result<Vec<PartialRow>, QueryError> {
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
                level.interval_start(since),
                since,
                level.interval_start(until).max(since),
                until,
            ],
            |row| {
                Ok(PartialRow {
                    id: row.get(0)?,
                    at: row.get(1)?,
                })
            },
        )?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether the finer rows of a partial row cover the requested time better.
    fn should_use_finer(
        &self,
        finer: RollupLevel,
        edge: &PartialRow,
        before: i64,
    ) -> Result<bool, QueryError> {
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
        // The oldest rows are deleted first.
        Ok(oldest == Some(edge.at))
    }
}

/// A row at an edge of the requested time.
struct PartialRow {
    id: i64,
    at: i64,
}
