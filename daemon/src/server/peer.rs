//! Who connects, as the kernel says it. The only place that makes a [`Caller`].
//!
//! It has unsafe code: neither nix nor rustix has `SO_PEERGROUPS`, and without the
//! supplementary groups nobody could be an operator.

mod process;

use crate::host::users::Users;
use gpukill_policy::access::{Caller, LimitGroup, PersonBehind};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd as _;
use tokio::net::UnixStream;

/// Linux allows no more groups to a process (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// Who was at the other end when it connected. What the process has become
/// since does not count.
pub(super) fn caller(stream: &UnixStream, users: &Users) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    let mut groups = supplementary_groups(stream)?;
    groups.insert(credentials.gid());
    let uid = credentials.uid();
    let process = process::look(stream);
    let behind = process.behind.map(|behind| PersonBehind {
        superior: users.superior_of_nameless(behind.namespace_owner.unwrap_or(uid)),
        ..behind
    });
    Ok(Caller {
        uid,
        groups,
        contained: process.contained,
        limit_group: LimitGroup::of(uid, process.contained, behind),
    })
}

fn supplementary_groups(stream: &UnixStream) -> io::Result<BTreeSet<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        match peer_groups(stream, &mut groups)? {
            Found::All(count) => {
                groups.truncate(count);
                return Ok(groups.into_iter().collect());
            }
            Found::More(count) if count > groups.len() && count <= MOST_GROUPS => {
                groups.resize(count, 0);
            }
            Found::More(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

enum Found {
    /// So many were written.
    All(usize),
    /// There are so many, and none was written.
    More(usize),
}

#[allow(unsafe_code, reason = "no crate of ours wraps SO_PEERGROUPS")]
fn peer_groups(stream: &UnixStream, groups: &mut [libc::gid_t]) -> io::Result<Found> {
    let mut length = libc::socklen_t::try_from(size_of_val(groups)).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for as long as `stream` is borrowed. The
    // kernel writes at most `length` bytes, which is the size of `groups`, and
    // then the number of bytes it wrote or needs into `length`.
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
        return Ok(Found::All(count));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ERANGE) {
        Ok(Found::More(count))
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::users::System;

    #[test]
    fn a_peer_is_known_by_uid_and_groups() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let caller = runtime.block_on(async {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let users = Users::new(System::here());
            caller(&ours, &users).unwrap()
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
