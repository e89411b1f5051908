//! An act of which the record says that it is under way.

use super::acts::End;
use super::{ActId, ActKind, Store};
use crate::catalogue::{About, tell};
use std::time::SystemTime;

/// A recorded act, until it is told what came of it. Where that is not told, a fault
/// of gpukilld's own broke it off: it is settled as failed when this is dropped.
pub(crate) struct OpenAct {
    id: Option<ActId>,
    kind: ActKind,
    about: About,
    store: Store,
}

impl OpenAct {
    pub(super) const fn new(id: ActId, kind: ActKind, about: About, store: Store) -> Self {
        Self {
            id: Some(id),
            kind,
            about,
            store,
        }
    }

    /// Records and logs what came of it: in a word (`done`, `partly`, `failed`),
    /// and as JSON. Never waits; while the store does not work it is kept until it
    /// does.
    pub(crate) fn settle(mut self, word: &'static str, outcome: String) {
        if let Some(id @ ActId(act)) = self.id.take() {
            let (action, [pid, uid, gpu_uuid]) = (self.kind.name(), self.about.fields());
            tell!(ActEnded, act, action, word, outcome, pid, uid, gpu_uuid);
            self.store.settle(id, word, outcome);
        }
    }
}

/// Logs what came of an act that is not recorded: the log alone has it.
pub(crate) fn tell_unrecorded_end(kind: ActKind, about: &About, word: &str, outcome: &str) {
    let (action, [pid, uid, gpu_uuid]) = (kind.name(), about.fields());
    tell!(
        UnrecordedActEnded,
        action,
        word,
        outcome,
        pid,
        uid,
        gpu_uuid
    );
}

impl Drop for OpenAct {
    fn drop(&mut self) {
        let Some(id @ ActId(act)) = self.id.take() else {
            return;
        };
        let (action, [pid, uid, gpu_uuid]) = (self.kind.name(), self.about.fields());
        tell!(ActBrokenOff, act, action, pid, uid, gpu_uuid);
        self.store
            .end(id, End::broken_off(SystemTime::now().into()));
    }
}
