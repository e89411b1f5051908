//! Evidence in `/proc` that a poll does not read: a trait, so that the watch can be tested without
//! `/proc`.

use crate::host::evidence::{EvidenceReader, ProcessEvidence};
use crate::host::hashes::{ExecutableHashes, HashResult};
use crate::host::sockets::{ProcessSockets, SocketWatcher};
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reads evidence, on threads of its own. Never waits.
pub(crate) trait EvidenceSource: Send {
    /// The libraries and arguments of a process; requests them if they were not read yet.
    fn process_evidence(&self, process: ProcessKey) -> Option<Arc<ProcessEvidence>>;

    /// Drops them, so that they are read again.
    fn forget(&self, process: ProcessKey);

    /// The SHA-256 of the executable, or why there is none; requests it if it was not read yet and
    /// the queue allows another file of this owner.
    fn hash(&self, process: ProcessKey, person: Option<u32>) -> Option<HashResult>;

    /// Drops it likewise.
    fn forget_hash(&self, process: ProcessKey);

    /// Drops all processes except these.
    fn keep_only(&self, wanted: &BTreeSet<ProcessKey>);

    /// The ports on which it listens, and its peers.
    fn sockets(&self, process: ProcessKey) -> Option<ProcessSockets>;

    /// Why it cannot be read.
    fn fault(&self) -> Option<String>;
}

/// Reads `/proc`.
pub(crate) struct ProcEvidence {
    pub(crate) evidence: EvidenceReader,
    pub(crate) hashes: ExecutableHashes,
    pub(crate) sockets: Arc<SocketWatcher>,
}

impl EvidenceSource for ProcEvidence {
    fn process_evidence(&self, process: ProcessKey) -> Option<Arc<ProcessEvidence>> {
        self.evidence.get(process)
    }

    fn forget(&self, process: ProcessKey) {
        self.evidence.forget(process);
    }

    fn hash(&self, process: ProcessKey, person: Option<u32>) -> Option<HashResult> {
        self.hashes.get(process, person)
    }

    fn forget_hash(&self, process: ProcessKey) {
        self.hashes.forget(process);
    }

    fn keep_only(&self, wanted: &BTreeSet<ProcessKey>) {
        self.evidence.keep_only(|process| wanted.contains(process));
        self.hashes.keep_only(|process| wanted.contains(process));
    }

    fn sockets(&self, process: ProcessKey) -> Option<ProcessSockets> {
        self.sockets.process_sockets(process)
    }

    fn fault(&self) -> Option<String> {
        self.evidence.fault()
    }
}

/// A source without any evidence.
#[cfg(test)]
pub(crate) struct NoEvidence;

#[cfg(test)]
impl EvidenceSource for NoEvidence {
    fn process_evidence(&self, _: ProcessKey) -> Option<Arc<ProcessEvidence>> {
        None
    }

    fn forget(&self, _: ProcessKey) {}

    fn hash(&self, _: ProcessKey, _: Option<u32>) -> Option<HashResult> {
        None
    }

    fn forget_hash(&self, _: ProcessKey) {}

    fn keep_only(&self, _: &BTreeSet<ProcessKey>) {}

    fn sockets(&self, _: ProcessKey) -> Option<ProcessSockets> {
        None
    }

    fn fault(&self) -> Option<String> {
        None
    }
}
