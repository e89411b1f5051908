//! How many processes may be held at once by handles. Each is a descriptor, and
//! without those the daemon can neither poll nor serve anybody: whoever has many
//! processes must not take them all.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicU64, Ordering};

/// Those that are held now, by all operations of this program.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Of the descriptors that this program may have, the kills may have one in so
/// many.
const SHARE: u64 = 2;

/// Room for one handle, given back when dropped.
#[derive(Debug)]
pub(super) struct Room(());

impl Room {
    /// Room for one more, if there is some.
    pub(super) fn take() -> Option<Self> {
        // Without a limit there is room for all.
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        let more = |held: u64| (held < most).then_some(held + 1);
        let took = HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Made only then: one that was never taken would be given back all the same.
        took.is_ok().then(|| Self(()))
    }
}

/// Has the system give this program as many descriptors as it would: it grants a
/// thousand to who does not ask.
pub(crate) fn widen_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, "no more descriptors than were given at first");
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}
