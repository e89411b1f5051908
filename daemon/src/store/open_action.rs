//! An action that is open in the record.

use super::actions::ActionEnd;
use super::{ActionId, ActionKind, Store};
use crate::log_events::{EventSubject, event};
use std::time::SystemTime;

/// A recorded action whose outcome is not known yet. If this is dropped without
/// [`OpenAction::settle`], a fault of gpukilld aborted the action, and the violation is recorded as failed.
pub(crate) struct OpenAction {
    id: Option<ActionId>,
    kind: ActionKind,
    about: EventSubject,
    store: Store,
}

impl OpenAction {
    pub(super) const fn new(
        id: ActionId,
        kind: ActionKind,
        about: EventSubject,
        store: Store,
    ) -> Self {
        Self {
            id: Some(id),
            kind,
            about,
            store,
        }
    }

    /// Records and logs the outcome: a word (`done`, `partly`, `failed`) and JSON. Never waits;
    /// while the store does not work, the outcome is kept in memory.
    pub(crate) fn settle(mut self, word: &'static str, outcome: String) {
        if let Some(id @ ActionId(act)) = self.id.take() {
            let (action, [pid, uid, gpu_uuid]) = (self.kind.name(), self.about.fields());
            event!(ActEnded, act, action, word, outcome, pid, uid, gpu_uuid);
            self.store.settle(id, word, outcome);
        }
    }
}

/// Logs the outcome of an action that is not recorded: only the log has it.
pub(crate) fn log_unrecorded_end(
    kind: ActionKind,
    about: &EventSubject,
    word: &str,
    outcome: &str,
) {
    let (action, [pid, uid, gpu_uuid]) = (kind.name(), about.fields());
    event!(
        UnrecordedActEnded,
        action,
        word,
        outcome,
        pid,
        uid,
        gpu_uuid
    );
}

impl Drop for OpenAction {
    fn drop(&mut self) {
        let Some(id @ ActionId(act)) = self.id.take() else {
            return;
        };
        let (action, [pid, uid, gpu_uuid]) = (self.kind.name(), self.about.fields());
        event!(ActBrokenOff, act, action, pid, uid, gpu_uuid);
        self.store
            .queue_end(id, ActionEnd::aborted(SystemTime::now().into()));
    }
}
