//! What a process leaves in `/proc` besides what a poll reads: a seam, so that the watch
//! is tested without.

use crate::host::connections::{Connections, Sockets};
use crate::host::hashes::{Hash, Hashes};
use crate::host::traces::{TraceReader, Traces};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reads it, on threads of its own. Never waits.
pub(crate) trait Witness: Send {
    /// What it has loaded and is called; asks for that where it was not read yet.
    fn traces(&self, process: ProcessKey) -> Option<Arc<Traces>>;

    /// Forgets that, so that it is read again.
    fn forget(&self, process: ProcessKey);

    /// The SHA-256 of what it executes, or why there is none; asks for that where it was
    /// not read yet and it is the turn of this person, whose it is.
    fn hash(&self, process: ProcessKey, person: Option<u32>) -> Option<Hash>;

    /// Forgets that likewise.
    fn forget_hash(&self, process: ProcessKey);

    /// Forgets everybody but these.
    fn keep_only(&self, wanted: &BTreeSet<ProcessKey>);

    /// On which ports it listens, and with whom it is connected.
    fn sockets(&self, process: ProcessKey) -> Option<Sockets>;

    /// What is wrong with reading it.
    fn fault(&self) -> Option<String>;
}

/// The kernel's own word.
pub(crate) struct OfProc {
    pub(crate) traces: TraceReader,
    pub(crate) hashes: Hashes,
    pub(crate) connections: Arc<Connections>,
}

impl Witness for OfProc {
    fn traces(&self, process: ProcessKey) -> Option<Arc<Traces>> {
        self.traces.of(process)
    }

    fn forget(&self, process: ProcessKey) {
        self.traces.forget(process);
    }

    fn hash(&self, process: ProcessKey, person: Option<u32>) -> Option<Hash> {
        self.hashes.of(process, person)
    }

    fn forget_hash(&self, process: ProcessKey) {
        self.hashes.forget(process);
    }

    fn keep_only(&self, wanted: &BTreeSet<ProcessKey>) {
        self.traces.keep_only(|process| wanted.contains(process));
        self.hashes.keep_only(|process| wanted.contains(process));
    }

    fn sockets(&self, process: ProcessKey) -> Option<Sockets> {
        self.connections.sockets_of(process)
    }

    fn fault(&self) -> Option<String> {
        self.traces.fault()
    }
}

/// One that sees nothing.
#[cfg(test)]
pub(crate) struct Blind;

#[cfg(test)]
impl Witness for Blind {
    fn traces(&self, _: ProcessKey) -> Option<Arc<Traces>> {
        None
    }

    fn forget(&self, _: ProcessKey) {}

    fn hash(&self, _: ProcessKey, _: Option<u32>) -> Option<Hash> {
        None
    }

    fn forget_hash(&self, _: ProcessKey) {}

    fn keep_only(&self, _: &BTreeSet<ProcessKey>) {}

    fn sockets(&self, _: ProcessKey) -> Option<Sockets> {
        None
    }

    fn fault(&self) -> Option<String> {
        None
    }
}
