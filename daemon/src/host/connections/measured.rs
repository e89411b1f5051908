//! One look as its benchmark takes it; no interface.

use super::look::Look;
use crate::procfs::stat::Stat;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::path::{Path, PathBuf};

/// How many are connected to each of these processes, by a first look at them.
#[must_use]
pub fn connections(root: &Path, pids: &[u32]) -> Vec<Reading<u32>> {
    let key = |pid: &u32| {
        let stat = Stat::read(&root.join(pid.to_string())).ok()?;
        Some(ProcessKey {
            pid: *pid,
            start_ticks: stat.start_ticks,
        })
    };
    let keys: Vec<ProcessKey> = pids.iter().filter_map(key).collect();
    let counts = Look::below(PathBuf::from(root)).at(&keys);
    counts.into_iter().map(|(_, count)| count).collect()
}
