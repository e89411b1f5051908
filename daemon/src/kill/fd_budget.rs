//! Limits how many process handles are open at once. Each is a file descriptor, and without
//! descriptors the daemon can neither poll nor serve: a user with many processes must not take them
//! all.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicU64, Ordering};

/// Handles that all operations of this program hold now.
static OPEN_HANDLES: AtomicU64 = AtomicU64::new(0);

/// Kills may use this fraction of the program's descriptors: one in two.
const KILL_DIVISOR: u64 = 2;

/// Permission for one handle, released when dropped.
#[derive(Debug)]
pub(super) struct FdPermit(());

impl FdPermit {
    /// A permit, if one is left.
    pub(super) fn take() -> Option<Self> {
        // Without a limit there is always a permit.
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / KILL_DIVISOR;
        let more = |held: u64| (held < most).then_some(held + 1);
        let took = OPEN_HANDLES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Constructed only on success: dropping a permit releases it.
        took.is_ok().then(|| Self(()))
    }
}

/// Raises the soft limit of descriptors to the hard limit: the default soft limit is about a
/// thousand.
pub(crate) fn raise_fd_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

impl Drop for FdPermit {
    fn drop(&mut self) {
        OPEN_HANDLES.fetch_sub(1, Ordering::Relaxed);
    }
}
