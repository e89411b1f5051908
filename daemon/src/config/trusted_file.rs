//! Opens a file that decides what the daemon does, unless another user wrote it or chose it through
//! a symbolic link.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The mode bits that let others than the owner write.
pub(crate) const OTHERS_WRITE: u32 = 0o022;

/// In a directory with this bit only its owner removes or renames a file (inode(7)).
pub(crate) const STICKY: u32 = 0o1000;

/// Why a user other than root and the daemon's user may have written the file; `open` are the mode
/// bits that allow it.
pub(crate) fn foreign_writer_reason(metadata: &Metadata, open: u32) -> Option<String> {
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Some(format!(
            "it belongs to uid {owner}: change its owner to root"
        ));
    }
    let is_open = metadata.mode() & open != 0;
    is_open.then(|| "users other than its owner may write it: chmod go-w FILE".to_owned())
}

/// Opens a regular file of root or of the daemon's user for reading. A symbolic link at `path` is
/// followed only within its directory, as in a Kubernetes ConfigMap: the daemon reads files that
/// the owner of that directory may not read. `None` if there is nothing at `path`.
///
/// # Errors
/// If the file cannot be opened, is not a regular file, or others may write or replace it.
pub(crate) fn open_trusted(path: &Path) -> Result<Option<File>> {
    let (directory, name) = match open_directory(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return check_no_dangling_link(path).map(|()| None);
        }
        Err(error) => return Err(error),
    };
    if let Some(why) = foreign_directory_reason(&directory)? {
        return Err(Error::new(ErrorKind::PermissionDenied, why));
    }
    let file = match open_within(&directory, name) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return check_no_dangling_link(path).map(|()| None),
        // openat2(2) and O_NOFOLLOW return these for a link that is not followed.
        Err(Errno::XDEV | Errno::LOOP) => return Err(link_not_followed(path)),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    match foreign_writer_reason(&metadata, OTHERS_WRITE) {
        Some(why) => Err(Error::new(ErrorKind::PermissionDenied, why)),
        None => Ok(Some(file)),
    }
}

/// Opens a settings file for reading. Links are followed from a directory that only `owner` and
/// root may write; elsewhere as by [`open_trusted`].
pub(super) fn open_settings(path: &Path, owner: u32) -> Result<File> {
    let (directory, name) = open_directory(path)?;
    let metadata = File::from(directory.try_clone()?).metadata()?;
    let is_trusted_owner = metadata.uid() == 0 || metadata.uid() == owner;
    let opened = if is_trusted_owner && foreign_directory_reason(&directory)?.is_none() {
        rustix::fs::openat(&directory, name, READ, Mode::empty())
    } else {
        open_within(&directory, name)
    };
    match opened {
        Ok(file) => Ok(file.into()),
        Err(Errno::XDEV | Errno::LOOP) => Err(link_not_followed(path)),
        Err(error) => Err(error.into()),
    }
}

/// A FIFO would block, and a terminal would become the controlling terminal of the daemon.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens the directory of a file; returns it with the name of the file.
fn open_directory(path: &Path) -> Result<(OwnedFd, &Path)> {
    let Some(name) = path.file_name() else {
        return Err(Error::other("it is not a regular file"));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path_only = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = parent_directory(path);
    // A directory that may be passed but not listed is opened as a path only.
    let directory = match rustix::fs::openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::ACCESS) => rustix::fs::openat(CWD, parent, path_only, Mode::empty()),
        other => other,
    };
    Ok((directory?, Path::new(name)))
}

pub(crate) fn parent_directory(path: &Path) -> &Path {
    path.parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Opens a file without following a link out of the directory; if the kernel or the seccomp filter
/// of a container lacks openat2(2), without following any link.
fn open_within(directory: &OwnedFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(directory, name, READ, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = READ | OFlags::NOFOLLOW;
            rustix::fs::openat(directory, name, flags, Mode::empty())
        }
        other => other,
    }
}

/// Why a user other than root and the daemon's user may replace a file in this directory. A mount
/// that is read-only here can be changed only by the user who mounted it.
fn foreign_directory_reason(directory: &OwnedFd) -> Result<Option<String>> {
    let flags = rustix::fs::fstatvfs(directory.as_fd())?.f_flag;
    if flags.contains(StatVfsMountFlags::RDONLY) {
        return Ok(None);
    }
    let metadata = File::from(directory.try_clone()?).metadata()?;
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Ok(Some(format!(
            "its directory belongs to uid {owner}: change its owner to root"
        )));
    }
    // With the common umask 002 the directory of a person is writable for the group that has only
    // this person as a member.
    let is_own_group = metadata.gid() == rustix::process::getegid().as_raw();
    let open = if is_own_group { 0o002 } else { OTHERS_WRITE };
    let is_open = mode & open != 0 && mode & STICKY == 0;
    Ok(is_open
        .then(|| "users other than its owner may write its directory: chmod go-w DIRECTORY".into()))
}

fn link_not_followed(path: &Path) -> Error {
    let leads_to = std::fs::read_link(path).unwrap_or_default();
    Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "it is a symbolic link to {}, which is not followed: put the file itself there",
            leads_to.display()
        ),
    )
}

/// Checks that nothing exists at `path`, as opposed to a link to a place that the daemon cannot
/// see, such as a hidden home: neither the file nor a directory around it is a dangling link.
fn check_no_dangling_link(path: &Path) -> Result<()> {
    let link = path
        .ancestors()
        .find_map(|at| Some((at, std::fs::read_link(at).ok()?)).filter(|_| !at.exists()));
    let Some((at, leads_to)) = link else {
        return Ok(());
    };
    let (what, leads_to) = (
        if at == path { "it" } else { "its directory" },
        leads_to.display(),
    );
    Err(Error::new(
        ErrorKind::NotFound,
        format!(
            "{what} is a link to {leads_to}, which gpukilld cannot see: move the target to a place \
             that it can see, or remove the link"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn refused(path: &Path) -> String {
        open_trusted(path).unwrap_err().to_string()
    }

    #[test]
    fn link_is_followed_only_within_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("rules")).unwrap();
        std::fs::write(at("secret"), "secret").unwrap();
        let rules = at("rules/guard.toml");
        for target in [at("secret"), "../secret".into(), "/proc/self/exe".into()] {
            symlink(&target, &rules).unwrap();
            let expected = format!(
                "it is a symbolic link to {}, which is not followed: put the file itself there",
                target.display()
            );
            assert_eq!(refused(&rules), expected);
            std::fs::remove_file(&rules).unwrap();
        }
        // As a ConfigMap is mounted.
        std::fs::create_dir(at("rules/..1")).unwrap();
        std::fs::write(at("rules/..1/guard.toml"), "one").unwrap();
        symlink("..1", at("rules/..data")).unwrap();
        symlink("..data/guard.toml", &rules).unwrap();
        assert!(open_trusted(&rules).unwrap().is_some());
        // The settings give the name of the directory itself.
        symlink("rules", at("linked")).unwrap();
        assert!(open_trusted(&at("linked/guard.toml")).unwrap().is_some());
    }

    #[test]
    fn non_regular_file_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        let kind = rustix::fs::FileType::Fifo;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &path, kind, mode, 0).unwrap();
        assert_eq!(refused(&path), "it is not a regular file");
        assert_eq!(refused(Path::new("/dev/null")), "it is not a regular file");
        assert_eq!(refused(directory.path()), "it is not a regular file");
    }

    #[test]
    fn directory_writable_by_others_is_refused() {
        let around = tempfile::tempdir().unwrap();
        let directory = around.path().join("rules");
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("guard.toml");
        std::fs::write(&path, "one").unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o777);
        let expected = "users other than its owner may write its directory: chmod go-w DIRECTORY";
        assert_eq!(refused(&path), expected);
        for fine in [0o1777, 0o775, 0o755] {
            mode(fine);
            assert!(open_trusted(&path).unwrap().is_some(), "{fine:o}");
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a directory to others");
            return;
        }
        std::os::unix::fs::chown(&directory, Some(65_534), None).unwrap();
        let expected = "its directory belongs to uid 65534: change its owner to root";
        assert_eq!(refused(&path), expected);
        // A settings file may be named there, but a link there must not lead elsewhere.
        assert!(open_settings(&path, 0).is_ok());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(around.path().join("secret"), "secret").unwrap();
        symlink("../secret", &path).unwrap();
        assert!(open_settings(&path, 0).is_err());
    }
}
