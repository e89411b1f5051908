//! Opens a database file: ours and no other, brought to this version's schema.

use rusqlite::{Connection, OpenFlags};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

/// One of the two files.
pub(super) struct Kind {
    /// Its name in the state directory.
    pub(super) file: &'static str,
    /// What SQLite stores as application id, so that no foreign file is taken.
    application: i32,
    /// `NORMAL` may lose the last commits when the power fails, `FULL` none.
    synchronous: &'static str,
    /// Each brings the schema one version further. They never change once
    /// released; new ones are added at the end.
    migrations: &'static [&'static str],
}

/// Samples: many, and the last few may be lost.
pub(super) const SAMPLES: Kind = Kind {
    file: "samples.db",
    application: 0x6770_6b01,
    synchronous: "NORMAL",
    migrations: &[include_str!("samples.1.sql")],
};

/// The record of what was done: little, and none may be lost.
pub(super) const AUDIT: Kind = Kind {
    file: "audit.db",
    application: 0x6770_6b02,
    synchronous: "FULL",
    migrations: &[include_str!("audit.1.sql")],
};

/// How long a statement waits for a lock that another process holds.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Opens for writing, and creates or migrates what is missing.
///
/// # Errors
/// Why the file cannot be used, in words for an admin.
pub(super) fn open(directory: &Path, kind: &Kind) -> Result<Connection, String> {
    let path = directory.join(kind.file);
    let about = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true).mode(0o750).create(directory).map_err(|error| about(&error))?;
    // Created here so that nobody else may read it; SQLite's other files take
    // its mode.
    let mut create = std::fs::OpenOptions::new();
    create.create(true).append(true).mode(0o640);
    drop(create.open(&path).map_err(|error| about(&error))?);
    let mut connection = Connection::open_with_flags(
        &path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(|error| about(&error))?;
    prepare(&mut connection, kind).map_err(|error| about(&error))?;
    Ok(connection)
}

/// Opens for reading only.
///
/// # Errors
/// Why the file cannot be used, in words for an admin.
pub(super) fn open_for_reading(directory: &Path, kind: &Kind) -> Result<Connection, String> {
    let path = directory.join(kind.file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags).and_then(|connection| {
        connection.busy_timeout(LOCK_PATIENCE)?;
        Ok(connection)
    });
    opened.map_err(|error| format!("{}: {error}", path.display()))
}

fn prepare(connection: &mut Connection, kind: &Kind) -> Result<(), String> {
    let text = |error: rusqlite::Error| error.to_string();
    connection.busy_timeout(LOCK_PATIENCE).map_err(text)?;
    let number = |connection: &Connection, pragma: &str| -> Result<i64, String> {
        connection
            .pragma_query_value(None, pragma, |row| row.get(0))
            .map_err(text)
    };
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(text)?;
    let application = number(connection, "application_id")?;
    if tables > 0 && application != i64::from(kind.application) {
        return Err("is not a file of gpukill: move it away".into());
    }
    let version = number(connection, "user_version")?;
    let known = i64::try_from(kind.migrations.len()).unwrap_or(i64::MAX);
    if version > known {
        return Err(format!(
            "was written by a newer gpukilld (schema {version}, this one knows {known}): upgrade gpukilld"
        ));
    }
    if tables == 0 {
        // Must come before the first table, and before WAL.
        connection
            .pragma_update(None, "auto_vacuum", "INCREMENTAL")
            .map_err(text)?;
    }
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(text)?;
    connection
        .pragma_update(None, "synchronous", kind.synchronous)
        .map_err(text)?;
    connection
        .pragma_update(None, "journal_size_limit", 4 << 20)
        .map_err(text)?;
    let done = usize::try_from(version).unwrap_or(0);
    for (position, migration) in kind.migrations.iter().enumerate().skip(done) {
        let step = connection.transaction().map_err(text)?;
        step.execute_batch(migration).map_err(text)?;
        step.pragma_update(None, "application_id", kind.application)
            .map_err(text)?;
        step.pragma_update(
            None,
            "user_version",
            i64::try_from(position + 1).unwrap_or(i64::MAX),
        )
        .map_err(text)?;
        step.commit().map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_has_the_newest_schema_and_opens_again() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [&SAMPLES, &AUDIT] {
            for _ in 0..2 {
                let connection = open(directory.path(), kind).unwrap();
                let version: i64 = connection
                    .pragma_query_value(None, "user_version", |row| row.get(0))
                    .unwrap();
                assert_eq!(usize::try_from(version), Ok(kind.migrations.len()));
                let mode: String = connection
                    .pragma_query_value(None, "journal_mode", |row| row.get(0))
                    .unwrap();
                assert_eq!(mode, "wal");
            }
        }
    }

    #[test]
    fn foreign_newer_and_broken_files_are_refused_and_left_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SAMPLES.file);
        let refused = |expected: &str| {
            let before = std::fs::read(&path).unwrap();
            let error = open(directory.path(), &SAMPLES).unwrap_err();
            assert_eq!(error, format!("{}: {expected}", path.display()));
            assert_eq!(std::fs::read(&path).unwrap(), before);
        };

        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE theirs(x)")
            .unwrap();
        refused("is not a file of gpukill: move it away");

        std::fs::remove_file(&path).unwrap();
        drop(open(directory.path(), &SAMPLES).unwrap());
        Connection::open(&path)
            .unwrap()
            .pragma_update(None, "user_version", 99)
            .unwrap();
        refused("was written by a newer gpukilld (schema 99, this one knows 1): upgrade gpukilld");

        std::fs::write(&path, vec![b'x'; 4096]).unwrap();
        refused("file is not a database");
    }
}
