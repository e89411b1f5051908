//! Opens a database file: ours and of this schema, no other.

use super::aside;
use super::trouble::Unusable;
use gpukill_proto::text::shell_word;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One of the two files.
pub(super) struct Kind {
    /// Its name in the state directory.
    pub(super) file: &'static str,
    /// What SQLite stores as application id, so that no foreign file is taken.
    pub(super) application: i32,
    /// Of a file that is made anew. A row that does not fit beside the others of a
    /// page leaves the rest of it empty: long rows want long pages.
    page_bytes: u32,
    /// `NORMAL` may lose the last commits when the power fails, `FULL` none.
    synchronous: &'static str,
    /// How long it is looked over when it is opened.
    look: Duration,
    /// The statements that make its tables, indexes and triggers.
    pub(super) schema: &'static str,
}

/// The version of both schemas, kept as SQLite's user version.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// Samples: many, and the last few may be lost.
pub(super) const SAMPLES: Kind = Kind {
    file: "samples.db",
    application: 0x6770_6b01,
    page_bytes: 16 << 10,
    synchronous: "NORMAL",
    look: Duration::from_millis(100),
    schema: include_str!("samples.sql"),
};

/// The record of what was done: little, and none may be lost.
pub(super) const AUDIT: Kind = Kind {
    file: "audit.db",
    application: 0x6770_6b02,
    page_bytes: 4 << 10,
    synchronous: "FULL",
    look: Duration::from_secs(1),
    schema: include_str!("audit.sql"),
};

/// An open database, and the file it is in.
pub(super) struct Opened {
    pub(super) connection: Connection,
    path: PathBuf,
    file: Option<(u64, u64)>,
    log: Option<(u64, u64)>,
}

impl Opened {
    /// Reads which file stands at the path right after it was opened there.
    fn new(connection: Connection, path: PathBuf) -> Self {
        let (file, log) = (file_at(&path), file_at(&log_of(&path)));
        Self {
            connection,
            path,
            file,
            log,
        }
    }

    /// Whether its path still leads to it. SQLite goes on without a word in a
    /// file that was moved or deleted.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.is_some() && self.file == file_at(&self.path)
    }

    /// Whether its write-ahead log is still the one that whoever opens the file
    /// finds. SQLite goes on in a deleted one, too: what it commits there is gone
    /// with the process.
    pub(super) fn has_its_log(&self) -> bool {
        self.log.is_none() || self.log == file_at(&log_of(&self.path))
    }

    /// Writes what is in the log into the file, all of it or as much as readers
    /// allow; whether it was all.
    ///
    /// # Errors
    /// What SQLite says.
    pub(super) fn empty_log(&self) -> rusqlite::Result<bool> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self
            .connection
            .query_row(checkpoint, [], |row| row.get(0))?;
        Ok(!is_busy)
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Refuses what is no regular file, a symbolic link too: SQLite opens whatever it finds,
/// waits for the writer of a FIFO, and would read the target of a link with the daemon's
/// rights.
fn is_a_file(path: &Path) -> Result<(), Unusable> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(Unusable::other(path, "is no file: move it away")),
        // What cannot be looked at cannot be opened: SQLite says why.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// How long a statement waits for a lock that another process holds.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// What SQLite's write-ahead log is cut to when it is emptied.
pub(super) const WAL_LIMIT: u32 = 4 << 20;

/// How long a file is looked over that somebody could not read. No act waits
/// longer for the store.
pub(super) const LONG_LOOK: Duration = Duration::from_millis(1_500);

/// Opens for writing, and creates the file and its schema where they are missing.
///
/// # Errors
/// Why the file cannot be used.
pub(super) fn open(directory: &Path, kind: &Kind) -> Result<Opened, Unusable> {
    open_after(kind.look, directory, kind)
}

/// Opens for writing after it was looked over for so long at most.
///
/// # Errors
/// As [`open`].
pub(super) fn open_after(
    look: Duration,
    directory: &Path,
    kind: &Kind,
) -> Result<Opened, Unusable> {
    let path = directory.join(kind.file);
    let by_sqlite = |error: &rusqlite::Error| Unusable::by_sqlite(&path, error);
    let mut make = std::fs::DirBuilder::new();
    let made = make.recursive(true).mode(0o750).create(directory);
    made.map_err(|error| Unusable {
        why: format!("cannot make the directory {}: {error}", directory.display()),
        ..Unusable::by_system(&path, &error)
    })?;
    aside::finish(directory, kind);
    create(&path).map_err(|error| Unusable::by_system(&path, &error))?;
    is_a_file(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags);
    let mut connection = connection.map_err(|error| by_sqlite(&error))?;
    let is_new = is_new(&path, &connection, kind)?;
    let found = look_over(&mut connection, look).map_err(|error| by_sqlite(&error))?;
    if let Some(found) = found {
        return Err(Unusable::broken(&path, &found));
    }
    prepare(&mut connection, kind, is_new).map_err(|error| by_sqlite(&error))?;
    Ok(Opened::new(connection, path))
}

/// Creates the file so that nobody else may read it; SQLite's other files take
/// its mode. One that is there is not opened: to close it again would take the
/// locks from a connection to it.
fn create(path: &Path) -> std::io::Result<()> {
    let mut create = std::fs::OpenOptions::new();
    create.create_new(true).write(true).mode(0o640);
    match create.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Looks a file over, for so long at most; returns the first thing that is wrong.
fn look_over(connection: &mut Connection, patience: Duration) -> rusqlite::Result<Option<String>> {
    let deadline = Instant::now() + patience;
    connection.progress_handler(LOOK_STEPS, Some(move || Instant::now() > deadline))?;
    let looked = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    connection.progress_handler(0, None::<fn() -> bool>)?;
    match looked {
        Ok(found) => Ok(Some(found).filter(|found| found != "ok")),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// So many steps of SQLite's machine between two looks at the clock.
const LOOK_STEPS: i32 = 1_000;

/// Opens for reading only.
///
/// # Errors
/// Why the file cannot be used.
pub(super) fn open_for_reading(directory: &Path, kind: &Kind) -> Result<Opened, Unusable> {
    let path = directory.join(kind.file);
    is_a_file(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags);
    // SQLite's own words have the path already.
    let connection = opened.map_err(|error| Unusable {
        why: error.to_string(),
        ..Unusable::by_sqlite(&path, &error)
    })?;
    if is_new(&path, &connection, kind)? {
        return Err(Unusable::other(&path, "is not ready yet"));
    }
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let bounded = connection.pragma_update(None, "cache_size", -CACHE_KIB);
    bounded.map_err(|error| Unusable::by_sqlite(&path, &error))?;
    Ok(Opened::new(connection, path))
}

/// The pages that a connection keeps in memory, in KiB. SQLite's own 2 MiB for each of
/// four connections would be most of what the daemon holds, and the kernel has the pages.
const CACHE_KIB: i32 = 512;

/// So many statements are kept ready for questions: those of all kinds of questions
/// together are some fewer.
const STATEMENTS: usize = 64;

/// Whether a file is empty.
///
/// # Errors
/// The file is not ours, or has another schema: nothing is written to it then.
fn is_new(path: &Path, connection: &Connection, kind: &Kind) -> Result<bool, Unusable> {
    let read = || -> rusqlite::Result<(i64, i64, i64)> {
        connection.busy_timeout(LOCK_PATIENCE)?;
        let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables = connection.query_row(tables, [], |row| row.get(0))?;
        Ok((tables, number("application_id")?, number("user_version")?))
    };
    let (tables, application, version) =
        read().map_err(|error| Unusable::by_sqlite(path, &error))?;
    if tables == 0 {
        return Ok(true);
    }
    if application != i64::from(kind.application) {
        let what = "is not a file of gpukill: move it away";
        return Err(Unusable::other(path, what));
    }
    if version != SCHEMA_VERSION {
        let what = another_version(path, kind, version);
        return Err(Unusable::other(path, what));
    }
    Ok(false)
}

/// Says what a file with another schema means, as after a downgrade, and what to do. The
/// command does not overwrite a file that was moved away before: `mkdir` fails then.
fn another_version(path: &Path, kind: &Kind, version: i64) -> String {
    let file = kind.file;
    let directory = path.parent().and_then(Path::to_str).and_then(shell_word);
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

fn prepare(connection: &mut Connection, kind: &Kind, is_new: bool) -> rusqlite::Result<()> {
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
    use super::super::trouble::Trouble;
    use super::*;

    #[test]
    fn a_new_file_gets_the_schema_and_opens_again() {
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
    fn foreign_and_broken_files_and_other_schemas_are_refused_and_left_as_they_are() {
        use Trouble::{Broken, Other};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SAMPLES.file);
        let refused = |trouble: Trouble, expected: &str| {
            let before = std::fs::read(&path).unwrap();
            let error = open(directory.path(), &SAMPLES).err().unwrap();
            let why = format!("{}: {expected}", path.display());
            assert_eq!(error, Unusable { trouble, why });
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
        refused(Broken, "file is not a database");
    }

    #[test]
    fn what_is_no_file_is_not_opened_and_nobody_waits_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SAMPLES.file);
        let is_refused = || {
            let why = format!("{}: is no file: move it away", path.display());
            let expected = Unusable {
                trouble: Trouble::Other,
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
