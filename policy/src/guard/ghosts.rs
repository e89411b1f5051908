//! Jobs that were ended and are there still. In a dry run all of these are: they count
//! as gone, so that what it tells is what would happen. Else they are about to go, and
//! nobody else is ended for what they hold.

use super::memory::JobKey;
use super::memory::sight::Sight;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process: its pid and when it began.
pub(crate) type Process = (u32, u64);

/// A job that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) at: Timestamp,
    /// Nobody really ended it.
    pub(crate) is_ghost: bool,
    /// Those of its processes that are there still.
    pub(crate) processes: BTreeSet<Process>,
    /// What they used when it was ended.
    #[serde(default)]
    pub(crate) devices: BTreeSet<DeviceId>,
}

impl Ended {
    /// Whether it has been going for no longer than that takes.
    pub(crate) fn is_going(&self, now: Timestamp) -> bool {
        self.at >= now || now.since(self.at) < GOING
    }
}

/// A job that was ended has so long to go: signals take ten seconds and what a process
/// held comes back in ten more at most, as with a kill that a person asks for; some of
/// them write a checkpoint first.
const GOING: Duration = Duration::from_secs(60);

/// Which processes count as gone.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(BTreeSet<Process>);

impl Ghosts {
    pub(crate) fn hold(&self, process: Process) -> bool {
        self.0.contains(&process)
    }
}

/// Looks who is there still: forgets a job of whose processes none is, and takes in who
/// joined one while another was. Ghosts end with the dry run. Of a device out of sight
/// nobody is known to be gone.
pub(crate) fn haunt<'k>(
    ended: &mut BTreeMap<JobKey, Ended>,
    is_dry_run: bool,
    sight: &Sight,
    there: &BTreeSet<Process>,
    processes: impl Iterator<Item = (Process, &'k JobKey)>,
) -> Ghosts {
    ended.retain(|_, it| {
        if sight.is_of_all(&it.devices) {
            it.processes.retain(|process| there.contains(process));
        }
        !it.processes.is_empty() && (is_dry_run || !it.is_ghost)
    });
    for (process, job) in processes {
        if let Some(it) = ended.get_mut(job) {
            it.processes.insert(process);
        }
    }
    let ghosts = ended.values().filter(|it| it.is_ghost);
    Ghosts(ghosts.flat_map(|it| it.processes.iter().copied()).collect())
}
