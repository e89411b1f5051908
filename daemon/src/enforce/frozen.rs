//! Processes that are stopped while they are killed, so that they do not fork. None
//! may stay so: each goes on when its kill lets go of it, and all of them when the
//! daemon ends before that.

use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All that are stopped. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frozen(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    next: u64,
    by_number: BTreeMap<u64, Arc<OwnedFd>>,
    /// Nobody is stopped from here on.
    is_over: bool,
}

/// One that is stopped; it goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Stopped {
    frozen: Frozen,
    number: u64,
    handle: Arc<OwnedFd>,
}

impl Frozen {
    /// Takes one in that is to be stopped.
    pub(super) fn stop(&self, handle: &Arc<OwnedFd>) -> Stopped {
        let mut all = self.lock();
        let number = all.next;
        all.next += 1;
        all.by_number.insert(number, Arc::clone(handle));
        Stopped {
            frozen: self.clone(),
            number,
            handle: Arc::clone(handle),
        }
    }

    /// Lets all go on, and stops nobody any more.
    pub(super) fn end(&self) {
        let mut all = self.lock();
        all.is_over = true;
        for handle in std::mem::take(&mut all.by_number).into_values() {
            go_on(&handle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // Nothing panics while it holds this lock; if something did, who is in it
        // is stopped all the same.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut all = self.frozen.lock();
        if all.by_number.remove(&self.number).is_some() {
            go_on(&self.handle);
        }
    }
}

/// Of one that is killed meanwhile this changes nothing.
fn go_on(handle: &OwnedFd) {
    let _ = pidfd_send_signal(handle, Signal::CONT);
}
