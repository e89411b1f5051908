//! Letting go of a driver on request: it cannot be unloaded, updated or reset
//! while a sensor holds it open. Whoever asks and whoever holds meet here.

use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Whether the driver is to be let go. Clones share it.
#[derive(Clone)]
pub(crate) struct Quiesce(Arc<Shared>);

struct Shared {
    wish: Mutex<Option<Wish>>,
    /// How often a holder has said that it let go.
    let_go: watch::Sender<u64>,
    /// Makes the next poll come at once.
    hurry: Box<dyn Fn() + Send + Sync>,
}

#[derive(Clone, Copy)]
struct Wish {
    /// By the clock that nobody sets; the other is for people.
    ends: Instant,
    until: Timestamp,
}

impl Quiesce {
    /// Nothing is to be let go. `hurry` makes the next poll come at once.
    pub(crate) fn new(hurry: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            wish: Mutex::new(None),
            let_go: watch::Sender::new(0),
            hurry: Box::new(hurry),
        }))
    }

    /// Asks whoever holds the driver to let it go for so long, and tells until
    /// when that holds: longer where somebody else asked for longer.
    pub(crate) fn begin(&self, length: Duration, now: Timestamp) -> Timestamp {
        let seconds = i64::try_from(length.as_secs()).unwrap_or(i64::MAX);
        let new = Wish {
            ends: Instant::now() + length,
            until: now.plus_seconds(seconds),
        };
        let mut wish = self.lock();
        // Somebody else may need it for longer.
        let longest = wish.filter(|old| old.ends > new.ends).unwrap_or(new);
        *wish = Some(longest);
        drop(wish);
        (self.0.hurry)();
        longest.until
    }

    /// Takes the wish back; true when there was one.
    pub(crate) fn end(&self) -> bool {
        let was = self.lock().take();
        (self.0.hurry)();
        was.is_some_and(|wish| Instant::now() < wish.ends)
    }

    /// Until when the driver must not be touched.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        let mut wish = self.lock();
        *wish = wish.filter(|wish| Instant::now() < wish.ends);
        wish.map(|wish| wish.until)
    }

    /// Says that the driver is let go.
    pub(crate) fn is_let_go(&self) {
        self.0
            .let_go
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// A moment from which [`Self::let_go_since`] can wait. Taken before
    /// [`Self::begin`], so that nothing is missed.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.let_go.subscribe()
    }

    /// Waits until a holder says that it let go; false when none does in time.
    pub(crate) async fn let_go_since(mut before: watch::Receiver<u64>, patience: Duration) -> bool {
        let said = tokio::time::timeout(patience, before.changed()).await;
        matches!(said, Ok(Ok(())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wish>> {
        // Nothing panics while it holds this lock.
        self.0.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_wish_ends_by_itself_or_when_it_is_taken_back() {
        let hurried = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&hurried);
        let quiesce = Quiesce::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(quiesce.until(), None);
        let until = quiesce.begin(Duration::from_secs(60), Timestamp(1_000));
        assert_eq!(until, Timestamp(61_000));
        assert_eq!(quiesce.until(), Some(until));
        assert!(quiesce.end() && !quiesce.end());
        assert_eq!(quiesce.until(), None);
        quiesce.begin(Duration::ZERO, Timestamp(1_000));
        assert_eq!(quiesce.until(), None);
        assert_eq!(hurried.load(Ordering::Relaxed), 4);
        // A shorter wish of somebody else does not end a longer one.
        let longer = quiesce.begin(Duration::from_secs(60), Timestamp(1_000));
        assert_eq!(
            quiesce.begin(Duration::from_secs(1), Timestamp(2_000)),
            longer
        );
    }

    #[test]
    fn whoever_waits_hears_of_a_holder_that_let_go_and_of_none_that_did_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let quiesce = Quiesce::new(|| {});
        let before = quiesce.watch();
        quiesce.is_let_go();
        let soon = Duration::from_millis(20);
        assert!(runtime.block_on(Quiesce::let_go_since(before, 500 * soon)));
        let after = quiesce.watch();
        assert!(!runtime.block_on(Quiesce::let_go_since(after, soon)));
    }
}
