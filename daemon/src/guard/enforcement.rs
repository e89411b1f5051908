//! Enforcement and snoozes: the guard starts the end of jobs, receives the outcome, and postpones
//! deadlines on request.
//!
//! The choice of a job is saved before anything is done, and the start of its signals before the
//! first signal: a daemon that is killed at any moment does not end the same job again at once.

use super::rules::GuardRulesInForce;
use super::worker::{GuardCommand, GuardWorker, log_step};
use crate::kill::{EnforcementObserver, KillService};
use crate::log_events::event;
use gpukill_policy::guard::enforcement::order::{Enforcement, SignalStatus, SnoozeRequest};
use gpukill_policy::guard::{CompiledRules, SnoozeError};
use gpukill_proto::guard::{EnforcementOutcome, GuardMode, GuardRecord};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::{oneshot, watch};

/// The service that ends jobs, and the observer of the ends.
pub(super) struct GuardEnforcer {
    pub(super) enforcer: KillService,
    pub(super) observer: GuardObserver,
}

/// The guard, for an enforcement that is under way.
#[derive(Clone)]
pub(super) struct GuardObserver {
    pub(super) commands: SyncSender<GuardCommand>,
    pub(super) in_force: watch::Receiver<GuardRulesInForce>,
}

/// A snooze request for the thread of the guard.
pub(super) struct SnoozeCommand {
    pub(super) request: SnoozeRequest,
    /// Nothing is changed.
    pub(super) is_dry_run: bool,
    pub(super) answer: oneshot::Sender<Result<Vec<GuardRecord>, SnoozeError>>,
}

/// The users with a snooze request in progress.
#[derive(Debug, Clone, Default)]
pub(super) struct SnoozePermits(Arc<Mutex<BTreeSet<u32>>>);

/// The permit of one user for a request, until it is dropped.
pub(super) struct SnoozePermit {
    permits: SnoozePermits,
    uid: u32,
}

/// The maximum number of users with a request: a quarter of the queue of the guard.
const MAX_SNOOZE_REQUESTS: usize = 4;

impl SnoozePermits {
    /// A permit for this user; `None` if the user has one already, or too many others do.
    pub(super) fn acquire(&self, uid: u32) -> Option<SnoozePermit> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = users.len() < MAX_SNOOZE_REQUESTS && users.insert(uid);
        is_free.then(|| SnoozePermit {
            permits: self.clone(),
            uid,
        })
    }
}

impl Drop for SnoozePermit {
    fn drop(&mut self) {
        let users = self.permits.0.lock();
        users
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.uid);
    }
}

/// How long the sender of signals waits for the guard: it evaluates for some milliseconds, and the
/// disk may be slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl EnforcementObserver for GuardObserver {
    fn confirm_start(&self, enforcement: &Arc<Enforcement>) -> bool {
        let (answer, answered) = sync_channel(1);
        let command = GuardCommand::ConfirmStart(Arc::clone(enforcement), answer);
        self.commands.send(command).is_ok() && answered.recv_timeout(ANSWER_TIMEOUT) == Ok(true)
    }

    fn finish(
        &self,
        enforcement: &Arc<Enforcement>,
        outcome: EnforcementOutcome,
        signals: SignalStatus,
    ) {
        // A guard that has ended saves nothing more; the store has the action itself.
        let command = GuardCommand::Outcome(Arc::clone(enforcement), outcome, signals);
        let _ = self.commands.send(command);
    }

    fn withdrawal_reason(&self, rules: &CompiledRules) -> Option<&'static str> {
        let in_force = self.in_force.borrow();
        if in_force.rules.compiled.is_same(rules) {
            return None;
        }
        Some(match in_force.rules().mode {
            GuardMode::Disabled => "the guard was switched off",
            GuardMode::DryRun => "the guard was switched to dry run",
            GuardMode::Soft | GuardMode::Enforce => "the rules of the guard changed",
        })
    }
}

impl GuardWorker {
    /// Starts to end a chosen job.
    pub(super) fn enforce(&mut self, enforcement: Enforcement) {
        let Some(armed) = &self.enforcer else {
            return;
        };
        let rules = Arc::clone(&self.in_force.borrow().rules.compiled);
        let enforcement = Arc::new(enforcement);
        let started = armed.enforcer.enforce(&enforcement, rules, &armed.observer);
        if let Err(outcome) = started {
            self.record_outcome(&enforcement, (outcome, SignalStatus::Unsent));
        }
    }

    /// Whether the first signal may be sent to this job now: its rule still applies, and the start
    /// of the signals is saved.
    pub(super) fn confirm_start(&mut self, enforcement: &Enforcement) -> bool {
        // A job that was chosen before the circuit breaker tripped is one of those that may be
        // ended.
        let rules = Arc::clone(&self.in_force.borrow_and_update().rules.compiled);
        if !self.state.state.may_execute(&rules, enforcement) {
            return false;
        }
        self.state.state.mark_started(enforcement);
        self.save(None)
    }

    /// Records the outcome.
    pub(super) fn record_outcome(
        &mut self,
        enforcement: &Enforcement,
        outcome: (EnforcementOutcome, SignalStatus),
    ) {
        let now = now();
        let record = self.state.state.record_outcome(enforcement, outcome, now);
        log_step(&record);
        let today = &mut self.state.counts;
        today.add(now, std::slice::from_ref(&record), |_| false);
        self.record(vec![record]);
        let _ = self.save(None);
        self.publish(None);
    }

    /// Postpones the end of jobs, or only reports what that would change.
    pub(super) fn snooze(&mut self, command: SnoozeCommand) {
        let rules = self.effective_rules();
        let mut memory = self.state.state.clone();
        let granted = memory.snooze(&rules, &command.request, now());
        if let (Ok(records), false) = (&granted, command.is_dry_run) {
            self.state.state = memory;
            records.iter().for_each(log_step);
            self.record(records.clone());
            let _ = self.save(None);
            self.publish(None);
        }
        // The caller may have gone.
        let _ = command.answer.send(granted);
    }

    /// Resumes enforcement at the request of this user.
    pub(super) fn resume(&mut self, caller_uid: u32) {
        let memory = &self.state.state;
        if memory.tripped_at().is_none() && memory.doubt().is_none() {
            return;
        }
        self.state.state.resume();
        event!(BreakerReset, caller_uid);
        let _ = self.save(None);
        self.publish(None);
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use super::super::rules::GuardRulesKind;
    use super::*;
    use crate::rules_file::parse;

    fn rules(text: &str) -> GuardRulesInForce {
        parse::<GuardRulesKind>(Some(text.to_owned())).unwrap()
    }

    #[test]
    fn rules_are_withdrawn_when_they_change() {
        const ARMED: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 10\n";
        let (sender, in_force) = watch::channel(rules(ARMED));
        let observer = GuardObserver {
            commands: sync_channel(1).0,
            in_force,
        };
        let chosen = rules(ARMED).rules.compiled;
        let larger = ARMED.replace("10", "20");
        for (text, expected) in [
            (ARMED.to_owned(), None),
            (format!("# Ours.\n{ARMED}"), None),
            (
                ARMED.replace("dry_run", "enabled"),
                Some("the guard was switched off"),
            ),
            (
                ARMED.replace("false", "true"),
                Some("the guard was switched to dry run"),
            ),
            (larger, Some("the rules of the guard changed")),
        ] {
            sender.send_replace(rules(&text));
            assert_eq!(observer.withdrawal_reason(&chosen), expected, "{text}");
        }
    }
}
