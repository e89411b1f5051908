//! Jobs that were ended and are there still. In a dry run all of these are: they count
//! as gone, so that what it tells is what would happen. Else they are about to go, and
//! nobody else is ended for what they hold.

use super::memory::JobKey;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
}

/// Which processes count as gone.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    processes: BTreeSet<Process>,
    jobs: BTreeSet<JobKey>,
}

impl Ghosts {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn hold(&self, process: Process, job: Option<&JobKey>) -> bool {
        self.processes.contains(&process) || job.is_some_and(|job| self.jobs.contains(job))
    }
}

/// Looks who is there still: forgets a job of whose processes none is, and takes in who
/// joined one while another was. Ghosts end with the dry run.
pub(crate) fn haunt<'a>(
    ended: &mut BTreeMap<JobKey, Ended>,
    is_dry_run: bool,
    there: impl Fn(Process) -> bool,
    processes: impl Iterator<Item = (Process, &'a JobKey)>,
) -> Ghosts {
    if ended.is_empty() {
        return Ghosts::default();
    }
    ended.retain(|_, it| {
        it.processes.retain(|process| there(*process));
        !it.processes.is_empty() && (is_dry_run || !it.is_ghost)
    });
    for (process, job) in processes {
        if let Some(it) = ended.get_mut(job) {
            it.processes.insert(process);
        }
    }
    let ghosts = ended.iter().filter(|(_, it)| it.is_ghost);
    Ghosts {
        processes: ghosts
            .clone()
            .flat_map(|(_, it)| it.processes.iter().copied())
            .collect(),
        jobs: ghosts.map(|(job, _)| job.clone()).collect(),
    }
}
