//! The report of an act while it grows, and its publication.

use super::target::Target;
use gpukill_proto::kill::{
    Ending, KillOutcome, KillReport, KillTarget, MemoryReturn, Respawn, Stage,
};
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// What can be told by now.
pub(super) struct Told<'a> {
    report: KillReport,
    outcomes: BTreeMap<ProcessKey, KillOutcome>,
    publisher: &'a watch::Sender<Arc<KillReport>>,
}

impl<'a> Told<'a> {
    pub(super) fn new(publisher: &'a watch::Sender<Arc<KillReport>>) -> Self {
        Self {
            report: KillReport::clone(&publisher.borrow()),
            outcomes: BTreeMap::new(),
            publisher,
        }
    }

    /// Why the act is not in the store; `None` where it is.
    pub(super) fn unrecorded(&mut self, why: Option<String>) {
        self.report.unrecorded = why;
    }

    /// What became of one that got no signal.
    pub(super) fn ends(&mut self, target: &KillTarget, ending: Ending) {
        let outcome = KillOutcome {
            key: target.key,
            name: target.name.clone(),
            command: target.command.clone(),
            ending,
        };
        self.outcomes.insert(target.key, outcome);
    }

    /// Those that had ended and were not reaped.
    pub(super) fn zombies(&self) -> Vec<ProcessKey> {
        let outcomes = self.outcomes.values();
        let zombies = outcomes.filter(|outcome| matches!(outcome.ending, Ending::Zombie(_)));
        zombies.map(|outcome| outcome.key).collect()
    }

    /// One that was told of is there no more.
    pub(super) fn is_gone(&mut self, key: ProcessKey) {
        if let Some(outcome) = self.outcomes.get_mut(&key) {
            outcome.ending = Ending::Gone;
        }
    }

    /// What became of one that got signals.
    pub(super) fn ended(&mut self, target: &mut Target, ending: Ending) {
        target.settle();
        let outcome = KillOutcome {
            key: target.key(),
            name: target.planned().name.clone(),
            command: target.planned().command.clone(),
            ending,
        };
        self.outcomes.insert(target.key(), outcome);
    }

    /// How far it is.
    pub(super) fn stage(&mut self, stage: Stage) {
        self.report.stage = stage;
        self.publish();
    }

    /// What of the memory is back.
    pub(super) fn memory(&mut self, memory: Vec<MemoryReturn>) {
        self.report.memory = memory;
        self.publish();
    }

    /// When this device's memory was seen to be back, where it was.
    pub(super) fn returned_after(&self, device: &DeviceId) -> Option<u64> {
        let mut known = self.report.memory.iter();
        known.find(|it| it.device == *device)?.after_ms
    }

    /// Who came in the place of ended ones.
    pub(super) fn respawned(&mut self, respawned: Vec<Respawn>) {
        self.report.respawned = respawned;
    }

    /// Publishes what is known by now, where that is news.
    pub(super) fn publish(&mut self) {
        if self.report.outcomes.len() != self.outcomes.len() {
            self.report.outcomes = self.outcomes.values().cloned().collect();
        }
        if **self.publisher.borrow() == self.report {
            return;
        }
        self.report.version += 1;
        // Whoever follows later finds it all the same.
        let report = Arc::new(self.report.clone());
        self.publisher.send_replace(report);
    }

    /// Nothing more will happen: what is to be published as the last.
    pub(super) fn end(&mut self, stage: Stage) -> KillReport {
        self.report.outcomes = self.outcomes.values().cloned().collect();
        self.report.stage = stage;
        self.report.clone()
    }
}
