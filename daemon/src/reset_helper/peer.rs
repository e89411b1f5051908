//! Checks the peer. If standard input is not a socket, the user who started this program uses their
//! own rights.

use crate::procfs::read_status;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use nix::unistd::User;
use std::os::fd::AsFd;
use std::path::Path;

const DAEMON_USER: &str = "gpukill";

/// Refuses all users except root and the daemon, or the user that `allowed` names.
pub(super) fn check(at: impl AsFd, allowed: Option<u32>) -> Result<(), String> {
    let peer = match getsockopt(&at, PeerCredentials) {
        Ok(peer) => peer,
        Err(Errno::ENOTSOCK) => return Ok(()),
        Err(error) => return Err(format!("cannot identify the peer: {error}")),
    };
    let uid = peer.uid();
    let may = match allowed {
        _ if uid == 0 => true,
        Some(allowed) => uid == allowed,
        None if is_daemon_user(uid) => return check_capabilities(peer),
        None => false,
    };
    if may {
        Ok(())
    } else {
        Err(format!("uid {uid} may not request a reset"))
    }
}

fn is_daemon_user(uid: u32) -> bool {
    let user = User::from_name(DAEMON_USER).ok().flatten();
    user.is_some_and(|user| user.uid.as_raw() == uid)
}

/// Checks that the peer has a capability. The sensor, which has the user of the daemon and hosts a
/// library of the vendor, has none. If the pid has been reused, the new process must have the same
/// user too.
fn check_capabilities(peer: UnixCredentials) -> Result<(), String> {
    let directory = Path::new("/proc").join(peer.pid().to_string());
    let text =
        read_status(&directory).map_err(|error| format!("cannot identify the peer: {error}"))?;
    // In a user namespace of its own any process has every capability.
    let namespace = |of: &Path| std::fs::read_link(of.join("ns/user")).ok();
    let is_same_namespace = namespace(&directory) == namespace(Path::new("/proc/self"));
    if is_same_namespace && is_daemon(&String::from_utf8_lossy(&text), peer.uid()) {
        Ok(())
    } else {
        Err(
            "of the processes of the daemon's user, only the daemon itself may request a reset"
                .to_owned(),
        )
    }
}

/// Whether this `status` belongs to a process of this user with at least one capability.
fn is_daemon(status: &str, user: u32) -> bool {
    let value = |label: &str| status.lines().find_map(|line| line.strip_prefix(label));
    let effective = value("Uid:").and_then(|uids| uids.split_ascii_whitespace().nth(1));
    let capabilities = value("CapEff:").map(|set| u64::from_str_radix(set.trim(), 16));
    effective == Some(user.to_string().as_str()) && matches!(capabilities, Some(Ok(1..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_has_its_user_and_a_capability() {
        let status = |uids: &str, set: &str| format!("Name:\tx\nUid:\t{uids}\nCapEff:\t{set}\n");
        let three = "0000000000080024";
        for (status, expected) in [
            (status("990\t990\t990\t990", three), true),
            (status("990\t990\t990\t990", "0000000000000000"), false),
            (status("990\t0\t0\t0", three), false),
            (status("990", three), false),
            (status("990\t990\t990\t990", "many"), false),
            ("Uid:\t990\t990\t990\t990\n".to_owned(), false),
            (format!("CapEff:\t{three}\n"), false),
            (String::new(), false),
        ] {
            assert_eq!(is_daemon(&status, 990), expected, "{status}");
        }
    }
}
