//! Reads and replaces the rules file as a whole.

mod directory;

use crate::config::{OTHERS_WRITE, foreign_writer_reason, open_trusted, parent_directory};
use gpukill_proto::service::MAX_RULES_BYTES;
use rustix::fs::{Mode, OFlags};
use rustix::process::{getegid, geteuid};
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

pub(crate) const MAX_FILE_BYTES: u64 = MAX_RULES_BYTES as u64;

/// The text of the file; `None` if there is none.
///
/// # Errors
/// If the file exists and [`open_trusted`] refuses it, is longer than [`MAX_FILE_BYTES`], or is not
/// UTF-8.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    read_at_most(path, MAX_FILE_BYTES)
}

/// Like [`read`], with another maximum length.
///
/// # Errors
/// The errors of [`read`].
pub(crate) fn read_at_most(path: &Path, longest: u64) -> Result<Option<String>> {
    let Some(file) = open_trusted(path)? else {
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

/// How durable a replaced file is.
#[derive(Debug)]
pub(crate) enum Durability {
    /// It is on the disk.
    Durable,
    /// It is in place, but not known to be on the disk: after a power loss the previous file may be
    /// back.
    NotSynced(Error),
}

/// Replaces the file by one with `text`: a reader always sees the old or the new one. The owner and
/// the mode that an admin gave the file stay, unless the next read would refuse them. A symbolic
/// link is replaced, not followed. A missing directory, and its missing parent, are created; no
/// more.
///
/// # Errors
/// If the file cannot be written; it is unchanged then.
pub(crate) fn replace(path: &Path, text: &str) -> Result<Durability> {
    replace_with(path, text, sync)
}

fn replace_with(path: &Path, text: &str, sync: SyncFn) -> Result<Durability> {
    let directory = parent_directory(path);
    if directory.exists() {
        let is_kept = |before: &Metadata| {
            before.is_file() && foreign_writer_reason(before, OTHERS_WRITE).is_none()
        };
        let before = path.symlink_metadata().ok().filter(is_kept);
        return write_and_rename(path, text, FileAccess::Rules(before.as_ref()), sync);
    }
    directory::make(directory)?;
    let put = write_and_rename(path, text, FileAccess::Rules(None), sync);
    if put.is_err() {
        // The directory is empty; the first error counts.
        let _ = std::fs::remove_dir(directory);
    }
    put
}

/// The same for a private file of the daemon, with the daemon's own owner, group and mode: a file
/// with another owner is refused when it is read, so that it must not pass its owner on.
///
/// # Errors
/// As [`replace`], and if the file is not known to be on the disk.
pub(crate) fn replace_private(path: &Path, text: &str) -> Result<()> {
    match write_and_rename(path, text, FileAccess::Private, sync)? {
        Durability::Durable => Ok(()),
        Durability::NotSynced(error) => Err(error),
    }
}

/// Syncs a directory to the disk.
type SyncFn = fn(&Path) -> Result<()>;

fn sync(directory: &Path) -> Result<()> {
    File::open(directory)?.sync_all()
}

/// The owner, group and mode of a written file.
#[derive(Clone, Copy)]
enum FileAccess<'a> {
    /// Those of the file that it replaces; without one, every user may read it.
    Rules(Option<&'a Metadata>),
    /// Those of the daemon. No other user may read it.
    Private,
}

fn write_and_rename(
    path: &Path,
    text: &str,
    access: FileAccess<'_>,
    sync: SyncFn,
) -> Result<Durability> {
    let directory = parent_directory(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = directory.join(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write(&new, text, access);
    let replaced = written.and_then(|()| std::fs::rename(&new, path));
    if replaced.is_err() {
        // The temporary file is useless; the first error counts.
        let _ = std::fs::remove_file(&new);
    }
    replaced?;
    // The file is in place, whatever the result of the sync.
    Ok(match sync(directory) {
        Ok(()) => Durability::Durable,
        Err(error) => Durability::NotSynced(error),
    })
}

fn write(new: &Path, text: &str, access: FileAccess<'_>) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let (mode, ids) = match access {
        FileAccess::Rules(Some(before)) => {
            let ids = (before.uid(), before.gid());
            (before.permissions().mode() & 0o777, Some(ids))
        }
        FileAccess::Rules(None) => (0o644, None),
        // The directory may give its files another group.
        FileAccess::Private => (0o600, Some((geteuid().as_raw(), getegid().as_raw()))),
    };
    let mut file = File::from(rustix::fs::open(new, flags, Mode::from_raw_mode(mode))?);
    // Sets the bits that the umask removed.
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    if let Some((uid, gid)) = ids {
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            // Without the right, the file belongs to the daemon and the group of its directory.
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
    fn written_file_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        // The remains of an interrupted edit.
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
    fn no_file_keeps_an_owner_that_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (rules, state) = (at("guard.toml"), at("guard.json"));
        let facts = |path: &Path| {
            let metadata = path.metadata().unwrap();
            (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
        };
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        for path in [&rules, &state] {
            std::fs::write(path, "one").unwrap();
            let mode = std::fs::Permissions::from_mode(0o664);
            std::fs::set_permissions(path, mode).unwrap();
            if geteuid().is_root() {
                std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
            }
        }
        replace(&rules, "two").unwrap();
        assert_eq!(facts(&rules), (uid, gid, 0o644));
        replace_private(&state, "two").unwrap();
        assert_eq!(facts(&state), (uid, gid, 0o600));
        if !geteuid().is_root() {
            eprintln!("skipped: only root can give a file to another group");
            return;
        }
        // A group that an admin gave the rules stays, one that the state has does not.
        for path in [&rules, &state] {
            std::os::unix::fs::chown(path, None, Some(65_534)).unwrap();
        }
        replace(&rules, "three").unwrap();
        assert_eq!(facts(&rules), (uid, 65_534, 0o644));
        replace_private(&state, "three").unwrap();
        assert_eq!(facts(&state), (uid, gid, 0o600));
    }

    #[test]
    fn failed_sync_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        assert!(matches!(
            replace(&path, "one").unwrap(),
            Durability::Durable
        ));
        let kept = replace_with(&path, "two", |_| Err(Error::other("no room")));
        match kept.unwrap() {
            Durability::NotSynced(error) => assert_eq!(error.to_string(), "no room"),
            Durability::Durable => panic!("nobody can know that"),
        }
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
    }

    #[test]
    fn file_writable_by_others_is_refused() {
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
        if !geteuid().is_root() {
            eprintln!("skipped: only root can give a file to others");
            return;
        }
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it belongs to uid 65534: change its owner to root"
        );
    }

    #[test]
    fn link_is_replaced_not_followed() {
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
    fn dangling_link_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let rules = directory.path().join("rules");
        std::os::unix::fs::symlink("/root/none", &rules).unwrap();
        let error = read(&rules.join("guard.toml")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "its directory is a link to /root/none, which gpukilld cannot see: move the target to a \
             place that it can see, or remove the link"
        );
        let file = directory.path().join("guard.toml");
        std::os::unix::fs::symlink("nothing.toml", &file).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(
            error.starts_with("it is a link to nothing.toml, which"),
            "{error}"
        );
        // An existing directory, behind a link, without rules.
        let linked = directory.path().join("linked");
        std::os::unix::fs::symlink(".", &linked).unwrap();
        assert_eq!(read(&linked.join("none.toml")).unwrap(), None);
    }

    #[test]
    fn foreign_file_is_refused_and_kept() {
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
        let long = vec![b' '; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
        std::fs::write(&path, long).unwrap();
        read(&path).unwrap_err();
        std::fs::write(&path, [0xff]).unwrap();
        read(&path).unwrap_err();
    }
}
