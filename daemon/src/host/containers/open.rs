//! Opens a file in a place that others chose, without following links and without waiting, and
//! reads a bounded part.

use gpukill_proto::text::sanitize;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

/// How much of a file is read. Docker's files have some KiB, lists of containers some hundred bytes
/// each.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrustedOwner {
    /// Any owner: only root can write to the directory.
    Any,
    /// Only this user: a link to another user's file must reveal nothing.
    User(u32),
}

/// Why a text is missing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileError {
    /// The file does not exist.
    Absent,
    /// The file exists and is not used, for this reason.
    Unusable(String),
}

/// Reads a file this far below a directory. The path of the directory may contain links, which the
/// admin made; the path below it may not.
pub(super) fn read_below(
    directory: &Path,
    below: &[String],
    trusted_owner: TrustedOwner,
) -> Result<String, FileError> {
    let Some((name, between)) = below.split_last() else {
        return Err(FileError::Absent);
    };
    let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, directory, on_the_way, Mode::empty()).map_err(file_error)?;
    for part in between {
        let deeper = on_the_way | OFlags::NOFOLLOW;
        at = openat(&at, part.as_str(), deeper, Mode::empty()).map_err(file_error)?;
    }
    // Avoids waiting for a FIFO and taking a controlling terminal.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | OFlags::CLOEXEC;
    let file = openat(&at, name.as_str(), flags, Mode::empty()).map_err(file_error)?;
    read_text(file, name, trusted_owner)
}

fn read_text(file: OwnedFd, name: &str, trusted_owner: TrustedOwner) -> Result<String, FileError> {
    let unusable = |why: &str| FileError::Unusable(format!("{name} {why}"));
    let stat = fstat(&file).map_err(file_error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(unusable("is not a regular file"));
    }
    match trusted_owner {
        TrustedOwner::User(uid) if stat.st_uid != uid => {
            return Err(unusable("belongs to another user"));
        }
        TrustedOwner::User(_) | TrustedOwner::Any => {}
    }
    let mut text = String::new();
    let read = File::from(file)
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text);
    read.map_err(|_| unusable("cannot be read as text"))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(unusable("is longer than 1 MiB"));
    }
    Ok(text)
}

fn file_error(error: Errno) -> FileError {
    match error {
        Errno::NOENT => FileError::Absent,
        Errno::ACCESS | Errno::PERM => FileError::Unusable("not permitted".into()),
        // The error of O_NOFOLLOW and O_DIRECTORY for a link.
        Errno::LOOP | Errno::NOTDIR => FileError::Unusable("its path contains a link".into()),
        other => {
            let why = std::io::Error::from(other).to_string();
            FileError::Unusable(sanitize(why.as_bytes(), 80))
        }
    }
}
