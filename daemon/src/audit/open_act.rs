//! An act of which the record says that it is under way.

use super::acts::End;
use super::{ActId, Store};
use std::time::SystemTime;

/// A recorded act, until it is told what came of it. Where that is not told, a fault
/// of gpukilld's own broke it off: it is settled as failed when this is dropped.
pub(crate) struct OpenAct {
    id: Option<ActId>,
    store: Store,
}

impl OpenAct {
    pub(super) fn new(id: ActId, store: Store) -> Self {
        Self {
            id: Some(id),
            store,
        }
    }

    /// Names it, until it is settled.
    pub(super) const fn id(&self) -> Option<ActId> {
        self.id
    }

    /// Records and logs what came of it: in a word (`done`, `partly`, `failed`),
    /// and as JSON. Never waits; while the store does not work it is kept until it
    /// does.
    pub(crate) fn settle(mut self, word: &'static str, outcome: String) {
        if let Some(id) = self.id.take() {
            self.store.settle(id, word, outcome);
        }
    }
}

impl Drop for OpenAct {
    fn drop(&mut self) {
        let Some(id @ ActId(act)) = self.id.take() else {
            return;
        };
        tracing::error!(act, "a fault of gpukilld broke an act off");
        self.store
            .end(id, End::broken_off(SystemTime::now().into()));
    }
}
