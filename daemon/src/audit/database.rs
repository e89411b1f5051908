//! Opens a database file: ours and no other, brought to this version's schema.

use rusqlite::{Connection, OpenFlags};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
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

impl Kind {
    /// The version of the schema after all migrations.
    fn newest(&self) -> i64 {
        i64::try_from(self.migrations.len()).unwrap_or(i64::MAX)
    }
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
    migrations: &[include_str!("audit.1.sql"), include_str!("audit.2.sql")],
};

/// An open database, and the file it is in.
pub(super) struct Opened {
    pub(super) connection: Connection,
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Opened {
    /// Reads which file stands at the path right after it was opened there.
    fn new(connection: Connection, path: PathBuf) -> Self {
        let file = file_at(&path);
        Self {
            connection,
            path,
            file,
        }
    }

    /// Whether its path still leads to it. SQLite goes on without a word in a
    /// file that was moved or deleted.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.is_some() && self.file == file_at(&self.path)
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// How long a statement waits for a lock that another process holds.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Opens for writing, and creates or migrates what is missing.
///
/// # Errors
/// Why the file cannot be used, in words for an admin.
pub(super) fn open(directory: &Path, kind: &Kind) -> Result<Opened, String> {
    let path = directory.join(kind.file);
    let about = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true)
        .mode(0o750)
        .create(directory)
        .map_err(|error| format!("cannot make the directory {}: {error}", directory.display()))?;
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
    Ok(Opened::new(connection, path))
}

/// Opens for reading only.
///
/// # Errors
/// Why the file cannot be used, in words for an admin.
pub(super) fn open_for_reading(directory: &Path, kind: &Kind) -> Result<Opened, String> {
    let path = directory.join(kind.file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let about = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let opened = Connection::open_with_flags(&path, flags);
    // SQLite's own words have the path already.
    let connection = opened.map_err(|error| error.to_string())?;
    let version = version(&connection, kind).map_err(|error| about(&error))?;
    if version < kind.newest() {
        return Err(about(&"is not ready yet"));
    }
    Ok(Opened::new(connection, path))
}

/// The version of a file's schema, which this one can use or migrate; 0 of a
/// file that is empty.
fn version(connection: &Connection, kind: &Kind) -> Result<i64, String> {
    let text = |error: rusqlite::Error| error.to_string();
    connection.busy_timeout(LOCK_PATIENCE).map_err(text)?;
    let number = |pragma: &str| -> Result<i64, String> {
        connection
            .pragma_query_value(None, pragma, |row| row.get(0))
            .map_err(text)
    };
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(text)?;
    if tables == 0 {
        return Ok(0);
    }
    if number("application_id")? != i64::from(kind.application) {
        return Err("is not a file of gpukill: move it away".into());
    }
    let (version, known) = (number("user_version")?, kind.newest());
    if version > known {
        return Err(format!(
            "was written by a newer gpukilld (schema {version}, this one knows {known}): upgrade gpukilld"
        ));
    }
    Ok(version)
}

fn prepare(connection: &mut Connection, kind: &Kind) -> Result<(), String> {
    let text = |error: rusqlite::Error| error.to_string();
    let version = version(connection, kind)?;
    if version == 0 {
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
                let connection = open(directory.path(), kind).unwrap().connection;
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
            let error = open(directory.path(), &SAMPLES).err().unwrap();
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
