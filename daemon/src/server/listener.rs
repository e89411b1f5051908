//! The socket in the file system: one daemon at a time, and no remains of dead
//! ones in the way.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A listening socket. Its file is removed when this is dropped.
pub(crate) struct Listening {
    /// What clients connect to.
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: u64,
    /// Held for as long as the daemon runs, so that a second one is refused.
    _lock: File,
}

/// The socket cannot be had.
#[derive(Debug)]
pub(crate) enum BindError {
    /// Another daemon has it.
    Taken(PathBuf),
    /// The system says no.
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

/// The longest path of a socket, the ending zero left out (unix(7)), less what
/// the temporary name adds.
const LONGEST_PATH: usize = 107 - ".new".len();

/// Listens on `path`, open to everybody: what a caller may do is decided call by
/// call. `directory_mode` is for its directory where that does not exist yet.
pub(crate) fn listen(path: &Path, directory_mode: u32) -> Result<Listening, BindError> {
    let failed = |error| BindError::Failed(path.to_owned(), error);
    if path.as_os_str().len() > LONGEST_PATH {
        let what = format!("the path is longer than {LONGEST_PATH} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    make_directory(directory, directory_mode).map_err(failed)?;
    check_directory(directory).map_err(failed)?;
    let lock = lock(&beside(path, ".lock"))
        .map_err(failed)?
        .ok_or_else(|| BindError::Taken(path.to_owned()))?;
    // Under the lock, so whatever has this name is left of a dead daemon. Bound
    // under another name first: with its own, it is complete.
    let temporary = beside(path, ".new");
    let bound = remove(&temporary)
        .and_then(|()| UnixListener::bind(&temporary))
        .and_then(|listener| {
            std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o666))?;
            let inode = std::fs::symlink_metadata(&temporary)?.ino();
            std::fs::rename(&temporary, path)?;
            Ok((listener, inode))
        });
    let (listener, inode) = bound.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Listening {
        listener,
        path: path.to_owned(),
        inode,
        _lock: lock,
    })
}

/// A directory in which somebody else could put a socket of theirs in place of
/// ours is no place to listen.
fn check_directory(directory: &Path) -> io::Result<()> {
    // Not through a link, which somebody else may have put there.
    let metadata = std::fs::symlink_metadata(directory)?;
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    let (writable_by_others, sticky) =
        (metadata.mode() & 0o022 != 0, metadata.mode() & 0o1000 != 0);
    if metadata.is_dir() && ours && (!writable_by_others || sticky) {
        return Ok(());
    }
    let what = format!(
        "{} is a link, belongs to another user or is writable by others",
        directory.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// Makes the directory where there is none, open to those who may connect
/// whatever the umask.
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

/// Another name in the same directory, which no other socket has.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A lock that is held for as long as the file is open; `None` when another
/// process holds it.
pub(crate) fn lock(name: &Path) -> io::Result<Option<File>> {
    // Not through a symbolic link: in a directory open to others it could point
    // anywhere.
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(name, flags, Mode::from_raw_mode(0o600))?);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Only what is still ours.
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
    fn a_second_daemon_is_refused_and_a_dead_ones_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/gpukilld.sock");
        let first = listen(&path, 0o755).unwrap();
        assert!(matches!(listen(&path, 0o755), Err(BindError::Taken(_))));
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        assert!(!path.exists());
        // What a daemon that was killed leaves behind: a socket nobody reads.
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
    fn a_directory_that_others_could_change_is_refused() {
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
    fn a_path_that_is_too_long_says_so() {
        let long = Path::new("/tmp").join("x".repeat(200));
        let error = listen(&long, 0o755).err().unwrap().to_string();
        assert!(
            error.ends_with("the path is longer than 103 bytes"),
            "{error}"
        );
    }
}
