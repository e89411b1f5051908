//! What the process is that connects: whether it runs in a PID namespace of its own, as
//! in a container, and which person is behind it.
//!
//! Root of a container arrives with the uid of the box's root, so that a process that
//! cannot be looked at counts as contained: that matters for root alone.

use crate::host::person::person_behind;
use gpukill_policy::access::PersonBehind;
use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerPidfd;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// What is known of the process of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PeerProcess {
    /// Whether it runs in another PID namespace than this daemon, or may.
    pub(super) contained: bool,
    /// The person behind it; `None` where the process is not found any more.
    pub(super) behind: Option<PersonBehind>,
}

/// Looks at the process that connected.
pub(super) fn look(stream: &UnixStream) -> PeerProcess {
    match getsockopt(stream, PeerPidfd) {
        Ok(handle) => by_handle(&handle),
        // Before Linux 6.5.
        Err(Errno::ENOPROTOOPT) => by_pid(stream.peer_cred().ok().and_then(|it| it.pid())),
        Err(_) => PeerProcess::of(&Pid::Gone),
    }
}

/// A process in the mounted `/proc`, which may be of another namespace than ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pid {
    Is(u32),
    /// It was reaped.
    Gone,
    /// It is not to be seen there.
    Elsewhere,
}

/// The process that has this handle. It cannot be another one: it has its pid before and
/// after.
fn by_handle(handle: &OwnedFd) -> PeerProcess {
    let before = pid_of(handle);
    let found = PeerProcess::of(&before);
    if pid_of(handle) == before {
        found
    } else {
        PeerProcess::of(&Pid::Gone)
    }
}

fn pid_of(handle: &OwnedFd) -> Pid {
    let file = format!("/proc/self/fdinfo/{}", handle.as_raw_fd());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match pid.map(|pid| pid.trim().parse::<i64>()) {
        Some(Ok(0)) => Pid::Elsewhere,
        Some(Ok(pid)) => u32::try_from(pid).map_or(Pid::Gone, Pid::Is),
        Some(Err(_)) | None => Pid::Gone,
    }
}

/// The process with this pid, by which it connected a moment ago.
fn by_pid(pid: Option<i32>) -> PeerProcess {
    // Where `/proc` is of another namespace than ours, it has other pids.
    let ours = std::fs::read_link("/proc/self").ok();
    let is_own = ours.as_deref() == Some(Path::new(&std::process::id().to_string()));
    PeerProcess::of(&match pid.map(u32::try_from) {
        Some(Ok(1..)) if !is_own => Pid::Elsewhere,
        Some(Ok(pid @ 1..)) => Pid::Is(pid),
        Some(Ok(0)) => Pid::Elsewhere,
        Some(Err(_)) | None => Pid::Gone,
    })
}

impl PeerProcess {
    fn of(pid: &Pid) -> Self {
        match pid {
            Pid::Is(pid) => Self::read(&Path::new("/proc").join(pid.to_string())),
            Pid::Gone => Self {
                contained: true,
                behind: None,
            },
            // Of a daemon in a namespace of its own: nothing is known but the uid.
            Pid::Elsewhere => Self {
                contained: true,
                behind: Some(PersonBehind::default()),
            },
        }
    }

    fn read(directory: &Path) -> Self {
        let (theirs, own) = (
            pid_namespace(directory),
            pid_namespace(Path::new("/proc/self")),
        );
        Self {
            contained: theirs.is_none() || own.is_none() || theirs != own,
            behind: person_behind(directory),
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

    /// This very test, in another process.
    const ROLE: &str = "GPUKILL_TEST_CONNECTS_TO";

    struct Peer(Child);

    impl Drop for Peer {
        fn drop(&mut self) {
            // It ends when its standard input does.
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    /// Connects, and stays until nobody needs it.
    fn connect(socket: &str) {
        let _stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
    }

    /// What is said of a peer that is started by these words.
    fn said_of(words: &[&str], name: &str) -> Option<PeerProcess> {
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
            let mut peer = Peer(peer.ok()?);
            loop {
                let soon = std::time::Duration::from_millis(50);
                if let Ok(accepted) = tokio::time::timeout(soon, listener.accept()).await {
                    let stream = accepted.unwrap().0;
                    let by_pid = by_pid(stream.peer_cred().unwrap().pid());
                    let said = look(&stream);
                    // The older way says the same, where it says anything.
                    if by_pid
                        .behind
                        .is_some_and(|it| it != PersonBehind::default())
                    {
                        assert_eq!(by_pid, said);
                    }
                    return Some(said);
                }
                if peer.0.try_wait().unwrap().is_some() {
                    // It may not do that here.
                    return None;
                }
            }
        })
    }

    #[test]
    fn a_peer_of_the_same_namespace_is_not_contained_and_one_of_another_is() {
        if let Ok(socket) = std::env::var(ROLE) {
            return connect(&socket);
        }
        let name = "server::peer::process::tests::a_peer_of_the_same_namespace_is_not_contained_and_one_of_another_is";
        let own = PeerProcess::read(Path::new("/proc/self"));
        assert!(!own.contained, "{own:?}");
        assert_eq!(said_of(&[], name), Some(own));
        match said_of(&["unshare", "--pid", "--fork", "--kill-child"], name) {
            Some(said) => assert!(said.contained),
            None => eprintln!("skipped: no PID namespace may be made here"),
        }
    }

    #[test]
    fn behind_a_user_namespace_is_its_owner_however_deep_it_is() {
        if let Ok(socket) = std::env::var(ROLE) {
            return connect(&socket);
        }
        let name =
            "server::peer::process::tests::behind_a_user_namespace_is_its_owner_however_deep_it_is";
        let unshare = ["unshare", "--user", "--map-root-user"];
        for depth in 1..=2 {
            match said_of(&unshare.repeat(depth), name) {
                Some(said) => assert_eq!(
                    said.behind.and_then(|it| it.namespace_owner),
                    Some(rustix::process::geteuid().as_raw())
                ),
                None => eprintln!("skipped: no user namespace may be made here"),
            }
        }
    }

    #[test]
    fn behind_a_peer_that_has_ended_and_is_reaped_is_nobody_known() {
        let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let handle =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let gone = PeerProcess {
            contained: true,
            behind: None,
        };
        assert_eq!(by_handle(&handle), gone);
        let elsewhere = PeerProcess {
            contained: true,
            behind: Some(PersonBehind::default()),
        };
        assert_eq!(by_pid(Some(0)), elsewhere);
    }
}
