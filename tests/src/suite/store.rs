//! What the daemon remembers, and what becomes of it when things go wrong.

mod actions;

mod broken;

mod connections;

mod copies;

mod endings;

pub(crate) mod full;

mod history;

mod kept;

mod other_versions;

mod owners;

mod questions;

mod restarts;

mod restoring;

use gpukill_tests::harness::{Stage, eventually};
use rusqlite::Connection;
use serde_json::Value;

/// The records that `gpukillctl audit` prints with these arguments.
fn records(stage: &Stage, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["audit", "-o", "json"], arguments].concat();
    // A daemon that has just started may not have made its files yet.
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

/// Opens one of the store's files as nobody but a test does.
fn database(stage: &Stage, file: &str) -> Connection {
    Connection::open(stage.path("state").join(file)).unwrap()
}

/// What the daemon says it did, but for its settings and for faults: kind and
/// detail, oldest first.
fn events(stage: &Stage) -> Vec<(String, Option<String>)> {
    let database = database(stage, "audit.db");
    let mut statement = database
        .prepare(
            "SELECT kind, detail FROM event
                  WHERE kind NOT IN ('settings', 'fault', 'fault_over') ORDER BY id",
        )
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}
