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
use gpukill_proto::guard::{EnforcementOutcome, GuardRecord};
use gpukill_proto::units::Timestamp;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
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

/// How long the sender of signals waits for the guard: it evaluates for some milliseconds, and the
/// disk may be slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl EnforcementObserver for GuardObserver {
    fn confirm_start(&self, enforcement: &Arc<Enforcement>, rules: &Arc<CompiledRules>) -> bool {
        let (answer, answered) = sync_channel(1);
        let command =
            GuardCommand::ConfirmStart(Arc::clone(enforcement), Arc::clone(rules), answer);
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

    fn withdrawal_reason(
        &self,
        enforcement: &Enforcement,
        rules: &CompiledRules,
    ) -> Option<&'static str> {
        let in_force = &self.in_force.borrow().rules;
        enforcement.withdrawal_reason(rules, &in_force.compiled)
    }
}

impl GuardWorker {
    /// Starts to end a job that was chosen by these rules.
    pub(super) fn enforce(&mut self, enforcement: Enforcement, rules: Arc<CompiledRules>) {
        let Some(armed) = &self.enforcer else {
            return;
        };
        let enforcement = Arc::new(enforcement);
        let started = armed.enforcer.enforce(&enforcement, rules, &armed.observer);
        if let Err(outcome) = started {
            self.record_outcome(&enforcement, (outcome, SignalStatus::Unsent));
        }
    }

    /// Whether the first signal may be sent now to this job, which was chosen by these rules: no
    /// change of the rules withdraws it, and the start of the signals is saved.
    pub(super) fn confirm_start(
        &mut self,
        enforcement: &Enforcement,
        rules: &CompiledRules,
    ) -> bool {
        // A job that was chosen before the circuit breaker tripped is one of those that may be
        // ended.
        let now = Arc::clone(&self.in_force.borrow_and_update().rules.compiled);
        let is_withdrawn = enforcement.withdrawal_reason(rules, &now).is_some();
        if is_withdrawn || !self.state.state.is_still_chosen(enforcement) {
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
        let tripped_at = memory.tripped_at().or(memory.others_tripped_at());
        if tripped_at.is_none() && memory.doubt().is_none() {
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
