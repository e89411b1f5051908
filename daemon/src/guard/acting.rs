//! What the guard does besides judging: it has jobs ended, hears what came of that, and
//! gives more time to whoever asks.
//!
//! That a job was chosen is written down before anything is done, and that its signals
//! begin before the first of them: a daemon that is killed at any moment ends no job
//! twice.

use super::judging::{Judging, Order, log};
use crate::catalogue::tell;
use crate::enforce::{Enforcer, Sentence, Waits};
use gpukill_policy::guard::{Ending, NotSnoozed, Signals, Snoozer};
use gpukill_proto::guard::{Acted, GuardRecord};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;

/// Who ends jobs, and how they tell of it.
pub(super) struct Armed {
    pub(super) enforcer: Enforcer,
    pub(super) orders: SyncSender<Order>,
}

/// Somebody asks for more time, as the server knows.
pub(crate) struct Asked {
    /// Who.
    pub(crate) by: u32,
    /// Whose process it is.
    pub(crate) owner: u32,
    /// Its pid, and its start in ticks.
    pub(crate) process: (u32, u64),
    /// Its job, where that is known.
    pub(crate) job: Option<String>,
    /// Nothing is changed.
    pub(crate) is_dry_run: bool,
}

/// The same, as the guard's thread is told of it.
pub(super) struct SnoozeOrder {
    pub(super) asked: Asked,
    pub(super) answer: oneshot::Sender<Result<Vec<GuardRecord>, NotSnoozed>>,
}

/// The users who ask for more time now.
#[derive(Debug, Clone, Default)]
pub(super) struct Snoozing(Arc<Mutex<BTreeSet<u32>>>);

/// One user's turn to ask, until it is dropped.
pub(super) struct SnoozeTurn {
    snoozing: Snoozing,
    uid: u32,
}

/// How many users ask at once: a quarter of what may wait for the guard.
const MOST_SNOOZING: usize = 4;

impl Snoozing {
    /// A turn for this user; `None` while they have one, or too many others do.
    pub(super) fn acquire(&self, uid: u32) -> Option<SnoozeTurn> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = users.len() < MOST_SNOOZING && users.insert(uid);
        is_free.then(|| SnoozeTurn {
            snoozing: self.clone(),
            uid,
        })
    }
}

impl Drop for SnoozeTurn {
    fn drop(&mut self) {
        let users = self.snoozing.0.lock();
        users
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.uid);
    }
}

/// How long whoever is about to send signals waits for the guard: it judges for some
/// milliseconds, and the disk may be slow.
const ANSWER: Duration = Duration::from_secs(10);

/// A sentence, for whoever carries it out.
struct Waiting {
    ending: Box<Ending>,
    orders: SyncSender<Order>,
}

impl Waits for Waiting {
    fn begins(&mut self) -> bool {
        let (answer, answered) = sync_channel(1);
        let order = Order::Begins(self.ending.clone(), answer);
        self.orders.send(order).is_ok() && answered.recv_timeout(ANSWER) == Ok(true)
    }

    fn settle(self, acted: Acted, signals: Signals) {
        // A guard that has ended writes nothing more; the record has the act itself.
        let _ = self.orders.send(Order::Acted(self.ending, acted, signals));
    }
}

impl Judging {
    /// Has a job ended that was chosen.
    pub(super) fn end(&mut self, ending: Ending) {
        let Some(victim) = ending.record.step.victim() else {
            return;
        };
        let Some(armed) = &self.armed else {
            return;
        };
        let sentence = Sentence {
            rule: ending.record.rule.to_string(),
            job: victim.job.clone(),
            processes: ending.processes.clone(),
            devices: victim.runs.iter().map(|it| it.run.device.clone()).collect(),
            rules: Arc::clone(&self.in_force.borrow().rules.book),
        };
        let waiting = Waiting {
            ending: Box::new(ending),
            orders: armed.orders.clone(),
        };
        armed.enforcer.carry_out_sentence(sentence, waiting);
    }

    /// Whether signals may be sent to this job now: its rule holds still, and that they
    /// are sent is written down.
    pub(super) fn begins(&mut self, ending: &Ending) -> bool {
        // Who was chosen before it stopped, is one of as many as may be ended.
        let book = Arc::clone(&self.in_force.borrow_and_update().rules.book);
        if !self.remembered.memory.may_begin(&book, ending) {
            return false;
        }
        self.remembered.memory.begins(ending);
        self.save(None)
    }

    /// Notes what came of it.
    pub(super) fn acted(&mut self, ending: &Ending, acted: (Acted, Signals)) {
        let now = now();
        let record = self.remembered.memory.acted(ending, acted, now);
        log(&record);
        let today = &mut self.remembered.today;
        today.add(now, std::slice::from_ref(&record), |_| false);
        self.record(vec![record]);
        let _ = self.save(None);
        self.publish(None);
    }

    /// Gives more time, or says what that would come to.
    pub(super) fn snooze(&mut self, order: SnoozeOrder) {
        let SnoozeOrder { asked, answer } = order;
        let book = self.book();
        let snoozer = Snoozer {
            by: asked.by,
            owner: asked.owner,
            process: asked.process,
            job: asked.job.as_deref(),
        };
        let mut memory = self.remembered.memory.clone();
        let granted = memory.snooze(&book, snoozer, now());
        if let (Ok(records), false) = (&granted, asked.is_dry_run) {
            self.remembered.memory = memory;
            records.iter().for_each(log);
            self.record(records.clone());
            let _ = self.save(None);
            self.publish(None);
        }
        // Whoever asked may have gone.
        let _ = answer.send(granted);
    }

    /// Ends jobs again, as this user asked.
    pub(super) fn go_on(&mut self, caller_uid: u32) {
        let memory = &self.remembered.memory;
        if memory.tripped_at().is_none() && memory.doubt().is_none() {
            return;
        }
        self.remembered.memory.goes_on();
        tell!(BreakerReset, caller_uid);
        let _ = self.save(None);
        self.publish(None);
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}
