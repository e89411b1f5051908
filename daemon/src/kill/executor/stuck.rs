//! Finds processes that no signal reaches, the kernel function they wait in, and what frees them.

use super::Execution;
use super::target::Target;
use crate::host::process_table::ProcessTableReader;
use gpukill_policy::kill::ProcessTable;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{FuseMount, FuseServer, UninterruptibleWait};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many times, and how far apart, a process must be found uninterruptible. A process that forks
/// or reads is so for a moment.
const STUCK_CHECKS: usize = 4;
const STUCK_INTERVAL: Duration = Duration::from_millis(50);

impl Execution<'_> {
    /// Processes that are uninterruptible at each of a few checks, with the kernel function they
    /// wait in.
    pub(super) fn find_stuck(&self) -> BTreeMap<ProcessKey, Option<String>> {
        let left = self.targets.iter().filter(|target| target.is_pending());
        let mut keys: Vec<ProcessKey> = left.map(Target::key).collect();
        for check in 0.. {
            let found = keys.iter().filter_map(|key| {
                let now = self.environment.process_tables.read_one(key.pid).ok()?;
                match now.state {
                    ProcessState::Uninterruptible(at) if now.lineage.key == *key => {
                        Some((*key, at))
                    }
                    ProcessState::Uninterruptible(_)
                    | ProcessState::Running
                    | ProcessState::Sleeping
                    | ProcessState::Stopped
                    | ProcessState::Zombie
                    | ProcessState::Other(_) => None,
                }
            });
            let found: BTreeMap<ProcessKey, Option<String>> = found.into_map();
            if found.is_empty() || check == STUCK_CHECKS {
                return found;
            }
            keys = found.into_keys().collect();
            std::thread::sleep(STUCK_INTERVAL);
        }
        BTreeMap::new()
    }
}

/// The function that this process waits in, with the owners of the servers of a FUSE filesystem as
/// they were before the first signal.
pub(super) fn describe(
    pid: u32,
    waits_on: Option<String>,
    reader: &ProcessTableReader,
    first: &ProcessTable,
) -> UninterruptibleWait {
    let mount = waits_on.as_deref();
    let mount = mount.and_then(|function| reader.awaited_fuse(pid, function));
    let server = |pid: u32| FuseServer {
        pid,
        owner: match first.get(&pid) {
            Some(server) => server.owner.clone(),
            None => Reading::Failed("it started after the process table was read".into()),
        },
    };
    let fuse = mount.map(|mount| FuseMount {
        path: mount.path,
        servers: mount.servers.into_iter().map(server).collect(),
    });
    UninterruptibleWait { waits_on, fuse }
}
