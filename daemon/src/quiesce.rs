//! Releases a driver on request: it cannot be unloaded, updated or reset while a sensor holds it
//! open. The requester and the holder of the driver share this state.

use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Whether the driver is to be released. Clones share the state.
#[derive(Clone)]
pub(crate) struct Quiesce(Arc<QuiesceState>);

struct QuiesceState {
    request: Mutex<Option<QuiesceRequest>>,
    /// How often a holder has released the driver.
    releases: watch::Sender<u64>,
    /// Starts the next poll at once.
    poll_now: Box<dyn Fn() + Send + Sync>,
}

#[derive(Clone, Copy)]
struct QuiesceRequest {
    /// The end by the monotonic clock; `until` is the same time for display.
    ends_at: Instant,
    until: Timestamp,
}

impl Quiesce {
    /// No quiesce is active. `poll_now` starts the next poll at once.
    pub(crate) fn new(poll_now: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(QuiesceState {
            request: Mutex::new(None),
            releases: watch::Sender::new(0),
            poll_now: Box::new(poll_now),
        }))
    }

    /// Requests that the holder releases the driver for this long, and returns the end time: later
    /// if an earlier request lasts longer.
    pub(crate) fn begin(&self, length: Duration, now: Timestamp) -> Timestamp {
        let seconds = i64::try_from(length.as_secs()).unwrap_or(i64::MAX);
        let new = QuiesceRequest {
            ends_at: Instant::now() + length,
            until: now.plus_seconds(seconds),
        };
        let mut request = self.lock();
        // An earlier request may last longer.
        let longest = request
            .filter(|old| old.ends_at > new.ends_at)
            .unwrap_or(new);
        *request = Some(longest);
        drop(request);
        (self.0.poll_now)();
        longest.until
    }

    /// Ends the quiesce; true if one was active.
    pub(crate) fn end(&self) -> bool {
        let was = self.lock().take();
        (self.0.poll_now)();
        was.is_some_and(|request| Instant::now() < request.ends_at)
    }

    /// The time until which the driver must not be used.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        let mut request = self.lock();
        *request = request.filter(|request| Instant::now() < request.ends_at);
        request.map(|request| request.until)
    }

    /// Records that the driver is released.
    pub(crate) fn mark_released(&self) {
        self.0
            .releases
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// A starting point for [`Self::wait_released`]. Take it before [`Self::begin`], so that no
    /// release is missed.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.releases.subscribe()
    }

    /// Waits until a holder releases the driver; false if none does in time.
    pub(crate) async fn wait_released(mut before: watch::Receiver<u64>, timeout: Duration) -> bool {
        let result = tokio::time::timeout(timeout, before.changed()).await;
        matches!(result, Ok(Ok(())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<QuiesceRequest>> {
        // No code panics while it holds this lock.
        self.0
            .request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn quiesce_expires_or_is_ended() {
        let poll_requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&poll_requests);
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
        assert_eq!(poll_requests.load(Ordering::Relaxed), 4);
        // A shorter request does not end a longer one.
        let longer = quiesce.begin(Duration::from_secs(60), Timestamp(1_000));
        assert_eq!(
            quiesce.begin(Duration::from_secs(1), Timestamp(2_000)),
            longer
        );
    }

    #[test]
    fn wait_returns_after_a_release() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let quiesce = Quiesce::new(|| {});
        let before = quiesce.watch();
        quiesce.mark_released();
        let soon = Duration::from_millis(20);
        assert!(runtime.block_on(Quiesce::wait_released(before, 500 * soon)));
        let after = quiesce.watch();
        assert!(!runtime.block_on(Quiesce::wait_released(after, soon)));
    }
}
