//! Where rules are tried on the past: on one thread, one after the other.
//!
//! What a replay needs is tens of megabytes for a while. On threads that take turns each
//! would keep its own (glibc gives every thread an arena), and the daemon would hold the
//! sum of them.

use super::turns::{Turn, Turns};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Work for the thread.
type Work = Box<dyn FnOnce() + Send>;

/// Gives turns to whoever tries rules. Clones give the same.
#[derive(Clone)]
pub(crate) struct Replays {
    pub(super) turns: Turns,
    only: Arc<Semaphore>,
    thread: Arc<Mutex<Option<Sender<Work>>>>,
}

impl Default for Replays {
    fn default() -> Self {
        Self {
            turns: Turns::default(),
            only: Arc::new(Semaphore::new(1)),
            thread: Arc::default(),
        }
    }
}

/// The thread is one's own as long as this is not dropped.
pub(super) type Only = (Turn, Option<OwnedSemaphorePermit>);

impl Replays {
    /// Waits until the thread is free for whoever has this turn.
    pub(super) async fn only(&self, turn: Turn) -> Only {
        // It is never closed.
        (turn, Arc::clone(&self.only).acquire_owned().await.ok())
    }

    /// Does it on the thread; `None` where there is none, or it broke off.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, doing) = oneshot::channel();
        let work = move || {
            // Whoever asked may have gone.
            let _ = done.send(work());
        };
        self.give(Box::new(work))?;
        doing.await.ok()
    }

    fn give(&self, work: Work) -> Option<()> {
        // Nothing panics while it holds this lock.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match thread.take() {
            Some(sender) => sender,
            None => started()?,
        };
        sender.send(work).ok()?;
        *thread = Some(sender);
        Some(())
    }
}

/// A thread that does what it is given, as long as there may be more.
fn started() -> Option<Sender<Work>> {
    let (sender, given) = channel::<Work>();
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
            tracing::error!(%error, "no thread for a replay");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_breaks_off_does_not_keep_others_from_their_turn() {
        let replays = Replays::default();
        let broken = replays.run(|| panic!("as a mistake of ours would")).await;
        assert_eq!(broken, None::<()>);
        let named = || std::thread::current().name().map(str::to_owned);
        let (first, second) = (replays.run(named).await, replays.run(named).await);
        assert_eq!(first, Some(Some("replay".to_owned())));
        assert_eq!(second, first);
    }
}
