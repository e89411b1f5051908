//! The SHA-256 of one file.

use super::HashResult;
use super::cache::{FileVersion, HashCache};
use crate::host::evidence::error_reason;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest file that is read.
pub(super) const MAX_FILE_BYTES: u64 = 512 << 20;

/// The longest time to read a file. Without it, a file that returns a byte from time to time would
/// block the files of everyone else.
pub(super) const HASH_TIMEOUT: Duration = Duration::from_secs(60);

const CHUNK_BYTES: usize = 64 << 10;

/// Hashes the file at this path, unless the cache has its hash.
///
/// # Errors
/// The reason: the file cannot be read, is not one that is hashed, or changed during the read.
pub(super) fn hash_file(path: &Path, before: &Mutex<HashCache>) -> HashResult {
    hash_file_with(
        |file| sha256(file, MAX_FILE_BYTES, HASH_TIMEOUT),
        path,
        before,
    )
}

/// The same with this read function.
pub(super) fn hash_file_with(
    read: impl FnOnce(File) -> HashResult,
    path: &Path,
    before: &Mutex<HashCache>,
) -> HashResult {
    // So that opening a device or a FIFO does not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| unreadable_reason(error.into()))?);
    let metadata = file.metadata().map_err(unreadable_reason)?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(too_long_reason(MAX_FILE_BYTES));
    }
    let identity = FileVersion::from_metadata(&metadata);
    if let Some(hash) = lock(before).get(&identity) {
        return Ok(hash);
    }
    let hash = read(file)?;
    // An executable that runs is not written to, but a file on a server has other clients; and the
    // process may execute another one.
    let after = path.metadata().map_err(unreadable_reason)?;
    if FileVersion::from_metadata(&after) != identity {
        return Err("it changed while it was read".to_owned());
    }
    lock(before).insert(identity, hash.clone());
    Ok(hash)
}

/// The hash of all data of the file: at most `max_bytes` bytes, in at most this time.
pub(super) fn sha256(mut file: impl Read, max_bytes: u64, timeout: Duration) -> HashResult {
    let start = Instant::now();
    let mut hasher = Sha256::new();
    let mut piece = vec![0; CHUNK_BYTES];
    let mut length = 0_u64;
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok(format!("{:x}", hasher.finalize())),
            Ok(read) => piece.get(..read).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable_reason(error)),
        };
        length = length.saturating_add(read.len() as u64);
        if length > max_bytes {
            return Err(too_long_reason(max_bytes));
        }
        if start.elapsed() > timeout {
            return Err("reading it takes longer than a minute".to_owned());
        }
        hasher.update(read);
    }
}

fn too_long_reason(max_bytes: u64) -> String {
    format!("it is longer than {} MiB", max_bytes >> 20)
}

fn unreadable_reason(error: io::Error) -> String {
    format!("the file cannot be read: {}", error_reason(&error))
}

fn lock(before: &Mutex<HashCache>) -> MutexGuard<'_, HashCache> {
    // No code panics while it holds this lock; if some did, only a hash would be lost.
    before.lock().unwrap_or_else(PoisonError::into_inner)
}
