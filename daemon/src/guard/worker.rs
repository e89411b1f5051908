//! The thread of the guard: evaluates one sample after the other, by the rules in force.

use super::enforcement::{GuardEnforcer, SnoozeCommand};
use super::notify::{notify_users, without_ends};
use super::sample::to_guard_sample;
use super::saved_state::{SavedFile, SavedGuardState, save};
use super::{GuardRulesInForce, GuardStatus, ProcessLiveness};
use crate::log_events::{EventSubject, event};
use crate::store::{Sample, Store};
use chrono::Local;
use gpukill_policy::guard::device_losses::DeviceLosses;
use gpukill_policy::guard::enforcement::order::{Enforcement, SignalStatus};
use gpukill_policy::guard::sample::GuardSample;
use gpukill_policy::guard::{CompiledRules, SavedPart, evaluate};
use gpukill_proto::guard::{EnforcementOutcome, GuardAction, GuardMode, GuardRecord, GuardStep};
use gpukill_proto::units::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;
use tokio::sync::watch;

/// A command for the thread.
pub(super) enum GuardCommand {
    Sample(Box<Sample>),
    /// The rules have changed.
    RulesChanged,
    /// From now on jobs can be ended.
    SetEnforcer(Box<GuardEnforcer>),
    /// This job, chosen by these rules, is about to get its first signal: may it?
    ConfirmStart(Arc<Enforcement>, Arc<CompiledRules>, SyncSender<bool>),
    /// The outcome of an enforcement.
    Outcome(Arc<Enforcement>, EnforcementOutcome, SignalStatus),
    /// A snooze request.
    Snooze(SnoozeCommand),
    /// This user, an admin, resumes enforcement after it stopped.
    Resume(u32),
    Stop,
}

/// How often the state is saved if no decision was made meanwhile, in milliseconds.
const SAVE_INTERVAL_MS: i64 = 60_000;

/// The state of the thread.
pub(super) struct GuardWorker {
    pub(super) directory: PathBuf,
    pub(super) boot: String,
    pub(super) liveness: Arc<dyn ProcessLiveness>,
    pub(super) state: SavedGuardState,
    pub(super) in_force: watch::Receiver<GuardRulesInForce>,
    pub(super) status: watch::Sender<Arc<GuardStatus>>,
    pub(super) store: Store,
    pub(super) saved_at: Timestamp,
    pub(super) has_save_failed: bool,
    /// The state file as it was written last.
    pub(super) saved_file: SavedFile,
    /// How much of the last sample exceeded the limits.
    pub(super) overflow: u64,
    /// The directory of the terminals, if users are notified there.
    pub(super) terminals: Option<PathBuf>,
    /// Ends jobs; `None` while the daemon starts.
    pub(super) enforcer: Option<Box<GuardEnforcer>>,
}

impl GuardWorker {
    /// Runs until a command stops it or no sender is left.
    pub(super) fn run(mut self, commands: &Receiver<GuardCommand>) {
        self.publish(None);
        while let Ok(command) = commands.recv() {
            match command {
                GuardCommand::Sample(sample) => self.evaluate_sample(&sample),
                GuardCommand::RulesChanged => {
                    if self.in_force.borrow_and_update().rules().mode == GuardMode::Disabled {
                        let memory = std::mem::take(&mut self.state.state);
                        self.state.state = memory.into_paused();
                        self.overflow = 0;
                    }
                    self.publish(None);
                }
                GuardCommand::SetEnforcer(armed) => self.enforcer = Some(armed),
                GuardCommand::ConfirmStart(enforcement, rules, answer) => {
                    // The caller may have gone.
                    let _ = answer.send(self.confirm_start(&enforcement, &rules));
                }
                GuardCommand::Outcome(enforcement, outcome, signals) => {
                    self.record_outcome(&enforcement, (outcome, signals))
                }
                GuardCommand::Snooze(command) => self.snooze(command),
                GuardCommand::Resume(uid) => self.resume(uid),
                GuardCommand::Stop => break,
            }
        }
        // The outcomes of jobs that were ended before the stop are still recorded.
        while let Ok(command) = commands.try_recv() {
            if let GuardCommand::Outcome(enforcement, outcome, signals) = command {
                self.record_outcome(&enforcement, (outcome, signals));
            }
        }
        let _ = self.save_parts(&self.saved_file.larger_parts(), None);
    }

    fn evaluate_sample(&mut self, sample: &Sample) {
        let rules = self.effective_rules();
        let guard_sample = to_guard_sample(sample, &mut self.state.history, &Local);
        if rules.rules().mode == GuardMode::Disabled {
            self.update_history(&guard_sample);
            return;
        }
        let memory = &mut self.state.state;
        let lives = |pid, start_ticks| self.liveness.is_alive(pid, start_ticks);
        memory.apply_losses(&DeviceLosses::from_snapshot(&sample.snapshot), &lives);
        let evaluation = evaluate(&rules, memory, &guard_sample);
        let memory = &self.state.state;
        let is_first = |record: &GuardRecord| memory.is_first_warning(record);
        let today = &mut self.state.counts;
        today.add(guard_sample.until, &evaluation.records, is_first);
        for record in &evaluation.records {
            log_step(record);
        }
        let is_urgent = self.saved_file.must_save_at_once(&evaluation.records);
        let enforcements = self.state.state.enforcements(&evaluation.records);
        let records = evaluation.records.clone();
        self.record(evaluation.records);
        let is_old = self.is_save_due(&guard_sample);
        self.forget_ended(&guard_sample);
        let at = Some(guard_sample.until);
        if is_old {
            let _ = self.save_parts(&self.saved_file.larger_parts(), at);
        } else if is_urgent || self.has_save_failed {
            let _ = self.save(at);
        }
        let is_kept = !self.has_save_failed;
        self.overflow = evaluation.overflow.total() as u64;
        self.publish(at);
        for enforcement in enforcements {
            self.enforce(enforcement, Arc::clone(&rules));
        }
        if let Some(dev) = &self.terminals {
            let records = match is_kept {
                true => records,
                false => without_ends(records),
            };
            let status = Arc::clone(&self.status.borrow());
            notify_users(dev, &records, &rules, &status.open);
        }
    }

    /// The rules in force; after the circuit breaker has tripped, as a dry run.
    pub(super) fn effective_rules(&mut self) -> Arc<CompiledRules> {
        let in_force = self.in_force.borrow_and_update();
        match self.state.state.tripped_at() {
            Some(_) => Arc::clone(&in_force.rules.dry_run),
            None => Arc::clone(&in_force.rules.compiled),
        }
    }

    /// Sends the decisions to the store.
    pub(super) fn record(&self, records: Vec<GuardRecord>) {
        if !records.is_empty() && !self.store.record_verdicts(records) {
            event!(NotRecorded; "the store rejects the decisions of the guard: not recorded");
        }
    }

    /// The mode is disabled. A process that held a device before there were rules has still held it
    /// since then, as in a replay.
    fn update_history(&mut self, sample: &GuardSample) {
        if self.forget_ended(sample) {
            self.saved_at = sample.until;
        }
    }

    /// Whether the state was last saved long before this sample.
    fn is_save_due(&self, sample: &GuardSample) -> bool {
        let age = sample.until.since(self.saved_at);
        age >= Duration::from_millis(SAVE_INTERVAL_MS.unsigned_abs())
    }

    /// Removes processes that have ended from the history: periodically, and if there are many.
    /// Returns whether it did.
    fn forget_ended(&mut self, sample: &GuardSample) -> bool {
        let is_due = self.is_save_due(sample) || self.state.history.has_many_gone(sample);
        if is_due {
            let lives = |pid, start_ticks| self.liveness.is_alive(pid, start_ticks);
            self.state.history.forget(sample, &lives);
        }
        is_due
    }

    /// Saves as much of the state as the last time; returns whether that succeeded.
    pub(super) fn save(&mut self, at: Option<Timestamp>) -> bool {
        self.save_parts(&self.saved_file.same_part(), at)
    }

    /// Saves the first of these parts of the state that fits; returns whether that succeeded.
    fn save_parts(&mut self, parts: &[SavedPart], at: Option<Timestamp>) -> bool {
        let rules = Arc::clone(&self.in_force.borrow().text);
        let saved = save(&self.directory, &self.boot, &rules, &self.state, parts);
        if let Some(at) = at {
            self.saved_at = at;
        }
        match saved {
            Ok(file) => {
                self.has_save_failed = false;
                let was_whole = self.is_saved_whole();
                self.saved_file = file;
                if was_whole && !self.is_saved_whole() {
                    tracing::warn!("the state of the guard is too large: a part of it is saved");
                }
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_save_failed, true) {
                    tracing::warn!(
                        %error,
                        "cannot save the state of the guard: a restart begins with an empty state"
                    );
                }
                false
            }
        }
    }

    fn is_saved_whole(&self) -> bool {
        self.saved_file.part == SavedPart::WHOLE
    }

    /// Publishes the status.
    pub(super) fn publish(&self, evaluated_at: Option<Timestamp>) {
        let memory = &self.state.state;
        let simulated = memory.simulated_ends();
        let mut open = memory.violations();
        // An end that was decided now cannot start, and is withdrawn.
        if self.has_save_failed {
            for violation in open.iter_mut().filter(|it| it.ended_at == evaluated_at) {
                violation.ended_at = None;
            }
        }
        let snoozes = memory.snoozes().to_vec();
        let today = self.state.counts.clone();
        let overflow = self.overflow;
        let in_force = &self.in_force.borrow().rules;
        let evaluated_by = evaluated_at.map(|_| Arc::clone(&in_force.compiled));
        self.status.send_modify(|status| {
            *status = Arc::new(GuardStatus {
                evaluated_at: evaluated_at.or(status.evaluated_at),
                open,
                simulated,
                overflow,
                counts: today,
                tripped_at: memory.tripped_at(),
                is_trip_simulated: memory.is_trip_simulated(),
                has_tripped_for_others: memory.others_tripped_at().is_some(),
                evaluated_by: evaluated_by.or_else(|| status.evaluated_by.clone()),
                doubt: memory.doubt(),
                snoozes,
                is_unsaved: self.has_save_failed,
                is_saved_in_part: !self.is_saved_whole(),
            });
        });
    }
}

/// Logs one entry for each step, with the fields that identify it.
pub(super) fn log_step(record: &GuardRecord) {
    let (rule, subject) = (record.rule.to_string(), record.subject.to_string());
    let (is_dry_run, mode) = (record.mode == GuardMode::DryRun, record.mode.name());
    let measured = record.evidence.measured;
    let (value, limit) = (measured.map(|it| it.value), measured.map(|it| it.limit));
    let [pid, uid, gpu_uuid] = event_subject(record).fields();
    let is = if is_dry_run { "would be" } else { "is" };
    match &record.step {
        GuardStep::Violated => {
            event!(
                RuleViolated,
                rule,
                subject,
                mode,
                value,
                limit,
                pid,
                uid,
                gpu_uuid
            );
        }
        GuardStep::Warned { times, deadline } => {
            let deadline = deadline.map(Timestamp::to_rfc3339);
            event!(
                Warned, rule, subject, mode, value, limit, pid, uid, gpu_uuid, times, deadline,
                action = GuardAction::Warn.name();
                "the user who breaks a rule {is} warned"
            );
        }
        GuardStep::Ended(victim) => {
            let (job, owner) = (victim.job.shown.as_str(), victim.job.owner.name.as_str());
            match victim.leave_to.as_deref() {
                Some(leave_to) => event!(
                    JobLeftToScheduler, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    leave_to;
                    "a job {is} left to its scheduler"
                ),
                None => event!(
                    JobEnded, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    action = GuardAction::Terminate.name();
                    "a job {is} ended"
                ),
            }
        }
        GuardStep::Exempt(why) => {
            event!(
                NoJobEnded, rule, subject, mode, value, limit, pid, uid, gpu_uuid, why
            );
        }
        GuardStep::Snoozed {
            by, until, left, ..
        } => {
            let (caller_uid, deadline) = (by, until.to_rfc3339());
            event!(
                Snoozed, rule, subject, mode, value, limit, pid, uid, gpu_uuid, caller_uid,
                deadline, left
            );
        }
        GuardStep::SnoozeVoided { owner, until } => {
            let (uid, deadline) = (owner, until.to_rfc3339());
            event!(SnoozeVoided, rule, subject, mode, uid, deadline);
        }
        GuardStep::Doubted(doubt) => {
            let (people, of) = (doubt.people, doubt.of);
            event!(RulesDoubted, rule, subject, mode, people, of);
        }
        GuardStep::Outcome(outcome) => {
            let (job, owner) = (outcome.job.shown.as_str(), outcome.job.owner.name.as_str());
            let (ended, left, why) = (outcome.ended, outcome.left, outcome.why.as_deref());
            match outcome.left {
                0 => event!(
                    JobGone, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    ended, left, why
                ),
                _ => event!(
                    JobNotEnded,
                    rule,
                    subject,
                    mode,
                    value,
                    limit,
                    pid,
                    uid,
                    gpu_uuid,
                    job,
                    owner,
                    ended,
                    left,
                    why
                ),
            }
        }
        GuardStep::Tripped { ended } => {
            let ends = if is_dry_run { "would end" } else { "ends" };
            event!(
                BreakerTripped, rule, subject, mode, ended;
                "too many jobs would be ended: the guard {ends} no more jobs"
            );
        }
        GuardStep::Over => {
            event!(
                RuleSatisfied,
                rule,
                subject,
                mode,
                value,
                limit,
                pid,
                uid,
                gpu_uuid
            );
        }
        GuardStep::Outdated => {
            event!(
                RuleChanged,
                rule,
                subject,
                mode,
                value,
                limit,
                pid,
                uid,
                gpu_uuid
            );
        }
    }
}

/// The subject of a step: the ended job, or the processes in the evidence.
fn event_subject(record: &GuardRecord) -> EventSubject {
    let (runs, person) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, Some(&victim.job.owner)),
        GuardStep::Outcome(outcome) => (&record.evidence.runs, Some(&outcome.job.owner)),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (&record.evidence.runs, None),
    };
    let mut affected = EventSubject::default();
    affected.add_uid(person.and_then(|person| person.uid));
    for process in runs {
        affected.add_pid(process.run.pid);
        affected.add_uid(process.owner.as_ref().and_then(|owner| owner.uid));
        affected.add_device(&process.run.device.0);
    }
    affected
}
