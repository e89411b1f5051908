//! Reads the contents of a store, for tests of what is written.

use super::blob::decode;
use gpukill_policy::usage::Usage;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::ops::ControlFlow;

/// All rows of a table of samples, minutes or hours, oldest first.
pub(crate) fn rows(file: &Connection, table: &str) -> Vec<Usage<i64, i64>> {
    let select = format!("SELECT at, usage FROM {table} ORDER BY id");
    let mut statement = file.prepare(&select).unwrap();
    let rows = statement.query_map([], |row| {
        let (at, blob): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        Ok(decode(&blob, Timestamp(at)).unwrap())
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// The history as rules see it, of the store in this directory.
pub(crate) fn guard_samples(
    directory: &std::path::Path,
) -> Vec<gpukill_policy::guard::sample::GuardSample> {
    use super::database::{SAMPLES, open_for_reading};
    let mut opened = open_for_reading(directory, &SAMPLES).ok().unwrap();
    let mut rows = Vec::new();
    let span = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    super::query::run_query_with_timeout(
        std::time::Duration::from_secs(60),
        &mut opened.connection,
        |file, deadline| {
            let mut tell = |sample, _| {
                rows.push(sample);
                ControlFlow::Continue(())
            };
            super::query::guard_samples(file, span, &chrono::Utc, deadline, &mut tell)
        },
    )
    .unwrap();
    rows
}
