//! Checks that a file of a backup is one of ours and intact, before it is opened for writing. The
//! file comes from outside: nothing in it is executed.

use super::super::database::{DatabaseKind, SAMPLES, SCHEMA_VERSION};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;

/// The highest accepted id: more than a thousand years of one id a second, and far from the
/// maximum, so that further ids cannot overflow.
const MAX_ID: i64 = 1 << 40;

/// The last moment of the year 9999, in milliseconds since 1970: later times cannot be formatted.
const MAX_TIME_MS: i64 = 253_402_300_799_999;

/// Checks a file; `schema` is the version in the manifest.
pub(super) fn check(directory: &Path, kind: &DatabaseKind, schema: i64) -> Result<(), String> {
    let path = directory.join(kind.file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags);
    let mut file = opened.map_err(|error| sqlite_error(kind, &error))?;
    match inspect(&mut file, kind, schema) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(unfit_error(kind, why)),
        Err(error) => Err(sqlite_error(kind, &error)),
    }
}

fn unfit_error(kind: &DatabaseKind, why: impl std::fmt::Display) -> String {
    format!("the backup cannot be used: its {} {why}", kind.file)
}

/// The message for an error of SQLite on a file of the backup.
pub(super) fn sqlite_error(kind: &DatabaseKind, error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            format!("the backup's {} cannot be read: {error}", kind.file)
        }
        _ => unfit_error(kind, format_args!("is broken: {error}")),
    }
}

fn inspect(
    file: &mut Connection,
    kind: &DatabaseKind,
    schema: i64,
) -> rusqlite::Result<Option<String>> {
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
    if version != schema || read_schema(file)? != expected_schema(kind)? {
        return Ok(Some("does not have the schema of gpukilld".into()));
    }
    let found: String = file.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Ok(Some(format!("is broken: {found}")));
    }
    let is_sane = if kind.file == SAMPLES.file {
        are_ids_and_times_valid(file, "sample")? && are_samples_valid(file)?
    } else {
        are_ids_and_times_valid(file, "event")? && are_ids_and_times_valid(file, "action")?
    };
    Ok((!is_sane || !are_sequences_valid(file)?)
        .then(|| "has ids or times that gpukilld never issues".into()))
}

/// The rows of `sqlite_schema`.
type SchemaRows = Vec<(String, String, String, Option<String>)>;

fn read_schema(file: &Connection) -> rusqlite::Result<SchemaRows> {
    let select = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
    let mut statement = file.prepare(select)?;
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    rows.collect()
}

/// The schema that gpukilld creates.
fn expected_schema(kind: &DatabaseKind) -> rusqlite::Result<SchemaRows> {
    let made = Connection::open_in_memory()?;
    made.execute_batch(kind.schema)?;
    read_schema(&made)
}

/// Whether the ids and times of a table are in the accepted range.
fn are_ids_and_times_valid(file: &Connection, table: &str) -> rusqlite::Result<bool> {
    let select = format!(
        "SELECT coalesce((SELECT min(id) FROM {table}), 1) >= 1
            AND coalesce((SELECT max(id) FROM {table}), 1) <= ?1
            AND coalesce((SELECT min(at) FROM {table}), 0) >= 0
            AND coalesce((SELECT max(at) FROM {table}), 0) <= ?2"
    );
    file.query_row(&select, [MAX_ID, MAX_TIME_MS], |row| row.get(0))
}

fn are_samples_valid(file: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT count(*) = 1 AND min(sample) >= 0 AND max(sample) <= ?1
            AND min(minute) >= 0 AND max(minute) <= ?1 FROM rolled";
    let is_rolled: bool = file.query_row(select, [MAX_ID], |row| row.get(0))?;
    let rows = "SELECT NOT EXISTS (SELECT 1 FROM run WHERE id > ?1)
            AND NOT EXISTS (SELECT 1 FROM process WHERE id > ?1)
            AND NOT EXISTS (SELECT 1 FROM device WHERE id > ?1)";
    let are_few: bool = file.query_row(rows, [MAX_ID], |row| row.get(0))?;
    Ok(is_rolled
        && are_few
        && are_ids_and_times_valid(file, "minute")?
        && are_ids_and_times_valid(file, "hour")?)
}

/// Checks the highest issued ids.
fn are_sequences_valid(file: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT coalesce(max(seq), 0) <= ?1 AND coalesce(min(seq), 0) >= 0
            AND count(*) = count(DISTINCT name) AND total(typeof(seq) <> 'integer') = 0
            FROM sqlite_sequence";
    file.query_row(select, [MAX_ID], |row| row.get(0))
}
