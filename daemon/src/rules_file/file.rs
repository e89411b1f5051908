//! The admin's file of rules: read whole, and replaced whole.

mod directory;

use crate::config::{open, parent};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// A file of rules is some kilobytes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// What the file says; nothing where there is none.
///
/// # Errors
/// When it is there and [`open`] refuses it, is longer than [`LONGEST`] or no text.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    read_at_most(path, LONGEST)
}

/// As [`read`], of another length.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_at_most(path: &Path, longest: u64) -> Result<Option<String>> {
    let Some(file) = open(path)? else {
        return Ok(None);
    };
    let mut text = String::new();
    file.take(longest + 1).read_to_string(&mut text)?;
    if text.len() as u64 > longest {
        let what = format!("it is longer than {longest} bytes");
        return Err(Error::other(what));
    }
    Ok(Some(text))
}

/// How safe a file is that was put in its place.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It is on the disk.
    ForGood,
    /// It is there, and whether that is on the disk is not known: when the power fails,
    /// what it was may be back.
    WhilePowered(Error),
}

/// Replaces the file by one that says `text`: a reader sees the old or the new one,
/// whatever happens meanwhile. A symbolic link is replaced, not followed. Where its
/// directory is missing, that is made, and the one around it; no more.
///
/// # Errors
/// When it cannot be written; then it is as it was.
pub(crate) fn replace(path: &Path, text: &str) -> Result<Kept> {
    replace_and(path, text, sync)
}

fn replace_and(path: &Path, text: &str, sync: Syncing) -> Result<Kept> {
    let directory = parent(path);
    if directory.exists() {
        return put(path, text, 0o644, sync);
    }
    directory::make(directory)?;
    let put = put(path, text, 0o644, sync);
    if put.is_err() {
        // It is empty; the error that counts is the first.
        let _ = std::fs::remove_dir(directory);
    }
    put
}

/// The same for a file of the daemon's own, which nobody else may read.
///
/// # Errors
/// As [`replace`], and when it is not known to be on the disk.
pub(crate) fn replace_private(path: &Path, text: &str) -> Result<()> {
    match put(path, text, 0o600, sync)? {
        Kept::ForGood => Ok(()),
        Kept::WhilePowered(error) => Err(error),
    }
}

/// Has the disk keep what a directory says.
type Syncing = fn(&Path) -> Result<()>;

fn sync(directory: &Path) -> Result<()> {
    File::open(directory)?.sync_all()
}

fn put(path: &Path, text: &str, usual_mode: u32, sync: Syncing) -> Result<Kept> {
    let directory = parent(path);
    let before = path.symlink_metadata().ok().filter(Metadata::is_file);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = directory.join(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write(&new, text, before.as_ref(), usual_mode);
    let replaced = written.and_then(|()| std::fs::rename(&new, path));
    if replaced.is_err() {
        // It is of no use to anybody; the error that counts is the first.
        let _ = std::fs::remove_file(&new);
    }
    replaced?;
    // It is in its place, whatever the disk says now.
    Ok(match sync(directory) {
        Ok(()) => Kept::ForGood,
        Err(error) => Kept::WhilePowered(error),
    })
}

fn write(new: &Path, text: &str, before: Option<&Metadata>, usual_mode: u32) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = before.map_or(usual_mode, |before| before.permissions().mode() & 0o777);
    let mut file = File::from(rustix::fs::open(new, flags, Mode::from_raw_mode(mode))?);
    // What the umask took away.
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    if let Some(before) = before {
        let (uid, gid) = (before.uid(), before.gid());
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            // Only root may; whoever may not leaves it theirs.
            let _ = std::os::unix::fs::fchown(&file, Some(uid), Some(gid));
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        // What an edit left that was broken off.
        std::fs::write(directory.path().join("guard.toml.new"), "half").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        let names: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["guard.toml"]);
    }

    #[test]
    fn what_is_in_its_place_is_no_error_though_the_disk_may_not_keep_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        assert!(matches!(replace(&path, "one").unwrap(), Kept::ForGood));
        let kept = replace_and(&path, "two", |_| Err(Error::other("no room")));
        match kept.unwrap() {
            Kept::WhilePowered(error) => assert_eq!(error.to_string(), "no room"),
            Kept::ForGood => panic!("nobody can know that"),
        }
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
    }

    #[test]
    fn what_others_may_write_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        replace(&path, "one").unwrap();
        for mode in [0o666, 0o664, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("one"));
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a file to others");
            return;
        }
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.to_string(), "it belongs to uid 65534: chown root it");
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (
            directory.path().join("guard.toml"),
            directory.path().join("elsewhere.toml"),
        );
        std::fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "two").unwrap();
        assert!(link.symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "two");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
    }

    #[test]
    fn a_link_to_where_nothing_is_seen_is_not_taken_for_no_rules() {
        let directory = tempfile::tempdir().unwrap();
        let rules = directory.path().join("rules");
        std::os::unix::fs::symlink("/root/none", &rules).unwrap();
        let error = read(&rules.join("guard.toml")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "its directory is a link to /root/none, where gpukilld sees nothing: make that where \
             it does, or remove the link"
        );
        let file = directory.path().join("guard.toml");
        std::os::unix::fs::symlink("nothing.toml", &file).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(
            error.starts_with("it is a link to nothing.toml, where"),
            "{error}"
        );
        // A directory that is there, by a link, and has no rules.
        let linked = directory.path().join("linked");
        std::os::unix::fs::symlink(".", &linked).unwrap();
        assert_eq!(read(&linked.join("none.toml")).unwrap(), None);
    }

    #[test]
    fn what_is_no_file_of_ours_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        std::fs::create_dir(&path).unwrap();
        read(&path).unwrap_err();
        replace(&path, "two").unwrap_err();
        assert!(path.is_dir());
        std::fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let long = vec![b' '; usize::try_from(LONGEST).unwrap() + 1];
        std::fs::write(&path, long).unwrap();
        read(&path).unwrap_err();
        std::fs::write(&path, [0xff]).unwrap();
        read(&path).unwrap_err();
    }
}
