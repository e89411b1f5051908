//! Inspects the process that connects: whether it runs in a PID namespace of its own, as in a
//! container, and which person is behind it.
//!
//! Root of a container arrives with the uid of the host's root. A process that cannot be inspected
//! therefore counts as contained, which matters only for root.

use crate::host::person_behind;
use gpukill_policy::access::PersonEvidence;
use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerPidfd;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// What is known of the process of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PeerProcess {
    /// Whether it runs, or may run, in another PID namespace than this daemon.
    pub(super) contained: bool,
    /// The person behind it; `None` if the process is gone.
    pub(super) person: Option<PersonEvidence>,
}

pub(super) fn inspect(stream: &UnixStream) -> PeerProcess {
    match getsockopt(stream, PeerPidfd) {
        Ok(handle) => inspect_pidfd(&handle),
        // Before Linux 6.5.
        Err(Errno::ENOPROTOOPT) => inspect_pid(stream.peer_cred().ok().and_then(|it| it.pid())),
        Err(_) => PeerProcess::from_pid(&PeerPid::Gone),
    }
}

/// A process in the mounted `/proc`, which may belong to another namespace than this daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerPid {
    Visible(u32),
    /// It was reaped.
    Gone,
    /// It is not visible there.
    OtherNamespace,
}

/// Inspects the process of this pidfd. It is the right process if it has the same pid before and
/// after.
fn inspect_pidfd(handle: &OwnedFd) -> PeerProcess {
    let before = pidfd_pid(handle);
    let process = PeerProcess::from_pid(&before);
    if pidfd_pid(handle) == before {
        process
    } else {
        PeerProcess::from_pid(&PeerPid::Gone)
    }
}

fn pidfd_pid(handle: &OwnedFd) -> PeerPid {
    let file = format!("/proc/self/fdinfo/{}", handle.as_raw_fd());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match pid.map(|pid| pid.trim().parse::<i64>()) {
        Some(Ok(0)) => PeerPid::OtherNamespace,
        Some(Ok(pid)) => u32::try_from(pid).map_or(PeerPid::Gone, PeerPid::Visible),
        Some(Err(_)) | None => PeerPid::Gone,
    }
}

/// Inspects the process with this pid, which connected a moment ago.
fn inspect_pid(pid: Option<i32>) -> PeerProcess {
    // If `/proc` belongs to another namespace than this daemon, its pids differ.
    let own_pid = std::fs::read_link("/proc/self").ok();
    let is_own = own_pid.as_deref() == Some(Path::new(&std::process::id().to_string()));
    PeerProcess::from_pid(&match pid.map(u32::try_from) {
        Some(Ok(1..)) if !is_own => PeerPid::OtherNamespace,
        Some(Ok(pid @ 1..)) => PeerPid::Visible(pid),
        Some(Ok(0)) => PeerPid::OtherNamespace,
        Some(Err(_)) | None => PeerPid::Gone,
    })
}

impl PeerProcess {
    fn from_pid(pid: &PeerPid) -> Self {
        match pid {
            PeerPid::Visible(pid) => Self::read(&Path::new("/proc").join(pid.to_string())),
            PeerPid::Gone => Self {
                contained: true,
                person: None,
            },
            // The daemon runs in a namespace of its own: only the uid is known.
            PeerPid::OtherNamespace => Self {
                contained: true,
                person: Some(PersonEvidence::default()),
            },
        }
    }

    fn read(directory: &Path) -> Self {
        let (peer, own) = (
            pid_namespace(directory),
            pid_namespace(Path::new("/proc/self")),
        );
        Self {
            contained: peer.is_none() || own.is_none() || peer != own,
            person: person_behind(directory),
        }
    }
}

fn pid_namespace(directory: &Path) -> Option<PathBuf> {
    std::fs::read_link(directory.join("ns/pid")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use tokio::net::UnixListener;

    /// Set for a second process of this test binary: the socket that it connects to.
    const ROLE: &str = "GPUKILL_TEST_CONNECTS_TO";

    struct TestPeer(Child);

    impl Drop for TestPeer {
        fn drop(&mut self) {
            // It ends when its standard input closes.
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    /// Connects, and stays until its standard input closes.
    fn connect(socket: &str) {
        let _stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
    }

    /// What is read of a peer that is started with these arguments.
    fn inspect_started(words: &[&str], name: &str) -> Option<PeerProcess> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = UnixListener::bind(&socket).unwrap();
            let us = std::env::current_exe().unwrap();
            let us = us.to_str().unwrap();
            let mut words = words.iter().chain([&us, &name, &"--exact", &"--nocapture"]);
            let peer = Command::new(words.next().unwrap())
                .args(words)
                .env(ROLE, &socket)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut peer = TestPeer(peer.ok()?);
            loop {
                let soon = std::time::Duration::from_millis(50);
                if let Ok(accepted) = tokio::time::timeout(soon, listener.accept()).await {
                    let stream = accepted.unwrap().0;
                    let by_pid = inspect_pid(stream.peer_cred().unwrap().pid());
                    let said = inspect(&stream);
                    // The fallback by pid gives the same answer, where it gives any.
                    if by_pid
                        .person
                        .is_some_and(|it| it != PersonEvidence::default())
                    {
                        assert_eq!(by_pid, said);
                    }
                    return Some(said);
                }
                if peer.0.try_wait().unwrap().is_some() {
                    // The system may not allow it here.
                    return None;
                }
            }
        })
    }

    #[test]
    fn contained_if_in_another_pid_namespace() {
        if let Ok(socket) = std::env::var(ROLE) {
            return connect(&socket);
        }
        let name = "server::peer::process::tests::contained_if_in_another_pid_namespace";
        let own = PeerProcess::read(Path::new("/proc/self"));
        assert!(!own.contained, "{own:?}");
        assert_eq!(inspect_started(&[], name), Some(own));
        match inspect_started(&["unshare", "--pid", "--fork", "--kill-child"], name) {
            Some(said) => assert!(said.contained),
            None => eprintln!("skipped: no PID namespace may be made here"),
        }
    }

    #[test]
    fn namespace_owner_is_behind_the_peer() {
        if let Ok(socket) = std::env::var(ROLE) {
            return connect(&socket);
        }
        let name = "server::peer::process::tests::namespace_owner_is_behind_the_peer";
        let unshare = ["unshare", "--user", "--map-root-user"];
        for depth in 1..=2 {
            match inspect_started(&unshare.repeat(depth), name) {
                Some(said) => assert_eq!(
                    said.person.and_then(|it| it.namespace_owner),
                    Some(rustix::process::geteuid().as_raw())
                ),
                None => eprintln!("skipped: no user namespace may be made here"),
            }
        }
    }

    #[test]
    fn reaped_peer_has_no_person() {
        let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let handle =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let gone = PeerProcess {
            contained: true,
            person: None,
        };
        assert_eq!(inspect_pidfd(&handle), gone);
        let elsewhere = PeerProcess {
            contained: true,
            person: Some(PersonEvidence::default()),
        };
        assert_eq!(inspect_pid(Some(0)), elsewhere);
    }
}
