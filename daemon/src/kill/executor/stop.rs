//! Stops the processes of a job before any of them is killed. Each process that ends would make
//! room for a fork by one that still runs, and its end hides which processes were its children.

use super::Execution;
use super::target::Target;
use gpukill_proto::kill::KillSignal;
use std::time::{Duration, Instant};

/// How many times the executor searches for new processes. Processes found earlier are stopped, so
/// only the others fork on: of a fork bomb each search finds fewer.
const MAX_STOP_ROUNDS: usize = 32;

/// The longest time that processes stay stopped if they resume with their signal. Programs that
/// wait for them would think that they have died.
const MAX_STOP_TIME: Duration = Duration::from_secs(3);

/// The same for processes that are killed and never resume. A fork bomb uses all
/// processors: the daemon gets less than 1 % of them at first, and more with each process that is
/// stopped.
const MAX_STOP_TIME_BEFORE_KILL: Duration = Duration::from_secs(20);

/// The pause between two checks whether stopped processes have come to rest.
const REST_INTERVAL: Duration = Duration::from_millis(5);

/// How long the executor waits for that before it stops them again, because another process may
/// have resumed one.
const MAX_REST_WAIT: Duration = Duration::from_millis(500);

/// The rest of both limits.
pub(super) struct StopBudget {
    rounds: usize,
    deadline: Instant,
}

impl Execution<'_> {
    /// How long processes may be stopped before they get the signal of this step.
    pub(super) fn stop_budget(&self, step: usize) -> StopBudget {
        let kills = |target: &Target| target.signal(step) == Some(KillSignal::Kill);
        let longest = if self.targets.iter().any(kills) {
            MAX_STOP_TIME_BEFORE_KILL
        } else {
            MAX_STOP_TIME
        };
        StopBudget {
            rounds: MAX_STOP_ROUNDS,
            deadline: Instant::now() + longest,
        }
    }

    /// Stops all processes that are killed in this step, and all processes of a job that forks, so
    /// that none forks before all have their signal. Returns when all are at rest and a search after
    /// that finds no new process, or the budget is used up.
    pub(super) fn stop_all(&mut self, step: usize, limit: &mut StopBudget) {
        if !self.is_wide() {
            return;
        }
        self.stopping_for_step = Some(step);
        while let Some(looks) = limit.rounds.checked_sub(1) {
            limit.rounds = looks;
            let is_any = self.stop_each(step, limit.deadline);
            if !is_any || self.is_over(limit) {
                break;
            }
            // Seen before the search: it finds what they have forked by then.
            let is_at_rest = self.is_at_rest();
            if self.add_forked() {
                continue;
            }
            if is_at_rest {
                break;
            }
            let deadline = Instant::now() + MAX_REST_WAIT;
            while Instant::now() < deadline && !self.is_over(limit) && !self.is_at_rest() {
                std::thread::sleep(REST_INTERVAL);
            }
        }
        self.stopping_for_step = None;
    }

    fn is_over(&self, limit: &StopBudget) -> bool {
        self.environment.is_stopping() || Instant::now() >= limit.deadline
    }

    /// Whether no stopped target can complete a fork.
    fn is_at_rest(&self) -> bool {
        let tables = &self.environment.process_tables;
        let mut stopped = self.targets.iter().filter(|target| target.is_stopped());
        stopped.all(|target| target.has_ended() || tables.is_at_rest(target.key().pid))
    }

    /// Stops each target right after its recheck: rechecking all of them first would leave the last
    /// one running. False where no target is to be stopped.
    fn stop_each(&mut self, step: usize, deadline: Instant) -> bool {
        let mut is_any = false;
        for position in 0..self.targets.len() {
            let target = self.targets.get(position);
            let Some(target) = target.filter(|it| it.needs_stop(step, self.has_forked)) else {
                continue;
            };
            is_any = true;
            if self.environment.is_stopping() || Instant::now() >= deadline {
                break;
            }
            // Another process may have resumed a target that was stopped.
            if (target.is_stopped() || self.recheck(position, step))
                && let Some(target) = self.targets.get_mut(position)
            {
                target.stop(&self.environment.stopped_processes);
            }
        }
        is_any
    }
}
