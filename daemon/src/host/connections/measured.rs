//! One look as its benchmark and the tests of it with true sockets take it; no interface.

use super::Found;
use super::look::Look;
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How many are connected to each of these processes, by a first look at them.
#[must_use]
pub fn connections(root: &Path, pids: &[u32]) -> Vec<Reading<u32>> {
    let found = look(root, pids).into_iter();
    found.map(|found| found.clients).collect()
}

/// The ports on which this process listens, and the far ends of the connections that it
/// made.
#[must_use]
pub fn of(root: &Path, pid: u32) -> Option<(BTreeSet<u16>, BTreeSet<SocketAddr>)> {
    let found = look(root, &[pid]).pop()?;
    found.sockets.map(|it| (it.listens, it.peers))
}

fn look(root: &Path, pids: &[u32]) -> Vec<Found> {
    let key = |pid: &u32| {
        let stat = Stat::read(&root.join(pid.to_string())).ok()?;
        Some(ProcessKey {
            pid: *pid,
            start_ticks: stat.start_ticks,
        })
    };
    let keys: Vec<ProcessKey> = pids.iter().filter_map(key).collect();
    let found = Look::below(PathBuf::from(root)).at(&keys);
    found.into_iter().map(|(_, found)| found).collect()
}
