//! Updates the jobs that a dry run counts as ended.

use super::super::super::ended_jobs::{ContainerUser, PidStart};
use super::super::super::victims::pid_start;
use super::super::super::violation_state::ViolationState;
use super::super::findings::SubjectIndex;
use super::RuleEvaluation;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::ViolationSubject;
use std::collections::BTreeSet;

impl RuleEvaluation<'_, '_> {
    /// Updates which processes of the jobs that a dry run counts as ended are still
    /// present.
    pub(super) fn update_simulated(&self, subject: &ViolationSubject, clock: &mut ViolationState) {
        let is_any = |clock: &ViolationState| {
            clock
                .opened
                .as_ref()
                .is_some_and(|it| !it.simulated.is_empty())
        };
        if !is_any(clock) || !self.is_fully_reported(subject, clock) {
            return;
        }
        let simulated = clock.opened.iter_mut().flat_map(|it| &mut it.simulated);
        for ((_, part), end) in simulated {
            let job = match self.scene.find_subject(&end.violation.subject) {
                Some(SubjectIndex::Job(job)) => self.scene.jobs[job].runs.as_slice(),
                _ => &[],
            };
            let is_of_part = |run: &&usize| {
                let user = self.scene.container_user(**run).map(ContainerUser);
                part.is_none() || user == *part
            };
            let runs = job.iter().filter(is_of_part);
            let now: BTreeSet<PidStart> = runs.map(|run| pid_start(self.scene, *run)).into_set();
            // If all have gone, a job of this name is another job.
            end.processes = match end.processes.is_disjoint(&now) {
                true => BTreeSet::new(),
                false => now,
            };
        }
        if let Some(opened) = &mut clock.opened {
            opened.simulated.retain(|_, end| !end.processes.is_empty());
        }
    }
}
