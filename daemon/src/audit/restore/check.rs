//! Whether a file of a copy is one of ours, whole and sound, before it is opened for
//! more than reading. It comes from outside: nothing in it is run.

use super::super::database::{Kind, SAMPLES, SCHEMA_VERSION};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;

/// Far beyond a thousand years of one a second, and far from where ids end: what is
/// numbered on from there must not overflow.
const MOST_ID: i64 = 1 << 40;

/// The last moment of the year 9999, in milliseconds since 1970: none behind it can
/// be written.
const LAST: i64 = 253_402_300_799_999;

/// Looks it over; `schema` is the version that its manifest tells.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn check(there: &Path, kind: &Kind, schema: i64) -> Result<(), String> {
    let path = there.join(kind.file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags);
    let mut file = opened.map_err(|error| by_sqlite(kind, &error))?;
    match look(&mut file, kind, schema) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(unfit(kind, why)),
        Err(error) => Err(by_sqlite(kind, &error)),
    }
}

fn unfit(kind: &Kind, why: impl std::fmt::Display) -> String {
    format!("the backup cannot be used: its {} {why}", kind.file)
}

/// What SQLite's error about a file of the backup means.
pub(super) fn by_sqlite(kind: &Kind, error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            format!("the backup's {} cannot be read: {error}", kind.file)
        }
        _ => unfit(kind, format_args!("is broken: {error}")),
    }
}

fn look(file: &mut Connection, kind: &Kind, schema: i64) -> rusqlite::Result<Option<String>> {
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    file.pragma_update(None, "cell_size_check", true)?;
    let file = &*file;
    let number = |pragma| file.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    if number("application_id")? != i64::from(kind.application) {
        return Ok(Some("is not a file of gpukill".into()));
    }
    let version = number("user_version")?;
    if version != SCHEMA_VERSION {
        return Ok(Some(format!(
            "was made by another version of gpukilld (schema {version}, this one knows \
             {SCHEMA_VERSION}): restore it with that version"
        )));
    }
    if version != schema || schema_of(file)? != expected(kind)? {
        return Ok(Some("is not as gpukilld makes it".into()));
    }
    let found: String = file.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Ok(Some(format!("is broken: {found}")));
    }
    let is_sane = if kind.file == SAMPLES.file {
        are_within(file, "sample")? && are_samples_sane(file)?
    } else {
        are_within(file, "event")? && are_within(file, "action")?
    };
    Ok((!is_sane || !are_sequences_sane(file)?)
        .then(|| "has numbers or times that gpukilld never gives".into()))
}

/// All that a schema consists of, in its own words.
type Schema = Vec<(String, String, String, Option<String>)>;

fn schema_of(file: &Connection) -> rusqlite::Result<Schema> {
    let select = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
    let mut statement = file.prepare(select)?;
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    rows.collect()
}

/// The schema as we make it.
fn expected(kind: &Kind) -> rusqlite::Result<Schema> {
    let made = Connection::open_in_memory()?;
    made.execute_batch(kind.schema)?;
    schema_of(&made)
}

/// Whether the ids and times of a table are such as we give.
fn are_within(file: &Connection, table: &str) -> rusqlite::Result<bool> {
    let select = format!(
        "SELECT coalesce((SELECT min(id) FROM {table}), 1) >= 1
            AND coalesce((SELECT max(id) FROM {table}), 1) <= ?1
            AND coalesce((SELECT min(at) FROM {table}), 0) >= 0
            AND coalesce((SELECT max(at) FROM {table}), 0) <= ?2"
    );
    file.query_row(&select, [MOST_ID, LAST], |row| row.get(0))
}

fn are_samples_sane(file: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT count(*) = 1 AND min(sample) >= 0 AND max(sample) <= ?1
            AND min(minute) >= 0 AND max(minute) <= ?1 FROM rolled";
    let is_rolled: bool = file.query_row(select, [MOST_ID], |row| row.get(0))?;
    let rows = "SELECT NOT EXISTS (SELECT 1 FROM run WHERE id > ?1)
            AND NOT EXISTS (SELECT 1 FROM process WHERE id > ?1)
            AND NOT EXISTS (SELECT 1 FROM device WHERE id > ?1)";
    let are_few: bool = file.query_row(rows, [MOST_ID], |row| row.get(0))?;
    Ok(is_rolled && are_few && are_within(file, "minute")? && are_within(file, "hour")?)
}

/// What was numbered last.
fn are_sequences_sane(file: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT coalesce(max(seq), 0) <= ?1 AND coalesce(min(seq), 0) >= 0
            AND count(*) = count(DISTINCT name) AND total(typeof(seq) <> 'integer') = 0
            FROM sqlite_sequence";
    file.query_row(select, [MOST_ID], |row| row.get(0))
}
