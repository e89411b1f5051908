//! A file that is there whole or not at all: written beside its place under
//! another name, and renamed at its end.

use crate::exit::{Exit, Failure};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfThere {
    /// It stays.
    Refuse,
    /// The new one takes its place.
    Replace,
}

impl IfThere {
    /// With `--force` or without.
    pub(crate) const fn with(force: bool) -> Self {
        if force { Self::Replace } else { Self::Refuse }
    }
}

/// A file that is not whole yet. Gone when this is dropped before it is.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    at: PathBuf,
    goal: PathBuf,
    if_there: IfThere,
    is_finished: bool,
}

impl Partial {
    /// Begins one. What an earlier run left unfinished is begun anew.
    pub(crate) fn create(goal: &Path, if_there: IfThere, mode: u32) -> Result<Self, Failure> {
        may_be_at(goal, if_there)?;
        let Some(name) = goal.file_name() else {
            let what = format!("{} is no name of a file", goal.display());
            return Err(Failure::Usage(what));
        };
        let mut name = name.to_owned();
        name.push(".partial");
        let at = goal.with_file_name(name);
        let file = open(&at, mode).map_err(|why| cannot(&at, &why.to_string()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(cannot(&at, BUSY)),
            Err(TryLockError::Error(error)) => return Err(cannot(&at, &error.to_string())),
        }
        begin_anew(&file, &at, mode).map_err(|why| cannot(&at, &why.to_string()))?;
        Ok(Self {
            file,
            at,
            goal: goal.to_owned(),
            if_there,
            is_finished: false,
        })
    }

    /// Writes the next bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|why| cannot(&self.at, &why.to_string()))
    }

    /// The file itself, for what writes by itself.
    pub(crate) fn handle(&self) -> Result<File, Failure> {
        let handle = self.file.try_clone();
        handle.map_err(|why| cannot(&self.at, &why.to_string()))
    }

    /// Puts it in its place, safe on the disk.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let failed = |why: io::Error| cannot(&self.goal, &why.to_string());
        self.file.sync_all().map_err(failed)?;
        match self.if_there {
            IfThere::Replace => std::fs::rename(&self.at, &self.goal).map_err(failed)?,
            IfThere::Refuse => {
                match renameat_with(CWD, &self.at, CWD, &self.goal, RenameFlags::NOREPLACE) {
                    Ok(()) => {}
                    // A file system that cannot tell: the moment in between is lost.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        may_be_at(&self.goal, self.if_there)?;
                        std::fs::rename(&self.at, &self.goal).map_err(failed)?;
                    }
                    Err(Errno::EXIST) => return Err(is_there(&self.goal)),
                    Err(error) => return Err(failed(error.into())),
                }
            }
        }
        self.is_finished = true;
        let directory = self.goal.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = File::open(directory.unwrap_or(Path::new(".")));
        // Where that cannot be done, the name may be lost with the power; the file
        // is whole all the same.
        let _ = directory.and_then(|directory| directory.sync_all());
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_finished {
            // Whoever finds it knows by its name what it is.
            let _ = std::fs::remove_file(&self.at);
        }
    }
}

const BUSY: &str = "another gpukillctl writes it";

fn open(at: &Path, mode: u32) -> io::Result<File> {
    // Never through a link, and not waiting for the other end of a pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(mode);
    options.custom_flags(flags).open(at)
}

/// Empties a file that was left, where it is our own and nobody else's too: in a
/// directory of everybody somebody may have put one there to read along.
fn begin_anew(file: &File, at: &Path, mode: u32) -> io::Result<()> {
    let (opened, there) = (file.metadata()?, std::fs::symlink_metadata(at)?);
    let is_in_place = (opened.dev(), opened.ino()) == (there.dev(), there.ino());
    if !is_in_place {
        return Err(io::Error::other(BUSY));
    }
    let is_ours = opened.uid() == geteuid().as_raw() && opened.nlink() == 1;
    if !opened.is_file() || !is_ours {
        return Err(io::Error::other(
            "what is there is not of this run: remove it",
        ));
    }
    // Never wider than a new one would be.
    let narrowed = opened.mode() & mode & 0o777;
    file.set_permissions(Permissions::from_mode(narrowed))?;
    file.set_len(0)
}

fn may_be_at(goal: &Path, if_there: IfThere) -> Result<(), Failure> {
    match (std::fs::symlink_metadata(goal), if_there) {
        (Err(_), _) => Ok(()),
        // A rename would put a file in the place of a device or a link.
        (Ok(there), _) if !there.is_file() => Err(cannot(goal, "it is no file")),
        (Ok(_), IfThere::Replace) => Ok(()),
        (Ok(_), IfThere::Refuse) => Err(is_there(goal)),
    }
}

fn is_there(goal: &Path) -> Failure {
    Failure::NotDone {
        what: format!("{} is there already", goal.display()),
        hint: Some("--force replaces it".into()),
        exit: Exit::Failed,
    }
}

fn cannot(path: &Path, why: &str) -> Failure {
    Failure::NotDone {
        what: format!("cannot write {}: {why}", path.display()),
        hint: None,
        exit: Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_file_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let goal = directory.path().join("a");
        let begin = |if_there| {
            let mut partial = Partial::create(&goal, if_there, 0o600)?;
            partial.write(b"new")?;
            Ok::<_, Failure>(partial)
        };
        drop(begin(IfThere::Refuse).expect("it can be written"));
        assert_eq!(names(directory.path()), []);

        let partial = begin(IfThere::Refuse).expect("it can be written");
        let other = begin(IfThere::Refuse).expect_err("one at a time");
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
    fn what_is_there_stays_unless_it_is_to_be_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let goal = directory.path().join("a");
        let begin = |if_there| Partial::create(&goal, if_there, 0o600);
        // It came while the new one was written.
        let partial = begin(IfThere::Refuse).expect("it can be written");
        std::fs::write(&goal, "old").expect("it can be written");
        let there = format!("{} is there already", goal.display());
        let refused = [partial.finish().err(), begin(IfThere::Refuse).err()];
        for failure in refused {
            assert_eq!(failure.expect("it is refused").to_string(), there);
        }
        assert_eq!(names(directory.path()), [file("a", "old")]);

        let mut partial = begin(IfThere::Replace).expect("it can be written");
        partial.write(b"new").expect("it can be written");
        partial.finish().expect("it can be renamed");
        assert_eq!(names(directory.path()), [file("a", "new")]);
    }

    #[test]
    fn nothing_is_written_through_what_somebody_else_put_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let (goal, at) = (
            directory.path().join("a"),
            directory.path().join("a.partial"),
        );
        let theirs = directory.path().join("theirs");
        std::fs::write(&theirs, "theirs").expect("it can be written");
        std::fs::hard_link(&theirs, &at).expect("it can be linked");
        assert!(Partial::create(&goal, IfThere::Replace, 0o600).is_err());
        std::fs::remove_file(&at).expect("it is there");
        std::os::unix::fs::symlink(&theirs, &at).expect("it can be linked");
        assert!(Partial::create(&goal, IfThere::Replace, 0o600).is_err());
        std::fs::remove_file(&at).expect("it is there");
        std::os::unix::fs::symlink(&theirs, &goal).expect("it can be linked");
        let failure = Partial::create(&goal, IfThere::Replace, 0o600).err();
        let expected = format!("cannot write {}: it is no file", goal.display());
        assert_eq!(failure.expect("it is refused").to_string(), expected);
        assert_eq!(
            std::fs::read_to_string(&theirs).expect("it is there"),
            "theirs"
        );
    }
}
