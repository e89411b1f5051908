//! What a dry run counts as ended.

use super::super::super::clock::Clock;
use super::super::super::ended::{Part, Process};
use super::super::super::victims::process;
use super::super::finding::Whom;
use super::Look;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::Subject;
use std::collections::BTreeSet;

impl Look<'_, '_> {
    /// Notes which processes are there still of the jobs that a dry run would have ended.
    pub(super) fn update_simulated(&self, subject: &Subject, clock: &mut Clock) {
        let is_any = |clock: &Clock| {
            clock
                .opened
                .as_ref()
                .is_some_and(|it| !it.simulated.is_empty())
        };
        if !is_any(clock) || !self.is_in_sight(subject, clock) {
            return;
        }
        let simulated = clock.opened.iter_mut().flat_map(|it| &mut it.simulated);
        for ((_, part), end) in simulated {
            let job = match self.scene.find(&end.violation.subject) {
                Some(Whom::Job(job)) => self.scene.jobs[job].runs.as_slice(),
                _ => &[],
            };
            let is_of_part = |run: &&usize| {
                let user = self.scene.user_in_container(**run).map(Part);
                part.is_none() || user == *part
            };
            let runs = job.iter().filter(is_of_part);
            let now: BTreeSet<Process> = runs.map(|run| process(self.scene, *run)).into_set();
            // Where all have gone, a job of this name is another one.
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
