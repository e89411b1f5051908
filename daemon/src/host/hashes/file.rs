//! The SHA-256 of one file.

use super::Hash;
use super::before::{Before, Identity};
use crate::host::traces::why;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer files are not read.
pub(super) const MOST: u64 = 512 << 20;

/// Nor those that take longer, or one that gives a byte from time to time would keep
/// everybody else's from being read.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// So much is read at once.
const PIECE: usize = 64 << 10;

/// The hash of the file at this path, unless it was read before.
///
/// # Errors
/// In words: where it cannot be read, is none that is hashed, or is not the same any more
/// when it was read.
pub(super) fn hash(path: &Path, before: &Mutex<Before>) -> Hash {
    hash_by(|file| sha256(file, MOST, PATIENCE), path, before)
}

/// The same with this reading.
pub(super) fn hash_by(
    read: impl FnOnce(File) -> Hash,
    path: &Path,
    before: &Mutex<Before>,
) -> Hash {
    // A device or a FIFO does not have us wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| unreadable(error.into()))?);
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if metadata.len() > MOST {
        return Err(longer_than(MOST));
    }
    let identity = Identity::of(&metadata);
    if let Some(hash) = lock(before).of(&identity) {
        return Ok(hash);
    }
    let hash = read(file)?;
    // Nobody writes to what is executed, but a file on a server has other clients; and
    // the process may execute another one.
    let after = path.metadata().map_err(unreadable)?;
    if Identity::of(&after) != identity {
        return Err("it changed while it was read".to_owned());
    }
    lock(before).keep(identity, hash.clone());
    Ok(hash)
}

/// The hash of all that there is to read: no more bytes than so many, in so much time.
pub(super) fn sha256(mut file: impl Read, most: u64, patience: Duration) -> Hash {
    let began = Instant::now();
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut length = 0_u64;
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok(format!("{:x}", hasher.finalize())),
            Ok(read) => piece.get(..read).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(error)),
        };
        length = length.saturating_add(read.len() as u64);
        if length > most {
            return Err(longer_than(most));
        }
        if began.elapsed() > patience {
            return Err("to read it takes longer than a minute".to_owned());
        }
        hasher.update(read);
    }
}

fn longer_than(most: u64) -> String {
    format!("it is longer than {} MiB", most >> 20)
}

fn unreadable(error: io::Error) -> String {
    format!("the file cannot be read: {}", why(&error))
}

fn lock(before: &Mutex<Before>) -> MutexGuard<'_, Before> {
    // Nothing panics while it holds this lock; if something did, a hash is lost.
    before.lock().unwrap_or_else(PoisonError::into_inner)
}
