//! Who asks. Where standard input is no socket, whoever started this program does
//! it with their own rights.

use nix::unistd::User;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

/// The daemon's user.
const DAEMON: &str = "gpukill";

/// Refuses everybody but root and the daemon.
pub(super) fn check(at: impl AsFd, allowed: Option<u32>) -> Result<(), String> {
    let peer = match socket_peercred(at) {
        Ok(peer) => peer.uid.as_raw(),
        Err(Errno::NOTSOCK) => return Ok(()),
        Err(error) => return Err(format!("who asks cannot be told: {error}")),
    };
    let daemon = || {
        let user = User::from_name(DAEMON).ok().flatten();
        user.map(|user| user.uid.as_raw())
    };
    if peer == 0 || allowed.or_else(daemon) == Some(peer) {
        Ok(())
    } else {
        Err(format!("uid {peer} may not ask for a reset"))
    }
}
