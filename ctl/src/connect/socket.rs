//! Which socket: the one that is named, else the box's, else the user's own.

use crate::exit::Failure;
use gpukill_proto::DEFAULT_SOCKET;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const NAME: &str = "gpukilld.sock";

/// The socket to use. When there is none anywhere, the failure names the places
/// where a daemon could be.
pub(crate) fn choose(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let of_the_box = PathBuf::from(DEFAULT_SOCKET);
    if is_there(&of_the_box) {
        return Ok(of_the_box);
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let tmp = Path::new("/tmp");
    match own(runtime.clone(), tmp, uid)? {
        Some(own) => Ok(own),
        None => Err(Failure::NoDaemon([of_the_box, place(runtime, tmp, uid).0])),
    }
}

/// Where a daemon that this user runs would listen, and whether others can put
/// something there first.
fn place(runtime: Option<OsString>, tmp: &Path, uid: u32) -> (PathBuf, Trust) {
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    let (directory, trust) = match runtime {
        Some(runtime) => (runtime.join("gpukill"), Trust::Given),
        None => (tmp.join(format!("gpukill-{uid}")), Trust::IfOwn),
    };
    (directory.join(NAME), trust)
}

/// Whether a place is this user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The system made it.
    Given,
    /// Where its directory belongs to them and nobody else can write.
    IfOwn,
}

/// The socket of a daemon that this user runs, if there is one.
fn own(runtime: Option<OsString>, tmp: &Path, uid: u32) -> Result<Option<PathBuf>, Failure> {
    let (socket, trust) = place(runtime, tmp, uid);
    if let (Trust::IfOwn, Some(directory)) = (trust, socket.parent())
        && !check(directory, uid)?
    {
        return Ok(None);
    }
    Ok(Some(socket).filter(|path| is_there(path)))
}

/// Whether the directory exists; refuses one that somebody else could have put
/// into a world-writable place, and answer from.
fn check(directory: &Path, uid: u32) -> Result<bool, Failure> {
    let unsafe_because = |why| Err(Failure::UnsafeSocket(directory.to_owned(), why));
    match directory.symlink_metadata() {
        Ok(found) if !found.is_dir() => unsafe_because("it is no directory"),
        Ok(found) if found.uid() != uid => unsafe_because("it belongs to another user"),
        Ok(found) if found.mode() & 0o022 != 0 => unsafe_because("others can write to it"),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(_) => unsafe_because("it cannot be examined"),
    }
}

fn is_there(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    fn why(result: Result<Option<PathBuf>, Failure>) -> Option<&'static str> {
        match result {
            Err(Failure::UnsafeSocket(_, why)) => Some(why),
            _ => None,
        }
    }

    #[test]
    fn a_named_socket_is_used_whatever_it_is() {
        let named = Path::new("/nowhere");
        assert!(choose(Some(named)).is_ok_and(|chosen| chosen == named));
    }

    #[test]
    fn a_daemon_of_ones_own_would_listen_in_the_runtime_directory_else_in_tmp() {
        let at = |runtime: Option<&str>| place(runtime.map(Into::into), Path::new("/tmp"), 7).0;
        let runtime = Path::new("/run/user/7/gpukill/gpukilld.sock");
        assert_eq!(at(Some("/run/user/7")), runtime);
        let tmp = Path::new("/tmp/gpukill-7/gpukilld.sock");
        assert_eq!([at(None), at(Some("relative"))], [tmp, tmp]);
    }

    #[test]
    fn the_users_own_socket_is_found_in_the_runtime_directory() {
        let runtime = tempfile::tempdir().expect("a directory");
        let place = |path: &Path| {
            own(Some(path.into()), Path::new("/nowhere"), 0)
                .ok()
                .flatten()
        };
        assert_eq!(place(runtime.path()), None);
        create_dir(runtime.path().join("gpukill")).expect("made");
        let socket = runtime.path().join("gpukill").join(NAME);
        let _listener = UnixListener::bind(&socket).expect("bound");
        assert_eq!(place(runtime.path()), Some(socket));
    }

    #[test]
    fn in_tmp_only_a_directory_that_nobody_else_can_write_is_trusted() {
        let tmp = tempfile::tempdir().expect("a directory");
        let uid = rustix::process::getuid().as_raw();
        let directory = tmp.path().join(format!("gpukill-{uid}"));
        assert!(matches!(own(None, tmp.path(), uid), Ok(None)));
        create_dir(&directory).expect("made");
        set_permissions(&directory, Permissions::from_mode(0o700)).expect("set");
        let socket = directory.join(NAME);
        let _listener = UnixListener::bind(&socket).expect("bound");
        assert!(matches!(own(None, tmp.path(), uid), Ok(Some(found)) if found == socket));
        set_permissions(&directory, Permissions::from_mode(0o777)).expect("set");
        assert_eq!(
            why(own(None, tmp.path(), uid)),
            Some("others can write to it")
        );
        let others = tmp.path().join(format!("gpukill-{}", uid + 1));
        create_dir(others).expect("made");
        let refused = own(None, tmp.path(), uid + 1);
        assert_eq!(why(refused), Some("it belongs to another user"));
    }
}
