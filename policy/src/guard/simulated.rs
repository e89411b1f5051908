//! Jobs that a dry run would have ended. Such an end is a note on the violation: the job goes
//! on, the violation does too, and every rule sees both as before. For the same violation
//! another job is chosen only for what would be too much without it.

use super::ended::{Part, Process};
use super::memory::JobKey;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{OpenViolation, Subject, Victim};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A job, or in a container that several users share the part of one of them.
pub(crate) type JobPart = (JobKey, Option<Part>);

/// A job that a dry run would have ended, and that is there still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedEnd {
    /// The violation as it was then: the subject is the job, the processes are its own.
    pub violation: OpenViolation,
    /// Those of its processes that are there still: pid, and start in ticks.
    pub processes: BTreeSet<Process>,
}

/// How many jobs these ends are about: several rules may be broken by one job.
#[must_use]
pub fn simulated_jobs<'a>(ends: impl IntoIterator<Item = &'a SimulatedEnd>) -> usize {
    let jobs = ends.into_iter().map(|end| &end.violation.subject);
    jobs.into_set().len()
}

impl SimulatedEnd {
    /// Of a violation, for the part of this job.
    pub(crate) fn of(
        violation: OpenViolation,
        victim: &Victim,
        processes: BTreeSet<Process>,
    ) -> Self {
        let mut violation = violation;
        violation.subject = Subject::Job(victim.job.clone());
        violation.evidence.runs.clone_from(&victim.runs);
        violation.evidence.count = victim.count;
        Self {
            violation,
            processes,
        }
    }
}
