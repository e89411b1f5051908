//! The threads on which rules are replayed on the past: one for plain users and one for operators,
//! admins and root; each runs one replay after the other.
//!
//! A replay needs tens of megabytes for a while. On a pool of threads each thread would keep that
//! much (glibc gives every thread an arena), and the daemon would hold the sum. There are two
//! threads so that the replay of a plain user, which may take a minute, never delays an admin; this
//! also limits the children that try rules to two.

use super::fair_queue::{FairQueue, QueuePermit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

type ReplayWork = Box<dyn FnOnce() + Send>;

/// Queues the replays of all callers. Clones share the queues.
#[derive(Clone)]
pub(crate) struct ReplayThreads {
    pub(super) queue: FairQueue,
    pub(super) plain: ReplayThread,
    pub(super) privileged: ReplayThread,
}

/// A thread and its waiting queue. Clones share them.
#[derive(Clone)]
pub(crate) struct ReplayThread {
    semaphore: Arc<Semaphore>,
    thread: Arc<Mutex<Option<Sender<ReplayWork>>>>,
}

impl Default for ReplayThreads {
    fn default() -> Self {
        let lane = || ReplayThread {
            semaphore: Arc::new(Semaphore::new(1)),
            thread: Arc::default(),
        };
        Self {
            queue: FairQueue::default(),
            plain: lane(),
            privileged: lane(),
        }
    }
}

/// The caller has the thread to itself until this is dropped.
pub(super) type ThreadPermit = (QueuePermit, Option<OwnedSemaphorePermit>);

impl ReplayThread {
    /// Waits until the thread is free.
    pub(super) async fn acquire(&self, permit: QueuePermit) -> ThreadPermit {
        // It is never closed.
        (
            permit,
            Arc::clone(&self.semaphore).acquire_owned().await.ok(),
        )
    }

    /// Runs the work on the thread; `None` if the thread cannot be started or the work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, doing) = oneshot::channel();
        let work = move || {
            // The caller may have gone.
            let _ = done.send(work());
        };
        self.send(Box::new(work))?;
        doing.await.ok()
    }

    fn send(&self, work: ReplayWork) -> Option<()> {
        // Nothing panics while it holds this lock.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match thread.take() {
            Some(sender) => sender,
            None => spawn_thread()?,
        };
        sender.send(work).ok()?;
        *thread = Some(sender);
        Some(())
    }
}

/// Starts a thread that runs work until no sender is left.
fn spawn_thread() -> Option<Sender<ReplayWork>> {
    let (sender, given) = channel::<ReplayWork>();
    let run = move || {
        for work in given {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!("a replay panicked");
            }
        }
    };
    let thread = std::thread::Builder::new().name("replay".into()).spawn(run);
    match thread {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "cannot start a thread for a replay");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn plain_user_never_delays_admins() {
        use futures::FutureExt as _;
        use std::sync::mpsc::channel;
        let replays = ReplayThreads::default();
        let taken =
            |lane: &ReplayThread| lane.acquire(FairQueue::privileged_permit()).now_or_never();
        let plain = taken(&replays.plain);
        assert!(plain.is_some() && taken(&replays.plain).is_none());
        assert!(taken(&replays.privileged).is_some());
        let (release, waits) = channel::<()>();
        let busy = replays.plain.run(move || waits.recv().is_err());
        let admins = replays.privileged.run(|| true);
        let (admins, busy) = tokio::join!(
            async {
                let admins = admins.await;
                drop(release);
                admins
            },
            busy
        );
        assert_eq!((admins, busy), (Some(true), Some(true)));
    }

    #[tokio::test]
    async fn panic_does_not_block_others() {
        let replays = ReplayThreads::default().plain;
        let broken = replays.run(|| panic!("as a mistake of ours would")).await;
        assert_eq!(broken, None::<()>);
        let named = || std::thread::current().name().map(str::to_owned);
        let (first, second) = (replays.run(named).await, replays.run(named).await);
        assert_eq!(first, Some(Some("replay".to_owned())));
        assert_eq!(second, first);
    }
}
