//! The queue of actions for the writing thread. Actions do not wait behind samples, and a full
//! command queue does not block the caller.

use super::actions::{ActionEnd, MAX_OPEN_ACTIONS};
use super::kill_allowance::KillAllowance;
use super::refusals::Refusals;
use super::{Action, ActionId};
use crate::log_events::event;
use gpukill_proto::units::Timestamp;
use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most ends that wait: several for each action that may be open.
const MAX_ENDS: usize = 4 * MAX_OPEN_ACTIONS;

/// An action that is about to start, and the caller that waits for its row.
pub(super) struct ActionIntent {
    pub(super) action: Action,
    pub(super) at: Timestamp,
    /// When the caller stops waiting.
    pub(super) deadline: Instant,
    /// A rendezvous channel: an answer that was sent was received, and a caller that gave up
    /// receives none.
    pub(super) answer: SyncSender<Result<ActionId, String>>,
}

/// The entries that the writer has not taken yet.
#[derive(Default)]
pub(super) struct ActionQueue {
    intents: VecDeque<ActionIntent>,
    ends: VecDeque<(ActionId, ActionEnd)>,
    pub(super) refusals: Refusals,
    pub(super) kill_allowance: KillAllowance,
}

impl ActionQueue {
    /// Queues an intent.
    ///
    /// # Errors
    /// When too many intents wait.
    pub(super) fn push_intent(&mut self, intent: ActionIntent) -> Result<(), String> {
        if self.intents.len() >= MAX_OPEN_ACTIONS {
            return Err("too many actions wait for the store".into());
        }
        self.intents.push_back(intent);
        Ok(())
    }

    pub(super) fn push_end(&mut self, id: ActionId, end: ActionEnd) {
        if self.ends.len() >= MAX_ENDS {
            event!(
                NotRecorded, action_id = id.0;
                "too many ends of actions wait for the store: not recorded"
            );
            return;
        }
        self.ends.push_back((id, end));
    }

    pub(super) fn take_next(&mut self) -> (VecDeque<(ActionId, ActionEnd)>, Option<ActionIntent>) {
        (std::mem::take(&mut self.ends), self.intents.pop_front())
    }
}

/// No code panics while it holds this lock; even then the contents would be consistent.
pub(super) fn lock(inbox: &Mutex<ActionQueue>) -> MutexGuard<'_, ActionQueue> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}
