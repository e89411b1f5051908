//! Processes that are stopped while they are killed, so that they do not fork. None may stay
//! stopped: each resumes when its kill releases it, and all resume when the daemon ends. The file
//! of stopped processes serves a daemon that is killed itself.

use super::stopped_file::StoppedFile;
use gpukill_proto::model::ProcessKey;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All stopped processes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoppedProcesses {
    all: Arc<Mutex<StoppedTable>>,
    /// Outside the lock: a disk that hangs delays only the writer.
    file: Arc<StoppedFile>,
}

#[derive(Debug, Default)]
struct StoppedTable {
    by_position: BTreeMap<u64, Arc<OwnedFd>>,
    /// Free positions below `next`.
    free: Vec<u64>,
    next: u64,
    /// Set when the daemon ends: no process is stopped any more.
    is_over: bool,
}

/// A stopped process; it resumes when this is dropped.
#[derive(Debug)]
pub(super) struct StopGuard {
    stopped: StoppedProcesses,
    position: u64,
    handle: Arc<OwnedFd>,
}

impl StoppedProcesses {
    pub(super) fn with_file(note: StoppedFile) -> Self {
        Self {
            all: Arc::default(),
            file: Arc::new(note),
        }
    }

    /// Registers a process that is about to be stopped.
    pub(super) fn stop(&self, key: ProcessKey, handle: &Arc<OwnedFd>) -> StopGuard {
        let position = self.lock().insert(handle);
        self.file.write(position, key);
        StopGuard {
            stopped: self.clone(),
            position,
            handle: Arc::clone(handle),
        }
    }

    /// Resumes all processes, and stops no other.
    pub(super) fn resume_all(&self) {
        let stopped = {
            let mut all = self.lock();
            all.is_over = true;
            std::mem::take(&mut all.by_position)
        };
        for handle in stopped.into_values() {
            // As in the drop of a guard.
            let _ = resume(&handle);
        }
        self.file.clear_all();
    }

    fn lock(&self) -> MutexGuard<'_, StoppedTable> {
        // No code panics while it holds this lock; if some did, its entries would still be stopped
        // processes.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoppedTable {
    fn insert(&mut self, handle: &Arc<OwnedFd>) -> u64 {
        let position = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.by_position.insert(position, Arc::clone(handle));
        position
    }
}

impl StopGuard {
    /// Stops it, also when it was resumed by another process.
    pub(super) fn stop(&self) {
        let all = self.stopped.lock();
        if !all.is_over {
            // An error means that it has ended.
            let _ = pidfd_send_signal(&*self.handle, Signal::STOP);
        }
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        let was_registered = self
            .stopped
            .lock()
            .by_position
            .remove(&self.position)
            .is_some();
        if was_registered {
            // SIGCONT has no effect on a process that is killed meanwhile.
            let _ = resume(&self.handle);
            self.stopped.file.clear(self.position);
            self.stopped.lock().free.push(self.position);
        }
    }
}

/// Sends SIGCONT.
///
/// # Errors
/// When the kernel refuses it, or the process has ended.
pub(super) fn resume(handle: &OwnedFd) -> Result<(), Errno> {
    pidfd_send_signal(handle, Signal::CONT)
}
