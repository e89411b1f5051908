//! Puts the files of a restore in the place of those that are there. It is decided by
//! one rename, of the directory that has the new files; what follows are renames
//! that any start of the daemon goes on with where the last one was killed. Nothing
//! is deleted, nothing replaced, and no log of an old file is left beside a new one.

use super::super::aside::name_of;
use super::super::database::{AUDIT, SAMPLES};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// What a database may consist of: the file, its log, and the index of that.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];

/// Before the time in the name of a directory: the new files, until they are in
/// place, and the old ones.
const NEW: &str = "restoring-";
const OLD: &str = "replaced-";

/// A time that names no directory yet: two may be made within a second.
pub(super) fn free_time(directory: &Path, now: Timestamp) -> String {
    let time = name_of(now);
    let others = (2..=u32::MAX).map(|number| format!("{time}-{number}"));
    let is_free = |time: &String| {
        [NEW, OLD]
            .iter()
            .all(|prefix| !directory.join(format!("{prefix}{time}")).exists())
    };
    std::iter::once(time.clone())
        .chain(others)
        .find(is_free)
        .unwrap_or(time)
}

/// Where the old files of a restore lie then.
pub(super) fn old_place(directory: &Path, time: &str) -> PathBuf {
    directory.join(format!("{OLD}{time}"))
}

/// Decides it: from now on the files in `ready`, which are safe on the disk, are the
/// store. Nobody may have the old ones open for writing.
///
/// # Errors
/// When nothing has changed.
pub(super) fn decide(directory: &Path, ready: &Path, time: &str) -> io::Result<()> {
    std::fs::rename(ready, directory.join(format!("{NEW}{time}")))?;
    // Where the disk does not say that it has it, it may have it all the same.
    let _ = sync(directory);
    Ok(())
}

/// The restores that are decided and not finished.
fn unfinished(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((entry.path(), name.strip_prefix(NEW)?.to_owned()))
        })
        .collect();
    found.sort_indirect();
    found
}

/// Whether what is in place may be half of one store and half of another.
pub(in super::super) fn is_unfinished(directory: &Path) -> bool {
    !unfinished(directory).is_empty()
}

/// Does what is left to be done of a restore that is decided. Nobody may have the
/// files open.
///
/// # Errors
/// Why it cannot be finished now, in words for an admin.
pub(in super::super) fn finish(directory: &Path) -> Result<(), String> {
    for (new, time) in unfinished(directory) {
        let old = old_place(directory, &time);
        let finished = put_in_place(directory, &new, &old);
        finished.map_err(|error| {
            format!("{}: the restore cannot be finished: {error}", new.display())
        })?;
        tracing::warn!(
            replaced = %old.display(),
            "a copy is put in the place of the store, which is set aside"
        );
    }
    Ok(())
}

fn put_in_place(directory: &Path, new: &Path, old: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o750).create(old) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) | Ok(()) => {}
    }
    for step in steps(directory, new, old) {
        match step {
            Step::Rename(from, to) => rename(&from, &to)?,
            Step::Sync => {
                sync(old)?;
                sync(directory)?;
            }
        }
    }
    // It is empty, but for what SQLite may have left beside its files.
    std::fs::remove_dir_all(new)?;
    sync(directory)
}

/// One thing that is left to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Rename(PathBuf, PathBuf),
    /// What was renamed is on the disk before more is.
    Sync,
}

/// What is left to be done, as the directories stand.
fn steps(directory: &Path, new: &Path, old: &Path) -> Vec<Step> {
    let mut steps = Vec::new();
    let waiting = [&SAMPLES, &AUDIT].map(|kind| kind.file);
    let waiting: Vec<_> = waiting
        .into_iter()
        .filter(|file| new.join(file).exists())
        .collect();
    for file in &waiting {
        for part in PARTS {
            let name = format!("{file}{part}");
            let from = directory.join(&name);
            if from.exists() {
                steps.push(Step::Rename(from, old.join(name)));
            }
        }
    }
    steps.push(Step::Sync);
    for file in waiting {
        steps.push(Step::Rename(new.join(file), directory.join(file)));
    }
    steps
}

/// Nothing is replaced: what is there already somebody else put there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        let what = format!("{} is there already", to.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    std::fs::rename(from, to)
}

/// Has the disk keep what was renamed in a directory.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TIME: &str = "20261121T231502Z";

    /// A store with logs, and a restore that is decided.
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
        decide(there, &there.join("copying"), TIME).unwrap();
        directory
    }

    /// Every file below, with what is in it.
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
    fn whenever_it_is_killed_the_next_start_ends_at_the_same() {
        let replaced = format!("{OLD}{TIME}");
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
            let (new, old) = (there.join(format!("{NEW}{TIME}")), there.join(&replaced));
            assert!(is_unfinished(there));
            std::fs::create_dir(&old).unwrap();
            let all = steps(there, &new, &old);
            for step in all.iter().take(done) {
                if let Step::Rename(from, to) = step {
                    rename(from, to).unwrap();
                }
                // No file stands beside the log of another.
                let tree = tree(there);
                for name in ["samples.db", "audit.db"] {
                    let is_new = tree.get(name).is_some_and(|text| text.starts_with("new"));
                    assert!(!is_new || !tree.contains_key(&format!("{name}-wal")));
                }
            }
            assert_eq!(finish(there), Ok(()), "after {done} steps");
            assert_eq!(tree(there), expected, "after {done} steps");
            assert!(!is_unfinished(there));
            assert_eq!(finish(there), Ok(()));
            done += 1;
            if done > all.len() {
                break;
            }
        }
        assert_eq!(done, 9);
    }

    #[test]
    fn nothing_that_is_there_is_replaced() {
        let directory = decided();
        let there = directory.path();
        let old = there.join(format!("{OLD}{TIME}"));
        std::fs::create_dir(&old).unwrap();
        std::fs::write(old.join("samples.db"), "theirs").unwrap();
        let before = tree(there);
        let new = there.join(format!("{NEW}{TIME}"));
        let why = format!(
            "{}: the restore cannot be finished: {} is there already",
            new.display(),
            old.join("samples.db").display()
        );
        assert_eq!(finish(there), Err(why));
        assert_eq!(tree(there), before);
        assert_eq!(
            free_time(there, Timestamp(1_795_302_902_250)),
            format!("{TIME}-2")
        );
    }
}
