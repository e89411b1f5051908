//! What the files hold, counted.

use super::super::query::{Failure, within_time};
use super::super::retention::{is_old, samples_of};
use gpukill_proto::audit::Contents;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::{Value, json};

const TABLES: [&str; 3] = ["sample", "minute", "hour"];

/// What is deleted by its time, and what stays; without the record of what was
/// done.
pub(super) fn split(
    connection: &mut Connection,
    before: Timestamp,
) -> Result<(Contents, Contents), Refusal> {
    within_time(connection, |connection, _| {
        // One moment for all tables.
        let reading = connection.unchecked_transaction()?;
        let old = TABLES.map(|table| counted(&reading, table, is_old(table), before));
        let young = TABLES.map(|table| {
            let is_young = format!("NOT ({})", is_old(table));
            counted(&reading, table, &is_young, before)
        });
        let (mut old, mut young) = (together(old)?, together(young)?);
        (old.runs, young.runs) = runs(&reading, before)?;
        Ok((old, young))
    })
}

/// All that the samples' file has.
pub(in super::super) fn all(connection: &Connection) -> rusqlite::Result<Contents> {
    let [samples, minutes, hours] = TABLES.map(|table| {
        let select = format!("SELECT count(*), min(at), max(at) FROM {table}");
        connection.query_row(&select, [], |row| {
            Ok((number(row, 0)?, row.get(1)?, row.get(2)?))
        })
    });
    let runs = "SELECT count(*) FROM run";
    Ok(Contents {
        runs: connection.query_row(runs, [], |row| number(row, 0))?,
        ..summed([samples?, minutes?, hours?])
    })
}

/// How many there are, and the first and the last of them.
type Counted = (u64, Option<i64>, Option<i64>);

fn counted(
    connection: &Connection,
    table: &str,
    which: &str,
    before: Timestamp,
) -> rusqlite::Result<Counted> {
    // The condition may name no time.
    let select = format!("SELECT count(*), min(at), max(at) FROM {table} WHERE {which}");
    connection
        .prepare_cached(&select)?
        .query_row([before.0], |row| {
            Ok((number(row, 0)?, row.get(1)?, row.get(2)?))
        })
}

fn together(tables: [rusqlite::Result<Counted>; 3]) -> Result<Contents, Failure> {
    let [samples, minutes, hours] = tables;
    Ok(summed([samples?, minutes?, hours?]))
}

fn summed(all: [Counted; 3]) -> Contents {
    let [samples, minutes, hours] = all.map(|(count, ..)| count);
    Contents {
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

/// Processes on devices of which nothing is left then, and those that stay.
fn runs(connection: &Connection, before: Timestamp) -> rusqlite::Result<(u64, u64)> {
    let mut oldest = i64::MAX;
    for table in TABLES {
        let select = format!(
            "SELECT id FROM {table} WHERE NOT ({}) ORDER BY id LIMIT 1",
            is_old(table)
        );
        let mut statement = connection.prepare_cached(&select)?;
        let first = statement
            .query_row([before.0], |row| row.get(0))
            .optional()?;
        let first: Option<i64> = first;
        let tells_of = first.map(|id| id.saturating_sub(samples_of(table) - 1));
        oldest = oldest.min(tells_of.unwrap_or(i64::MAX));
    }
    let select = "SELECT count(*) FILTER (WHERE gone), count(*) FILTER (WHERE NOT gone)
        FROM (SELECT ended_at IS NOT NULL AND last_sample < ?1 AS gone FROM run)";
    connection
        .prepare_cached(select)?
        .query_row(params![oldest], |row| {
            Ok((number(row, 0)?, number(row, 1)?))
        })
}

/// A count, which SQLite never gives below zero.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// How many entries the record of what was done has.
pub(in super::super) fn actions(connection: &mut Connection) -> Result<u64, Refusal> {
    within_time(connection, |connection, _| Ok(entries(connection)?))
}

/// The same, however long it takes.
pub(in super::super) fn entries(connection: &Connection) -> rusqlite::Result<u64> {
    let select = "SELECT (SELECT count(*) FROM action) + (SELECT count(*) FROM event)";
    connection.query_row(select, [], |row| number(row, 0))
}

/// As it is recorded.
pub(in super::super) fn told(contents: &Contents) -> Value {
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

    /// Six samples, of which five are in minutes, one with a time from before them;
    /// three minutes, of which two are in hours; two hours; and four processes.
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
    fn what_is_counted_is_what_is_deleted_and_what_stays() {
        let whole = Contents {
            samples: 6,
            minutes: 3,
            hours: 2,
            runs: 4,
            actions: 0,
            since: Some(Timestamp(50)),
            until: Some(Timestamp(400)),
        };
        let none = Contents::default();
        let old = Contents {
            samples: 3,
            minutes: 2,
            hours: 1,
            runs: 1,
            since: Some(Timestamp(50)),
            until: Some(Timestamp(200)),
            ..none
        };
        let young = Contents {
            samples: 3,
            minutes: 1,
            hours: 1,
            runs: 3,
            // Of one that is in no minute yet.
            since: Some(Timestamp(60)),
            until: Some(Timestamp(400)),
            ..none
        };
        for (before, deleted, left) in [(0, none, whole), (250, old, young)] {
            let directory = tempfile::tempdir().unwrap();
            let mut file = open(directory.path(), &SAMPLES).unwrap().connection;
            file.execute_batch(ROWS).unwrap();
            assert_eq!(all(&file), Ok(whole));
            let before = Timestamp(before);
            assert_eq!(split(&mut file, before), Ok((deleted, left)));
            let oldest = TABLES.map(|table| (table, before));
            while delete_before(&mut file, oldest).unwrap() {}
            delete_unused(&mut file).unwrap();
            assert_eq!(split(&mut file, before), Ok((none, left)));
        }
    }

    #[test]
    fn all_that_was_done_and_that_happened_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path(), &AUDIT).unwrap().connection;
        assert_eq!(actions(&mut file), Ok(0));
        let rows = "INSERT INTO event (at, kind) VALUES (7, 'started'), (8, 'stopped');
            INSERT INTO action (at, run, kind, asked) VALUES (7, 'r', 'kill', '9');";
        file.execute_batch(rows).unwrap();
        assert_eq!(actions(&mut file), Ok(3));
    }
}
