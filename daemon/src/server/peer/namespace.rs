//! Whether whoever connects runs in a PID namespace of its own, as in a container:
//! root of there arrives with the uid of the box's root.
//!
//! What cannot be told is so: that matters for root alone, and in doubt nobody is
//! anybody special.

use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerPidfd;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// Whether the peer runs in another PID namespace than this daemon, or may.
pub(super) fn is_contained(stream: &UnixStream) -> bool {
    let theirs = match getsockopt(stream, PeerPidfd) {
        Ok(handle) => by_handle(&handle),
        // Before Linux 6.5.
        Err(Errno::ENOPROTOOPT) => stream.peer_cred().ok().and_then(|peer| by_pid(peer.pid()?)),
        // It was reaped.
        Err(_) => None,
    };
    let own = namespace("self");
    theirs.is_none() || own.is_none() || theirs != own
}

/// The namespace of a process that has this handle. It cannot be another's: the
/// process has its pid before and after.
fn by_handle(handle: &OwnedFd) -> Option<PathBuf> {
    let before = pid_of(handle)?;
    let found = namespace(&before.to_string())?;
    (pid_of(handle) == Some(before)).then_some(found)
}

/// Its pid as the mounted `/proc` has it, which may be of another namespace than
/// ours. `None` for one that was reaped, or is not to be seen there.
fn pid_of(handle: &OwnedFd) -> Option<u32> {
    let file = format!("/proc/self/fdinfo/{}", handle.as_raw_fd());
    let text = std::fs::read_to_string(file).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    // -1 and 0 are none.
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

/// The namespace of whoever has this pid, by which it connected a moment ago.
fn by_pid(pid: i32) -> Option<PathBuf> {
    // Where `/proc` is of another namespace than ours, it has other pids.
    let ours = std::fs::read_link("/proc/self").ok()?;
    let is_own = ours == Path::new(&std::process::id().to_string());
    // 0 is whoever is not to be seen from here.
    (is_own && pid > 0).then(|| namespace(&pid.to_string()))?
}

fn namespace(process: &str) -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc").join(process).join("ns/pid")).ok()
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
    fn said_of(words: &[&str], name: &str) -> Option<bool> {
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
                    let by_pid = stream.peer_cred().unwrap().pid().and_then(by_pid);
                    let said = is_contained(&stream);
                    // The older way says the same, where it says anything.
                    if by_pid.is_some() {
                        assert_eq!(by_pid != namespace("self"), said);
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
        let name = "server::peer::namespace::tests::a_peer_of_the_same_namespace_is_not_contained_and_one_of_another_is";
        assert_eq!(said_of(&[], name), Some(false));
        match said_of(&["unshare", "--pid", "--fork", "--kill-child"], name) {
            Some(said) => assert!(said),
            None => eprintln!("skipped: no PID namespace may be made here"),
        }
    }

    #[test]
    fn a_peer_that_has_ended_and_is_reaped_counts_as_contained() {
        let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let handle =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        assert_eq!(by_handle(&handle), None);
        assert_eq!(by_pid(0), None);
    }
}
