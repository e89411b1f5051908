//! Reads what the system knows of processes and users. The `policy` crate decides what it means.
//!
//! In reading order: data that is read at once (`status` to `namespace`); reads that may hang and
//! run in the background (`background_cache` to `containers`); process metadata from both
//! (`ancestors` to `process_table`); the network use of jobs (`sockets`); evidence for rogue
//! verdicts (`evidence`); and hashes of executables (`hashes`).

pub(crate) mod accounts;
mod ancestors;
mod background_cache;
mod cgroup;
pub(crate) mod commands;
pub(crate) mod containers;
mod cpu;
#[cfg_attr(not(test), expect(dead_code, reason = "rogue verdicts will use it"))]
pub(crate) mod evidence;
pub(crate) mod fuse;
pub(crate) mod fuzz_api;
pub(crate) mod hashes;
mod login_defs;
pub(crate) mod namespace;
pub(crate) mod process;
pub(crate) mod process_metadata;
pub(crate) mod process_state;
pub(crate) mod process_table;
mod seat;
pub(crate) mod sockets;
mod status;
#[cfg(test)]
mod test_process;
pub(crate) mod users;

use crate::procfs::{MAX_CGROUP_BYTES, read_at_most};
use cgroup::user_slice;
use gpukill_policy::access::PersonEvidence;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use namespace::{own_user_namespace, user_namespace_creators, user_namespace_owner};
use status::StatusFile;
use std::path::Path;

/// Linux writes about 1,500 bytes to `/proc/meminfo`.
const MEMINFO_MAX: u64 = 64 << 10;

/// The person behind the process with this directory, by kernel data only; `None` where it has
/// ended.
pub(crate) fn person_behind(directory: &Path) -> Option<PersonEvidence> {
    let cgroup = read_at_most(&directory.join("cgroup"), MAX_CGROUP_BYTES).ok()?;
    let cgroup = String::from_utf8(cgroup).ok()?;
    let namespace_owner = user_namespace_owner(directory, own_user_namespace().as_deref());
    Some(PersonEvidence {
        slice: user_slice(&cgroup),
        subordinate_owner: None,
        namespace_owner: namespace_owner.known().copied().flatten(),
    })
}

/// The user of the process with this directory, which is the creator of its user namespace or else
/// its real user, and the user of its user slice.
pub(crate) fn user_and_slice(directory: &Path) -> Option<(u32, Option<u32>)> {
    let user = StatusFile::read(directory).uids.known()?.real;
    let user = match user_namespace_creators(directory, own_user_namespace().as_deref()) {
        Reading::Value(makers) => makers.person.unwrap_or(user),
        Reading::Unsupported => user,
        Reading::Stale(..) | Reading::Failed(_) | Reading::Withheld => return None,
    };
    let cgroup = read_at_most(&directory.join("cgroup"), MAX_CGROUP_BYTES).ok();
    let cgroup = cgroup.and_then(|text| String::from_utf8(text).ok());
    Some((user, cgroup.as_deref().and_then(user_slice)))
}

/// `MemTotal` of `/proc/meminfo`: the memory that the kernel can use. `None` where it is not
/// reported.
pub(crate) fn total_memory(procfs: &Path) -> Option<Bytes> {
    let bytes = read_at_most(&procfs.join("meminfo"), MEMINFO_MAX).ok()?;
    parse_total_memory(&String::from_utf8_lossy(&bytes))
}

fn parse_total_memory(text: &str) -> Option<Bytes> {
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counts_in_kib() {
        let text = "MemFree: 1 kB\nMemTotal:       24682416 kB\nMemFree: 2 kB\n";
        assert_eq!(parse_total_memory(text), Some(Bytes(25_274_793_984)));
        for garbage in [
            "",
            "MemTotal: x kB",
            "MemTotal: 1",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(parse_total_memory(garbage), None, "{garbage}");
        }
    }
}
