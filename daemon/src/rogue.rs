//! The watch for rogue processes: assesses every process that uses a device, on a thread of its
//! own.
//!
//! [`evidence`] reads what a poll does not report; [`evidence_cache`] holds what is known of one
//! process, and when it is read again; [`watch`] is the thread; [`rules`] holds the rules. The
//! verdicts are made in `policy::rogue`.

mod evidence;
mod evidence_cache;
pub(crate) mod rules;
pub(crate) mod scan;
mod watch;

use crate::fault::FaultCause;
use crate::guard;
use crate::store::{RogueSuspicions, Sample, Store};
#[cfg(test)]
pub(crate) use evidence::NoEvidence;
pub(crate) use evidence::{EvidenceSource, ProcEvidence};
use gpukill_proto::model::{FaultCode, ProcessKey, Snapshot};
use gpukill_proto::rogue::{RogueAssessment, RogueFinding};
use rules::{RogueRuleStore, RogueRulesInForce};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch as channel;
use watch::{RogueCommand, RogueWatcher};

/// At most this many polls and samples wait: the next poll contains what a dropped one did.
const QUEUE_CAPACITY: usize = 4;

/// How long a stop waits for the thread.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The current result of the watch.
#[derive(Debug, Default)]
pub(crate) struct RogueStatus {
    /// All watched processes that have been assessed.
    pub(crate) assessments: BTreeMap<ProcessKey, Arc<RogueAssessment>>,
    /// The processes with a verdict, the worst first.
    pub(crate) findings: Vec<RogueFinding>,
    /// The verdicts for the guard.
    pub(crate) suspicions: Arc<RogueSuspicions>,
    /// The number of processes beyond the limit.
    pub(crate) overflow: u32,
    /// Why the evidence cannot be read.
    pub(crate) fault: Option<String>,
}

/// The handle of the watch. Clones share the watch.
#[derive(Clone)]
pub(crate) struct Rogue {
    pub(crate) store: Arc<RogueRuleStore>,
    commands: SyncSender<RogueCommand>,
    status: channel::Receiver<Arc<RogueStatus>>,
    /// Disconnected when the thread has ended.
    ended: Arc<Mutex<Receiver<()>>>,
}

impl Rogue {
    /// Starts the thread. `boot` is the id of this boot of the host: a finding that was reported in
    /// it is not reported again.
    pub(crate) fn start(
        rules: RogueRuleStore,
        evidence: Box<dyn EvidenceSource>,
        store: Store,
        boot: String,
    ) -> std::io::Result<Self> {
        let rules = Arc::new(rules);
        let (sender, status) = channel::channel(Arc::default());
        let (orders, received) = sync_channel(QUEUE_CAPACITY);
        let (ending, ended) = sync_channel(1);
        let watch = RogueWatcher::new(rules.subscribe(), evidence, store, sender);
        std::thread::Builder::new()
            .name("rogue".into())
            .spawn(move || {
                let _closed_at_the_end = ending;
                watch.run(&boot, &received);
            })?;
        Ok(Self {
            store: rules,
            commands: orders,
            status,
            ended: Arc::new(Mutex::new(ended)),
        })
    }

    /// Queues the assessment of the processes in this poll. Never waits: a poll that arrives while
    /// the queue is full is skipped.
    pub(crate) fn add_poll(&self, snapshot: &Arc<Snapshot>, guard: Arc<guard::GuardStatus>) {
        let _ = self
            .commands
            .try_send(RogueCommand::Poll(Arc::clone(snapshot), guard));
    }

    /// Adds the device usage of a sample. Never waits.
    pub(crate) fn add_sample(&self, sample: &Sample) {
        let _ = self
            .commands
            .try_send(RogueCommand::Sample(Box::new(sample.clone())));
    }

    pub(crate) fn in_force(&self) -> RogueRulesInForce {
        self.store.subscribe().borrow().clone()
    }

    /// The current result.
    pub(crate) fn status(&self) -> Arc<RogueStatus> {
        Arc::clone(&self.status.borrow())
    }

    /// The verdicts that the guard may act on.
    pub(crate) fn suspicions(&self) -> Arc<RogueSuspicions> {
        Arc::clone(&self.status.borrow().suspicions)
    }

    /// The faults of the watch, as text.
    pub(crate) fn faults(&self) -> Vec<FaultCause> {
        // The number changes all the time: `status` reports it.
        let status = self.status();
        let all = [
            (FaultCode::RulesMistaken, self.store.fault()),
            (
                FaultCode::ProcessesUnwatched,
                (status.overflow > 0)
                    .then(|| "more processes use GPUs than are watched".to_owned()),
            ),
            (FaultCode::EvidenceStuck, status.fault.clone()),
        ];
        let all = all.into_iter();
        all.filter_map(|(code, what)| Some(FaultCause::new(code, what?)))
            .collect()
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        // A thread that has ended already needs no command; a thread that is behind ends with the
        // daemon.
        let is_sent = self.commands.try_send(RogueCommand::Stop).is_ok();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if is_sent && ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the watch for rogues did not end in time");
        }
    }
}
