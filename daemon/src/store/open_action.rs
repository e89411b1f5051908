//! An action, from the request to its end in the record.

use super::actions::ActionEnd;
use super::{KillShare, Store};
use crate::log_events::{EventSubject, event};
use std::time::SystemTime;

/// An operation that a user requested, before it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) kind: ActionKind,
    /// The user who requested it.
    pub(crate) uid: u32,
    /// The request, as options of the command.
    pub(crate) request: String,
    /// The plan, as JSON.
    pub(crate) plan: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ActionKind {
    Kill,
    Reset,
    /// Old samples were deleted.
    Prune,
    /// The store was copied.
    Backup,
    /// A copy replaced the store.
    Restore,
    /// Rules were edited.
    EditRules,
}

impl ActionKind {
    pub(super) const ALL: [Self; 6] = [
        Self::Kill,
        Self::Reset,
        Self::Prune,
        Self::Backup,
        Self::Restore,
        Self::EditRules,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Reset => "reset",
            Self::Prune => "prune",
            Self::Backup => "backup",
            Self::Restore => "restore",
            Self::EditRules => "rules_edit",
        }
    }
}

/// Identifies a recorded action while the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ActionId(pub(super) i64);

/// A recorded action without an outcome so far. If this is dropped without
/// [`OpenAction::settle`], a fault of gpukilld aborted the action, and the action is recorded as
/// failed.
pub(crate) struct OpenAction {
    id: Option<ActionId>,
    kind: ActionKind,
    /// The kind in the counters.
    counted_as: &'static str,
    subject: EventSubject,
    /// The allowance that its outcome counts against, if any.
    share: Option<KillShare>,
    store: Store,
}

impl OpenAction {
    pub(super) const fn new(
        id: ActionId,
        kind: ActionKind,
        counted_as: &'static str,
        subject: EventSubject,
        share: Option<KillShare>,
        store: Store,
    ) -> Self {
        Self {
            id: Some(id),
            kind,
            counted_as,
            subject,
            share,
            store,
        }
    }

    /// Records and logs the outcome: a result (`done`, `partly`, `failed`) and JSON. Never waits;
    /// while the store does not work, the outcome is kept in memory.
    pub(crate) fn settle(mut self, result: &'static str, outcome: String) {
        if let Some(id @ ActionId(number)) = self.id.take() {
            let (action, [pid, uid, gpu_uuid]) = (self.kind.name(), self.subject.fields());
            event!(
                ActionEnded,
                action_id = number,
                action,
                result,
                outcome,
                pid,
                uid,
                gpu_uuid
            );
            self.store.counters.count_action(self.counted_as, result);
            self.store.settle(id, result, outcome, self.share.as_ref());
        }
    }
}

impl Store {
    /// Logs the outcome of an action that is not recorded: only the log has it.
    pub(crate) fn log_unrecorded_end(
        &self,
        kind: ActionKind,
        subject: &EventSubject,
        result: &'static str,
        outcome: &str,
    ) {
        self.counters.count_action(kind.name(), result);
        let (action, [pid, uid, gpu_uuid]) = (kind.name(), subject.fields());
        event!(
            UnrecordedActionEnded,
            action,
            result,
            outcome,
            pid,
            uid,
            gpu_uuid
        );
    }
}

impl Drop for OpenAction {
    fn drop(&mut self) {
        let Some(id @ ActionId(number)) = self.id.take() else {
            return;
        };
        let (action, [pid, uid, gpu_uuid]) = (self.kind.name(), self.subject.fields());
        event!(
            ActionAborted,
            action_id = number,
            action,
            pid,
            uid,
            gpu_uuid
        );
        let end = ActionEnd::aborted(SystemTime::now().into());
        self.store
            .counters
            .count_action(self.counted_as, end.result);
        self.store.queue_end(id, end);
    }
}
