//! The thread that judges: one sample after the other, by the rules as they are then.

use super::acting::{Armed, SnoozeOrder};
use super::bucket::bucket;
use super::remembered::{Remembered, save};
use super::telling::{but_for_ends, tell_owners};
use super::{InForce, Living, Standing};
use crate::audit::{Sample, Store};
use crate::catalogue::{About, tell};
use chrono::Local;
use gpukill_policy::guard::bucket::Bucket;
use gpukill_policy::guard::losses::Losses;
use gpukill_policy::guard::{Ending, Rulebook, Signals, judge};
use gpukill_proto::guard::{Acted, GuardAction, GuardMode, GuardRecord, GuardStep};
use gpukill_proto::units::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;
use tokio::sync::watch;

/// What is told to the thread.
pub(super) enum Order {
    Sample(Box<Sample>),
    /// Look at the rules again.
    Rules,
    /// From now on jobs can be ended.
    Arm(Box<Armed>),
    /// This job is about to get its first signal: whether it may.
    Begins(Box<Ending>, SyncSender<bool>),
    /// What came of ending this job.
    Acted(Box<Ending>, Acted, Signals),
    /// Somebody asks for more time.
    Snooze(SnoozeOrder),
    /// This user, an admin, says that it is to end jobs again, after it had stopped.
    GoOn(u32),
    Stop,
}

/// The time between two times that what is remembered is written, where nothing was
/// decided meanwhile.
const SAVE_EVERY: i64 = 60_000;

/// The thread's own.
pub(super) struct Judging {
    pub(super) directory: PathBuf,
    pub(super) boot: String,
    pub(super) living: Arc<dyn Living>,
    pub(super) remembered: Remembered,
    pub(super) in_force: watch::Receiver<InForce>,
    pub(super) standing: watch::Sender<Arc<Standing>>,
    pub(super) store: Store,
    pub(super) saved_at: Timestamp,
    pub(super) is_save_broken: bool,
    /// How much of the last sample there was no room for.
    pub(super) beyond: u64,
    /// Where the terminals lie, if people are told there.
    pub(super) terminals: Option<PathBuf>,
    /// Who ends jobs; `None` while the daemon starts.
    pub(super) armed: Option<Box<Armed>>,
}

impl Judging {
    /// Judges until it is told to stop, or whoever could tell it is gone.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        self.publish(None);
        while let Ok(order) = orders.recv() {
            match order {
                Order::Sample(sample) => self.judge(&sample),
                Order::Rules => {
                    if self.in_force.borrow_and_update().rules().mode == GuardMode::Disabled {
                        let memory = std::mem::take(&mut self.remembered.memory);
                        self.remembered.memory = memory.at_rest();
                    }
                    self.publish(None);
                }
                Order::Arm(armed) => self.armed = Some(armed),
                Order::Begins(ending, answer) => {
                    // Whoever asks may have gone.
                    let _ = answer.send(self.begins(&ending));
                }
                Order::Acted(ending, acted, signals) => self.acted(&ending, (acted, signals)),
                Order::Snooze(order) => self.snooze(order),
                Order::GoOn(uid) => self.go_on(uid),
                Order::Stop => break,
            }
        }
        // What was ended before the daemon stopped is told of still.
        while let Ok(order) = orders.try_recv() {
            if let Order::Acted(ending, acted, signals) = order {
                self.acted(&ending, (acted, signals));
            }
        }
        let _ = self.save(None);
    }

    fn judge(&mut self, sample: &Sample) {
        let book = self.book();
        let bucket = bucket(sample, &mut self.remembered.seen, &Local);
        if book.rules().mode == GuardMode::Disabled {
            self.only_looks(&bucket);
            return;
        }
        let memory = &mut self.remembered.memory;
        let lives = |pid, start_ticks| self.living.has(pid, start_ticks);
        memory.loses(&Losses::of(&sample.snapshot), &lives);
        let judgement = judge(&book, memory, &bucket);
        let memory = &self.remembered.memory;
        let is_first = |record: &GuardRecord| memory.is_first_warning(record);
        let today = &mut self.remembered.today;
        today.add(bucket.until, &judgement.records, is_first);
        for record in &judgement.records {
            log(record);
        }
        let has_decided = !judgement.records.is_empty();
        let endings = self.remembered.memory.endings(&judgement.records);
        let records = judgement.records.clone();
        self.record(judgement.records);
        let is_old = self.is_old(&bucket);
        self.forget_gone(&bucket);
        if has_decided || is_old || self.is_save_broken {
            let _ = self.save(Some(bucket.until));
        }
        let is_kept = !self.is_save_broken;
        self.beyond = judgement.beyond.total() as u64;
        self.publish(Some(bucket.until));
        for ending in endings {
            self.end(ending);
        }
        if let Some(dev) = &self.terminals {
            let records = match is_kept {
                true => records,
                false => but_for_ends(records),
            };
            tell_owners(dev, &records, &book, &self.remembered.memory);
        }
    }

    /// The rules in force; once too many jobs were ended, they are only rehearsed.
    pub(super) fn book(&mut self) -> Arc<Rulebook> {
        let in_force = self.in_force.borrow_and_update();
        match self.remembered.memory.tripped_at() {
            Some(_) => Arc::clone(&in_force.rules.rehearsing),
            None => Arc::clone(&in_force.rules.book),
        }
    }

    /// Gives the store what was decided.
    pub(super) fn record(&self, records: Vec<GuardRecord>) {
        if !records.is_empty() && !self.store.decide(records) {
            tell!(NotRecorded; "the store does not take what the guard decided: not recorded");
        }
    }

    /// Nobody is judged; but whoever held a device before there were rules has held it
    /// since then, as a replay says.
    fn only_looks(&mut self, bucket: &Bucket) {
        if self.forget_gone(bucket) {
            self.saved_at = bucket.until;
        }
    }

    /// Whether what is remembered was last saved long before this bucket.
    fn is_old(&self, bucket: &Bucket) -> bool {
        let age = bucket.until.since(self.saved_at);
        age >= Duration::from_millis(SAVE_EVERY.unsigned_abs())
    }

    /// Forgets when processes that have ended were first seen: now and then, and where there
    /// are many. Whether it looked for them.
    fn forget_gone(&mut self, bucket: &Bucket) -> bool {
        let is_due = self.is_old(bucket) || self.remembered.seen.has_many_gone(bucket);
        if is_due {
            let lives = |pid, start_ticks| self.living.has(pid, start_ticks);
            self.remembered.seen.forget(bucket, &lives);
        }
        is_due
    }

    /// Whether what is remembered is written down.
    pub(super) fn save(&mut self, at: Option<Timestamp>) -> bool {
        let rules = Arc::clone(&self.in_force.borrow().text);
        let saved = save(&self.directory, &self.boot, &rules, &self.remembered);
        if let Some(at) = at {
            self.saved_at = at;
        }
        match saved {
            Ok(()) => {
                self.is_save_broken = false;
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_save_broken, true) {
                    tracing::warn!(%error, "what the guard remembers cannot be kept: a restart begins anew");
                }
                false
            }
        }
    }

    /// For whoever asks how the guard stands.
    pub(super) fn publish(&self, judged_at: Option<Timestamp>) {
        let memory = &self.remembered.memory;
        let simulated = memory.simulated_ends();
        let mut open = memory.violations();
        // An end that was decided on now cannot be begun, and is taken back.
        if self.is_save_broken {
            for violation in open.iter_mut().filter(|it| it.ended_at == judged_at) {
                violation.ended_at = None;
            }
        }
        let snoozes = memory.snoozes().to_vec();
        let today = self.remembered.today.clone();
        let beyond = self.beyond;
        let in_force = &self.in_force.borrow().rules;
        let judged_by = judged_at.map(|_| Arc::clone(&in_force.book));
        self.standing.send_modify(|standing| {
            *standing = Arc::new(Standing {
                judged_at: judged_at.or(standing.judged_at),
                open,
                simulated,
                beyond,
                today,
                tripped_at: memory.tripped_at(),
                is_trip_simulated: memory.is_trip_simulated(),
                judged_by: judged_by.or_else(|| standing.judged_by.clone()),
                doubt: memory.doubt(),
                snoozes,
                is_unkept: self.is_save_broken,
            });
        });
    }
}

/// One entry for each step, with what it is known by.
pub(super) fn log(record: &GuardRecord) {
    let (rule, subject) = (record.rule.to_string(), record.subject.to_string());
    let (is_dry_run, mode) = (record.mode == GuardMode::DryRun, record.mode.name());
    let measured = record.evidence.measured;
    let (value, limit) = (measured.map(|it| it.value), measured.map(|it| it.limit));
    let [pid, uid, gpu_uuid] = about(record).fields();
    let is = if is_dry_run { "would be" } else { "is" };
    match &record.step {
        GuardStep::Violated => {
            tell!(
                RuleBroken, rule, subject, mode, value, limit, pid, uid, gpu_uuid
            );
        }
        GuardStep::Warned { times, deadline } => {
            let deadline = deadline.map(Timestamp::to_rfc3339);
            tell!(
                Warned, rule, subject, mode, value, limit, pid, uid, gpu_uuid, times, deadline,
                action = GuardAction::Warn.name();
                "whoever breaks a rule {is} warned"
            );
        }
        GuardStep::Ended(victim) => {
            let (job, owner) = (victim.job.shown.as_str(), victim.job.owner.name.as_str());
            match victim.leave_to.as_deref() {
                Some(leave_to) => tell!(
                    JobLeft, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    leave_to;
                    "a job {is} left to whoever scheduled it"
                ),
                None => tell!(
                    JobEnded, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    action = GuardAction::Terminate.name();
                    "a job {is} ended"
                ),
            }
        }
        GuardStep::Spared(why) => {
            tell!(
                NobodyEnded,
                rule,
                subject,
                mode,
                value,
                limit,
                pid,
                uid,
                gpu_uuid,
                why
            );
        }
        GuardStep::Snoozed {
            by, until, left, ..
        } => {
            let (caller_uid, deadline) = (by, until.to_rfc3339());
            tell!(
                Snoozed, rule, subject, mode, value, limit, pid, uid, gpu_uuid, caller_uid,
                deadline, left
            );
        }
        GuardStep::SnoozeVoided { owner, until } => {
            let (uid, deadline) = (owner, until.to_rfc3339());
            tell!(SnoozeVoided, rule, subject, mode, uid, deadline);
        }
        GuardStep::Doubted(doubt) => {
            let (people, of) = (doubt.people, doubt.of);
            tell!(RulesDoubted, rule, subject, mode, people, of);
        }
        GuardStep::Acted(acted) => {
            let (job, owner) = (acted.job.shown.as_str(), acted.job.owner.name.as_str());
            let (ended, left, why) = (acted.ended, acted.left, acted.why.as_deref());
            match acted.left {
                0 => tell!(
                    JobGone, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    ended, left, why
                ),
                _ => tell!(
                    JobStays, rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner,
                    ended, left, why
                ),
            }
        }
        GuardStep::Tripped { ended } => {
            let ends = if is_dry_run { "would end" } else { "ends" };
            tell!(
                BreakerTripped, rule, subject, mode, ended;
                "too many jobs would be ended: the guard {ends} nobody any more"
            );
        }
        GuardStep::Over => {
            tell!(
                RuleKept, rule, subject, mode, value, limit, pid, uid, gpu_uuid
            );
        }
        GuardStep::Outdated => {
            tell!(
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

/// Whom a step is about: the job that is ended, or those by whom it is known.
fn about(record: &GuardRecord) -> About {
    let (runs, person) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, Some(&victim.job.owner)),
        GuardStep::Acted(acted) => (&record.evidence.runs, Some(&acted.job.owner)),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (&record.evidence.runs, None),
    };
    let mut about = About::default();
    about.uid(person.and_then(|person| person.uid));
    for told in runs {
        about.pid(told.run.pid);
        about.uid(told.owner.as_ref().and_then(|owner| owner.uid));
        about.device(&told.run.device.0);
    }
    about
}
