//! Opens a database file, and only a gpukill file of this schema version.

use super::error::StoreError;
use super::quarantine;
use gpukill_proto::text::quote_for_shell;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One of the two database files.
pub(super) struct DatabaseKind {
    /// Its name in the state directory.
    pub(super) file: &'static str,
    /// The application id that SQLite stores, so that no foreign file is opened.
    pub(super) application: i32,
    /// The page size of a new file. A row that does not fit beside the others of a page leaves the
    /// rest of the page empty, so long rows need large pages.
    page_bytes: u32,
    /// `NORMAL` may lose the last commits at a power failure, `FULL` loses none.
    synchronous: &'static str,
    /// How long the integrity check at opening may take.
    check_timeout: Duration,
    /// The statements that create its tables, indexes and triggers.
    pub(super) schema: &'static str,
}

/// The version of both schemas, kept as SQLite's user version.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// The samples: much data, of which the last few samples may be lost.
pub(super) const SAMPLES: DatabaseKind = DatabaseKind {
    file: "samples.db",
    application: 0x6770_6b01,
    page_bytes: 16 << 10,
    synchronous: "NORMAL",
    check_timeout: Duration::from_millis(100),
    schema: include_str!("samples.sql"),
};

/// The record of actions: little data, none of which may be lost.
pub(super) const AUDIT: DatabaseKind = DatabaseKind {
    file: "audit.db",
    application: 0x6770_6b02,
    page_bytes: 4 << 10,
    synchronous: "FULL",
    check_timeout: Duration::from_secs(1),
    schema: include_str!("audit.sql"),
};

/// An open database, and the identity of its file.
pub(super) struct OpenDatabase {
    pub(super) connection: Connection,
    path: PathBuf,
    file: Option<(u64, u64)>,
    log: Option<(u64, u64)>,
}

impl OpenDatabase {
    /// Notes which file and log are at the path right after opening.
    fn new(connection: Connection, path: PathBuf) -> Self {
        let (file, log) = (file_identity(&path), file_identity(&log_path(&path)));
        Self {
            connection,
            path,
            file,
            log,
        }
    }

    /// Whether the path still leads to the open file. SQLite silently continues in a file that was
    /// moved or deleted.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.is_some() && self.file == file_identity(&self.path)
    }

    /// Whether the write-ahead log is still the file at its path. SQLite continues in a deleted
    /// log, too: what it commits there is lost when the process ends.
    pub(super) fn is_log_in_place(&self) -> bool {
        self.log.is_none() || self.log == file_identity(&log_path(&self.path))
    }

    /// Writes the log into the file, as far as readers allow; returns whether all of it was
    /// written.
    pub(super) fn empty_log(&self) -> rusqlite::Result<bool> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self
            .connection
            .query_row(checkpoint, [], |row| row.get(0))?;
        Ok(!is_busy)
    }
}

fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Refuses a path that is not a regular file, symbolic links included: SQLite opens whatever it
/// finds, waits for the writer of a FIFO, and would read the target of a link with the daemon's
/// rights.
fn check_regular_file(path: &Path) -> Result<(), StoreError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(StoreError::other(
            path,
            "is not a regular file: move it away",
        )),
        // A path that cannot be examined cannot be opened either: SQLite reports the reason.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// How long a statement waits for a lock that another process holds.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The length to which SQLite truncates the write-ahead log when it is emptied.
pub(super) const WAL_LIMIT: u32 = 4 << 20;

/// How long the integrity check may take on a file that a query could not read. No action waits
/// longer for the store.
pub(super) const LONG_CHECK_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Opens a file for writing, and creates the file and its schema if they are missing.
pub(super) fn open(directory: &Path, kind: &DatabaseKind) -> Result<OpenDatabase, StoreError> {
    open_checked(kind.check_timeout, directory, kind)
}

/// Opens a file for writing after an integrity check of at most this length.
pub(super) fn open_checked(
    check_timeout: Duration,
    directory: &Path,
    kind: &DatabaseKind,
) -> Result<OpenDatabase, StoreError> {
    let path = directory.join(kind.file);
    let by_sqlite = |error: &rusqlite::Error| StoreError::from_sqlite(&path, error);
    let mut make = std::fs::DirBuilder::new();
    let made = make.recursive(true).mode(0o750).create(directory);
    made.map_err(|error| StoreError {
        why: format!("cannot make the directory {}: {error}", directory.display()),
        ..StoreError::from_io(&path, &error)
    })?;
    quarantine::move_left_logs(directory, kind);
    create_file(&path).map_err(|error| StoreError::from_io(&path, &error))?;
    check_regular_file(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags);
    let mut connection = connection.map_err(|error| by_sqlite(&error))?;
    let is_new = is_new(&path, &connection, kind)?;
    let found = quick_check(&mut connection, check_timeout).map_err(|error| by_sqlite(&error))?;
    if let Some(found) = found {
        return Err(StoreError::corrupt(&path, &found));
    }
    configure(&mut connection, kind, is_new).map_err(|error| by_sqlite(&error))?;
    Ok(OpenDatabase::new(connection, path))
}

/// Creates the file so that other users cannot read it; SQLite's other files take its mode. An
/// existing file is not opened: closing it again would drop the locks of a connection to it.
fn create_file(path: &Path) -> std::io::Result<()> {
    let mut create = std::fs::OpenOptions::new();
    create.create_new(true).write(true).mode(0o640);
    match create.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks the integrity of a file, for at most this long; returns the first problem found.
fn quick_check(connection: &mut Connection, timeout: Duration) -> rusqlite::Result<Option<String>> {
    let deadline = Instant::now() + timeout;
    connection.progress_handler(PROGRESS_STEPS, Some(move || Instant::now() > deadline))?;
    let result = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    connection.progress_handler(0, None::<fn() -> bool>)?;
    match result {
        Ok(found) => Ok(Some(found).filter(|found| found != "ok")),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The steps of SQLite's virtual machine between two looks at the clock.
const PROGRESS_STEPS: i32 = 1_000;

/// Opens a file for reading only.
pub(super) fn open_for_reading(
    directory: &Path,
    kind: &DatabaseKind,
) -> Result<OpenDatabase, StoreError> {
    let path = directory.join(kind.file);
    check_regular_file(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags);
    // The message of SQLite already has the path.
    let connection = opened.map_err(|error| StoreError {
        why: error.to_string(),
        ..StoreError::from_sqlite(&path, &error)
    })?;
    if is_new(&path, &connection, kind)? {
        return Err(StoreError::other(&path, "is not ready yet"));
    }
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    let bounded = connection.pragma_update(None, "cache_size", -CACHE_KIB);
    bounded.map_err(|error| StoreError::from_sqlite(&path, &error))?;
    Ok(OpenDatabase::new(connection, path))
}

/// The page cache of a connection, in KiB. SQLite's default of 2 MiB for each of four connections
/// would be most of the daemon's memory, and the kernel caches the pages anyway.
const CACHE_KIB: i32 = 512;

/// The prepared statements that a reading connection caches: somewhat more than all kinds of
/// queries together use.
const MAX_CACHED_STATEMENTS: usize = 64;

/// Whether a file is empty.
///
/// # Errors
/// When the file is not ours or has another schema version. It is then not written to.
fn is_new(path: &Path, connection: &Connection, kind: &DatabaseKind) -> Result<bool, StoreError> {
    let read = || -> rusqlite::Result<(i64, i64, i64)> {
        connection.busy_timeout(LOCK_TIMEOUT)?;
        let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables = connection.query_row(tables, [], |row| row.get(0))?;
        Ok((tables, number("application_id")?, number("user_version")?))
    };
    let (tables, application, version) =
        read().map_err(|error| StoreError::from_sqlite(path, &error))?;
    if tables == 0 {
        return Ok(true);
    }
    if application != i64::from(kind.application) {
        let what = "is not a file of gpukill: move it away";
        return Err(StoreError::other(path, what));
    }
    if version != SCHEMA_VERSION {
        let what = version_error(path, kind, version);
        return Err(StoreError::other(path, what));
    }
    Ok(false)
}

/// Describes a file with another schema version, as after a downgrade, and what to do. The command
/// does not overwrite a file that was moved away before: `mkdir` fails then.
fn version_error(path: &Path, kind: &DatabaseKind, version: i64) -> String {
    let file = kind.file;
    let directory = path
        .parent()
        .and_then(Path::to_str)
        .and_then(quote_for_shell);
    let away = directory.map_or_else(
        || "move it away".to_owned(),
        |at| format!("mkdir {at}/other-{file} && mv {at}/{file}* {at}/other-{file}/"),
    );
    format!(
        "was written by another version of gpukilld (schema {version}, this one knows \
         {SCHEMA_VERSION}) and is left as it is, so nothing is lost: install that version again, \
         or go on without what is in it: {away}"
    )
}

fn configure(
    connection: &mut Connection,
    kind: &DatabaseKind,
    is_new: bool,
) -> rusqlite::Result<()> {
    if is_new {
        // Must come before the first table, and before WAL.
        connection.pragma_update(None, "page_size", kind.page_bytes)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    let log_pages = WAL_LIMIT / kind.page_bytes;
    connection.pragma_update(None, "wal_autocheckpoint", log_pages)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", kind.synchronous)?;
    connection.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
    if is_new {
        let transaction = connection.transaction()?;
        transaction.execute_batch(kind.schema)?;
        transaction.pragma_update(None, "application_id", kind.application)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::error::StoreErrorKind;
    use super::*;

    #[test]
    fn creates_the_schema_and_reopens() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [&SAMPLES, &AUDIT] {
            for _ in 0..2 {
                let connection = open(directory.path(), kind).unwrap().connection;
                let version: i64 = connection
                    .pragma_query_value(None, "user_version", |row| row.get(0))
                    .unwrap();
                assert_eq!(version, SCHEMA_VERSION);
                let mode: String = connection
                    .pragma_query_value(None, "journal_mode", |row| row.get(0))
                    .unwrap();
                assert_eq!(mode, "wal");
            }
        }
    }

    #[test]
    fn refuses_other_files_and_leaves_them() {
        use StoreErrorKind::{Corrupt, Other};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SAMPLES.file);
        let refused = |kind: StoreErrorKind, expected: &str| {
            let before = std::fs::read(&path).unwrap();
            let error = open(directory.path(), &SAMPLES).err().unwrap();
            let why = format!("{}: {expected}", path.display());
            assert_eq!(error, StoreError { kind, why });
            assert_eq!(std::fs::read(&path).unwrap(), before);
        };

        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE theirs(x)")
            .unwrap();
        refused(Other, "is not a file of gpukill: move it away");

        std::fs::remove_file(&path).unwrap();
        drop(open(directory.path(), &SAMPLES).unwrap());
        let at = directory.path().display();
        for version in [0, 2, 5, 99] {
            Connection::open(&path)
                .unwrap()
                .pragma_update(None, "user_version", version)
                .unwrap();
            let other = format!(
                "was written by another version of gpukilld (schema {version}, this one knows 1) \
                 and is left as it is, so nothing is lost: install that version again, or go on \
                 without what is in it: \
                 mkdir {at}/other-samples.db && mv {at}/samples.db* {at}/other-samples.db/"
            );
            refused(Other, &other);
        }

        std::fs::write(&path, vec![b'x'; 4096]).unwrap();
        refused(Corrupt, "file is not a database");
    }

    #[test]
    fn special_files_are_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SAMPLES.file);
        let is_refused = || {
            let why = format!("{}: is not a regular file: move it away", path.display());
            let expected = StoreError {
                kind: StoreErrorKind::Other,
                why,
            };
            for opened in [
                open_for_reading(directory.path(), &SAMPLES),
                open(directory.path(), &SAMPLES),
            ] {
                assert_eq!(opened.err().as_ref(), Some(&expected));
            }
        };
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        is_refused();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        is_refused();
    }
}
