//! A copy of both files, each as it stood at one moment, as one archive. SQLite
//! writes the copies into a directory of their own; they are opened and lose their
//! names at once, so that nothing of them is left when nobody reads them any more,
//! however that ends. The archive itself is never written: what stands between the
//! files is kept in memory.

use super::super::database::{AUDIT, Kind, SAMPLES, open_for_reading};
use super::super::space::Space;
use super::archive::{END, header, padding};
use gpukill_proto::service::LONGEST_PART;
use rusqlite::Connection;
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::sync::OwnedSemaphorePermit;

/// A directory with files on their way, which goes with this.
#[derive(Debug)]
pub(in super::super) struct LeftOver(pub(in super::super) PathBuf);

impl Drop for LeftOver {
    fn drop(&mut self) {
        if self.0.exists() {
            clean_after(&self.0);
        }
    }
}

/// A copy that can be read. Gone when this is dropped.
pub(crate) struct Made {
    pieces: Vec<Piece>,
    bytes: u64,
    _place: OwnedSemaphorePermit,
}

enum Piece {
    Text(Vec<u8>),
    File(File, u64),
}

impl Piece {
    fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(_, bytes) => *bytes,
        }
    }
}

/// Where the files are while they are written.
pub(in super::super) fn workplace(directory: &Path) -> PathBuf {
    directory.join("copying")
}

/// Removes what a daemon left that ended while it made a copy.
pub(in super::super) fn clean(directory: &Path) {
    let workplace = workplace(directory);
    match std::fs::remove_dir_all(&workplace) {
        Ok(()) => tracing::info!(directory = %workplace.display(), "an unfinished copy is removed"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(directory = %workplace.display(), %error, "an unfinished copy stays");
        }
    }
}

impl Made {
    /// Copies both files of `directory`. Takes seconds, and about as much room as
    /// they do until it is dropped.
    pub(in super::super) fn make(
        directory: &Path,
        host: &str,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, String> {
        let there = workplace(directory);
        let room = leave_room(directory, size(directory), "a copy");
        let made = room.and_then(|()| {
            let mut make = std::fs::DirBuilder::new();
            let about = |error| format!("cannot make the directory {}: {error}", there.display());
            make.mode(0o700).create(&there).map_err(about)?;
            // In this order: what the samples name of the record is in the record.
            let samples = copied(directory, &there, &SAMPLES)?;
            let audit = copied(directory, &there, &AUDIT)?;
            Ok([samples, audit])
        });
        // Of what is open nothing is lost.
        if there.exists() {
            clean_after(&there);
        }
        Self::of(made?, host, place)
    }

    fn of(
        [samples, audit]: [Copied; 2],
        host: &str,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, String> {
        let now = SystemTime::now();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = seconds.map_or(0, |since| since.as_secs());
        let at = gpukill_proto::units::Timestamp::from(now).to_rfc3339();
        let about = |it: &Copied| json!({ "schema": it.schema, "bytes": it.bytes });
        let manifest = json!({
            "form": 1,
            "gpukilld": env!("CARGO_PKG_VERSION"),
            "host": host,
            "at": at,
            "checked": "quick_check",
            SAMPLES.file: about(&samples),
            AUDIT.file: about(&audit),
        });
        let manifest = format!("{manifest:#}\n").into_bytes();
        let mut pieces = Vec::new();
        let length = manifest.len() as u64;
        pieces.push(Piece::Text(header("manifest.json", length, seconds)?));
        pieces.push(Piece::Text(manifest));
        pieces.push(zeros(length));
        for (kind, it) in [(&SAMPLES, samples), (&AUDIT, audit)] {
            pieces.push(Piece::Text(header(kind.file, it.bytes, seconds)?));
            pieces.push(Piece::File(it.file, it.bytes));
            pieces.push(zeros(it.bytes));
        }
        pieces.push(Piece::Text(END.to_vec()));
        let bytes = pieces.iter().map(Piece::bytes).sum();
        Ok(Self {
            pieces,
            bytes,
            _place: place,
        })
    }

    /// How long it is.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What begins at `offset`, as much as travels at once; nothing at its end.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn part(&self, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut part = Vec::new();
        let mut begin = 0;
        for piece in &self.pieces {
            let at = offset + part.len() as u64;
            let end = begin + piece.bytes();
            let room = (LONGEST_PART - part.len()) as u64;
            if (begin..end).contains(&at) && room > 0 {
                let length = usize::try_from((end - at).min(room)).unwrap_or(0);
                let from = part.len();
                part.resize(from + length, 0);
                let slice = part.get_mut(from..).unwrap_or_default();
                match piece {
                    Piece::Text(text) => {
                        let skipped = usize::try_from(at - begin).unwrap_or(usize::MAX);
                        for (place, byte) in slice.iter_mut().zip(text.iter().skip(skipped)) {
                            *place = *byte;
                        }
                    }
                    Piece::File(file, _) => file.read_exact_at(slice, at - begin)?,
                }
            }
            begin = end;
        }
        Ok(part)
    }
}

fn zeros(bytes: u64) -> Piece {
    // Less than a block.
    Piece::Text(vec![0; usize::try_from(padding(bytes)).unwrap_or(0)])
}

/// A copy of one file, without a name.
struct Copied {
    file: File,
    bytes: u64,
    schema: i64,
}

/// Copies one file and looks whether the copy is sound.
fn copied(directory: &Path, there: &Path, kind: &Kind) -> Result<Copied, String> {
    let source = open_for_reading(directory, kind)
        .map_err(|unusable| unusable.why)?
        .connection;
    let path = there.join(kind.file);
    let about = |error: &dyn std::fmt::Display| format!("cannot copy {}: {error}", kind.file);
    let name = path
        .to_str()
        .ok_or_else(|| about(&"its path is not UTF-8"))?;
    let copied = source.execute("VACUUM INTO ?1", [name]);
    copied.map_err(|error| about(&error))?;
    let copy = Connection::open(&path).map_err(|error| about(&error))?;
    let number = |pragma: &str| copy.pragma_query_value(None, pragma, |row| row.get(0));
    let schema = number("user_version").map_err(|error| about(&error))?;
    let found: String = copy
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(|error| about(&error))?;
    if found != "ok" {
        return Err(about(&format_args!("the copy is not sound: {found}")));
    }
    drop(copy);
    let file = File::open(&path).map_err(|error| about(&error))?;
    let bytes = file.metadata().map_err(|error| about(&error))?.len();
    Ok(Copied {
        file,
        bytes,
        schema,
    })
}

fn clean_after(there: &Path) {
    if let Err(error) = std::fs::remove_dir_all(there) {
        tracing::warn!(directory = %there.display(), %error, "an unfinished copy stays");
    }
}

/// How long both files are.
fn size(directory: &Path) -> u64 {
    let of = |name: String| std::fs::metadata(directory.join(name)).map_or(0, |it| it.len());
    [&SAMPLES, &AUDIT]
        .iter()
        .map(|kind| of(kind.file.to_owned()) + of(format!("{}-wal", kind.file)))
        .sum()
}

/// Whether the disk has room for so much, and the store goes on; `what` takes it.
pub(in super::super) fn leave_room(directory: &Path, bytes: u64, what: &str) -> Result<(), String> {
    if Space::of(directory).has_spare(bytes) {
        return Ok(());
    }
    Err(format!(
        "{}: {what} needs {} MiB, and too little of the disk is free beside what the store needs itself",
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
    fn a_copy_is_an_archive_of_both_files_however_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let samples = open(directory.path(), &SAMPLES).unwrap();
        let audit = open(directory.path(), &AUDIT).unwrap();
        let insert = "INSERT INTO event (at, kind) VALUES (7, 'started')";
        audit.connection.execute(insert, []).unwrap();
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let made = Made::make(directory.path(), "box", place).unwrap();
        drop((samples, audit));
        let mut left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["audit.db", "samples.db"]);

        let mut whole = Vec::new();
        loop {
            let part = made.part(whole.len() as u64).unwrap();
            assert!(part.len() <= LONGEST_PART);
            if part.is_empty() {
                break;
            }
            whole.extend(part);
        }
        assert_eq!(whole.len() as u64, made.bytes());
        assert_eq!(whole.len() % 512, 0);
        for offset in [1, 511, 513, 1_500, 40_000, made.bytes() - 1] {
            let at = usize::try_from(offset).unwrap();
            let part = made.part(offset).unwrap();
            assert_eq!(part, whole[at..at + part.len()]);
            assert!(!part.is_empty());
        }
        assert_eq!(made.part(made.bytes() + 7).unwrap(), b"");
    }

    #[test]
    fn what_an_ended_daemon_left_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let there = workplace(directory.path());
        std::fs::create_dir(&there).unwrap();
        std::fs::write(there.join("samples.db"), "half").unwrap();
        clean(directory.path());
        assert!(!there.exists());
        clean(directory.path());
    }
}
