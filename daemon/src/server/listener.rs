//! Binds the socket in the file system: one daemon at a time, and the remains of dead daemons do
//! not prevent it.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A listening socket. Its file is removed when this is dropped.
pub(crate) struct SocketListener {
    /// The socket that clients connect to.
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: u64,
    /// Held while the daemon runs, so that a second daemon is refused.
    _lock: File,
}

/// Why the socket cannot be bound.
#[derive(Debug)]
pub(crate) enum BindError {
    /// Another daemon holds it.
    Taken(PathBuf),
    /// The system refused.
    Failed(PathBuf, io::Error),
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Taken(path) => write!(f, "another gpukilld listens on {}", path.display()),
            Self::Failed(path, error) => write!(f, "cannot listen on {}: {error}", path.display()),
        }
    }
}

/// The maximum length of a socket path without the final zero (unix(7)), minus the suffix of the
/// temporary name.
const MAX_SOCKET_PATH: usize = 107 - ".new".len();

/// Listens on `path`, open to all users: rights are checked call by call. If its directory does not
/// exist, it is created with `directory_mode`.
pub(crate) fn listen(path: &Path, directory_mode: u32) -> Result<SocketListener, BindError> {
    let failed = |error| BindError::Failed(path.to_owned(), error);
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        let what = format!("the path is longer than {MAX_SOCKET_PATH} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    make_directory(directory, directory_mode).map_err(failed)?;
    check_directory(directory).map_err(failed)?;
    let lock = lock_file(&with_suffix(path, ".lock"))
        .map_err(failed)?
        .ok_or_else(|| BindError::Taken(path.to_owned()))?;
    // Under the lock, a file with this name is left by a dead daemon. The socket is bound under
    // another name first, so that it is complete when it gets its own name.
    let temporary = with_suffix(path, ".new");
    let bound = remove_if_exists(&temporary)
        .and_then(|()| UnixListener::bind(&temporary))
        .and_then(|listener| {
            std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o666))?;
            let inode = std::fs::symlink_metadata(&temporary)?.ino();
            std::fs::rename(&temporary, path)?;
            Ok((listener, inode))
        });
    let (listener, inode) = bound.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(SocketListener {
        listener,
        path: path.to_owned(),
        inode,
        _lock: lock,
    })
}

/// Refuses a directory in which another user could replace the socket.
fn check_directory(directory: &Path) -> io::Result<()> {
    // A link is not followed: another user may have put it there.
    let metadata = std::fs::symlink_metadata(directory)?;
    let is_trusted_owner = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    let (writable_by_others, sticky) =
        (metadata.mode() & 0o022 != 0, metadata.mode() & 0o1000 != 0);
    if metadata.is_dir() && is_trusted_owner && (!writable_by_others || sticky) {
        return Ok(());
    }
    let what = format!(
        "{} is a link, belongs to another user or is writable by others",
        directory.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// Creates the directory if it does not exist, open to those who may connect, independent of the
/// umask.
fn make_directory(directory: &Path, mode: u32) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(mode))
}

/// Another name in the same directory that no other socket has.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A lock that is held while the file is open; `None` if another process holds it.
pub(crate) fn lock_file(name: &Path) -> io::Result<Option<File>> {
    // A symbolic link is not followed: in a directory open to others it could point anywhere.
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(name, flags, Mode::from_raw_mode(0o600))?);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        // Removes the file only if it is still the one of this daemon.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn second_daemon_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/gpukilld.sock");
        let first = listen(&path, 0o755).unwrap();
        assert!(matches!(listen(&path, 0o755), Err(BindError::Taken(_))));
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        assert!(!path.exists());
        // The file that a killed daemon leaves behind: a socket without a reader.
        drop(UnixListener::bind(&path).unwrap());
        let second = listen(&path, 0o755).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o666
        );
        drop(second);
    }

    #[test]
    fn shared_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        for (mode, refused) in [
            (0o777, true),
            (0o775, true),
            (0o1777, false),
            (0o755, false),
        ] {
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                listen(&open.join("s.sock"), 0o755).is_err(),
                refused,
                "{mode:o}"
            );
        }
    }

    #[test]
    fn too_long_path_is_refused() {
        let long = Path::new("/tmp").join("x".repeat(200));
        let error = listen(&long, 0o755).err().unwrap().to_string();
        assert!(
            error.ends_with("the path is longer than 103 bytes"),
            "{error}"
        );
    }
}
