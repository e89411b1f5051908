//! What the record of now has and a copy of it lacks is carried over into the copy:
//! nothing that was recorded is lost by a restore. An entry is the same in both when
//! everything that is told of it is; of entries that are alike there must be as many.
//! Ids are kept where they are free and grow in any case, so that none is given
//! twice.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use std::collections::BTreeSet;

/// One of the record's tables.
struct Table {
    name: &'static str,
    /// What never changes.
    same: &'static [&'static str],
    /// What is told once it is over. The first is NULL until then.
    end: &'static [&'static str],
}

const ACTION: Table = Table {
    name: "action",
    same: &["at", "run", "kind", "uid", "times", "asked", "plan"],
    end: &["finished_at", "word", "why", "outcome"],
};

const EVENT: Table = Table {
    name: "event",
    same: &[
        "at", "kind", "detail", "uid", "device", "number", "times", "content",
    ],
    end: &[],
};

const VERDICT: Table = Table {
    name: "verdict",
    same: &["at", "step", "rule", "owner", "uid", "record"],
    end: &[],
};

const FINDING: Table = Table {
    name: "finding",
    same: &[
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
    end: &[],
};

/// All that is recorded.
const TABLES: [&Table; 4] = [&ACTION, &EVENT, &VERDICT, &FINDING];

/// A row: its id, what is the same, and its end.
struct Entry {
    id: i64,
    same: Vec<Value>,
    end: Vec<Value>,
}

impl Entry {
    fn is_under_way(&self) -> bool {
        self.end.first() == Some(&Value::Null)
    }
}

/// Carries over what there is, in one step; gives how many entries the copy lacked.
pub(super) fn carry_over(now: &Connection, copy: &mut Connection) -> rusqlite::Result<u64> {
    // One moment for all tables.
    let now = now.unchecked_transaction()?;
    let whole = copy.transaction()?;
    let mut entries = 0;
    for table in TABLES {
        let lacking = lacking(&now, &whole, table)?;
        entries += lacking.len() as u64;
        append(&now, &whole, table, lacking)?;
        number_on(&whole, table.name, last_given(&now, table.name)?)?;
    }
    whole.commit()?;
    Ok(entries)
}

/// The rows of now that the copy lacks. An act that was under way when the copy was
/// made gets its end there.
fn lacking(now: &Connection, copy: &Connection, table: &Table) -> rusqlite::Result<BTreeSet<i64>> {
    let mut lacking = BTreeSet::new();
    // Those of one moment that are found already: alike ones are counted.
    let (mut moment, mut found) = (None, BTreeSet::new());
    let select = format!(
        "SELECT {} FROM {} ORDER BY at, id",
        columns(table),
        table.name
    );
    let mut statement = now.prepare(&select)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let entry = read(row, table)?;
        let at = entry.same.first().cloned();
        if moment != at {
            (moment, found) = (at, BTreeSet::new());
        }
        match find(copy, table, &entry, &found)? {
            Some((there, is_open)) => {
                found.insert(there);
                if is_open && !entry.is_under_way() {
                    settle(copy, there, &entry)?;
                }
            }
            None => {
                lacking.insert(entry.id);
            }
        }
    }
    Ok(lacking)
}

/// The first row of the copy that is this one, but for those; and whether it has no
/// end there.
fn find(
    copy: &Connection,
    table: &Table,
    entry: &Entry,
    but: &BTreeSet<i64>,
) -> rusqlite::Result<Option<(i64, bool)>> {
    let mut conditions: Vec<String> = Vec::new();
    for (place, column) in table.same.iter().enumerate() {
        // The time by equality, of which there is an index.
        let is = if place == 0 { "=" } else { "IS" };
        conditions.push(format!("{column} {is} ?{}", place + 1));
    }
    let mut is_open = "0".to_owned();
    if let Some(first) = table.end.first() {
        is_open = format!("{first} IS NULL");
        let ends = table.end.iter().enumerate();
        let alike = ends.map(|(place, column)| {
            let number = table.same.len() + place + 1;
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
    let values = entry.same.iter().chain(&entry.end);
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        if !but.contains(&id) {
            return Ok(Some((id, row.get(1)?)));
        }
    }
    Ok(None)
}

/// Adds these rows to the copy, in their order.
fn append(
    now: &Connection,
    copy: &Connection,
    table: &Table,
    rows: BTreeSet<i64>,
) -> rusqlite::Result<()> {
    let marks = vec!["?"; 1 + table.same.len() + table.end.len()].join(", ");
    let insert = format!(
        "INSERT INTO {} ({}) VALUES ({marks})",
        table.name,
        columns(table)
    );
    let mut insert = copy.prepare_cached(&insert)?;
    let mut last = last_given(copy, table.name)?;
    for id in rows {
        let Some(entry) = entry(now, table, id)? else {
            continue;
        };
        last = id.max(last.saturating_add(1));
        let mut values = vec![Value::Integer(last)];
        values.extend(entry.same);
        values.extend(entry.end);
        insert.execute(params_from_iter(values))?;
    }
    Ok(())
}

fn entry(file: &Connection, table: &Table, id: i64) -> rusqlite::Result<Option<Entry>> {
    let select = format!(
        "SELECT {} FROM {} WHERE id = ?1",
        columns(table),
        table.name
    );
    let mut statement = file.prepare_cached(&select)?;
    statement.query_row([id], |row| read(row, table)).optional()
}

fn columns(table: &Table) -> String {
    let all: Vec<&str> = ["id"]
        .iter()
        .chain(table.same)
        .chain(table.end)
        .copied()
        .collect();
    all.join(", ")
}

fn read(row: &Row<'_>, table: &Table) -> rusqlite::Result<Entry> {
    let values = |from: usize, count: usize| {
        (from..from + count)
            .map(|place| row.get(place))
            .collect::<rusqlite::Result<Vec<Value>>>()
    };
    Ok(Entry {
        id: row.get(0)?,
        same: values(1, table.same.len())?,
        end: values(1 + table.same.len(), table.end.len())?,
    })
}

fn settle(copy: &Connection, there: i64, entry: &Entry) -> rusqlite::Result<()> {
    let update = "UPDATE action SET finished_at = ?2, word = ?3, why = ?4, outcome = ?5
        WHERE id = ?1 AND finished_at IS NULL";
    let values = [Value::Integer(there)];
    let values = values.iter().chain(&entry.end);
    copy.prepare_cached(update)?
        .execute(params_from_iter(values))?;
    Ok(())
}

/// The highest id that a table ever gave, as SQLite keeps it.
pub(super) fn last_given(file: &Connection, table: &str) -> rusqlite::Result<i64> {
    let select = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?1";
    file.query_row(select, [table], |row| row.get(0))
}

/// Has a table give no id again up to this one.
pub(super) fn number_on(file: &Connection, table: &str, last: i64) -> rusqlite::Result<()> {
    if last_given(file, table)? >= last {
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

    struct Box {
        _directory: tempfile::TempDir,
        file: Connection,
    }

    fn file() -> Box {
        let directory = tempfile::tempdir().unwrap();
        let file = open(directory.path(), &AUDIT).unwrap().connection;
        Box {
            _directory: directory,
            file,
        }
    }

    const BEFORE: &str = "
        INSERT INTO action (at, run, kind, uid, asked, plan, finished_at, word)
            VALUES (10, 'r', 'kill', 7, '9', '{}', 11, 'done');
        INSERT INTO action (at, run, kind, uid, asked, plan) VALUES (12, 'r', 'kill', 7, '9', '{}');
        INSERT INTO event (at, kind, device, number) VALUES (9, 'xid', 'GPU-0', 79);";

    const SINCE: &str = "
        UPDATE action SET finished_at = 20, word = 'done', outcome = '{\"x\":1}' WHERE id = 2;
        INSERT INTO action (at, run, kind, uid, asked, plan, finished_at, word, why, times)
            VALUES (21, 'r', 'reset', NULL, '0', NULL, 22, 'refused', 'no', 5);
        INSERT INTO action (at, run, kind, uid, asked, plan) VALUES (30, 'r', 'kill', 7, '9', '{}');
        INSERT INTO event (at, kind, device, number) VALUES (9, 'xid', 'GPU-0', 79);
        INSERT INTO event (at, kind, detail) VALUES (40, 'stopped', NULL);
        INSERT INTO verdict (at, step, rule, record) VALUES (41, 'over', 'x', '{}');
        INSERT INTO finding (at, boot, pid, start_ticks, threat, risk, record)
            VALUES (42, 'b', 7, 8, 'crypto_miner', 'high', '{}');";

    /// All of all tables, each row as one text.
    fn all(file: &Connection) -> Vec<String> {
        let mut all = Vec::new();
        for table in TABLES {
            let select = format!("SELECT {} FROM {} ORDER BY id", columns(table), table.name);
            let mut statement = file.prepare(&select).unwrap();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let entry = read(row, table).unwrap();
                all.push(format!("{} {:?} {:?}", entry.id, entry.same, entry.end));
            }
        }
        all
    }

    #[test]
    fn a_copy_of_before_becomes_the_record_of_now_with_the_same_ids() {
        let (now, mut copy) = (file(), file());
        for it in [&now, &copy] {
            it.file.execute_batch(BEFORE).unwrap();
        }
        now.file.execute_batch(SINCE).unwrap();
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(6));
        assert_eq!(all(&copy.file), all(&now.file));
        // A copy of the same moment lacks nothing.
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(0));
        assert_eq!(all(&copy.file), all(&now.file));
    }

    #[test]
    fn a_copy_of_another_box_keeps_its_entries_and_ids_and_gets_all_of_ours() {
        let (now, mut copy) = (file(), file());
        now.file.execute_batch(BEFORE).unwrap();
        let theirs = "
            INSERT INTO action (id, at, run, kind, asked, finished_at, word)
                VALUES (1, 10, 'theirs', 'kill', '9', 11, 'done'), (7, 13, 'theirs', 'kill', '9', 14, 'done');
            INSERT INTO event (at, kind) VALUES (1, 'started'), (2, 'stopped');";
        copy.file.execute_batch(theirs).unwrap();
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
    fn an_act_that_ended_in_two_ways_is_told_twice_and_ids_are_not_given_again() {
        let (now, mut copy) = (file(), file());
        for it in [&now, &copy] {
            it.file.execute_batch(BEFORE).unwrap();
        }
        let end = "UPDATE action SET finished_at = 20, word = 'done' WHERE id = 2;";
        now.file.execute_batch(end).unwrap();
        let end = "UPDATE action SET finished_at = 21, word = 'interrupted' WHERE id = 2;";
        copy.file.execute_batch(end).unwrap();
        number_on(&now.file, "action", 90).unwrap();
        assert_eq!(carry_over(&now.file, &mut copy.file), Ok(1));
        let words = "SELECT group_concat(word || ' ' || id) FROM action WHERE at = 12";
        let words: String = copy.file.query_row(words, [], |row| row.get(0)).unwrap();
        assert_eq!(words, "interrupted 2,done 3");
        assert_eq!(last_given(&copy.file, "action").unwrap(), 90);
    }
}
