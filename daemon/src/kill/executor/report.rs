//! Builds the report of a kill while it runs, and publishes it.

use super::target::Target;
use gpukill_proto::kill::{
    KillReport, KillTarget, MemoryReclaim, Outcome, ProcessOutcome, Respawn, Stage,
};
use gpukill_proto::model::{DeviceId, ProcessKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The report so far.
pub(super) struct KillReporter<'a> {
    report: KillReport,
    outcomes: BTreeMap<ProcessKey, ProcessOutcome>,
    publisher: &'a watch::Sender<Arc<KillReport>>,
}

impl<'a> KillReporter<'a> {
    pub(super) fn new(publisher: &'a watch::Sender<Arc<KillReport>>) -> Self {
        Self {
            report: KillReport::clone(&publisher.borrow()),
            outcomes: BTreeMap::new(),
            publisher,
        }
    }

    /// Sets why the kill is not in the store; `None` where it is.
    pub(super) fn set_unrecorded(&mut self, why: Option<String>) {
        self.report.unrecorded = why;
    }

    /// Sets why processes of the job may be left; `None` where all were seen.
    pub(super) fn set_unchecked(&mut self, why: Option<String>) {
        self.report.unchecked = why;
    }

    /// Adds the outcome of a target that got no signal.
    pub(super) fn add_unsignalled(&mut self, target: &KillTarget, outcome: Outcome) {
        let outcome = ProcessOutcome {
            key: target.key,
            name: target.name.clone(),
            command: target.command.clone(),
            outcome,
        };
        self.outcomes.insert(target.key, outcome);
    }

    /// Processes that had ended and were not reaped.
    pub(super) fn zombies(&self) -> Vec<ProcessKey> {
        let outcomes = self.outcomes.values();
        let zombies = outcomes.filter(|outcome| matches!(outcome.outcome, Outcome::Zombie(_)));
        zombies.map(|outcome| outcome.key).collect()
    }

    /// Whether a planned process had ended before it could get a signal.
    pub(super) fn has_gone_targets(&self) -> bool {
        let mut outcomes = self.outcomes.values();
        outcomes.any(|outcome| outcome.outcome == Outcome::Gone)
    }

    pub(super) fn mark_gone(&mut self, key: ProcessKey) {
        if let Some(outcome) = self.outcomes.get_mut(&key) {
            outcome.outcome = Outcome::Gone;
        }
    }

    /// Adds the outcome of a target that got signals, and settles it.
    pub(super) fn add_settled(&mut self, target: &mut Target, outcome: Outcome) {
        target.settle();
        let outcome = ProcessOutcome {
            key: target.key(),
            name: target.planned().name.clone(),
            command: target.planned().command.clone(),
            outcome,
        };
        self.outcomes.insert(target.key(), outcome);
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        self.report.stage = stage;
        self.publish();
    }

    pub(super) fn set_memory(&mut self, memory: Vec<MemoryReclaim>) {
        self.report.memory = memory;
        self.publish();
    }

    /// How many milliseconds this device's memory took to return, where it has.
    pub(super) fn returned_after(&self, device: &DeviceId) -> Option<u64> {
        let mut known = self.report.memory.iter();
        known.find(|it| it.device == *device)?.after_ms
    }

    /// Sets the processes that replaced ended ones.
    pub(super) fn set_respawned(&mut self, respawned: Vec<Respawn>) {
        self.report.respawned = respawned;
    }

    /// Publishes the report where it has changed.
    pub(super) fn publish(&mut self) {
        if self.report.outcomes.len() != self.outcomes.len() {
            self.report.outcomes = self.outcomes.values().cloned().collect();
        }
        if **self.publisher.borrow() == self.report {
            return;
        }
        self.report.version += 1;
        // A client that subscribes later reads the same value.
        let report = Arc::new(self.report.clone());
        self.publisher.send_replace(report);
    }

    /// The final report, for publication after the violation is recorded.
    pub(super) fn finish(&mut self, stage: Stage) -> KillReport {
        self.report.outcomes = self.outcomes.values().cloned().collect();
        self.report.stage = stage;
        self.report.clone()
    }
}
