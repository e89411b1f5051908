//! Writes a file whole or not at all: under another name in the same directory, renamed at the
//! end.

use crate::exit::{Error, Exit, system_error_reason};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The action when the file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfExists {
    /// Keep it and fail.
    Refuse,
    Replace,
}

impl IfExists {
    /// With or without `--force`.
    pub(crate) const fn from_force(force: bool) -> Self {
        if force { Self::Replace } else { Self::Refuse }
    }
}

/// A file that is not complete yet. It is removed when this is dropped before `finish`.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    file: File,
    at: PathBuf,
    goal: PathBuf,
    if_exists: IfExists,
    is_finished: bool,
}

impl AtomicFile {
    /// Creates a file. What an earlier run left incomplete is overwritten.
    pub(crate) fn create(goal: &Path, if_exists: IfExists, mode: u32) -> Result<Self, Error> {
        Self::create_with_prefix("", goal, if_exists, mode)
    }

    /// Creates a file that is hidden until it is complete, because readers of a directory take
    /// all files in it for Parquet. What an earlier run left is removed: a converter of that run
    /// may still write it. The caller has locked the directory.
    pub(crate) fn create_hidden(goal: &Path, mode: u32) -> Result<Self, Error> {
        let at = partial_path(".", goal)?;
        match std::fs::remove_file(&at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_failure(&at, &error)),
            Ok(()) | Err(_) => Self::create_with_prefix(".", goal, IfExists::Replace, mode),
        }
    }

    fn create_with_prefix(
        prefix: &str,
        goal: &Path,
        if_exists: IfExists,
        mode: u32,
    ) -> Result<Self, Error> {
        check_target(goal, if_exists)?;
        let at = partial_path(prefix, goal)?;
        let file = open(&at, mode).map_err(|why| io_failure(&at, &why))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(write_error(&at, BUSY_MESSAGE)),
            Err(TryLockError::Error(error)) => return Err(io_failure(&at, &error)),
        }
        truncate_leftover(&file, &at, mode).map_err(|why| io_failure(&at, &why))?;
        Ok(Self {
            file,
            at,
            goal: goal.to_owned(),
            if_exists,
            is_finished: false,
        })
    }

    /// Writes the next bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|why| io_failure(&self.at, &why))
    }

    /// The file itself, for a writer that needs a descriptor.
    pub(crate) fn handle(&self) -> Result<File, Error> {
        let handle = self.file.try_clone();
        handle.map_err(|why| io_failure(&self.at, &why))
    }

    /// Writes the file to disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_all();
        synced.map_err(|why| io_failure(&self.goal, &why))
    }

    /// Puts the file in its place, synced to disk.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let failed = |why: io::Error| io_failure(&self.goal, &why);
        self.sync()?;
        match self.if_exists {
            IfExists::Replace => std::fs::rename(&self.at, &self.goal).map_err(failed)?,
            IfExists::Refuse => {
                match renameat_with(CWD, &self.at, CWD, &self.goal, RenameFlags::NOREPLACE) {
                    Ok(()) => {}
                    // This file system cannot rename without replacing: a file created in
                    // between is lost.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        check_target(&self.goal, self.if_exists)?;
                        std::fs::rename(&self.at, &self.goal).map_err(failed)?;
                    }
                    Err(Errno::EXIST) => return Err(exists_error(&self.goal)),
                    Err(error) => return Err(failed(error.into())),
                }
            }
        }
        self.is_finished = true;
        // When the directory cannot be synced, a power loss may lose the name; the file is
        // complete nevertheless.
        let _ = sync_parent(&self.goal);
        Ok(())
    }
}

/// Writes the directory of a file to disk, so that the name of the file is not lost.
pub(crate) fn sync_parent(file: &Path) -> io::Result<()> {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// The path of a file until it is complete.
fn partial_path(prefix: &str, goal: &Path) -> Result<PathBuf, Error> {
    let Some(goal_name) = goal.file_name() else {
        let what = format!("{} is not a file name", goal.display());
        return Err(Error::Usage(what));
    };
    let mut name = OsString::from(prefix);
    name.push(goal_name);
    name.push(".partial");
    Ok(goal.with_file_name(name))
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // The name of a remaining file shows what it is.
            let _ = std::fs::remove_file(&self.at);
        }
    }
}

const BUSY_MESSAGE: &str = "another gpukillctl writes it";

fn open(at: &Path, mode: u32) -> io::Result<File> {
    // Follow no link, and do not wait for the other end of a pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    // An archived file is read back before it gets its name.
    options.read(true).write(true).mode(mode);
    options.create(true).truncate(false);
    options.custom_flags(flags).open(at)
}

/// Truncates a file that was left, if only this user can reach it. In a directory that
/// everybody can write, another user may have put a file there to read along.
fn truncate_leftover(file: &File, at: &Path, mode: u32) -> io::Result<()> {
    let (opened, at_path) = (file.metadata()?, std::fs::symlink_metadata(at)?);
    let is_in_place = (opened.dev(), opened.ino()) == (at_path.dev(), at_path.ino());
    if !is_in_place {
        return Err(io::Error::other(BUSY_MESSAGE));
    }
    let is_own_file = opened.uid() == geteuid().as_raw() && opened.nlink() == 1;
    if !opened.is_file() || !is_own_file {
        return Err(io::Error::other(
            "an unfinished file there may belong to others: remove it",
        ));
    }
    // Never wider than the mode of a new file.
    let narrowed = opened.mode() & mode & 0o777;
    file.set_permissions(Permissions::from_mode(narrowed))?;
    file.set_len(0)
}

fn check_target(goal: &Path, if_exists: IfExists) -> Result<(), Error> {
    match (std::fs::symlink_metadata(goal), if_exists) {
        (Err(_), _) => Ok(()),
        // A rename would replace a device or a link by a file.
        (Ok(existing), _) if !existing.is_file() => Err(write_error(goal, "it is not a file")),
        (Ok(_), IfExists::Replace) => Ok(()),
        (Ok(_), IfExists::Refuse) => Err(exists_error(goal)),
    }
}

fn exists_error(goal: &Path) -> Error {
    Error::NotDone {
        what: format!("{} is there already", goal.display()),
        hint: Some("--force replaces it".into()),
        exit: Exit::Failed,
    }
}

/// The error of a file that cannot be written.
pub(crate) fn io_failure(path: &Path, error: &io::Error) -> Error {
    write_error(path, &system_error_reason(error))
}

fn write_error(path: &Path, why: &str) -> Error {
    Error::NotDone {
        what: format!("cannot write {}: {why}", path.display()),
        hint: None,
        exit: Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritable_path_is_named_without_a_number() {
        let directory = tempfile::tempdir().expect("a directory");
        let goal = directory.path().join("none/week.csv");
        let failure = AtomicFile::create(&goal, IfExists::Refuse, 0o600).err();
        let expected = format!(
            "cannot write {}.partial: no such file or directory",
            goal.display()
        );
        assert_eq!(failure.expect("it is refused").to_string(), expected);
    }

    fn names(directory: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        let mut names: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                (entry.file_name().to_string_lossy().into_owned(), text)
            })
            .collect();
        names.sort();
        names
    }

    fn file(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn file_is_whole_or_missing() {
        let directory = tempfile::tempdir().expect("a directory");
        let goal = directory.path().join("a");
        let begin = |if_exists| {
            let mut partial = AtomicFile::create(&goal, if_exists, 0o600)?;
            partial.write(b"new")?;
            Ok::<_, Error>(partial)
        };
        drop(begin(IfExists::Refuse).expect("it can be written"));
        assert_eq!(names(directory.path()), []);

        let partial = begin(IfExists::Refuse).expect("it can be written");
        let other = begin(IfExists::Refuse).expect_err("one at a time");
        let at = goal.with_file_name("a.partial");
        let busy = format!(
            "cannot write {}: another gpukillctl writes it",
            at.display()
        );
        assert_eq!(other.to_string(), busy);
        partial.finish().expect("it can be renamed");
        assert_eq!(names(directory.path()), [file("a", "new")]);
        let mode = std::fs::metadata(&goal).expect("it is there").mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn hidden_file_replaces_what_an_earlier_run_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let (goal, at) = (
            directory.path().join("a"),
            directory.path().join(".a.partial"),
        );
        // A converter of the earlier run still has it open, and locked.
        let left = File::create(&at).expect("it can be written");
        left.lock().expect("nobody else has it");
        let mut partial = AtomicFile::create_hidden(&goal, 0o600).expect("it can be written");
        partial.write(b"new").expect("it can be written");
        (&left).write_all(b"late").expect("it is open");
        assert_eq!(names(directory.path()), [file(".a.partial", "new")]);
        partial.finish().expect("it can be renamed");
        assert_eq!(names(directory.path()), [file("a", "new")]);
    }

    #[test]
    fn existing_file_stays_without_force() {
        let directory = tempfile::tempdir().expect("a directory");
        let goal = directory.path().join("a");
        let begin = |if_exists| AtomicFile::create(&goal, if_exists, 0o600);
        // Created while the new file was written.
        let partial = begin(IfExists::Refuse).expect("it can be written");
        std::fs::write(&goal, "old").expect("it can be written");
        let existing = format!("{} is there already", goal.display());
        let refused = [partial.finish().err(), begin(IfExists::Refuse).err()];
        for failure in refused {
            assert_eq!(failure.expect("it is refused").to_string(), existing);
        }
        assert_eq!(names(directory.path()), [file("a", "old")]);

        let mut partial = begin(IfExists::Replace).expect("it can be written");
        partial.write(b"new").expect("it can be written");
        partial.finish().expect("it can be renamed");
        assert_eq!(names(directory.path()), [file("a", "new")]);
    }

    #[test]
    fn links_of_other_users_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let (goal, at) = (
            directory.path().join("a"),
            directory.path().join("a.partial"),
        );
        let others = directory.path().join("theirs");
        std::fs::write(&others, "theirs").expect("it can be written");
        std::fs::hard_link(&others, &at).expect("it can be linked");
        assert!(AtomicFile::create(&goal, IfExists::Replace, 0o600).is_err());
        std::fs::remove_file(&at).expect("it is there");
        std::os::unix::fs::symlink(&others, &at).expect("it can be linked");
        assert!(AtomicFile::create(&goal, IfExists::Replace, 0o600).is_err());
        std::fs::remove_file(&at).expect("it is there");
        std::os::unix::fs::symlink(&others, &goal).expect("it can be linked");
        let failure = AtomicFile::create(&goal, IfExists::Replace, 0o600).err();
        let expected = format!("cannot write {}: it is not a file", goal.display());
        assert_eq!(failure.expect("it is refused").to_string(), expected);
        assert_eq!(
            std::fs::read_to_string(&others).expect("it is there"),
            "theirs"
        );
    }
}
