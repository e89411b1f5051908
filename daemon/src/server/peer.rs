//! Who connects, as the kernel says it. The only place that makes a [`Caller`].
//!
//! Also the only place of this program with unsafe code: neither nix nor rustix
//! has `SO_PEERGROUPS`, and without the supplementary groups nobody could be an
//! operator.

use gpukill_policy::access::Caller;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd as _;
use tokio::net::UnixStream;

/// Linux allows no more groups to a process (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// Who was at the other end when it connected. What the process has become
/// since does not count.
pub(super) fn caller(stream: &UnixStream) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    let mut groups = supplementary_groups(stream)?;
    groups.insert(credentials.gid());
    Ok(Caller {
        uid: credentials.uid(),
        groups,
    })
}

fn supplementary_groups(stream: &UnixStream) -> io::Result<BTreeSet<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        match peer_groups(stream, &mut groups, &mut length) {
            Ok(()) => {
                groups.truncate(length as usize / size_of::<libc::gid_t>());
                return Ok(groups.into_iter().collect());
            }
            // The kernel says how much it needs.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => {
                let needed = length as usize / size_of::<libc::gid_t>();
                if needed <= groups.len() || needed > MOST_GROUPS {
                    return Err(error);
                }
                groups.resize(needed, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

#[allow(unsafe_code, reason = "no crate of ours wraps SO_PEERGROUPS")]
fn peer_groups(
    stream: &UnixStream,
    groups: &mut [libc::gid_t],
    length: &mut libc::socklen_t,
) -> io::Result<()> {
    debug_assert!(*length as usize <= size_of_val(groups));
    // SAFETY: the descriptor is open for as long as `stream` is borrowed, and
    // the kernel writes at most `*length` bytes, which `groups` has room for,
    // and then the number of bytes it wrote or needs into `length`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_known_by_uid_and_groups() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let caller = runtime.block_on(async {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            caller(&ours).unwrap()
        });
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        let mut groups: BTreeSet<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        groups.insert(rustix::process::getegid().as_raw());
        assert_eq!(caller.groups, groups);
    }
}
