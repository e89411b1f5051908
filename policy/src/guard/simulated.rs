//! Jobs that a dry run counts as ended. A simulated end is a note on the violation: the job
//! and the violation go on, and every rule evaluates both as before. For the same violation
//! another job is chosen only for the excess that would remain without it.

use super::ended_jobs::{ContainerUser, PidStart};
use super::state::JobKey;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{OpenViolation, Victim, ViolationSubject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A job, or the part of one user in a container that several users share.
pub(crate) type JobPart = (JobKey, Option<ContainerUser>);

/// A job that a dry run counts as ended and that is still present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedEnd {
    /// The violation at that time: its subject is the job, its processes are those of the
    /// job.
    pub violation: OpenViolation,
    /// Its processes that are still present: pid, and start in ticks.
    pub processes: BTreeSet<PidStart>,
}

/// How many jobs these ends refer to: one job may violate several rules.
#[must_use]
pub fn simulated_jobs<'a>(ends: impl IntoIterator<Item = &'a SimulatedEnd>) -> usize {
    let jobs = ends.into_iter().map(|end| &end.violation.subject);
    jobs.into_set().len()
}

impl SimulatedEnd {
    /// The simulated end of this job, or part of it.
    pub(crate) fn new(
        violation: OpenViolation,
        victim: &Victim,
        processes: BTreeSet<PidStart>,
    ) -> Self {
        let mut violation = violation;
        violation.subject = ViolationSubject::Job(victim.job.clone());
        violation.evidence.runs.clone_from(&victim.runs);
        violation.evidence.count = victim.count;
        Self {
            violation,
            processes,
        }
    }
}
