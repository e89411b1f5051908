//! Stops everybody who is killed before anybody is: each end makes room for a process
//! that somebody who goes on may start, and takes away what tells whose child it was.

use super::Act;
use super::target::Target;
use gpukill_proto::kill::KillSignal;
use std::time::{Duration, Instant};

/// So many looks for somebody new are made. All who were found before hold still, so
/// that only those who were not fork on: of a fork bomb there are fewer at each look.
const LOOKS: usize = 32;

/// The longest time that processes are stopped in which go on with their signal: whoever
/// waits for them takes them for dead.
const STOPPING: Duration = Duration::from_secs(3);

/// The same for those that are killed: they do not go on. A fork bomb that has all
/// processors leaves the daemon one part in hundreds of them at first, and more with each
/// that is stopped.
const STOPPING_TO_KILL: Duration = Duration::from_secs(20);

/// What is left of both.
pub(super) struct Limit {
    looks: usize,
    deadline: Instant,
}

impl Act<'_> {
    /// How long processes may be stopped before they have the signal of this step.
    pub(super) fn stop_limit(&self, step: usize) -> Limit {
        let kills = |target: &Target| target.signal(step) == Some(KillSignal::Kill);
        let longest = if self.targets.iter().any(kills) {
            STOPPING_TO_KILL
        } else {
            STOPPING
        };
        Limit {
            looks: LOOKS,
            deadline: Instant::now() + longest,
        }
    }

    /// Stops everybody who is killed in this step, and everybody of a job that forks: so
    /// that nobody forks before all have their signal. Returns when a look finds nobody
    /// new, or it takes too long.
    pub(super) fn stop_all(&mut self, step: usize, limit: &mut Limit) {
        if !self.is_wide() {
            return;
        }
        self.stops_before = Some(step);
        while let Some(looks) = limit.looks.checked_sub(1) {
            limit.looks = looks;
            let is_any = self.stop_each(step, limit.deadline);
            let is_over = self.means.is_stopping() || Instant::now() >= limit.deadline;
            if !is_any || is_over || !self.take_in_the_newborn() {
                break;
            }
        }
        self.stops_before = None;
    }

    /// Stops each that is to be, right after it was looked at once more: whoever is
    /// looked at last would fork until then. False where nobody is to be stopped.
    fn stop_each(&mut self, step: usize, deadline: Instant) -> bool {
        let mut is_any = false;
        for position in 0..self.targets.len() {
            let target = self.targets.get(position);
            let Some(target) = target.filter(|it| it.awaits_stop(step, self.forks)) else {
                continue;
            };
            is_any = true;
            if self.means.is_stopping() || Instant::now() >= deadline {
                break;
            }
            // Others may have let one go on that was stopped.
            if (target.is_stopped() || self.recheck(position, step))
                && let Some(target) = self.targets.get_mut(position)
            {
                target.stop(&self.means.frozen);
            }
        }
        is_any
    }
}
