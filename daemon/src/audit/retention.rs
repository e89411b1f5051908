//! Deletes what is too old to keep, in steps that hold nothing up.

use super::row::json;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::time::Duration;

/// How long each kind of history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) samples: Duration,
    pub(crate) minutes: Duration,
    pub(crate) hours: Duration,
}

impl Keep {
    /// All for an hour.
    #[cfg(test)]
    pub(crate) const HOUR: Self = Self {
        samples: Duration::from_secs(3_600),
        minutes: Duration::from_secs(3_600),
        hours: Duration::from_secs(3_600),
    };

    /// The oldest moment of each table that stays.
    pub(super) fn oldest(self, now: Timestamp) -> [(&'static str, Timestamp); 3] {
        let before = |length: Duration| {
            let seconds = i64::try_from(length.as_secs()).unwrap_or(i64::MAX);
            now.plus_seconds(seconds.saturating_neg())
        };
        [
            ("sample", before(self.samples)),
            ("minute", before(self.minutes)),
            ("hour", before(self.hours)),
        ]
    }
}

/// The most samples that a row tells of: one a second. It has the id of the last.
pub(super) fn samples_of(table: &str) -> i64 {
    match table {
        "sample" => 1,
        "minute" => 60,
        _ => 3_600,
    }
}

/// Until when the record goes, by a clock that was right: the newest hour before
/// which most of two days was recorded by it. Where there is none, the latest of all
/// samples: a box that boots with its clock at 1970 tells nothing of what is old.
pub(super) fn recorded_until(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = connection.query_row(
        "SELECT coalesce(
             (SELECT at + 3600000 FROM hour WHERE 24 <=
                 (SELECT count(*) FROM hour before
                  WHERE before.at > hour.at - 172800000 AND before.at <= hour.at)
              ORDER BY at DESC LIMIT 1),
             (SELECT max(at) FROM sample))",
        [],
        |row| row.get(0),
    )?;
    Ok(at.map(Timestamp))
}

/// So many rows are deleted in one go: each is a page or less.
const DELETE_CHUNK: i64 = 500;

/// So many pages are given back in one go: 34 ms as measured.
const VACUUM_PAGES: u32 = 2_000;

/// Which rows of a table are deleted where `?1` is the oldest moment that stays.
/// What is not added up yet stays.
pub(super) fn is_old(table: &str) -> &'static str {
    match table {
        "sample" => "at < ?1 AND id <= (SELECT sample FROM rolled)",
        "minute" => "at < ?1 AND id <= (SELECT minute FROM rolled)",
        _ => "at < ?1",
    }
}

/// Deletes some of the rows that began before their table's oldest moment; true
/// when there may be more to delete. What is not added up yet stays.
pub(super) fn delete_before(
    connection: &mut Connection,
    oldest: [(&'static str, Timestamp); 3],
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let mut is_more = false;
    for (table, at) in oldest {
        let is_old = is_old(table);
        // Each by its own time: a clock that was wrong for a while gave old times
        // to samples that came after young ones.
        let deleted = transaction
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE id IN
                 (SELECT id FROM {table} WHERE {is_old} ORDER BY at LIMIT ?2)"
            ))?
            .execute(params![at.0, DELETE_CHUNK])?;
        is_more |= i64::try_from(deleted) == Ok(DELETE_CHUNK);
    }
    transaction.commit()?;
    Ok(is_more)
}

/// Deletes some of the runs and processes that no sample, minute or hour tells of
/// any more; true when there may be more to delete. Devices stay: they are few.
pub(super) fn delete_unused(connection: &mut Connection) -> rusqlite::Result<bool> {
    let whole = connection.transaction()?;
    let runs: Vec<i64> = whole
        .prepare_cached(
            "DELETE FROM run WHERE id IN (SELECT id FROM run
             WHERE ended_at IS NOT NULL AND last_sample < coalesce(
                 (SELECT min(id) FROM (SELECT min(id) AS id FROM sample UNION ALL
                  SELECT min(id) - ?1 + 1 FROM minute UNION ALL
                  SELECT min(id) - ?2 + 1 FROM hour)),
                 9223372036854775807) LIMIT ?3) RETURNING process",
        )?
        .query_map(
            [samples_of("minute"), samples_of("hour"), DELETE_CHUNK],
            |row| row.get(0),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let is_more = if runs.is_empty() {
        // A look at all of them, once: those that never had a run.
        let deleted = whole
            .prepare_cached(
                "DELETE FROM process WHERE id IN (SELECT id FROM process
                 WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.process = process.id) LIMIT ?1)",
            )?
            .execute([DELETE_CHUNK])?;
        i64::try_from(deleted) == Ok(DELETE_CHUNK)
    } else {
        whole
            .prepare_cached(
                "DELETE FROM process WHERE id IN (SELECT value FROM json_each(?1))
                 AND NOT EXISTS (SELECT 1 FROM run WHERE run.process = process.id)",
            )?
            .execute([json(&runs)])?;
        true
    };
    whole.commit()?;
    Ok(is_more)
}

/// Gives some of the room that nothing uses back to the disk; true when there may
/// be more.
pub(super) fn give_back(connection: &Connection) -> rusqlite::Result<bool> {
    let unused = || -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "freelist_count", |row| row.get(0))
    };
    let before = unused()?;
    // Each step frees a page, and the pragma has no rows to show for it.
    let mut statement =
        connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    let left = unused()?;
    // A file that cannot shrink is not to be asked for ever.
    Ok(left > 0 && left < before)
}

#[cfg(test)]
mod tests {
    use super::super::database::{SAMPLES, open};
    use super::*;

    #[test]
    fn a_clock_that_was_wrong_for_some_hours_does_not_say_until_when_the_record_goes() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path(), &SAMPLES).unwrap().connection;
        let until = || recorded_until(&connection).unwrap();
        assert_eq!(until(), None);
        let hours = |first: i64, many: i64| {
            for at in first..first + many {
                let at = at * 3_600_000;
                connection
                    .execute("INSERT INTO hour (at, usage) VALUES (?1, x'')", [at])
                    .unwrap();
                connection
                    .execute("INSERT INTO sample (at, usage) VALUES (?1, x'')", [at])
                    .unwrap();
            }
        };
        let hour = |number: i64| Some(Timestamp(number * 3_600_000));
        hours(1_000, 10);
        assert_eq!(until(), hour(1_009));
        hours(1_010, 30);
        assert_eq!(until(), hour(1_040));
        // Years ahead, for less than a day and for more.
        hours(90_000, 23);
        assert_eq!(until(), hour(1_040));
        hours(90_023, 1);
        assert_eq!(until(), hour(90_024));
    }
}
