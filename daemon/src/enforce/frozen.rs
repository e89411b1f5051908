//! Processes that are stopped while they are killed, so that they do not fork. None
//! may stay so: each goes on when its kill lets go of it, and all of them when the
//! daemon ends before that. For a daemon that is killed they are noted.

use super::note::Note;
use gpukill_proto::snapshot::ProcessKey;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All that are stopped. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frozen {
    all: Arc<Mutex<All>>,
    /// Not below the lock: a disk that hangs holds up who writes, and nobody else.
    note: Arc<Note>,
}

#[derive(Debug, Default)]
struct All {
    /// By their places in the note.
    by_place: BTreeMap<u64, Arc<OwnedFd>>,
    /// The places below `next` that nobody has.
    free: Vec<u64>,
    next: u64,
    /// Nobody is stopped from here on.
    is_over: bool,
}

/// One that is stopped; it goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Stopped {
    frozen: Frozen,
    place: u64,
    handle: Arc<OwnedFd>,
}

impl Frozen {
    /// Notes there who is stopped.
    pub(super) fn noted_in(note: Note) -> Self {
        Self {
            all: Arc::default(),
            note: Arc::new(note),
        }
    }

    /// Takes one in that is to be stopped.
    pub(super) fn stop(&self, key: ProcessKey, handle: &Arc<OwnedFd>) -> Stopped {
        let place = self.lock().take_in(handle);
        self.note.write(place, key);
        Stopped {
            frozen: self.clone(),
            place,
            handle: Arc::clone(handle),
        }
    }

    /// Lets all go on, and stops nobody any more.
    pub(super) fn end(&self) {
        let stopped = {
            let mut all = self.lock();
            all.is_over = true;
            std::mem::take(&mut all.by_place)
        };
        for handle in stopped.into_values() {
            // As where one is let go of.
            let _ = go_on(&handle);
        }
        self.note.clear_all();
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // Nothing panics while it holds this lock; if something did, who is in it
        // is stopped all the same.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn take_in(&mut self, handle: &Arc<OwnedFd>) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.by_place.insert(place, Arc::clone(handle));
        place
    }
}

impl Stopped {
    /// Stops it, or once more: others may have let it go on.
    pub(super) fn again(&self) {
        let all = self.frozen.lock();
        if !all.is_over {
            // It may have ended, which is as good.
            let _ = pidfd_send_signal(&*self.handle, Signal::STOP);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let is_ours = self.frozen.lock().by_place.remove(&self.place).is_some();
        if is_ours {
            // Of one that is killed meanwhile this changes nothing.
            let _ = go_on(&self.handle);
            self.frozen.note.clear(self.place);
            self.frozen.lock().free.push(self.place);
        }
    }
}

/// Lets one go on.
///
/// # Errors
/// When the kernel refuses, or it has ended.
pub(super) fn go_on(handle: &OwnedFd) -> Result<(), Errno> {
    pidfd_send_signal(handle, Signal::CONT)
}
