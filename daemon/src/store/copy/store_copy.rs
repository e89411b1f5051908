//! A copy of both files as one archive, each file as it stood at one moment. SQLite writes the
//! copies into a directory of their own; they are opened and deleted at once, so that nothing
//! remains after the last reader, however that ends. The archive itself is never written: the parts
//! between the files are kept in memory.

use super::super::database::{AUDIT, DatabaseKind, SAMPLES, open_for_reading};
use super::super::disk_space::DiskSpace;
use super::archive::{END_BLOCKS, header, padding};
use gpukill_proto::service::MAX_PART_BYTES;
use rusqlite::Connection;
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::sync::OwnedSemaphorePermit;

/// A temporary directory, removed when this is dropped.
#[derive(Debug)]
pub(in super::super) struct TempDirectory(pub(in super::super) PathBuf);

impl Drop for TempDirectory {
    fn drop(&mut self) {
        if self.0.exists() {
            remove_directory(&self.0);
        }
    }
}

/// A copy that can be read. Dropping it frees its disk space.
pub(crate) struct StoreCopy {
    pieces: Vec<ArchivePiece>,
    bytes: u64,
    _permit: OwnedSemaphorePermit,
}

enum ArchivePiece {
    Text(Vec<u8>),
    File(File, u64),
}

impl ArchivePiece {
    fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(_, bytes) => *bytes,
        }
    }
}

pub(in super::super) fn copy_directory(directory: &Path) -> PathBuf {
    directory.join("copying")
}

/// Removes the directory of a daemon that ended while it made a copy.
pub(in super::super) fn remove_unfinished_copy(directory: &Path) {
    let directory_in_progress = copy_directory(directory);
    match std::fs::remove_dir_all(&directory_in_progress) {
        Ok(()) => {
            tracing::info!(directory = %directory_in_progress.display(), "removed an unfinished copy")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(
                directory = %directory_in_progress.display(), %error,
                "cannot remove an unfinished copy"
            );
        }
    }
}

impl StoreCopy {
    /// Copies both files of `directory`. Takes seconds, and about as much disk space as the files
    /// until the copy is dropped.
    pub(in super::super) fn create(
        directory: &Path,
        host: &str,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, String> {
        let target = copy_directory(directory);
        let room = check_free_space(directory, store_bytes(directory), "a copy");
        let made = room.and_then(|()| {
            let mut make = std::fs::DirBuilder::new();
            let create_error =
                |error| format!("cannot make the directory {}: {error}", target.display());
            make.mode(0o700).create(&target).map_err(create_error)?;
            // In this order: actions that the samples refer to are then in the copy of the record.
            let samples = copy_file(directory, &target, &SAMPLES)?;
            let audit = copy_file(directory, &target, &AUDIT)?;
            Ok([samples, audit])
        });
        // The open files stay readable.
        if target.exists() {
            remove_directory(&target);
        }
        Self::from_files(made?, host, permit)
    }

    fn from_files(
        [samples, audit]: [CopiedFile; 2],
        host: &str,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, String> {
        let now = SystemTime::now();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = seconds.map_or(0, |since| since.as_secs());
        let at = gpukill_proto::units::Timestamp::from(now).to_rfc3339();
        let entry = |it: &CopiedFile| json!({ "schema": it.schema, "bytes": it.bytes });
        let manifest = json!({
            "form": 1,
            "gpukilld": env!("CARGO_PKG_VERSION"),
            "host": host,
            "at": at,
            "checked": "quick_check",
            SAMPLES.file: entry(&samples),
            AUDIT.file: entry(&audit),
        });
        let manifest = format!("{manifest:#}\n").into_bytes();
        let mut pieces = Vec::new();
        let length = manifest.len() as u64;
        pieces.push(ArchivePiece::Text(header(
            "manifest.json",
            length,
            seconds,
        )?));
        pieces.push(ArchivePiece::Text(manifest));
        pieces.push(padding_piece(length));
        for (kind, it) in [(&SAMPLES, samples), (&AUDIT, audit)] {
            pieces.push(ArchivePiece::Text(header(kind.file, it.bytes, seconds)?));
            pieces.push(ArchivePiece::File(it.file, it.bytes));
            pieces.push(padding_piece(it.bytes));
        }
        pieces.push(ArchivePiece::Text(END_BLOCKS.to_vec()));
        let bytes = pieces.iter().map(ArchivePiece::bytes).sum();
        Ok(Self {
            pieces,
            bytes,
            _permit: permit,
        })
    }

    /// The length of the archive.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes at `offset`, at most as many as one answer carries; none at the end.
    pub(crate) fn read_part(&self, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut part = Vec::new();
        let mut begin = 0;
        for piece in &self.pieces {
            let at = offset + part.len() as u64;
            let end = begin + piece.bytes();
            let room = (MAX_PART_BYTES - part.len()) as u64;
            if (begin..end).contains(&at) && room > 0 {
                let length = usize::try_from((end - at).min(room)).unwrap_or(0);
                let from = part.len();
                part.resize(from + length, 0);
                let slice = part.get_mut(from..).unwrap_or_default();
                match piece {
                    ArchivePiece::Text(text) => {
                        let skipped = usize::try_from(at - begin).unwrap_or(usize::MAX);
                        for (target, byte) in slice.iter_mut().zip(text.iter().skip(skipped)) {
                            *target = *byte;
                        }
                    }
                    ArchivePiece::File(file, _) => file.read_exact_at(slice, at - begin)?,
                }
            }
            begin = end;
        }
        Ok(part)
    }
}

fn padding_piece(bytes: u64) -> ArchivePiece {
    // Less than a block.
    ArchivePiece::Text(vec![0; usize::try_from(padding(bytes)).unwrap_or(0)])
}

/// A copy of one file, without a name.
struct CopiedFile {
    file: File,
    bytes: u64,
    schema: i64,
}

fn copy_file(directory: &Path, target: &Path, kind: &DatabaseKind) -> Result<CopiedFile, String> {
    let source = open_for_reading(directory, kind)
        .map_err(|unusable| unusable.why)?
        .connection;
    let path = target.join(kind.file);
    let copy_error = |error: &dyn std::fmt::Display| format!("cannot copy {}: {error}", kind.file);
    let name = path
        .to_str()
        .ok_or_else(|| copy_error(&"its path is not UTF-8"))?;
    let copied = source.execute("VACUUM INTO ?1", [name]);
    copied.map_err(|error| copy_error(&error))?;
    let copy = Connection::open(&path).map_err(|error| copy_error(&error))?;
    let number = |pragma: &str| copy.pragma_query_value(None, pragma, |row| row.get(0));
    let schema = number("user_version").map_err(|error| copy_error(&error))?;
    let found: String = copy
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(|error| copy_error(&error))?;
    if found != "ok" {
        return Err(copy_error(&format_args!("the copy is corrupt: {found}")));
    }
    drop(copy);
    let file = File::open(&path).map_err(|error| copy_error(&error))?;
    let bytes = file.metadata().map_err(|error| copy_error(&error))?.len();
    Ok(CopiedFile {
        file,
        bytes,
        schema,
    })
}

fn remove_directory(target: &Path) {
    if let Err(error) = std::fs::remove_dir_all(target) {
        tracing::warn!(directory = %target.display(), %error, "cannot remove an unfinished copy");
    }
}

/// The length of both files with their logs.
fn store_bytes(directory: &Path) -> u64 {
    let of = |name: String| std::fs::metadata(directory.join(name)).map_or(0, |it| it.len());
    [&SAMPLES, &AUDIT]
        .iter()
        .map(|kind| of(kind.file.to_owned()) + of(format!("{}-wal", kind.file)))
        .sum()
}

/// Checks that the disk has space for this many bytes beside what the store needs; `what` is the
/// operation that needs them.
pub(in super::super) fn check_free_space(
    directory: &Path,
    bytes: u64,
    what: &str,
) -> Result<(), String> {
    if DiskSpace::read(directory).has_spare(bytes) {
        return Ok(());
    }
    Err(format!(
        "{}: {what} needs {} MiB, but too little disk space is free beside what the store itself \
         needs",
        directory.display(),
        bytes.div_ceil(1 << 20)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::database::open;
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    #[test]
    fn archive_reads_the_same_at_any_offset() {
        let directory = tempfile::tempdir().unwrap();
        let samples = open(directory.path(), &SAMPLES).unwrap();
        let audit = open(directory.path(), &AUDIT).unwrap();
        let insert = "INSERT INTO event (at, kind) VALUES (7, 'started')";
        audit.connection.execute(insert, []).unwrap();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let made = StoreCopy::create(directory.path(), "box", permit).unwrap();
        drop((samples, audit));
        let mut left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["audit.db", "samples.db"]);

        let mut whole = Vec::new();
        loop {
            let part = made.read_part(whole.len() as u64).unwrap();
            assert!(part.len() <= MAX_PART_BYTES);
            if part.is_empty() {
                break;
            }
            whole.extend(part);
        }
        assert_eq!(whole.len() as u64, made.bytes());
        assert_eq!(whole.len() % 512, 0);
        for offset in [1, 511, 513, 1_500, 40_000, made.bytes() - 1] {
            let at = usize::try_from(offset).unwrap();
            let part = made.read_part(offset).unwrap();
            assert_eq!(part, whole[at..at + part.len()]);
            assert!(!part.is_empty());
        }
        assert_eq!(made.read_part(made.bytes() + 7).unwrap(), b"");
    }

    #[test]
    fn removes_leftovers_of_an_ended_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let target = copy_directory(directory.path());
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("samples.db"), "half").unwrap();
        remove_unfinished_copy(directory.path());
        assert!(!target.exists());
        remove_unfinished_copy(directory.path());
    }
}
