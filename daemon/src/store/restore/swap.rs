//! Puts the files of a restore in place of the store's files. One rename, of the directory with the
//! new files, commits the restore; the renames after it are continued by any start of the daemon if
//! a run was killed. Nothing is deleted or overwritten, and no log of an old file is left beside a
//! new one.

use super::super::database::{AUDIT, SAMPLES};
use super::super::quarantine::format_time;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The suffixes of the files of a database: the file, its log, and the index of the log.
const DATABASE_SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// The prefixes of directory names, before the time: for the new files until they are in place, and
/// for the replaced files.
const NEW_PREFIX: &str = "restoring-";
const OLD_PREFIX: &str = "replaced-";

/// A time for which no directory exists yet: two may be made within a second.
pub(super) fn unused_time(directory: &Path, now: Timestamp) -> String {
    let time = format_time(now);
    let others = (2..=u32::MAX).map(|number| format!("{time}-{number}"));
    let is_free = |time: &String| {
        [NEW_PREFIX, OLD_PREFIX]
            .iter()
            .all(|prefix| !directory.join(format!("{prefix}{time}")).exists())
    };
    std::iter::once(time.clone())
        .chain(others)
        .find(is_free)
        .unwrap_or(time)
}

/// The directory for the replaced files of a restore.
pub(super) fn replaced_directory(directory: &Path, time: &str) -> PathBuf {
    directory.join(format!("{OLD_PREFIX}{time}"))
}

/// Commits the restore: from now on the files in `ready`, which are synced to the disk, are the
/// store. The old files must not be open for writing.
///
/// # Errors
/// When nothing has changed.
pub(super) fn commit(directory: &Path, ready: &Path, time: &str) -> io::Result<()> {
    std::fs::rename(ready, directory.join(format!("{NEW_PREFIX}{time}")))?;
    // If syncing fails, the rename may be on the disk nevertheless.
    let _ = sync_directory(directory);
    Ok(())
}

/// The committed restores that are not finished.
fn unfinished_restores(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((entry.path(), name.strip_prefix(NEW_PREFIX)?.to_owned()))
        })
        .collect();
    found.sort_indirect();
    found
}

/// Whether the store may consist of files of two stores, because a restore is not finished.
pub(in super::super) fn is_unfinished(directory: &Path) -> bool {
    !unfinished_restores(directory).is_empty()
}

/// Finishes a committed restore. The files must not be open.
///
/// # Errors
/// The reason why the restore cannot be finished now, for an admin.
pub(in super::super) fn finish_restore(directory: &Path) -> Result<(), String> {
    for (new, time) in unfinished_restores(directory) {
        let old = replaced_directory(directory, &time);
        let finished = swap_files(directory, &new, &old);
        finished.map_err(|error| {
            format!("{}: the restore cannot be finished: {error}", new.display())
        })?;
        tracing::warn!(
            replaced = %old.display(),
            "replaced the store by a copy; the old store is kept"
        );
    }
    Ok(())
}

fn swap_files(directory: &Path, new: &Path, old: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o750).create(old) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) | Ok(()) => {}
    }
    for step in remaining_steps(directory, new, old) {
        match step {
            SwapStep::Rename(from, to) => rename_without_overwrite(&from, &to)?,
            SwapStep::Sync => {
                sync_directory(old)?;
                sync_directory(directory)?;
            }
        }
    }
    // The directory is empty, except for files that SQLite may have left.
    std::fs::remove_dir_all(new)?;
    sync_directory(directory)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SwapStep {
    Rename(PathBuf, PathBuf),
    /// Syncs the earlier renames to the disk before the next ones.
    Sync,
}

fn remaining_steps(directory: &Path, new: &Path, old: &Path) -> Vec<SwapStep> {
    let mut steps = Vec::new();
    let waiting = [&SAMPLES, &AUDIT].map(|kind| kind.file);
    let waiting: Vec<_> = waiting
        .into_iter()
        .filter(|file| new.join(file).exists())
        .collect();
    for file in &waiting {
        for part in DATABASE_SUFFIXES {
            let name = format!("{file}{part}");
            let from = directory.join(&name);
            if from.exists() {
                steps.push(SwapStep::Rename(from, old.join(name)));
            }
        }
    }
    steps.push(SwapStep::Sync);
    for file in waiting {
        steps.push(SwapStep::Rename(new.join(file), directory.join(file)));
    }
    steps
}

/// Refuses to overwrite: a file at the target was put there by someone else.
fn rename_without_overwrite(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        let what = format!("{} already exists", to.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    std::fs::rename(from, to)
}

/// Syncs the renames in a directory to the disk.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TIME: &str = "20261121T231502Z";

    /// A store with logs, and a committed restore.
    fn decided() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path();
        for name in [
            "samples.db",
            "samples.db-wal",
            "samples.db-shm",
            "audit.db",
            "audit.db-wal",
        ] {
            std::fs::write(there.join(name), format!("old {name}")).unwrap();
        }
        std::fs::create_dir(there.join("copying")).unwrap();
        for name in ["samples.db", "audit.db"] {
            std::fs::write(there.join("copying").join(name), format!("new {name}")).unwrap();
        }
        commit(there, &there.join("copying"), TIME).unwrap();
        directory
    }

    /// Every file below the directory, with its contents.
    fn tree(directory: &Path) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() {
                let below = tree(&entry.path()).into_iter();
                found.extend(below.map(|(file, text)| (format!("{name}/{file}"), text)));
            } else {
                found.insert(name, std::fs::read_to_string(entry.path()).unwrap());
            }
        }
        found
    }

    #[test]
    fn finishes_after_a_kill_at_any_step() {
        let replaced = format!("{OLD_PREFIX}{TIME}");
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let old = |name: &str| (format!("{replaced}/{name}"), format!("old {name}"));
        let expected = BTreeMap::from([
            file("samples.db", "new samples.db"),
            file("audit.db", "new audit.db"),
            old("samples.db"),
            old("samples.db-wal"),
            old("samples.db-shm"),
            old("audit.db"),
            old("audit.db-wal"),
        ]);
        let mut done = 0;
        loop {
            let directory = decided();
            let there = directory.path();
            let (new, old) = (
                there.join(format!("{NEW_PREFIX}{TIME}")),
                there.join(&replaced),
            );
            assert!(is_unfinished(there));
            std::fs::create_dir(&old).unwrap();
            let all = remaining_steps(there, &new, &old);
            for step in all.iter().take(done) {
                if let SwapStep::Rename(from, to) = step {
                    rename_without_overwrite(from, to).unwrap();
                }
                // No file is beside the log of another one.
                let tree = tree(there);
                for name in ["samples.db", "audit.db"] {
                    let is_new = tree.get(name).is_some_and(|text| text.starts_with("new"));
                    assert!(!is_new || !tree.contains_key(&format!("{name}-wal")));
                }
            }
            assert_eq!(finish_restore(there), Ok(()), "after {done} steps");
            assert_eq!(tree(there), expected, "after {done} steps");
            assert!(!is_unfinished(there));
            assert_eq!(finish_restore(there), Ok(()));
            done += 1;
            if done > all.len() {
                break;
            }
        }
        assert_eq!(done, 9);
    }

    #[test]
    fn overwrites_nothing() {
        let directory = decided();
        let there = directory.path();
        let old = there.join(format!("{OLD_PREFIX}{TIME}"));
        std::fs::create_dir(&old).unwrap();
        std::fs::write(old.join("samples.db"), "theirs").unwrap();
        let before = tree(there);
        let new = there.join(format!("{NEW_PREFIX}{TIME}"));
        let why = format!(
            "{}: the restore cannot be finished: {} already exists",
            new.display(),
            old.join("samples.db").display()
        );
        assert_eq!(finish_restore(there), Err(why));
        assert_eq!(tree(there), before);
        assert_eq!(
            unused_time(there, Timestamp(1_795_302_902_250)),
            format!("{TIME}-2")
        );
    }
}
