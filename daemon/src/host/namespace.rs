//! Namespaces: who made the users of a process, and whether our pids are those
//! of the host.
//!
//! One of the few places of this program with unsafe code: neither nix nor rustix
//! asks a namespace for its owner.

use super::cgroup::View;
use crate::procfs::file::{failed, read_at_most};
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

/// The makers of the user namespaces of a process, by our numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Makers {
    /// Of the outermost; `None` where it has our own.
    pub(super) outermost: Option<u32>,
    /// Of the outermost that root did not make: root makes namespaces for others.
    pub(super) person: Option<u32>,
}

/// Who made the user namespaces that the process with this directory is in.
pub(super) fn user_namespace_makers(directory: &Path, own: Option<&Path>) -> Reading<Makers> {
    let theirs = directory.join("ns/user");
    match std::fs::read_link(&theirs) {
        Ok(link) if Some(link.as_path()) == own => Reading::Value(Makers::default()),
        Ok(_) => makers(&theirs).map_or_else(failed, Reading::Value),
        // A kernel without user namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Unsupported,
        Err(error) => failed(error),
    }
}

/// Who made the outermost of them.
pub(super) fn user_namespace_owner(directory: &Path, own: Option<&Path>) -> Reading<Option<u32>> {
    user_namespace_makers(directory, own).map(|makers| makers.outermost)
}

/// Whom the user namespace of the process with this directory calls root, by our numbers.
/// `None` where that is nested in another one, whose root may be somebody else, or calls
/// nobody so.
pub(super) fn user_namespace_root(directory: &Path) -> Option<u32> {
    let theirs = File::open(directory.join("ns/user")).ok()?;
    let own = File::open(OWN_USERS).ok()?;
    let above = parent(theirs.as_fd()).ok()?;
    if identity(above).ok()? != identity(own).ok()? {
        return None;
    }
    let map = read_at_most(&directory.join("uid_map"), LONGEST_MAP).ok()?;
    root_of(std::str::from_utf8(&map).ok()?)
}

/// A map has at most 340 lines of three numbers (`UID_GID_MAP_MAX_EXTENTS`).
const LONGEST_MAP: u64 = 16 << 10;

/// Whom a `uid_map` maps to 0.
fn root_of(map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (inside == 0).then_some(outside)
    })
}

/// The number of the PID namespace of the process with this directory.
pub(super) fn pid_namespace(directory: &Path) -> Option<u64> {
    let link = std::fs::read_link(directory.join("ns/pid")).ok()?;
    let number = link.to_str()?.strip_prefix("pid:[")?;
    number.strip_suffix(']')?.parse().ok()
}

fn makers(theirs: &Path) -> io::Result<Makers> {
    let own = identity(File::open(OWN_USERS)?.as_fd())?;
    let mut namespace = OwnedFd::from(File::open(theirs)?);
    let mut makers = Makers::default();
    for _ in 0..DEEPEST {
        if identity(namespace.as_fd())? == own {
            return Ok(makers);
        }
        let maker = owner_uid(namespace.as_fd())?;
        makers = Makers {
            outermost: Some(maker),
            person: Some(maker).filter(|maker| *maker != 0).or(makers.person),
        };
        namespace = parent(namespace.as_fd())?;
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
    fn the_root_of_a_namespace_is_whom_its_map_calls_0() {
        assert_eq!(root_of("         0     100000      65536\n"), Some(100_000));
        assert_eq!(root_of("1 5 1\n0 7 1\n"), Some(7));
        for none in ["", "1 5 1\n", "0\n", "0 x 1\n", "-1 4 1\n"] {
            assert_eq!(root_of(none), None, "{none:?}");
        }
        for (depth, expected) in [(1, Some(rustix::process::geteuid().as_raw())), (2, None)] {
            let Some(sleeper) = Sleeper::so_deep(depth) else {
                eprintln!("skipped: no user namespace may be made here");
                return;
            };
            assert_eq!(
                user_namespace_root(&sleeper.directory()),
                expected,
                "{depth}"
            );
            let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
            let number = pid_namespace(&sleeper.directory()).unwrap();
            assert_eq!(own.to_str(), Some(format!("pid:[{number}]").as_str()));
        }
    }

    #[test]
    fn what_is_no_namespace_has_no_owner() {
        let file = File::open("/proc/self/stat").unwrap();
        assert!(parent(file.as_fd()).is_err());
        assert!(owner_uid(file.as_fd()).is_err());
    }
}
