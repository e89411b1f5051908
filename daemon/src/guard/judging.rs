//! The thread that judges: one sample after the other, by the rules as they are then.

use super::bucket::bucket;
use super::remembered::{Remembered, save};
use super::{InForce, Standing};
use crate::audit::{Sample, Store};
use crate::catalogue::{About, tell};
use chrono::Local;
use gpukill_policy::guard::bucket::Bucket;
use gpukill_policy::guard::{Memory, but_for_ghosts, judge};
use gpukill_proto::guard::{GuardAction, GuardMode, GuardRecord, GuardStep};
use gpukill_proto::units::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::sync::watch;

/// What is told to the thread.
pub(super) enum Order {
    Sample(Box<Sample>),
    /// Look at the rules again.
    Rules,
    Stop,
}

/// The time between two times that what is remembered is written, where nothing was
/// decided meanwhile.
const SAVE_EVERY: i64 = 60_000;

/// Tells of a pid, and when in ticks it began, whether that process lives.
pub(crate) type Lives = Box<dyn Fn(u32, u64) -> bool + Send>;

/// The thread's own.
pub(super) struct Judging {
    pub(super) directory: PathBuf,
    pub(super) boot: String,
    pub(super) lives: Lives,
    pub(super) remembered: Remembered,
    pub(super) in_force: watch::Receiver<InForce>,
    pub(super) standing: watch::Sender<Arc<Standing>>,
    pub(super) store: Store,
    pub(super) saved_at: Timestamp,
    pub(super) is_save_broken: bool,
    /// How much of the last sample there was no room for.
    pub(super) beyond: u64,
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
                        self.remembered.memory = Memory::default();
                    }
                    self.publish(None);
                }
                Order::Stop => break,
            }
        }
        self.save(None);
    }

    fn judge(&mut self, sample: &Sample) {
        let book = Arc::clone(&self.in_force.borrow_and_update().book);
        let bucket = bucket(sample, &mut self.remembered.seen, &Local);
        if book.rules().mode == GuardMode::Disabled {
            self.only_looks(&bucket);
            return;
        }
        let judgement = judge(&book, &mut self.remembered.memory, &bucket);
        let today = &mut self.remembered.today;
        today.add(bucket.until, &judgement.records);
        for record in &judgement.records {
            log(record);
        }
        let has_decided = !judgement.records.is_empty();
        if has_decided && !self.store.decide(judgement.records) {
            tell!(NotRecorded; "the store does not take what the guard decided: not recorded");
        }
        let age = bucket.until.since(self.saved_at);
        if age >= Duration::from_millis(SAVE_EVERY.unsigned_abs()) {
            self.remembered.seen.forget(&bucket, &self.lives);
        }
        if has_decided || age >= Duration::from_millis(SAVE_EVERY.unsigned_abs()) {
            self.save(Some(bucket.until));
        }
        self.beyond = judgement.beyond.total() as u64;
        self.publish(Some(bucket.until));
    }

    /// Nobody is judged; but whoever held a device before there were rules has held it
    /// since then, as a replay says.
    fn only_looks(&mut self, bucket: &Bucket) {
        if bucket.until.since(self.saved_at) >= Duration::from_millis(SAVE_EVERY.unsigned_abs()) {
            self.remembered.seen.forget(bucket, &self.lives);
            self.saved_at = bucket.until;
        }
    }

    fn save(&mut self, at: Option<Timestamp>) {
        let rules = Arc::clone(&self.in_force.borrow().text);
        let saved = save(&self.directory, &self.boot, &rules, &self.remembered);
        if let Some(at) = at {
            self.saved_at = at;
        }
        match saved {
            Ok(()) => self.is_save_broken = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_save_broken, true) {
                    tracing::warn!(%error, "what the guard remembers cannot be kept: a restart begins anew");
                }
            }
        }
    }

    /// For whoever asks how the guard stands.
    fn publish(&self, judged_at: Option<Timestamp>) {
        let memory = &self.remembered.memory;
        let ghosts = memory.ghosts();
        let open = but_for_ghosts(memory.violations(), &ghosts);
        let today = self.remembered.today.clone();
        let beyond = self.beyond;
        self.standing.send_modify(|standing| {
            *standing = Arc::new(Standing {
                judged_at: judged_at.or(standing.judged_at),
                open,
                ghosts,
                beyond,
                today,
            });
        });
    }
}

/// One entry for each step, with what it is known by.
fn log(record: &GuardRecord) {
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
        GuardStep::Over => {
            tell!(
                RuleKept, rule, subject, mode, value, limit, pid, uid, gpu_uuid
            );
        }
    }
}

/// Whom a step is about: the job that is ended, or those by whom it is known.
fn about(record: &GuardRecord) -> About {
    let (runs, person) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, Some(&victim.job.owner)),
        GuardStep::Violated | GuardStep::Warned { .. } | GuardStep::Spared(_) | GuardStep::Over => {
            (&record.evidence.runs, None)
        }
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
