//! Chooses the socket: the named socket, else the host's, else the user's own.

use crate::exit::Error;
use gpukill_proto::DEFAULT_SOCKET;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const SOCKET_NAME: &str = "gpukilld.sock";

/// The socket to use. When there is none, the error names the paths where a daemon could be.
pub(crate) fn choose_socket(named: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let host_socket = PathBuf::from(DEFAULT_SOCKET);
    if is_socket(&host_socket) {
        return Ok(host_socket);
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let tmp = Path::new("/tmp");
    match find_own_socket(runtime.clone(), tmp, uid)? {
        Some(own) => Ok(own),
        // The connection fails, with the reason.
        None if is_hidden(&host_socket) => Ok(host_socket),
        None => Err(Error::NoDaemon([
            host_socket,
            own_socket_path(runtime, tmp, uid).0,
        ])),
    }
}

/// Where a daemon run by this user would listen, and whether another user could create
/// something there first.
fn own_socket_path(runtime: Option<OsString>, tmp: &Path, uid: u32) -> (PathBuf, DirectoryTrust) {
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    let (directory, trust) = match runtime {
        Some(runtime) => (runtime.join("gpukill"), DirectoryTrust::System),
        None => (tmp.join(format!("gpukill-{uid}")), DirectoryTrust::IfOwn),
    };
    (directory.join(SOCKET_NAME), trust)
}

/// Whether a directory is this user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryTrust {
    /// The system made the directory.
    System,
    /// Trusted if the directory belongs to the user and nobody else can write to it.
    IfOwn,
}

/// The socket of a daemon run by this user, if there is one.
fn find_own_socket(
    runtime: Option<OsString>,
    tmp: &Path,
    uid: u32,
) -> Result<Option<PathBuf>, Error> {
    let (socket, trust) = own_socket_path(runtime, tmp, uid);
    if let (DirectoryTrust::IfOwn, Some(directory)) = (trust, socket.parent())
        && !check_directory(directory, uid)?
    {
        return Ok(None);
    }
    Ok(Some(socket).filter(|path| is_socket(path)))
}

/// Whether the directory exists. Refuses a directory that another user could have created in a
/// world-writable place to answer from.
fn check_directory(directory: &Path, uid: u32) -> Result<bool, Error> {
    let unsafe_because = |why| Err(Error::UnsafeSocket(directory.to_owned(), why));
    match directory.symlink_metadata() {
        Ok(found) if !found.is_dir() => unsafe_because("it is not a directory"),
        Ok(found) if found.uid() != uid => unsafe_because("it belongs to another user"),
        Ok(found) if found.mode() & 0o022 != 0 => unsafe_because("others can write to it"),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(_) => unsafe_because("it cannot be examined"),
    }
}

/// Whether a directory above the path does not let this user look.
fn is_hidden(path: &Path) -> bool {
    let found = path.metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn is_socket(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    fn why(result: Result<Option<PathBuf>, Error>) -> Option<&'static str> {
        match result {
            Err(Error::UnsafeSocket(_, why)) => Some(why),
            _ => None,
        }
    }

    #[test]
    fn socket_in_a_closed_directory_is_hidden() {
        let parent = tempfile::tempdir().expect("a directory");
        let closed = parent.path().join("closed");
        create_dir(&closed).expect("a directory");
        let socket = closed.join(SOCKET_NAME);
        assert!(!is_hidden(&socket), "it does not exist");
        set_permissions(&closed, Permissions::from_mode(0o000)).expect("it is own");
        // Root may look everywhere.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(is_hidden(&socket), !is_root);
    }

    #[test]
    fn named_socket_is_always_used() {
        let named = Path::new("/nowhere");
        assert!(choose_socket(Some(named)).is_ok_and(|chosen| chosen == named));
    }

    #[test]
    fn own_socket_is_in_runtime_dir_else_tmp() {
        let at = |runtime: Option<&str>| {
            own_socket_path(runtime.map(Into::into), Path::new("/tmp"), 7).0
        };
        let runtime = Path::new("/run/user/7/gpukill/gpukilld.sock");
        assert_eq!(at(Some("/run/user/7")), runtime);
        let tmp = Path::new("/tmp/gpukill-7/gpukilld.sock");
        assert_eq!([at(None), at(Some("relative"))], [tmp, tmp]);
    }

    #[test]
    fn own_socket_is_found_in_runtime_dir() {
        let runtime = tempfile::tempdir().expect("a directory");
        let find = |path: &Path| {
            find_own_socket(Some(path.into()), Path::new("/nowhere"), 0)
                .ok()
                .flatten()
        };
        assert_eq!(find(runtime.path()), None);
        create_dir(runtime.path().join("gpukill")).expect("made");
        let socket = runtime.path().join("gpukill").join(SOCKET_NAME);
        let _listener = UnixListener::bind(&socket).expect("bound");
        assert_eq!(find(runtime.path()), Some(socket));
    }

    #[test]
    fn tmp_directory_must_be_private() {
        let tmp = tempfile::tempdir().expect("a directory");
        let uid = rustix::process::getuid().as_raw();
        let directory = tmp.path().join(format!("gpukill-{uid}"));
        assert!(matches!(find_own_socket(None, tmp.path(), uid), Ok(None)));
        create_dir(&directory).expect("made");
        set_permissions(&directory, Permissions::from_mode(0o700)).expect("set");
        let socket = directory.join(SOCKET_NAME);
        let _listener = UnixListener::bind(&socket).expect("bound");
        assert!(
            matches!(find_own_socket(None, tmp.path(), uid), Ok(Some(found)) if found == socket)
        );
        set_permissions(&directory, Permissions::from_mode(0o777)).expect("set");
        assert_eq!(
            why(find_own_socket(None, tmp.path(), uid)),
            Some("others can write to it")
        );
        let others = tmp.path().join(format!("gpukill-{}", uid + 1));
        create_dir(others).expect("made");
        let refused = find_own_socket(None, tmp.path(), uid + 1);
        assert_eq!(why(refused), Some("it belongs to another user"));
    }
}
