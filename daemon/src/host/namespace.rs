//! Namespaces: who created the user namespaces of a process, and whether the daemon's PIDs are
//! those of the host.
//!
//! One of the few modules with unsafe code: neither nix nor rustix asks a namespace for its owner.

use super::cgroup::CgroupView;
use crate::procfs::{read_at_most, read_failure};
use gpukill_proto::reading::Reading;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// The initial namespaces of a kernel always have these numbers (`include/uapi/linux/nsfs.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
const INITIAL_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

/// Whether the daemon's PIDs are those of the host: only then does a driver's PID mean the same
/// process. Reads the real `/proc`, also if another root is configured.
pub(crate) fn is_in_host_pid_namespace() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own == Path::new(INITIAL_PID_NAMESPACE))
}

/// How much of the cgroup tree is visible. Kernels without cgroup namespaces show all.
pub(super) fn cgroup_view(root: &Path) -> CgroupView {
    match std::fs::read_link(root.join("self/ns/cgroup")) {
        Ok(own) if own != Path::new(INITIAL_CGROUP_NAMESPACE) => CgroupView::Part,
        Ok(_) | Err(_) => CgroupView::Whole,
    }
}

/// The daemon's own user namespace as a link target.
pub(super) fn own_user_namespace() -> Option<PathBuf> {
    std::fs::read_link(OWN_USER_NAMESPACE).ok()
}

const OWN_USER_NAMESPACE: &str = "/proc/self/ns/user";

/// How deep namespaces nest: the kernel creates one in a parent of level 32 at most
/// (`create_user_ns` in `kernel/user_namespace.c`), so up to 33 below the initial one, and one more
/// step shows that the daemon's own is not above.
const MAX_DEPTH: usize = 34;

/// The creators of the user namespaces of a process, as uids of the daemon's namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NamespaceCreators {
    /// The creator of the outermost namespace; `None` in the daemon's own.
    pub(super) outermost: Option<u32>,
    /// The creator of the outermost namespace that root did not create: root creates namespaces for
    /// others.
    pub(super) person: Option<u32>,
}

pub(super) fn user_namespace_creators(
    directory: &Path,
    own: Option<&Path>,
) -> Reading<NamespaceCreators> {
    let path = directory.join("ns/user");
    match std::fs::read_link(&path) {
        Ok(link) if Some(link.as_path()) == own => Reading::Value(NamespaceCreators::default()),
        Ok(_) => walk_namespaces(&path).map_or_else(read_failure, Reading::Value),
        // A kernel without user namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Unsupported,
        Err(error) => read_failure(error),
    }
}

/// The creator of the outermost of them.
pub(super) fn user_namespace_owner(directory: &Path, own: Option<&Path>) -> Reading<Option<u32>> {
    user_namespace_creators(directory, own).map(|makers| makers.outermost)
}

/// The uid that is root in the user namespace of the process with this directory, as a uid of the
/// daemon's namespace. `None` where the namespace has no root, or is nested in another one: its
/// root may be another user.
pub(super) fn user_namespace_root(directory: &Path) -> Option<u32> {
    let namespace = File::open(directory.join("ns/user")).ok()?;
    let own = File::open(OWN_USER_NAMESPACE).ok()?;
    let above = parent_namespace(namespace.as_fd()).ok()?;
    if namespace_id(above).ok()? != namespace_id(own).ok()? {
        return None;
    }
    let map = read_at_most(&directory.join("uid_map"), MAX_UID_MAP_BYTES).ok()?;
    root_in_map(std::str::from_utf8(&map).ok()?)
}

/// A map has at most 340 lines of three numbers (`UID_GID_MAP_MAX_EXTENTS`).
const MAX_UID_MAP_BYTES: u64 = 16 << 10;

/// The uid that a `uid_map` maps to 0.
fn root_in_map(map: &str) -> Option<u32> {
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

fn walk_namespaces(path: &Path) -> io::Result<NamespaceCreators> {
    let own = namespace_id(File::open(OWN_USER_NAMESPACE)?.as_fd())?;
    let mut namespace = OwnedFd::from(File::open(path)?);
    let mut makers = NamespaceCreators::default();
    for _ in 0..MAX_DEPTH {
        if namespace_id(namespace.as_fd())? == own {
            return Ok(makers);
        }
        let maker = owner_uid(namespace.as_fd())?;
        makers = NamespaceCreators {
            outermost: Some(maker),
            person: Some(maker).filter(|maker| *maker != 0).or(makers.person),
        };
        namespace = parent_namespace(namespace.as_fd())?;
    }
    Err(io::Error::other(
        "its user namespace is not below that of gpukilld",
    ))
}

fn namespace_id(namespace: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(namespace)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// `NS_GET_USERNS`: the parent of a user namespace. Permitted for the daemon's own namespace and
/// those below.
#[allow(unsafe_code, reason = "no crate of ours wraps this ioctl")]
fn parent_namespace(namespace: impl AsFd) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: the descriptor is open for as long as it is borrowed, and this
    // request takes no argument.
    let descriptor = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_USERNS) };
    if descriptor < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => {
                io::Error::other("its user namespace is not below that of gpukilld")
            }
            Some(_) | None => error,
        });
    }
    // SAFETY: the kernel has just opened it for this call, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `NS_GET_OWNER_UID`: the creator.
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
    use super::super::test_process::TestProcess;
    use super::*;
    use std::process::{Command, Stdio};

    impl TestProcess {
        /// A process this many user namespaces deep; `None` where none may be created.
        fn nested(depth: usize) -> Option<Self> {
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
            let mut byte = [0];
            let read = io::Read::read(&mut child.stdout.take()?, &mut byte);
            let sleeper = Self(child);
            matches!(read, Ok(1)).then_some(sleeper)
        }

        fn directory(&self) -> PathBuf {
            format!("/proc/{}", self.0.id()).into()
        }
    }

    fn owner_of(directory: &Path) -> Reading<Option<u32>> {
        user_namespace_owner(directory, own_user_namespace().as_deref())
    }

    #[test]
    fn own_namespace_has_no_other_creator() {
        assert_eq!(owner_of(Path::new("/proc/self")), Reading::Value(None));
        // Also where the links could not be compared.
        let unknown = user_namespace_owner(Path::new("/proc/self"), None);
        assert_eq!(unknown, Reading::Value(None));
        assert_eq!(owner_of(Path::new("/nonexistent")), Reading::Unsupported);
    }

    #[test]
    fn nested_namespace_belongs_to_its_creator() {
        for depth in 1..=2 {
            let Some(sleeper) = TestProcess::nested(depth) else {
                eprintln!("skipped: no user namespace may be made here");
                return;
            };
            let us = rustix::process::geteuid().as_raw();
            assert_eq!(owner_of(&sleeper.directory()), Reading::Value(Some(us)));
        }
    }

    #[test]
    fn deepest_namespace_has_its_owner() {
        // 33 below the initial one, and fewer where the test's own is not that.
        let deepest = (1..=40).rev().find_map(TestProcess::nested);
        let Some(sleeper) = deepest else {
            eprintln!("skipped: no user namespace may be made here");
            return;
        };
        let us = rustix::process::geteuid().as_raw();
        assert_eq!(owner_of(&sleeper.directory()), Reading::Value(Some(us)));
    }

    #[test]
    fn root_is_the_user_mapped_to_0() {
        assert_eq!(
            root_in_map("         0     100000      65536\n"),
            Some(100_000)
        );
        assert_eq!(root_in_map("1 5 1\n0 7 1\n"), Some(7));
        for none in ["", "1 5 1\n", "0\n", "0 x 1\n", "-1 4 1\n"] {
            assert_eq!(root_in_map(none), None, "{none:?}");
        }
        for (depth, expected) in [(1, Some(rustix::process::geteuid().as_raw())), (2, None)] {
            let Some(sleeper) = TestProcess::nested(depth) else {
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
    fn missing_namespace_has_no_owner() {
        let file = File::open("/proc/self/stat").unwrap();
        assert!(parent_namespace(file.as_fd()).is_err());
        assert!(owner_uid(file.as_fd()).is_err());
    }
}
