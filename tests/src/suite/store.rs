//! The store: what the daemon records, and its behaviour when files, disks or clocks fail.

mod actions;
mod archive;
mod backup;
pub(crate) mod disk_full;
mod faults;
mod history;
mod month;
mod other_versions;
mod owners;
mod queries;
mod recorded_commands;
mod restarts;
mod restore;
mod runs;
mod shutdown;

use gpukill_tests::harness::{TestBox, eventually};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// The records that `gpukillctl audit --samples` prints with these arguments.
pub(crate) fn records(test_box: &TestBox, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["audit", "--samples", "-o", "json"], arguments].concat();
    // A daemon that has just started may not have created its files yet.
    let ran = eventually("the store answers", || {
        let ran = test_box.ctl(&arguments);
        (ran.code != 1).then_some(ran)
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut document: Value = serde_json::from_str(&ran.stdout).unwrap();
    match document["records"].take() {
        Value::Array(records) => records,
        other => panic!("{other}"),
    }
}

fn number(record: &Value, field: &str) -> u64 {
    record[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field}: {record}"))
}

fn ids(records: &[Value]) -> Vec<u64> {
    records.iter().map(|record| number(record, "id")).collect()
}

/// Opens `samples.db` or `audit.db` of the daemon's store. A new daemon creates the file before
/// its tables, so this waits for the tables.
pub(crate) fn open_database(test_box: &TestBox, file: &str) -> Connection {
    let path = test_box.path("state").join(file);
    eventually("the database has its tables", || {
        let database =
            Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
        let version = database.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
        (version.ok()? > 0).then_some(database)
    })
}

/// The recorded events of the daemon without those about settings and faults: kind and
/// detail, the oldest first.
fn events(test_box: &TestBox) -> Vec<(String, Option<String>)> {
    let database = open_database(test_box, "audit.db");
    let mut statement = database
        .prepare(
            "SELECT kind, detail FROM event
                  WHERE kind NOT IN ('settings', 'fault', 'fault_over') ORDER BY id",
        )
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}
