//! Carries over into a backup what the current record has and the backup lacks, so that a restore
//! loses no entry. Two entries are the same if all their columns are the same; of equal entries the
//! backup must have as many. Ids are kept where they are free and always grow, so that no id is
//! used twice.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use std::collections::BTreeSet;

struct RecordTable {
    name: &'static str,
    /// The columns that never change.
    fixed_columns: &'static [&'static str],
    /// The columns of the end. The first is NULL until the entry has ended.
    end_columns: &'static [&'static str],
}

const ACTION: RecordTable = RecordTable {
    name: "action",
    fixed_columns: &["at", "run", "kind", "uid", "times", "request", "plan"],
    end_columns: &["finished_at", "result", "reason", "outcome"],
};

const EVENT: RecordTable = RecordTable {
    name: "event",
    fixed_columns: &[
        "at", "kind", "detail", "uid", "device", "number", "times", "content",
    ],
    end_columns: &[],
};

const VERDICT: RecordTable = RecordTable {
    name: "verdict",
    fixed_columns: &["at", "step", "rule", "owner", "uid", "record"],
    end_columns: &[],
};

const FINDING: RecordTable = RecordTable {
    name: "finding",
    fixed_columns: &[
        "at",
        "boot",
        "pid",
        "start_ticks",
        "uid",
        "owner",
        "threat",
        "risk",
        "record",
    ],
    end_columns: &[],
};

const TABLES: [&RecordTable; 4] = [&ACTION, &EVENT, &VERDICT, &FINDING];

/// A row: its id, its fixed columns, and the columns of its end.
struct RecordEntry {
    id: i64,
    fixed: Vec<Value>,
    end: Vec<Value>,
}

impl RecordEntry {
    fn is_open(&self) -> bool {
        self.end.first() == Some(&Value::Null)
    }
}

/// Carries over the missing entries in one transaction; returns their number.
pub(super) fn carry_over(now: &Connection, copy: &mut Connection) -> rusqlite::Result<u64> {
    // One transaction, so that all tables are read at one moment.
    let now = now.unchecked_transaction()?;
    let transaction = copy.transaction()?;
    let mut entries = 0;
    for table in TABLES {
        let lacking = missing_entries(&now, &transaction, table)?;
        entries += lacking.len() as u64;
        append_entries(&now, &transaction, table, lacking)?;
        continue_ids_after(&transaction, table.name, last_issued_id(&now, table.name)?)?;
    }
    transaction.commit()?;
    Ok(entries)
}

/// The rows of the current record that the backup lacks. An action that was open when the backup
/// was made gets its end there.
fn missing_entries(
    now: &Connection,
    copy: &Connection,
    table: &RecordTable,
) -> rusqlite::Result<BTreeSet<i64>> {
    let mut lacking = BTreeSet::new();
    // The matches of entries with the same time, so that equal entries are counted.
    let (mut moment, mut found) = (None, BTreeSet::new());
    let select = format!(
        "SELECT {} FROM {} ORDER BY at, id",
        column_list(table),
        table.name
    );
    let mut statement = now.prepare(&select)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let entry = read_entry(row, table)?;
        let at = entry.fixed.first().cloned();
        if moment != at {
            (moment, found) = (at, BTreeSet::new());
        }
        match find_match(copy, table, &entry, &found)? {
            Some((id, is_open)) => {
                found.insert(id);
                if is_open && !entry.is_open() {
                    write_end(copy, id, &entry)?;
                }
            }
            None => {
                lacking.insert(entry.id);
            }
        }
    }
    Ok(lacking)
}

/// The first row of the backup that matches this entry and is not in `excluded`; and whether it is open.
fn find_match(
    copy: &Connection,
    table: &RecordTable,
    entry: &RecordEntry,
    excluded: &BTreeSet<i64>,
) -> rusqlite::Result<Option<(i64, bool)>> {
    let mut conditions: Vec<String> = Vec::new();
    for (position, column) in table.fixed_columns.iter().enumerate() {
        // The time by `=`, because it has an index.
        let is = if position == 0 { "=" } else { "IS" };
        conditions.push(format!("{column} {is} ?{}", position + 1));
    }
    let mut is_open = "0".to_owned();
    if let Some(first) = table.end_columns.first() {
        is_open = format!("{first} IS NULL");
        let ends = table.end_columns.iter().enumerate();
        let alike = ends.map(|(position, column)| {
            let number = table.fixed_columns.len() + position + 1;
            format!("{column} IS ?{number}")
        });
        let alike: Vec<String> = alike.collect();
        conditions.push(format!("({is_open} OR ({}))", alike.join(" AND ")));
    }
    let select = format!(
        "SELECT id, {is_open} FROM {} WHERE {} ORDER BY id",
        table.name,
        conditions.join(" AND ")
    );
    let mut statement = copy.prepare_cached(&select)?;
    let values = entry.fixed.iter().chain(&entry.end);
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        if !excluded.contains(&id) {
            return Ok(Some((id, row.get(1)?)));
        }
    }
    Ok(None)
}

/// Appends these rows to the backup, in their order.
fn append_entries(
    now: &Connection,
    copy: &Connection,
    table: &RecordTable,
    rows: BTreeSet<i64>,
) -> rusqlite::Result<()> {
    let marks = vec!["?"; 1 + table.fixed_columns.len() + table.end_columns.len()].join(", ");
    let insert = format!(
        "INSERT INTO {} ({}) VALUES ({marks})",
        table.name,
        column_list(table)
    );
    let mut insert = copy.prepare_cached(&insert)?;
    let mut last = last_issued_id(copy, table.name)?;
    for id in rows {
        let Some(entry) = load_entry(now, table, id)? else {
            continue;
        };
        last = id.max(last.saturating_add(1));
        let mut values = vec![Value::Integer(last)];
        values.extend(entry.fixed);
        values.extend(entry.end);
        insert.execute(params_from_iter(values))?;
    }
    Ok(())
}

fn load_entry(
    file: &Connection,
    table: &RecordTable,
    id: i64,
) -> rusqlite::Result<Option<RecordEntry>> {
    let select = format!(
        "SELECT {} FROM {} WHERE id = ?1",
        column_list(table),
        table.name
    );
    let mut statement = file.prepare_cached(&select)?;
    statement
        .query_row([id], |row| read_entry(row, table))
        .optional()
}

fn column_list(table: &RecordTable) -> String {
    let all: Vec<&str> = ["id"]
        .iter()
        .chain(table.fixed_columns)
        .chain(table.end_columns)
        .copied()
        .collect();
    all.join(", ")
}

fn read_entry(row: &Row<'_>, table: &RecordTable) -> rusqlite::Result<RecordEntry> {
    let values = |from: usize, count: usize| {
        (from..from + count)
            .map(|index| row.get(index))
            .collect::<rusqlite::Result<Vec<Value>>>()
    };
    Ok(RecordEntry {
        id: row.get(0)?,
        fixed: values(1, table.fixed_columns.len())?,
        end: values(1 + table.fixed_columns.len(), table.end_columns.len())?,
    })
}

fn write_end(copy: &Connection, id: i64, entry: &RecordEntry) -> rusqlite::Result<()> {
    let update = "UPDATE action SET finished_at = ?2, result = ?3, reason = ?4, outcome = ?5
        WHERE id = ?1 AND finished_at IS NULL";
    let values = [Value::Integer(id)];
    let values = values.iter().chain(&entry.end);
    copy.prepare_cached(update)?
        .execute(params_from_iter(values))?;
    Ok(())
}

/// The highest id that a table ever issued, as SQLite keeps it.
pub(super) fn last_issued_id(file: &Connection, table: &str) -> rusqlite::Result<i64> {
    let select = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?1";
    file.query_row(select, [table], |row| row.get(0))
}

/// Makes a table continue after this id.
pub(super) fn continue_ids_after(
    file: &Connection,
    table: &str,
    last: i64,
) -> rusqlite::Result<()> {
    if last_issued_id(file, table)? >= last {
        return Ok(());
    }
    let update = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1";
    if file.execute(update, params![table, last])? == 0 {
        let insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
        file.execute(insert, params![table, last])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::database::{AUDIT, open};
    use super::*;

    struct TestRecord {
        _directory: tempfile::TempDir,
        file: Connection,
    }

    fn file() -> TestRecord {
        let directory = tempfile::tempdir().unwrap();
        let file = open(directory.path(), &AUDIT).unwrap().connection;
        TestRecord {
            _directory: directory,
            file,
        }
    }

    const BEFORE: &str = "
        INSERT INTO action (at, run, kind, uid, request, plan, finished_at, result)
            VALUES (10, 'r', 'kill', 7, '9', '{}', 11, 'done');
        INSERT INTO action (at, run, kind, uid, request, plan) VALUES (12, 'r', 'kill', 7, '9', '{}');
        INSERT INTO event (at, kind, device, number) VALUES (9, 'xid', 'GPU-0', 79);";

    const SINCE: &str = "
        UPDATE action SET finished_at = 20, result = 'done', outcome = '{\"x\":1}' WHERE id = 2;
        INSERT INTO action (at, run, kind, uid, request, plan, finished_at, result, reason, times)
            VALUES (21, 'r', 'reset', NULL, '0', NULL, 22, 'refused', 'no', 5);
        INSERT INTO action (at, run, kind, uid, request, plan) VALUES (30, 'r', 'kill', 7, '9', '{}');
        INSERT INTO event (at, kind, device, number) VALUES (9, 'xid', 'GPU-0', 79);
        INSERT INTO event (at, kind, detail) VALUES (40, 'stopped', NULL);
        INSERT INTO verdict (at, step, rule, record) VALUES (41, 'over', 'x', '{}');
        INSERT INTO finding (at, boot, pid, start_ticks, threat, risk, record)
            VALUES (42, 'b', 7, 8, 'crypto_miner', 'high', '{}');";

    /// All rows of all tables as text.
    fn all(file: &Connection) -> Vec<String> {
        let mut all = Vec::new();
        for table in TABLES {
            let select = format!(
                "SELECT {} FROM {} ORDER BY id",
                column_list(table),
                table.name
            );
            let mut statement = file.prepare(&select).unwrap();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let entry = read_entry(row, table).unwrap();
                all.push(format!("{} {:?} {:?}", entry.id, entry.fixed, entry.end));
            }
        }
        all
    }

    #[test]
    fn older_backup_gets_new_entries_with_ids() {
        let (now, mut copy) = (file(), file());
        for it in [&now, &copy] {
            it.file.execute_batch(BEFORE).unwrap();
        }
        now.file.execute_batch(SINCE).unwrap();
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(6));
        assert_eq!(all(&copy.file), all(&now.file));
        // A second merge adds nothing.
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(0));
        assert_eq!(all(&copy.file), all(&now.file));
    }

    #[test]
    fn foreign_backup_keeps_its_entries() {
        let (now, mut copy) = (file(), file());
        now.file.execute_batch(BEFORE).unwrap();
        let other_rows = "
            INSERT INTO action (id, at, run, kind, request, finished_at, result)
                VALUES (1, 10, 'theirs', 'kill', '9', 11, 'done'), (7, 13, 'theirs', 'kill', '9', 14, 'done');
            INSERT INTO event (at, kind) VALUES (1, 'started'), (2, 'stopped');";
        copy.file.execute_batch(other_rows).unwrap();
        let before = all(&copy.file);
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(3));
        let after = all(&copy.file);
        assert!(before.iter().all(|row| after.contains(row)), "{after:?}");
        assert_eq!(after.len(), before.len() + 3);
        let ids = |table: &str| -> Vec<i64> {
            let select = format!("SELECT id FROM {table} ORDER BY id");
            let mut statement = copy.file.prepare(&select).unwrap();
            let ids = statement.query_map([], |row| row.get(0)).unwrap();
            ids.map(Result::unwrap).collect()
        };
        assert_eq!(ids("action"), [1, 7, 8, 9]);
        assert_eq!(ids("event"), [1, 2, 3]);
    }

    #[test]
    fn different_ends_stay_as_two_entries() {
        let (now, mut copy) = (file(), file());
        for it in [&now, &copy] {
            it.file.execute_batch(BEFORE).unwrap();
        }
        let end = "UPDATE action SET finished_at = 20, result = 'done' WHERE id = 2;";
        now.file.execute_batch(end).unwrap();
        let end = "UPDATE action SET finished_at = 21, result = 'interrupted' WHERE id = 2;";
        copy.file.execute_batch(end).unwrap();
        continue_ids_after(&now.file, "action", 90).unwrap();
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(1));
        let words = "SELECT group_concat(result || ' ' || id) FROM action WHERE at = 12";
        let words: String = copy.file.query_row(words, [], |row| row.get(0)).unwrap();
        assert_eq!(words, "interrupted 2,done 3");
        assert_eq!(last_issued_id(&copy.file, "action").unwrap(), 90);
    }
}
