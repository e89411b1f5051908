//! Identifies the caller through the kernel. Only this module makes a [`Caller`].
//!
//! It has unsafe code: neither nix nor rustix has `SO_PEERGROUPS`, and without the supplementary
//! groups no caller could be an operator.

mod process;

use crate::host::users::Users;
use gpukill_policy::access::{Caller, LimitGroup, PersonEvidence};
use gpukill_proto::collect::IntoSet as _;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd as _;
use tokio::net::UnixStream;

/// Linux allows a process no more groups than this (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65_536;

/// The peer at the time it connected. Later changes of its process do not count.
pub(super) fn identify(stream: &UnixStream, users: &Users) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    let mut groups = supplementary_groups(stream)?;
    groups.insert(credentials.gid());
    let uid = credentials.uid();
    let process = process::inspect(stream);
    let person = process.person.map(|person| PersonEvidence {
        subordinate_owner: users.owner_of_nameless(person.namespace_owner.unwrap_or(uid)),
        ..person
    });
    Ok(Caller {
        uid,
        groups,
        contained: process.contained,
        limit_group: LimitGroup::for_caller(uid, process.contained, person),
    })
}

fn supplementary_groups(stream: &UnixStream) -> io::Result<BTreeSet<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        match peer_groups(stream, &mut groups)? {
            PeerGroups::Complete(count) => {
                groups.truncate(count);
                return Ok(groups.into_iter().into_set());
            }
            PeerGroups::BufferTooSmall(count) if count > groups.len() && count <= MAX_GROUPS => {
                groups.resize(count, 0);
            }
            PeerGroups::BufferTooSmall(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

enum PeerGroups {
    /// All groups, this many, were written.
    Complete(usize),
    /// There are this many groups, and none was written.
    BufferTooSmall(usize),
}

#[allow(unsafe_code, reason = "no crate of ours wraps SO_PEERGROUPS")]
fn peer_groups(stream: &UnixStream, groups: &mut [libc::gid_t]) -> io::Result<PeerGroups> {
    let mut length = libc::socklen_t::try_from(size_of_val(groups)).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `stream` is borrowed. The kernel writes at most `length`
    // bytes, which is the size of `groups`, and then stores in `length` the number of bytes that it
    // wrote or needs.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let count = length as usize / size_of::<libc::gid_t>();
    if result == 0 {
        return Ok(PeerGroups::Complete(count));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ERANGE) {
        Ok(PeerGroups::BufferTooSmall(count))
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::users::SystemNameService;

    #[test]
    fn peer_has_uid_and_groups() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let caller = runtime.block_on(async {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let users = Users::new(SystemNameService::for_this_host());
            identify(&ours, &users).unwrap()
        });
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        let mut groups: BTreeSet<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        groups.insert(rustix::process::getegid().as_raw());
        assert_eq!(caller.groups, groups);
        assert!(!caller.contained, "{caller:?}");
        assert_ne!(caller.limit_group, LimitGroup::Unknown);
    }
}
