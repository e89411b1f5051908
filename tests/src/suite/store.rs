//! The store: what the daemon records, and its behaviour when files, disks or clocks fail.

mod actions;

mod faults;

mod connections;

mod backup;

mod shutdown;

pub(crate) mod disk_full;

mod history;

mod recorded_commands;

mod other_versions;

mod owners;

mod queries;

mod restarts;

mod restore;

use gpukill_tests::harness::{TestBox, eventually};
use rusqlite::Connection;
use serde_json::Value;

/// The records that `gpukillctl audit` prints with these arguments.
fn records(stage: &TestBox, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["audit", "-o", "json"], arguments].concat();
    // A daemon that has just started may not have created its files yet.
    let ran = eventually("the store answers", || {
        let ran = stage.ctl(&arguments);
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

fn open_database(stage: &TestBox, file: &str) -> Connection {
    Connection::open(stage.path("state").join(file)).unwrap()
}

/// The recorded events of the daemon without those about settings and faults: kind and
/// detail, the oldest first.
fn events(stage: &TestBox) -> Vec<(String, Option<String>)> {
    let database = open_database(stage, "audit.db");
    let mut statement = database
        .prepare(
            "SELECT kind, detail FROM event
                  WHERE kind NOT IN ('settings', 'fault', 'fault_over') ORDER BY id",
        )
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}
