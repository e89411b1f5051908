//! What a file of samples says, for tests of what comes to be written.

use super::packed::unpack;
use gpukill_policy::usage::Usage;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;

/// All rows of a table of samples, minutes or hours, the oldest first.
pub(crate) fn rows(file: &Connection, table: &str) -> Vec<Usage<i64, i64>> {
    let select = format!("SELECT at, usage FROM {table} ORDER BY id");
    let mut statement = file.prepare(&select).unwrap();
    let rows = statement.query_map([], |row| {
        let (at, blob): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        Ok(unpack(&blob, Timestamp(at)).unwrap())
    });
    rows.unwrap().map(Result::unwrap).collect()
}
