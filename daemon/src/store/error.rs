//! Classifies why a file of the store cannot be used: each kind of error is handled in its own way.

use super::disk_space::DiskSpace;
use rusqlite::ErrorCode;
use std::io::ErrorKind;
use std::path::Path;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreError {
    pub(super) kind: StoreErrorKind,
    /// The reason for an admin, with the path of the file.
    pub(super) why: String,
}

/// How the error can be handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreErrorKind {
    /// The file system is full: the record has a reserve.
    DiskFull,
    /// The file is corrupt: it is quarantined.
    Corrupt,
    /// An admin has to look: the file is foreign, of another version or read-only, or the disk
    /// fails.
    Other,
}

/// The SQLite codes that a full file system may cause. SQLite reports a full disk only if a page of
/// a file has no space, not if a file or its index has none.
const MAY_BE_FULL: [ErrorCode; 2] = [ErrorCode::SystemIoFailure, ErrorCode::CannotOpen];

impl StoreError {
    pub(super) fn other(path: &Path, why: impl std::fmt::Display) -> Self {
        Self {
            kind: StoreErrorKind::Other,
            why: format!("{}: {why}", path.display()),
        }
    }

    /// The error that SQLite reported for the file at this path.
    pub(super) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let is_full = || path.parent().is_none_or(|it| DiskSpace::read(it).is_full());
        let trouble = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Corrupt,
            Some(ErrorCode::DiskFull) => StoreErrorKind::DiskFull,
            Some(code) if MAY_BE_FULL.contains(&code) && is_full() => StoreErrorKind::DiskFull,
            Some(_) | None => StoreErrorKind::Other,
        };
        Self {
            kind: trouble,
            ..Self::other(path, error)
        }
    }

    /// The error that the system reported for the file.
    pub(super) fn from_io(path: &Path, error: &std::io::Error) -> Self {
        let is_full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&error.kind());
        Self {
            kind: if is_full {
                StoreErrorKind::DiskFull
            } else {
                StoreErrorKind::Other
            },
            ..Self::other(path, error)
        }
    }

    /// The result of an integrity check.
    pub(super) fn corrupt(path: &Path, why: &str) -> Self {
        Self {
            kind: StoreErrorKind::Corrupt,
            ..Self::other(path, why)
        }
    }
}
