//! Deletes history that is too old to keep, in small steps that block no other work.

use super::sql_values::ids_json;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};
use std::time::Duration;

/// How long each level of the history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) samples: Duration,
    pub(crate) minutes: Duration,
    pub(crate) hours: Duration,
}

impl Retention {
    /// One hour for all levels.
    #[cfg(test)]
    pub(crate) const HOUR: Self = Self {
        samples: Duration::from_secs(3_600),
        minutes: Duration::from_secs(3_600),
        hours: Duration::from_secs(3_600),
    };

    /// The oldest moment that each table keeps.
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

/// The most samples in a row, at one a second. The id of the row is that of its last sample.
pub(super) fn max_samples_per_row(table: &str) -> i64 {
    match table {
        "sample" => 1,
        "minute" => 60,
        _ => 3_600,
    }
}

/// The end of the recorded history, by a clock that was right: the newest hour before which most of
/// two days was recorded. Without such an hour, the latest time of all samples, because times near
/// 1970, from a host that boots without a clock, say nothing about what is old.
pub(super) fn history_end(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
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

/// The rows deleted in one step: each is a page or less.
const DELETE_CHUNK: i64 = 500;

/// The pages released in one step: 34 ms as measured.
const VACUUM_PAGES: u32 = 2_000;

/// The condition for the rows of a table to delete, where `?1` is the oldest moment to keep. Rows
/// that are not rolled up yet stay.
pub(super) fn old_condition(table: &str) -> &'static str {
    match table {
        "sample" => "at < ?1 AND id <= (SELECT sample FROM rolled)",
        "minute" => "at < ?1 AND id <= (SELECT minute FROM rolled)",
        _ => "at < ?1",
    }
}

/// Deletes some of the rows that began before the oldest moment of their table; returns true if
/// there may be more. Rows that are not rolled up yet stay.
pub(super) fn delete_before(
    connection: &mut Connection,
    oldest: [(&'static str, Timestamp); 3],
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let mut is_more = false;
    for (table, at) in oldest {
        let is_old = old_condition(table);
        // By the time of each row, not by its id: a clock that was wrong for a while gave old times
        // to newer samples.
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

/// Deletes some of the runs and processes that no sample, minute or hour contains any more; returns
/// true if there may be more. Devices stay: they are few.
pub(super) fn delete_unused(connection: &mut Connection) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let runs: Vec<i64> = transaction
        .prepare_cached(
            "DELETE FROM run WHERE id IN (SELECT id FROM run
             WHERE ended_at IS NOT NULL AND last_sample < coalesce(
                 (SELECT min(id) FROM (SELECT min(id) AS id FROM sample UNION ALL
                  SELECT min(id) - ?1 + 1 FROM minute UNION ALL
                  SELECT min(id) - ?2 + 1 FROM hour)),
                 9223372036854775807) LIMIT ?3) RETURNING process",
        )?
        .query_map(
            [
                max_samples_per_row("minute"),
                max_samples_per_row("hour"),
                DELETE_CHUNK,
            ],
            |row| row.get(0),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let is_more = if runs.is_empty() {
        // Scans all processes once, for those that never had a run.
        let deleted = transaction
            .prepare_cached(
                "DELETE FROM process WHERE id IN (SELECT id FROM process
                 WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.process = process.id) LIMIT ?1)",
            )?
            .execute([DELETE_CHUNK])?;
        i64::try_from(deleted) == Ok(DELETE_CHUNK)
    } else {
        transaction
            .prepare_cached(
                "DELETE FROM process WHERE id IN (SELECT value FROM json_each(?1))
                 AND NOT EXISTS (SELECT 1 FROM run WHERE run.process = process.id)",
            )?
            .execute([ids_json(&runs)])?;
        true
    };
    transaction.commit()?;
    Ok(is_more)
}

/// Returns some unused pages to the disk; returns true if there may be more.
pub(super) fn release_pages(connection: &Connection) -> rusqlite::Result<bool> {
    let unused = || -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "freelist_count", |row| row.get(0))
    };
    let before = unused()?;
    // Each step frees a page; the pragma returns no rows.
    let mut statement =
        connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    let left = unused()?;
    // A file that cannot shrink would otherwise be retried forever.
    Ok(left > 0 && left < before)
}

#[cfg(test)]
mod tests {
    use super::super::database::{SAMPLES, open};
    use super::*;

    #[test]
    fn wrong_clock_is_ignored_for_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path(), &SAMPLES).unwrap().connection;
        let until = || history_end(&connection).unwrap();
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

    #[test]
    fn ids_of_deleted_runs_are_not_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut connection = open(directory.path(), &SAMPLES).unwrap().connection;
        let add_run = |connection: &Connection, process: i64, ended_at: Option<i64>| -> i64 {
            let insert = "INSERT INTO run (process, device, instance, first_at, last_at,
                first_sample, last_sample, ended_at) VALUES (?1, 1, '', 1, 1, 1, 1, ?2)
                RETURNING id";
            let values = params![process, ended_at];
            connection
                .query_row(insert, values, |row| row.get(0))
                .unwrap()
        };
        // A service that goes on, and processes that have ended.
        assert_eq!(add_run(&connection, 1, None), 1);
        for process in 2..=4 {
            add_run(&connection, process, Some(1));
        }
        while delete_unused(&mut connection).unwrap() {}
        let left: i64 = connection
            .query_row("SELECT count(*) FROM run", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 1);
        assert_eq!(add_run(&connection, 5, None), 5);
    }
}
