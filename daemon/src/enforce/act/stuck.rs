//! Which processes no signal reaches, what they wait on, and what frees them.

use super::Act;
use super::target::Target;
use crate::host::crowd::Crowds;
use gpukill_policy::kill::Crowd;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::holders::ProcessState;
use gpukill_proto::kill::{FuseMount, FuseServer, Stuck};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeMap;
use std::time::Duration;

/// So often is looked again whether somebody is still stuck, and so far apart.
const STUCK_LOOKS: usize = 4;
const STUCK_STEP: Duration = Duration::from_millis(50);

impl Act<'_> {
    /// Those that no signal reaches, and what they wait on: they do at each of a
    /// few looks. Whoever forks or reads does for a moment.
    pub(super) fn stuck(&self) -> BTreeMap<ProcessKey, Option<String>> {
        let left = self.targets.iter().filter(|target| target.is_left());
        let mut keys: Vec<ProcessKey> = left.map(Target::key).collect();
        for look in 0.. {
            let found = keys.iter().filter_map(|key| {
                let now = self.means.crowds.one(key.pid).ok()?;
                match now.state {
                    ProcessState::Uninterruptible(at) if now.kin.key == *key => Some((*key, at)),
                    ProcessState::Uninterruptible(_)
                    | ProcessState::Running
                    | ProcessState::Sleeping
                    | ProcessState::Stopped
                    | ProcessState::Zombie
                    | ProcessState::Other(_) => None,
                }
            });
            let found: BTreeMap<ProcessKey, Option<String>> = found.into_map();
            if found.is_empty() || look == STUCK_LOOKS {
                return found;
            }
            keys = found.into_keys().collect();
            std::thread::sleep(STUCK_STEP);
        }
        BTreeMap::new()
    }
}

/// What this process waits on, with the owners of a FUSE filesystem's servers, as they
/// were seen before the first signal.
pub(super) fn describe(
    pid: u32,
    waits_on: Option<String>,
    crowds: &Crowds,
    first: &Crowd,
) -> Stuck {
    let mount = waits_on.as_deref();
    let mount = mount.and_then(|function| crowds.awaited_fuse(pid, function));
    let server = |pid: u32| FuseServer {
        pid,
        owner: match first.get(&pid) {
            Some(server) => server.owner.clone(),
            None => Reading::Failed("it came after the processes were looked at".into()),
        },
    };
    let fuse = mount.map(|mount| FuseMount {
        path: mount.path,
        servers: mount.servers.into_iter().map(server).collect(),
    });
    Stuck { waits_on, fuse }
}
