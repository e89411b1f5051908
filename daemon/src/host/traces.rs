//! What a process that uses a GPU leaves in `/proc` for verdicts on rogues to look at:
//! what it executes, what it was told, what it has loaded, and how much its network has
//! sent. Every text of it is the process's own to choose, and is kept as it is.
//!
//! Some of this the kernel gives only under a lock of the other process's memory, which
//! one that is stuck in a driver may hold for ever: threads of their own read it.

mod look;

mod mapped;

mod network;

pub(crate) mod untrusted;

use super::asked::{Answer, Asked, Manner};
use gpukill_proto::snapshot::ProcessKey;
pub(super) use look::why;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is known of a process. `None` is not known; what there is none of is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traces {
    /// `/proc/PID/exe` as the kernel prints it, ` (deleted)` and all.
    pub(crate) executable: Option<String>,
    /// Its arguments: as many as 1,024, of 32 KiB in all; `unseen` tells where there are
    /// more. Kernel threads and those that have ended have none, nor has who wiped them
    /// out; of one whose first thread alone has ended they are not known.
    pub(crate) arguments: Option<Vec<String>>,
    /// The names of the shared objects that are mapped into it to be executed, without
    /// directories. All of them, or `None`.
    pub(crate) libraries: Option<BTreeSet<String>>,
    pub(crate) sent: Sending,
    /// What could not be read, and why, but for what it sent: `its libraries: not
    /// permitted`, `the rest of its command line: it is longer than 32 KiB`.
    pub(crate) unseen: Vec<String>,
}

/// What the network namespace of a process has sent by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Not known, and why.
    Unknown(String),
    /// It has the box's own, or gpukilld's.
    Shared,
    /// It has another one.
    Own {
        /// The number of the namespace, which no other has while it lasts.
        namespace: u64,
        /// The bytes that its devices have sent since it was made, but for `lo`. What
        /// passes two of its devices counts for both.
        bytes: u64,
    },
}

/// Reads the traces of processes.
pub(crate) struct TraceReader(Asked<ProcessKey, (), Arc<Traces>>);

const MANNER: Manner = Manner {
    thread: "traces",
    // Who is stuck here is with its command line too; as many as this are no accident.
    threads: 4,
    // At least as many as are watched: they may all be new at once.
    queue: 4_096,
    // More than are watched, or what was read of one would make room for another before
    // anybody took it. Of one that means harm some 200 KiB are kept: names of libraries,
    // arguments, and what it costs to keep so many texts apart; but only until the next
    // poll, for whoever takes an answer forgets it.
    most: 8_192,
    // What is loaded later is to be seen too. To read two thousand mappings takes 3 ms.
    keep: Duration::from_secs(30),
    slow: Duration::from_secs(2),
};

impl TraceReader {
    /// Reads below this root, `/proc` but in tests.
    pub(crate) fn new(root: PathBuf) -> Self {
        let read = move |process: &ProcessKey, ()| look::read(*process, &root).map(Arc::new);
        Self(Asked::new(MANNER, read))
    }

    /// What is known of a process. Asks for it where it is not known or old, and never
    /// waits. Nothing of a process that has ended, or executed something else while it
    /// was looked at.
    pub(crate) fn of(&self, process: ProcessKey) -> Option<Arc<Traces>> {
        match self.0.of(&process, || ()) {
            Answer::Given(traces) => Some(traces),
            Answer::Failed | Answer::Pending => None,
        }
    }

    /// Forgets what is known of a process, so that it is read again: it executes
    /// something else.
    pub(crate) fn forget(&self, process: ProcessKey) {
        self.0.forget(&process);
    }

    /// Forgets every process but these.
    pub(crate) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.0.keep_only(wanted);
    }

    /// Waits until everything asked so far is read, but not past `deadline`, and not for
    /// one that is stuck.
    pub(crate) fn settle(&self, deadline: Instant) {
        self.0.settle(deadline);
    }

    /// What is wrong with reading them now.
    pub(crate) fn fault(&self) -> Option<String> {
        let stuck = self.0.stuck();
        if stuck.is_empty() {
            return None;
        }
        let pids: Vec<String> = stuck.iter().map(|it| it.pid.to_string()).collect();
        let fault = format!(
            "no verdict on process {}: what it is cannot be read, it may be stuck in a driver",
            pids.join(", ")
        );
        Some(if stuck.len() < MANNER.threads {
            fault
        } else {
            format!("{fault}, and no other is read until one of them goes on")
        })
    }
}

#[cfg(test)]
mod tests;
