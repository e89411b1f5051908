//! Evidence for rogue verdicts from `/proc`: the executable of a GPU process, its arguments, its
//! loaded libraries, and the bytes its network has sent. The process chooses every text itself; the
//! texts are kept unchanged.
//!
//! The kernel reads some of this only under a lock of the process's memory, which a process that is
//! stuck in a driver may hold forever: background threads read it.

pub(crate) mod fuzz_api;
mod libraries;
mod network;
mod reader;

use super::background_cache::{BackgroundCache, CachedValue, FetchPolicy};
use gpukill_proto::model::ProcessKey;
pub(super) use reader::error_reason;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The evidence about a process. `None` is unknown; an empty value is known to be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessEvidence {
    /// `/proc/PID/exe` as the kernel prints it, including ` (deleted)`.
    pub(crate) executable: Option<String>,
    /// Its arguments: at most 1,024, of 32 KiB in all; `unavailable` reports whether there are
    /// more. Kernel threads, ended processes and processes that erased their arguments have none.
    /// Unknown where only the first thread has ended.
    pub(crate) arguments: Option<Vec<String>>,
    /// The names of the shared objects that are mapped executable, without directories. All of
    /// them, or `None`.
    pub(crate) libraries: Option<BTreeSet<String>>,
    pub(crate) sent: NetworkSent,
    /// The parts that could not be read, with the reason, except `sent`: `its libraries: not
    /// permitted`, `the rest of its command line: it is longer than 32 KiB`.
    pub(crate) unavailable: Vec<String>,
}

/// The bytes that the network namespace of a process has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NetworkSent {
    /// Unknown, for this reason.
    Unknown(String),
    /// The process shares the namespace of the host or of gpukilld.
    Shared,
    /// It has another namespace.
    Own {
        /// The number of the namespace, unique while it exists.
        namespace: u64,
        /// The bytes that its devices have sent since its creation, except `lo`. Traffic through
        /// two of its devices counts twice.
        bytes: u64,
    },
}

pub(crate) struct EvidenceReader(BackgroundCache<ProcessKey, (), Arc<ProcessEvidence>>);

const FETCH_POLICY: FetchPolicy = FetchPolicy {
    thread: "evidence",
    // A process that is stuck here blocks its command line, too; as many as this are no accident.
    threads: 4,
    // At least as many as are watched: they may all be new at once.
    queue: 4_096,
    // More than are watched, otherwise a new value would evict another one before it was used. A
    // hostile process takes some 200 KiB: library names, arguments, and the overhead of many
    // separate texts; but only until the next poll, since a used value is dropped.
    max_entries: 8_192,
    // Libraries that are loaded later must be seen, too. Reading two thousand mappings takes 3 ms.
    refresh_after: Duration::from_secs(30),
    stuck_after: Duration::from_secs(2),
};

impl EvidenceReader {
    /// Reads below this root, `/proc` except in tests.
    pub(crate) fn new(root: PathBuf) -> Self {
        let read =
            move |process: &ProcessKey, ()| reader::read_evidence(*process, &root).map(Arc::new);
        Self(BackgroundCache::new(FETCH_POLICY, read))
    }

    /// The evidence about a process. Requests it where it is unknown or old, and never waits.
    /// `None` for a process that ended or executed another program during the read.
    pub(crate) fn get(&self, process: ProcessKey) -> Option<Arc<ProcessEvidence>> {
        match self.0.get(&process, || ()) {
            CachedValue::Ready(evidence) => Some(evidence),
            CachedValue::Failed | CachedValue::Pending => None,
        }
    }

    /// Drops the evidence of a process, which executed another program, so that it is read again.
    pub(crate) fn forget(&self, process: ProcessKey) {
        self.0.forget(&process);
    }

    /// Drops all other processes.
    pub(crate) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.0.keep_only(wanted);
    }

    /// Waits until all requests are answered, at most until `deadline`, and not for a process that
    /// is stuck.
    pub(crate) fn settle(&self, deadline: Instant) {
        self.0.settle(deadline);
    }

    /// The current fault of the reads.
    pub(crate) fn fault(&self) -> Option<String> {
        let stuck = self.0.stuck();
        if stuck.is_empty() {
            return None;
        }
        let pids: Vec<String> = stuck.iter().map(|it| it.pid.to_string()).collect();
        let fault = format!(
            "no verdict on process {}: its evidence cannot be read, it may be stuck in a driver",
            pids.join(", ")
        );
        Some(if stuck.len() < FETCH_POLICY.threads {
            fault
        } else {
            format!("{fault}, and no other is read until one of them continues")
        })
    }
}

#[cfg(test)]
mod tests;
