//! The archive of the store: a Parquet file for each kind of rows and each civil day of the host,
//! and a manifest of what is archived. This module decides; `command::audit::archive` reads and
//! writes, and `convert` has the Parquet format.

pub(crate) mod civil_day;
pub mod manifest;

use chrono::NaiveDate;
use std::path::PathBuf;

/// The format of archived files and of the manifest. It grows when a column changes its meaning.
pub(crate) const FORMAT: u64 = 1;

/// A kind of rows. Each kind has files of its own, because each has other columns.
///
/// A new kind needs a name here, a call that returns its rows (`command::audit::archive::rows`), and
/// its document and columns in `convert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArchiveKind {
    /// Samples of whole devices.
    Devices,
    /// Samples of processes on devices.
    Processes,
    /// The record of actions.
    Actions,
    /// The part of each run within the day.
    Runs,
}

impl ArchiveKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Devices, Self::Processes, Self::Actions, Self::Runs];

    /// The name in the directories of the archive.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Processes => "processes",
            Self::Actions => "actions",
            Self::Runs => "runs",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether `audit prune` deletes the rows from the store. Recorded actions always stay.
    pub(crate) const fn is_pruned(self) -> bool {
        match self {
            Self::Devices | Self::Processes | Self::Runs => true,
            Self::Actions => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandLines {
    Kept,
    Removed,
}

/// The path of a file below the directory of the archive. The directories are the partitions that
/// readers of Parquet recognise.
pub(crate) fn file_path(kind: ArchiveKind, date: NaiveDate, host: &str) -> PathBuf {
    let directories = format!("kind={}/date={date}", kind.name());
    PathBuf::from(directories).join(format!("{host}.parquet"))
}

/// Checks that a host name is a file name, and a plain one.
///
/// # Errors
/// It is empty, longer than a host name can be, or has other characters than letters, digits and
/// `.`, `-`, `_`.
pub(crate) fn check_host(host: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_name = (1..=255).contains(&host.len()) && !host.starts_with('.');
    match is_name && host.chars().all(is_plain) {
        true => Ok(host),
        false => Err(format!("the host name {host:?} cannot name a file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_is_a_plain_file_name() {
        for host in ["box", "gpu-box-07.lab.example", "a_b"] {
            assert_eq!(check_host(host), Ok(host));
        }
        let long = "a".repeat(256);
        for host in [
            "", ".", "..", ".box", "a/b", "../box", "a b", "büro", "a\0", &long,
        ] {
            assert!(check_host(host).is_err(), "{host}");
        }
    }

    #[test]
    fn path_has_a_partition_for_kind_and_day() {
        let date = NaiveDate::from_ymd_opt(2026, 3, 9).unwrap();
        let path = file_path(ArchiveKind::Devices, date, "box");
        let expected = "kind=devices/date=2026-03-09/box.parquet";
        assert_eq!(path, PathBuf::from(expected));
        for kind in ArchiveKind::ALL {
            assert_eq!(ArchiveKind::from_name(kind.name()), Some(kind));
        }
    }
}
