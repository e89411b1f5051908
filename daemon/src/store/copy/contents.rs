//! Counts the contents of the database files.

use super::super::query::{QueryError, run_query};
use super::super::retention::{max_samples_per_row, old_condition};
use gpukill_proto::audit::StoreContents;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::{Value, json};

const TABLES: [&str; 3] = ["sample", "minute", "hour"];

/// Counts the rows that are deleted by their time, and the rows that stay; without the record of
/// actions.
pub(super) fn count_split(
    connection: &mut Connection,
    before: Timestamp,
) -> Result<(StoreContents, StoreContents), Refusal> {
    run_query(connection, |connection, _| {
        // One transaction, so that all tables are read at one moment.
        let reading = connection.unchecked_transaction()?;
        let old = TABLES.map(|table| count_rows(&reading, table, old_condition(table), before));
        let young = TABLES.map(|table| {
            let condition = format!("NOT ({})", old_condition(table));
            count_rows(&reading, table, &condition, before)
        });
        let (mut old, mut young) = (sum_results(old)?, sum_results(young)?);
        (old.runs, young.runs) = count_runs(&reading, before)?;
        Ok((old, young))
    })
}

/// Counts all rows of `samples.db`.
pub(in super::super) fn count_all(connection: &Connection) -> rusqlite::Result<StoreContents> {
    let [samples, minutes, hours] = TABLES.map(|table| {
        let select = format!("SELECT count(*), min(at), max(at) FROM {table}");
        connection.query_row(&select, [], |row| {
            Ok((read_count(row, 0)?, row.get(1)?, row.get(2)?))
        })
    });
    let runs = "SELECT count(*) FROM run";
    Ok(StoreContents {
        runs: connection.query_row(runs, [], |row| read_count(row, 0))?,
        ..sum_counts([samples?, minutes?, hours?])
    })
}

/// The number of rows, and the first and last time.
type TableCount = (u64, Option<i64>, Option<i64>);

fn count_rows(
    connection: &Connection,
    table: &str,
    which: &str,
    before: Timestamp,
) -> rusqlite::Result<TableCount> {
    // The condition may contain no parameter.
    let select = format!("SELECT count(*), min(at), max(at) FROM {table} WHERE {which}");
    connection
        .prepare_cached(&select)?
        .query_row([before.0], |row| {
            Ok((read_count(row, 0)?, row.get(1)?, row.get(2)?))
        })
}

fn sum_results(tables: [rusqlite::Result<TableCount>; 3]) -> Result<StoreContents, QueryError> {
    let [samples, minutes, hours] = tables;
    Ok(sum_counts([samples?, minutes?, hours?]))
}

fn sum_counts(all: [TableCount; 3]) -> StoreContents {
    let [samples, minutes, hours] = all.map(|(count, ..)| count);
    StoreContents {
        samples,
        minutes,
        hours,
        runs: 0,
        actions: 0,
        since: all
            .iter()
            .filter_map(|(_, since, _)| *since)
            .min()
            .map(Timestamp),
        until: all
            .iter()
            .filter_map(|(.., until)| *until)
            .max()
            .map(Timestamp),
    }
}

/// Counts the runs of which no row is left after the prune, and the runs that stay.
fn count_runs(connection: &Connection, before: Timestamp) -> rusqlite::Result<(u64, u64)> {
    let mut oldest = i64::MAX;
    for table in TABLES {
        let select = format!(
            "SELECT id FROM {table} WHERE NOT ({}) ORDER BY id LIMIT 1",
            old_condition(table)
        );
        let mut statement = connection.prepare_cached(&select)?;
        let first = statement
            .query_row([before.0], |row| row.get(0))
            .optional()?;
        let first: Option<i64> = first;
        let tells_of = first.map(|id| id.saturating_sub(max_samples_per_row(table) - 1));
        oldest = oldest.min(tells_of.unwrap_or(i64::MAX));
    }
    let select = "SELECT count(*) FILTER (WHERE gone), count(*) FILTER (WHERE NOT gone)
        FROM (SELECT ended_at IS NOT NULL AND last_sample < ?1 AS gone FROM run)";
    connection
        .prepare_cached(select)?
        .query_row(params![oldest], |row| {
            Ok((read_count(row, 0)?, read_count(row, 1)?))
        })
}

/// Reads a count, which SQLite never gives below zero.
fn read_count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// The number of entries in the record of actions.
pub(in super::super) fn count_actions(connection: &mut Connection) -> Result<u64, Refusal> {
    run_query(connection, |connection, _| Ok(count_entries(connection)?))
}

/// Like [`count_actions`], without a time limit.
pub(in super::super) fn count_entries(connection: &Connection) -> rusqlite::Result<u64> {
    let select = "SELECT (SELECT count(*) FROM action) + (SELECT count(*) FROM event)";
    connection.query_row(select, [], |row| read_count(row, 0))
}

/// The counts as they are recorded.
pub(in super::super) fn contents_json(contents: &StoreContents) -> Value {
    json!({
        "samples": contents.samples,
        "minutes": contents.minutes,
        "hours": contents.hours,
        "runs": contents.runs,
        "since": contents.since.map(Timestamp::to_rfc3339),
        "until": contents.until.map(Timestamp::to_rfc3339),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::database::{AUDIT, SAMPLES, open};
    use super::super::super::retention::{delete_before, delete_unused};
    use super::*;

    /// Six samples, five of them in minutes, one with a time before those minutes; three minutes,
    /// two of them in hours; two hours; and four processes.
    const ROWS: &str = "
        INSERT INTO sample (id, at, usage) VALUES
            (5000, 100, x''), (9002, 200, x''), (9003, 50, x''), (9004, 300, x''), (9005, 400, x''), (9006, 60, x'');
        INSERT INTO minute (id, at, usage) VALUES (9002, 100, x''), (9004, 50, x''), (9005, 300, x'');
        INSERT INTO hour (id, at, usage) VALUES (9002, 100, x''), (9004, 250, x'');
        UPDATE rolled SET sample = 9005, minute = 9004;
        INSERT INTO device (id, uuid, gpu_index) VALUES (1, 'GPU-1', 0);
        INSERT INTO process (id, boot, pid, start_ticks) VALUES
            (1, 'b', 1, 1), (2, 'b', 2, 1), (3, 'b', 3, 1), (4, 'b', 4, 1);
        INSERT INTO run (process, device, instance, first_at, last_at, first_sample, last_sample, ended_at)
            VALUES (1, 1, '', 100, 100, 5000, 5000, 110), (2, 1, '', 100, 100, 9001, 9001, NULL),
                   (3, 1, '', 100, 250, 9001, 9004, 260), (4, 1, '', 100, 400, 9001, 9005, NULL);";

    #[test]
    fn counts_match_what_is_deleted() {
        let whole = StoreContents {
            samples: 6,
            minutes: 3,
            hours: 2,
            runs: 4,
            actions: 0,
            since: Some(Timestamp(50)),
            until: Some(Timestamp(400)),
        };
        let none = StoreContents::default();
        let old = StoreContents {
            samples: 3,
            minutes: 2,
            hours: 1,
            runs: 1,
            since: Some(Timestamp(50)),
            until: Some(Timestamp(200)),
            ..none
        };
        let young = StoreContents {
            samples: 3,
            minutes: 1,
            hours: 1,
            runs: 3,
            // The time of a sample that is in no minute yet.
            since: Some(Timestamp(60)),
            until: Some(Timestamp(400)),
            ..none
        };
        for (before, deleted, left) in [(0, none, whole), (250, old, young)] {
            let directory = tempfile::tempdir().unwrap();
            let mut file = open(directory.path(), &SAMPLES).unwrap().connection;
            file.execute_batch(ROWS).unwrap();
            assert_eq!(count_all(&file), Ok(whole));
            let before = Timestamp(before);
            assert_eq!(count_split(&mut file, before), Ok((deleted, left)));
            let oldest = TABLES.map(|table| (table, before));
            while delete_before(&mut file, oldest).unwrap() {}
            delete_unused(&mut file).unwrap();
            assert_eq!(count_split(&mut file, before), Ok((none, left)));
        }
    }

    #[test]
    fn counts_actions_and_events() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path(), &AUDIT).unwrap().connection;
        assert_eq!(count_actions(&mut file), Ok(0));
        let rows = "INSERT INTO event (at, kind) VALUES (7, 'started'), (8, 'stopped');
            INSERT INTO action (at, run, kind, request) VALUES (7, 'r', 'kill', '9');";
        file.execute_batch(rows).unwrap();
        assert_eq!(count_actions(&mut file), Ok(3));
    }
}
