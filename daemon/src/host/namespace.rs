//! Namespaces: who made the users of a process, and whether our pids are those
//! of the host.
//!
//! One of the few places of this program with unsafe code: neither nix nor rustix
//! asks a namespace for its owner.

use super::cgroup::View;
use crate::procfs::file::failed;
use gpukill_proto::reading::Reading;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// The first namespaces of a kernel always have these numbers
/// (`include/uapi/linux/nsfs.h`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const FIRST_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

/// Whether our pids are those of the host: only then is a driver's pid ours. Reads
/// the real `/proc`, whatever root is configured.
pub(crate) fn has_the_hosts_pids() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own == Path::new(FIRST_PID_NAMESPACE))
}

/// How much of the cgroups is to be seen. Kernels without cgroup namespaces
/// show all.
pub(super) fn view(root: &Path) -> View {
    match std::fs::read_link(root.join("self/ns/cgroup")) {
        Ok(own) if own != Path::new(FIRST_CGROUP_NAMESPACE) => View::Part,
        Ok(_) | Err(_) => View::Whole,
    }
}

/// The daemon's own user namespace, as a link names it.
pub(super) fn own_users() -> Option<PathBuf> {
    std::fs::read_link(OWN_USERS).ok()
}

const OWN_USERS: &str = "/proc/self/ns/user";

/// Namespaces nest no deeper: the kernel makes one in a parent of level 32 at
/// most (`create_user_ns` in `kernel/user_namespace.c`), so up to 33 below the
/// first, and one more look finds that ours is not above.
const DEEPEST: usize = 34;

/// Who made the user namespace of the process with this directory: `None` where
/// it has our own. Of nested ones it is who made the outermost.
pub(super) fn user_namespace_owner(directory: &Path, own: Option<&Path>) -> Reading<Option<u32>> {
    let theirs = directory.join("ns/user");
    match std::fs::read_link(&theirs) {
        Ok(link) if Some(link.as_path()) == own => Reading::Value(None),
        Ok(_) => owner(&theirs).map_or_else(failed, Reading::Value),
        // A kernel without user namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Unsupported,
        Err(error) => failed(error),
    }
}

fn owner(theirs: &Path) -> io::Result<Option<u32>> {
    let own = identity(File::open(OWN_USERS)?.as_fd())?;
    let mut namespace = OwnedFd::from(File::open(theirs)?);
    if identity(namespace.as_fd())? == own {
        return Ok(None);
    }
    for _ in 0..DEEPEST {
        let above = parent(namespace.as_fd())?;
        if identity(above.as_fd())? == own {
            return owner_uid(namespace.as_fd()).map(Some);
        }
        namespace = above;
    }
    Err(io::Error::other("its user namespace is not below ours"))
}

fn identity(namespace: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(namespace)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// `NS_GET_USERNS`: of a user namespace it is its parent. Permitted for those
/// that are ours or below.
#[allow(unsafe_code, reason = "no crate of ours wraps this ioctl")]
fn parent(namespace: impl AsFd) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: the descriptor is open for as long as it is borrowed, and this
    // request takes no argument.
    let descriptor = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_USERNS) };
    if descriptor < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => io::Error::other("its user namespace is not below ours"),
            Some(_) | None => error,
        });
    }
    // SAFETY: the kernel has just opened it for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `NS_GET_OWNER_UID`: who made it.
#[allow(unsafe_code, reason = "no crate of ours wraps this ioctl")]
fn owner_uid(namespace: impl AsFd) -> io::Result<u32> {
    const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
    let mut uid: libc::uid_t = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the
    // kernel writes one `uid_t` to where the argument points.
    let result = unsafe {
        libc::ioctl(
            namespace.as_fd().as_raw_fd(),
            NS_GET_OWNER_UID,
            &raw mut uid,
        )
    };
    if result == 0 {
        Ok(uid)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that is killed when dropped.
    struct Sleeper(Child);

    impl Sleeper {
        /// In user namespaces so deep below ours; `None` where none may be made.
        fn so_deep(depth: usize) -> Option<Self> {
            let unshare = ["unshare", "--user", "--map-root-user"];
            let words = unshare.repeat(depth);
            let script = "echo; exec sleep 1000";
            let mut words = words.into_iter().chain(["sh", "-c", script]);
            let mut child = Command::new(words.next()?)
                .args(words)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let mut told = [0];
            let began = io::Read::read(&mut child.stdout.take()?, &mut told);
            let sleeper = Self(child);
            matches!(began, Ok(1)).then_some(sleeper)
        }

        fn directory(&self) -> PathBuf {
            format!("/proc/{}", self.0.id()).into()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn owner_of(directory: &Path) -> Reading<Option<u32>> {
        user_namespace_owner(directory, own_users().as_deref())
    }

    #[test]
    fn a_process_of_our_own_namespace_has_no_other_maker() {
        assert_eq!(owner_of(Path::new("/proc/self")), Reading::Value(None));
        // Also where the links could not be compared.
        let unknown = user_namespace_owner(Path::new("/proc/self"), None);
        assert_eq!(unknown, Reading::Value(None));
        assert_eq!(owner_of(Path::new("/nonexistent")), Reading::Unsupported);
    }

    #[test]
    fn a_namespace_is_its_makers_however_deep_it_is() {
        for depth in 1..=2 {
            let Some(sleeper) = Sleeper::so_deep(depth) else {
                eprintln!("skipped: no user namespace may be made here");
                return;
            };
            let us = rustix::process::geteuid().as_raw();
            assert_eq!(owner_of(&sleeper.directory()), Reading::Value(Some(us)));
        }
    }

    #[test]
    fn the_deepest_namespace_that_the_kernel_makes_has_its_owner() {
        // 33 below the first, and fewer where ours is not that.
        let deepest = (1..=40).rev().find_map(Sleeper::so_deep);
        let Some(sleeper) = deepest else {
            eprintln!("skipped: no user namespace may be made here");
            return;
        };
        let us = rustix::process::geteuid().as_raw();
        assert_eq!(owner_of(&sleeper.directory()), Reading::Value(Some(us)));
    }

    #[test]
    fn what_is_no_namespace_has_no_owner() {
        let file = File::open("/proc/self/stat").unwrap();
        assert!(parent(file.as_fd()).is_err());
        assert!(owner_uid(file.as_fd()).is_err());
    }
}
