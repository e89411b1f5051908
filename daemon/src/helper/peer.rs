//! Who asks. Where standard input is no socket, whoever started this program does
//! it with their own rights.

use crate::procfs::status;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use nix::unistd::User;
use std::os::fd::AsFd;
use std::path::Path;

/// The daemon's user.
const DAEMON: &str = "gpukill";

/// Refuses everybody but root and the daemon, or whoever `allowed` names.
pub(super) fn check(at: impl AsFd, allowed: Option<u32>) -> Result<(), String> {
    let peer = match getsockopt(&at, PeerCredentials) {
        Ok(peer) => peer,
        Err(Errno::ENOTSOCK) => return Ok(()),
        Err(error) => return Err(format!("who asks cannot be told: {error}")),
    };
    let uid = peer.uid();
    let may = match allowed {
        _ if uid == 0 => true,
        Some(allowed) => uid == allowed,
        None if is_daemons(uid) => return has_rights(peer),
        None => false,
    };
    if may {
        Ok(())
    } else {
        Err(format!("uid {uid} may not ask for a reset"))
    }
}

fn is_daemons(uid: u32) -> bool {
    let user = User::from_name(DAEMON).ok().flatten();
    user.is_some_and(|user| user.uid.as_raw() == uid)
}

/// The sensor has the daemon's user, hosts a vendor's library, and has no capability.
/// Should the pid be another's by now, that one must be of this user too.
fn has_rights(peer: UnixCredentials) -> Result<(), String> {
    let directory = Path::new("/proc").join(peer.pid().to_string());
    let text =
        status::read(&directory).map_err(|error| format!("who asks cannot be told: {error}"))?;
    // In a user namespace of their own anybody has every capability.
    let namespace = |of: &Path| std::fs::read_link(of.join("ns/user")).ok();
    let is_ours = namespace(&directory) == namespace(Path::new("/proc/self"));
    if is_ours && is_daemon(&String::from_utf8_lossy(&text), peer.uid()) {
        Ok(())
    } else {
        Err("of the daemon's user only the daemon may ask for a reset".to_owned())
    }
}

/// Whether this `status` is of a process of this user that has any capability.
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
    fn the_daemon_is_whoever_has_its_user_and_any_capability() {
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
