//! The hash of the executable of a process, and when it is requested.

use crate::host::hashes::HashResult;
use crate::rogue::evidence::EvidenceSource;
use gpukill_proto::model::ProcessKey;

/// The hash, if known and wanted.
#[derive(Default)]
pub(super) struct HashState {
    known: Option<HashResult>,
    request: HashRequest,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum HashRequest {
    #[default]
    NotRequested,
    Pending,
    /// The answer may concern the previous executable.
    PendingForPrevious,
    Answered,
}

impl HashState {
    /// Takes the hash if it is available, and requests it otherwise; drops it if no rule needs it.
    /// Returns whether it changed.
    pub(super) fn update(
        &mut self,
        (process, person): (ProcessKey, Option<u32>),
        is_wanted: bool,
        by: &dyn EvidenceSource,
    ) -> bool {
        if !is_wanted {
            return self.cancel(process, by);
        }
        if self.request == HashRequest::Answered {
            return false;
        }
        if self.request == HashRequest::NotRequested {
            self.request = HashRequest::Pending;
        }
        let Some(hash) = by.hash(process, person) else {
            return false;
        };
        // The hash is stored here.
        by.forget_hash(process);
        self.request = if self.request == HashRequest::PendingForPrevious {
            HashRequest::NotRequested
        } else {
            HashRequest::Answered
        };
        let before = self.known.replace(hash);
        before != self.known
    }

    fn cancel(&mut self, process: ProcessKey, by: &dyn EvidenceSource) -> bool {
        if self.request != HashRequest::NotRequested {
            by.forget_hash(process);
        }
        std::mem::take(self).known.is_some()
    }

    /// Requests the hash again, which reads nothing if the file is the same. The known hash stays
    /// until the answer arrives, so that a process that changes its executable repeatedly is known
    /// by one of them.
    pub(super) const fn invalidate(&mut self) {
        self.request = match self.request {
            HashRequest::NotRequested | HashRequest::Answered => HashRequest::NotRequested,
            HashRequest::Pending | HashRequest::PendingForPrevious => {
                HashRequest::PendingForPrevious
            }
        };
    }

    pub(super) fn sha256(&self) -> Option<String> {
        self.known.clone()?.ok()
    }

    /// Why the hash is unknown although it is wanted.
    pub(super) fn unavailable_reason(&self) -> Option<String> {
        let why = match (&self.known, self.request) {
            (Some(Ok(_)), _) | (None, HashRequest::NotRequested) => return None,
            (Some(Err(why)), _) => why,
            (
                None,
                HashRequest::Pending | HashRequest::PendingForPrevious | HashRequest::Answered,
            ) => "not read yet",
        };
        Some(format!("the hash of its executable: {why}"))
    }
}
