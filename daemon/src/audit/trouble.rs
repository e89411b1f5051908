//! What it means that a file of the store cannot be used: each kind of trouble
//! is met in its own way.

use super::space::Space;
use rusqlite::ErrorCode;
use std::io::ErrorKind;
use std::path::Path;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unusable {
    pub(super) trouble: Trouble,
    /// In words for an admin, with the file's path.
    pub(super) why: String,
}

/// What can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The file system is full: the record has a reserve.
    NoRoom,
    /// The file is not whole: it is set aside.
    Broken,
    /// Somebody has to look: it is another's file, a newer one, may not be
    /// written, or the disk fails.
    Other,
}

/// The codes of SQLite behind which a full file system may be. Only where a page
/// of a file has no room it says so; not where a file or its index has none.
const MAY_BE_FULL: [ErrorCode; 2] = [ErrorCode::SystemIoFailure, ErrorCode::CannotOpen];

impl Unusable {
    pub(super) fn other(path: &Path, why: impl std::fmt::Display) -> Self {
        Self {
            trouble: Trouble::Other,
            why: format!("{}: {why}", path.display()),
        }
    }

    /// What SQLite said of the file at this path.
    pub(super) fn by_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let is_full = || path.parent().is_none_or(|it| Space::of(it).is_used_up());
        let trouble = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Trouble::Broken,
            Some(ErrorCode::DiskFull) => Trouble::NoRoom,
            Some(code) if MAY_BE_FULL.contains(&code) && is_full() => Trouble::NoRoom,
            Some(_) | None => Trouble::Other,
        };
        Self {
            trouble,
            ..Self::other(path, error)
        }
    }

    /// What the system said of it.
    pub(super) fn by_system(path: &Path, error: &std::io::Error) -> Self {
        let is_full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&error.kind());
        Self {
            trouble: if is_full {
                Trouble::NoRoom
            } else {
                Trouble::Other
            },
            ..Self::other(path, error)
        }
    }

    /// What a look over the file found.
    pub(super) fn broken(path: &Path, why: &str) -> Self {
        Self {
            trouble: Trouble::Broken,
            ..Self::other(path, why)
        }
    }
}
